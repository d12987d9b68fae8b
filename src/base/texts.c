/*-------------------------------------------------------------------------
 *
 * texts.c
 *	  Text of any origin, made valid and harmless.
 *
 * pgscale keeps and prints texts of other origins: statements, names of roles,
 * databases and applications, settings.  They may contain markup, control characters,
 * or bytes that are invalid in the database's encoding: names of roles are shared by
 * databases with different encodings, and SQL_ASCII guarantees nothing.
 *
 * So all text is converted to UTF-8, one character after the other.  Invalid bytes
 * become U+FFFD, and so do characters that reverse the writing direction or are
 * invisible.  Control characters become spaces.
 *
 * No content of a text raises an error.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_conversion.h"
#include "catalog/pg_database.h"
#include "catalog/pg_namespace.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

#include "base/pg_compat.h"
#include "base/secrets.h"
#include "base/texts.h"
#include "base/units.h"

#define NO_CHARACTER	0xFFFD

/* The longest character in any encoding, and what it may become in another one. */
#define LONGEST_CHARACTER	(MAX_MULTIBYTE_CHAR_LEN * MAX_CONVERSION_GROWTH + 1)

/* Bytes of a statement that are searched for a secret. */
#define SEARCHED		(1024 * 1024)

/* As much is read or put between two checks for interrupts. */
#define PIECE			1024

PG_FUNCTION_INFO_V1(pgscale_clean_text);
PG_FUNCTION_INFO_V1(pgscale_clean_line);
PG_FUNCTION_INFO_V1(pgscale_clean_statement);
PG_FUNCTION_INFO_V1(pgscale_foreign_text);
PG_FUNCTION_INFO_V1(pgscale_foreign_name);
PG_FUNCTION_INFO_V1(pgscale_name_of);

/* Converts one character, which is valid; returns how long it has become, 0 if it cannot be. */
static int
convert_character(int from, int to, const char *source, int len, char *target)
{
	Oid			proc = FindDefaultConversion(PG_CATALOG_NAMESPACE, from, to);
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
read_character(StringInfo out, const char *value, int len, int encoding)
{
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

/* As pgscale_text_read(); more is put at the end of a text that is cut. */
static char *
read_text(const char *value, int len, int encoding, int most, bool lines, const char *more)
{
	StringInfoData out;
	int			characters = 0;
	int			at = 0;

	initStringInfo(&out);
	while (at < len && characters < most)
	{
		unsigned char c = value[at];

		if (c >= 0x80)
		{
			at += read_character(&out, value + at, len - at, encoding);
			if (++characters % PIECE == 0)
				CHECK_FOR_INTERRUPTS();
			continue;
		}
		at++;
		if ((c < ' ' && !(c == '\n' && lines)) || c == 0x7F)
			c = ' ';
		if (!lines && c == ' ' && (out.len == 0 || out.data[out.len - 1] == ' '))
			continue;
		appendStringInfoChar(&out, c);
		characters++;
	}
	if (!lines && out.len > 0 && out.data[out.len - 1] == ' ')
		out.data[--out.len] = '\0';
	if (at < len)
		appendStringInfoString(&out, more);
	return out.data;
}

char *
pgscale_text_read(const char *value, int len, int encoding, int most, bool lines)
{
	return read_text(value, len, encoding, most, lines, "...");
}

void
pgscale_text_put(StringInfo out, const char *utf8, int len)
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
		if (at / PIECE > (at - bytes) / PIECE)
			CHECK_FOR_INTERRUPTS();
	}
}

/* What was read in the database's encoding; in SQL_ASCII any will do. */
static char *
own_text(char *utf8)
{
	StringInfoData out;

	if (GetDatabaseEncoding() == PG_SQL_ASCII)
		return utf8;
	initStringInfo(&out);
	pgscale_text_put(&out, utf8, strlen(utf8));
	return out.data;
}

static Datum
plain_text(char *utf8)
{
	return CStringGetTextDatum(own_text(utf8));
}

char *
pgscale_text_line(const char *value, int encoding, int most)
{
	return own_text(pgscale_text_read(value, strlen(value), encoding, most, false));
}

/* pgscale_internal.clean_text(value) */
Datum
pgscale_clean_text(PG_FUNCTION_ARGS)
{
	char	   *value = text_to_cstring(PG_GETARG_TEXT_PP(0));

	return plain_text(pgscale_text_read(value, strlen(value), GetDatabaseEncoding(), INT_MAX, true));
}

/* pgscale_internal.clean_line(value, most): for a column, so without a mark where it is cut. */
Datum
pgscale_clean_line(PG_FUNCTION_ARGS)
{
	char	   *value = text_to_cstring(PG_GETARG_TEXT_PP(0));

	return plain_text(read_text(value, strlen(value), GetDatabaseEncoding(), PG_GETARG_INT32(1), false, ""));
}

/*
 * Of a very long statement no more than its beginning is searched; the rest might say that there is a secret in it.
 */
