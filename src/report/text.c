/*-------------------------------------------------------------------------
 *
 * text.c
 *	  Text of whatever origin, made harmless.
 *
 * A report shows what others have written: statements, names of roles, databases and
 * applications.  It may hold markup, control characters, or bytes that are no text in
 * the database's encoding: names of roles are shared by databases of different
 * encodings, and SQL_ASCII promises nothing.
 *
 * So all text is read into UTF-8, character by character.  What is no character becomes
 * U+FFFD, as do those that turn the direction of writing around or are invisible; control
 * characters become spaces.  A page of HTML then is plain ASCII, in which all other
 * characters are numeric references: so it is right in whatever encoding the client
 * gets it.  Text for psql is in the database's encoding.
 *
 * Nothing here raises an error for what is in a text.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#include "base/pg_compat.h"
#include "report/report.h"

#define NO_CHARACTER	0xFFFD

/* The longest character in any encoding, and what it may become in another one. */
#define LONGEST_CHARACTER	(MAX_MULTIBYTE_CHAR_LEN * MAX_CONVERSION_GROWTH + 1)

PG_FUNCTION_INFO_V1(pgscale_report_clean);

/* Converts one character, which is valid; returns how long it has become, 0 if it cannot be. */
static int
convert_character(int from, int to, const char *source, int len, char *target)
{
	Oid			proc = FindDefaultConversionProc(from, to);
	unsigned char buffer[MAX_MULTIBYTE_CHAR_LEN + 1];

	if (!OidIsValid(proc) || len > MAX_MULTIBYTE_CHAR_LEN)
		return 0;
	memcpy(buffer, source, len);
	buffer[len] = '\0';
	target[0] = '\0';
	if (pg_do_encoding_conversion_buf(proc, from, to, buffer, len,
									  (unsigned char *) target, LONGEST_CHARACTER, true) != len)
		return 0;
	return strlen(target);
}

static bool
is_misleading(pg_wchar c)
{
	return (c >= 0x80 && c < 0xA0)	/* control characters */
		|| c == 0x61C || (c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E)
		|| (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF0 && c <= 0xFFFF)
		|| (c & 0xFFFE) == 0xFFFE || (c >= 0xFDD0 && c <= 0xFDEF)
		|| (c >= 0xE0000 && c <= 0xE0FFF);
}

static void
append_character(StringInfo out, pg_wchar c)
{
	unsigned char utf8[MAX_MULTIBYTE_CHAR_LEN];

	unicode_to_utf8(c, utf8);
	appendBinaryStringInfo(out, (char *) utf8, pg_utf_mblen(utf8));
}

/* Appends the character at value, as UTF-8, and returns its length. */
static int
read_character(StringInfo out, const char *value, int len)
{
	int			encoding = GetDatabaseEncoding();
	char		utf8[LONGEST_CHARACTER];
	const char *character = utf8;
	int			bytes;
	int			utf8_bytes;

	/* SQL_ASCII says nothing of its text; most of the world's is UTF-8 */
	if (encoding == PG_SQL_ASCII)
		encoding = PG_UTF8;
	bytes = pg_encoding_verifymbchar(encoding, value, len);
	if (bytes <= 0)
	{
		append_character(out, NO_CHARACTER);
		return 1;
	}
	if (encoding == PG_UTF8)
	{
		character = value;
		utf8_bytes = bytes;
	}
	else
		utf8_bytes = convert_character(encoding, PG_UTF8, value, bytes, utf8);

	/* one character may become two */
	for (int at = 0; at < utf8_bytes;)
	{
		int			part = pg_utf_mblen((const unsigned char *) character + at);
		pg_wchar	c = utf8_to_unicode((const unsigned char *) character + at);

		append_character(out, is_misleading(c) ? NO_CHARACTER : c);
		at += part;
	}
	if (utf8_bytes == 0)
		append_character(out, NO_CHARACTER);
	return bytes;
}

char *
pgscale_report_text_read(const char *value, int len, int most, bool lines)
{
	StringInfoData out;
	int			characters = 0;

	initStringInfo(&out);
	for (int at = 0; at < len; characters++)
	{
		unsigned char c = value[at];

		if (characters >= most)
		{
			appendStringInfoString(&out, "...");
			break;
		}
		if (c >= 0x80)
			at += read_character(&out, value + at, len - at);
		else
		{
			if (c == '\n' && lines)
				appendStringInfoChar(&out, '\n');
			else if (c < ' ' || c == 0x7F)
				appendStringInfoChar(&out, ' ');
			else
				appendStringInfoChar(&out, c);
			at++;
		}
	}
	return out.data;
}

char *
pgscale_report_text_of(const text *value, int most, bool lines)
{
	char	   *bytes = text_to_cstring(value);

	return pgscale_report_text_read(bytes, strlen(bytes), most, lines);
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

void
pgscale_report_text_put_plain(StringInfo out, const char *utf8, int len)
{
	int			encoding = GetDatabaseEncoding();

	for (int at = 0; at < len;)
	{
		int			bytes = pg_utf_mblen((const unsigned char *) utf8 + at);
		char		character[LONGEST_CHARACTER];

		if (bytes == 1 || encoding == PG_UTF8)
			appendBinaryStringInfo(out, utf8 + at, bytes);
		else if (encoding != PG_SQL_ASCII &&
				 convert_character(PG_UTF8, encoding, utf8 + at, bytes, character) > 0)
			appendStringInfoString(out, character);
		else
			appendStringInfoChar(out, '?');
		at += bytes;
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

/* At least one character fits, so whoever calls it again and again gets to the end. */
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
				 errmsg("there is no format \"%s\" of a report", pgscale_report_text_read(format, strlen(format), 40, false)),
				 errhint("It is text or html.")));
	return false;
}

/* pgscale.report_clean(): for what SQL does with such a text before it gets here. */
Datum
pgscale_report_clean(PG_FUNCTION_ARGS)
{
	StringInfoData out;
	char	   *utf8;

	if (PG_GETARG_INT32(1) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the number of characters must not be negative"),
				 errhint("A report takes 2000 of a statement.")));
	utf8 = pgscale_report_text_of(PG_GETARG_TEXT_PP(0), PG_GETARG_INT32(1), true);
	initStringInfo(&out);
	pgscale_report_text_put_plain(&out, utf8, strlen(utf8));
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}
