/*-------------------------------------------------------------------------
 *
 * text.c
 *	  Text on a page.
 *
 * Text of whatever origin is made valid UTF-8 first (base/texts).  A page of HTML is
 * plain ASCII, in which all other characters are numeric references: so it is right
 * in whatever encoding the client gets it.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#include "base/texts.h"
#include "report/report.h"

char *
pgscale_report_text_of(const text *value, int most, bool lines)
{
	char	   *bytes = text_to_cstring(value);

	return pgscale_text_read(bytes, strlen(bytes), GetDatabaseEncoding(), most, lines);
}

void
pgscale_report_text_put_html(StringInfo out, const char *utf8)
{
	for (const char *at = utf8; *at; at += pg_utf_mblen((const unsigned char *) at))
		switch (*at)
		{
			case '<':
				appendStringInfoString(out, "&lt;");
				break;
			case '>':
				appendStringInfoString(out, "&gt;");
				break;
			case '&':
				appendStringInfoString(out, "&amp;");
				break;
			case '"':
				appendStringInfoString(out, "&quot;");
				break;
			case '\'':
				appendStringInfoString(out, "&#39;");
				break;
			default:
				if (IS_HIGHBIT_SET(*at))
					appendStringInfo(out, "&#%u;", utf8_to_unicode((const unsigned char *) at));
				else
					appendStringInfoChar(out, *at);
		}
}

static int
character_width(const char *utf8)
{
	return IS_HIGHBIT_SET(*utf8) ? Max(pg_encoding_dsplen(PG_UTF8, utf8), 0) : 1;
}

int
pgscale_report_text_width(const char *utf8, int len)
{
	int			width = 0;

	for (int at = 0; at < len; at += pg_utf_mblen((const unsigned char *) utf8 + at))
		width += character_width(utf8 + at);
	return width;
}

/* At least one character fits, so a loop over it reaches the end. */
int
pgscale_report_text_fit(const char *utf8, int width, bool words)
{
	int			at = 0;
	int			space = 0;
	int			used = 0;

	while (utf8[at])
	{
		used += character_width(utf8 + at);
		if (used > width && at > 0)
			return words && space > 0 ? space : at;
		if (utf8[at] == ' ')
			space = at;
		at += pg_utf_mblen((const unsigned char *) utf8 + at);
	}
	return at;
}

bool
pgscale_report_text_is_html(FunctionCallInfo fcinfo, int argument)
{
	const char *format = PG_ARGISNULL(argument) ? "null" : text_to_cstring(PG_GETARG_TEXT_PP(argument));

	if (strcmp(format, "html") == 0)
		return true;
	if (strcmp(format, "text") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown report format \"%s\"", pgscale_text_read(format, strlen(format), GetDatabaseEncoding(), 40, false)),
				 errhint("It is text or html.")));
	return false;
}