char *
pgscale_text_statement(const char *query, int len, int encoding)
{
	int			searched = Min(len, SEARCHED);
	char	   *clean = pgscale_text_read(query, searched, encoding, INT_MAX, true);

	clean = pgscale_secrets_hide(clean, searched < len);
	return own_text(pgscale_text_read(clean, strlen(clean), PG_UTF8, PGSCALE_STATEMENT_LENGTH, true));
}

/* pgscale_internal.clean_statement(query) */
Datum
pgscale_clean_statement(PG_FUNCTION_ARGS)
{
	char	   *query = text_to_cstring(PG_GETARG_TEXT_PP(0));

	return CStringGetTextDatum(pgscale_text_statement(query, strlen(query), GetDatabaseEncoding()));
}

/*
 * Whether what is a text in that encoding is the same text here.  SQL_ASCII takes any bytes; there it is to be UTF-8, as most
 * clients expect.
 */
static bool
is_own_text(const char *value, int len, int encoding)
{
	const int	own = GetDatabaseEncoding();
	bool		ascii = true;

	for (int i = 0; i < len && ascii; i++)
		ascii = !IS_HIGHBIT_SET(value[i]);
	return ascii || (encoding == own && pg_encoding_verifymbstr(own == PG_SQL_ASCII ? PG_UTF8 : own, value, len) == len);
}

/* pgscale_internal.foreign_text(value, encoding) */
Datum
pgscale_foreign_text(PG_FUNCTION_ARGS)
{
	text	   *value = PG_GETARG_TEXT_PP(0);
	const char *bytes = VARDATA_ANY(value);
	const int	len = VARSIZE_ANY_EXHDR(value);
	const int	encoding = PG_GETARG_INT32(1);

	if (!PG_VALID_BE_ENCODING(encoding))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("no database has the encoding %d", encoding),
				 errhint("Use encoding of pg_database.")));
	if (is_own_text(bytes, len, encoding))
		PG_RETURN_TEXT_P(value);
	return plain_text(pgscale_text_read(bytes, len, encoding, INT_MAX, true));
}

static const char *
shown_name(const char *name)
{
	const int	encoding = GetDatabaseEncoding();

	if (is_own_text(name, strlen(name), encoding))
		return name;
	return own_text(pgscale_text_read(name, strlen(name), encoding, INT_MAX, true));
}

/* pgscale_internal.foreign_name(value) */
Datum
pgscale_foreign_name(PG_FUNCTION_ARGS)
{
	return DirectFunctionCall1(namein, CStringGetDatum(shown_name(NameStr(*PG_GETARG_NAME(0)))));
}

const char *
pgscale_text_name_of(Oid object, bool role)
{
	HeapTuple	row = SearchSysCache1(role ? AUTHOID : DATABASEOID, ObjectIdGetDatum(object));
	char	   *name;

	if (!HeapTupleIsValid(row))
		return NULL;
	name = pstrdup(NameStr(role ? ((Form_pg_authid) GETSTRUCT(row))->rolname : ((Form_pg_database) GETSTRUCT(row))->datname));
	ReleaseSysCache(row);
	return shown_name(name);
}

/* pgscale_internal.name_of(object, role): kept, because most rows have the database or role of the row before. */
Datum
pgscale_name_of(PG_FUNCTION_ARGS)
{
	struct
	{
		Oid			oid;
		bool		role;
		NameData	name;		/* empty: there is none */
	}		   *kept = fcinfo->flinfo->fn_extra;
	const Oid	oid = PG_GETARG_OID(0);
	const bool	role = PG_GETARG_BOOL(1);

	if (!kept)
		kept = fcinfo->flinfo->fn_extra = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(*kept));
	if (kept->oid != oid || kept->role != role)
	{
		const char *name = pgscale_text_name_of(oid, role);

		kept->name = *DatumGetName(DirectFunctionCall1(namein, CStringGetDatum(name ? name : "")));
		kept->oid = oid;
		kept->role = role;
	}
	if (NameStr(kept->name)[0] == '\0')
		PG_RETURN_NULL();
	PG_RETURN_NAME(&kept->name);
}

char *
pgscale_text_format(const char *format, va_list args)
{
	StringInfoData text;
	int			more;

	initStringInfo(&text);
	do
	{
		va_list		copy;

		va_copy(copy, args);
		more = appendStringInfoVA(&text, format, copy);
		va_end(copy);
		enlargeStringInfo(&text, more);
	} while (more > 0);
	return text.data;
}

const char *
pgscale_text_bytes(double bytes)
{
	return bytes < 10.0 * PGSCALE_GB ? psprintf("%.0f MB", bytes / PGSCALE_MB) : psprintf("%.0f GB", bytes / PGSCALE_GB);
}

const char *
pgscale_text_duration(double s)
{
	if (!isfinite(s) || s < 0)
		return "an unknown time";
	if (s < 120)
		return psprintf("%.0f s", s);
	if (s < 2 * SECS_PER_HOUR)
		return psprintf("%.0f min", floor(s / SECS_PER_MINUTE));
	if (s < 2 * SECS_PER_DAY)
		return psprintf("%.0f h", floor(s / SECS_PER_HOUR));
	return psprintf("%.0f days", floor(s / SECS_PER_DAY));
}
