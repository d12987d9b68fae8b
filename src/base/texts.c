/*-------------------------------------------------------------------------
 *
 * texts.c
 *	  Text of any origin, made valid and harmless, without secrets.
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
 * A statement that contains a secret loses all its constants.  Signs of a secret are a
 * word like password in its code or in a constant, a URI with a password, and a
 * function with a key.  The secret may stand before that word or after it, in a list of
 * values, or in the text of another statement.  Code stays, so the statement can be
 * recognized.  Comments are searched for assignments only, because prose about
 * passwords contains none.  The text may be truncated anywhere.
 *
 * A false alarm is better than a miss.  No content of a text raises an error.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_conversion.h"
#include "catalog/pg_namespace.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
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
PG_FUNCTION_INFO_V1(pgscale_statement_command);
PG_FUNCTION_INFO_V1(pgscale_is_secret);
PG_FUNCTION_INFO_V1(pgscale_foreign_text);
PG_FUNCTION_INFO_V1(pgscale_foreign_name);

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

/*
 * The list: what a word has in it that names a secret.  of_setting: in names of settings only, where it is
 * a command, a connection or a key.  These three lists are the table in doc/safety.md.
 */
typedef struct SecretWord
{
	const char *part;
	bool		at_end;			/* of the word, or of its plural */
	bool		alone;			/* nothing or an underscore before it */
	bool		of_setting;
} SecretWord;

static const SecretWord secret_words[] = {
	{"password"}, {"passwd"}, {"passphrase"}, {"secret"}, {"credential"}, {"apikey"}, {"api_key"},
	{"access_key"}, {"private_key"}, {"encryption_key"},
	{"token",.at_end = true}, {"passcode",.at_end = true},
	{"pass",.at_end = true,.alone = true}, {"pwd",.at_end = true,.alone = true}, {"pw",.at_end = true,.alone = true},
	{"bearer",.at_end = true,.alone = true},
	{"command",.of_setting = true}, {"conninfo",.of_setting = true}, {"private",.of_setting = true},
	{"keyfile",.of_setting = true}, {"_key",.of_setting = true}, {"token",.of_setting = true},
};

/* What looks like one and is none. */
static const char *const harmless_words[] = {"password_encryption", "passwordcheck", "password_required"};

/* Functions that are given keys or passwords: pgcrypto's, and all that begin with pgp_ (or pgsodium's crypto_). */
static const char *const secret_functions[] = {"crypt", "hmac", "digest", "encrypt", "encrypt_iv", "decrypt", "decrypt_iv"};

static bool
is_word_character(char c)
{
	return isalnum((unsigned char) c) || c == '_' || IS_HIGHBIT_SET(c);
}

/* Whether this word, a dash in which is an underscore, names a secret. */
static bool
is_secret_word(const char *word, int len, bool of_setting)
{
	char	   *lower = pnstrdup(word, len);
	bool		found = false;

	for (char *at = lower; *at; at++)
		*at = *at == '-' ? '_' : pg_ascii_tolower((unsigned char) *at);
	for (int i = 0; i < lengthof(harmless_words); i++)
		if (strcmp(lower, harmless_words[i]) == 0)
			return false;
	for (int i = 0; i < lengthof(secret_words) && !found; i++)
	{
		const SecretWord *secret = &secret_words[i];
		const char *at = strstr(lower, secret->part);

		if (!at || (secret->of_setting && !of_setting))
			continue;
		if (secret->at_end)
		{
			/* the last one */
			int			rest = strlen(lower) - strlen(secret->part);

			if (rest > 0 && lower[rest + strlen(secret->part) - 1] == 's' && strcmp(lower + rest, secret->part) != 0)
				rest--;
			at = lower + rest;
			if (rest < 0 || strncmp(at, secret->part, strlen(secret->part)) != 0)
				continue;
		}
		found = !secret->alone || at == lower || at[-1] == '_';
	}
	pfree(lower);
	return found;
}

static const char *
skip_space(const char *at, const char *end)
{
	while (at < end && isspace((unsigned char) *at))
		at++;
	return at;
}

static bool
is_this_word(const char *at, const char *next, const char *word)
{
	return next - at == strlen(word) && pg_strncasecmp(at, word, next - at) == 0;
}

/* Does a constant begin here?  Behind COPY's PROGRAM it is a command, which may have a secret of any form. */
static bool
begins_constant(const char *at, const char *end)
{
	return at < end && (strchr("'$", *at) || (end - at >= 2 && strchr("eEuU", *at) && strchr("'&", at[1])));
}

/* Whether this word, which ends at rest, is a call of a function that is given a secret. */
static bool
is_secret_call(const char *word, const char *rest, const char *end)
{
	const char *after = skip_space(rest, end);
	int			len = rest - word;

	if (after == end || *after != '(')
		return false;
	if ((len > 4 && pg_strncasecmp(word, "pgp_", 4) == 0) || (len > 7 && pg_strncasecmp(word, "crypto_", 7) == 0))
		return true;
	for (int i = 0; i < lengthof(secret_functions); i++)
		if (len == strlen(secret_functions[i]) && pg_strncasecmp(word, secret_functions[i], len) == 0)
			return true;
	return false;
}

/* Whether at "://" a URI goes on with user:password@ */
static bool
is_secret_uri(const char *at, const char *end)
{
	bool		password = false;

	if (end - at < 3 || strncmp(at, "://", 3) != 0)
		return false;
	for (at += 3; at < end && !isspace((unsigned char) *at) && !strchr("/?#'\"", *at); at++)
	{
		if (*at == '@')
			return password;
		password = password || *at == ':';
	}
	return false;
}

/*
 * Whether this text, which is not code, has to do with a secret.  assigned: only if something seems to be
 * assigned to a word: password=x, "password": "x", PASSWORD 'x'.
 */
static bool
has_secret(const char *text, const char *end, bool assigned)
{
	for (const char *at = text; at < end;)
	{
		const char *word = at;

		if (is_secret_uri(at, end))
			return true;
		while (at < end && (is_word_character(*at) || *at == '-'))
			at++;
		if (at == word)
		{
			at++;
			continue;
		}
		if (is_secret_call(word, at, end))
			return true;
		/* not the end of a constant 'program' */
		if (is_this_word(word, at, "program") && at < end && isspace((unsigned char) *at) && begins_constant(skip_space(at, end), end))
			return true;
		if (is_secret_word(word, at - word, false))
		{
			const char *after = at;

			if (!assigned)
				return true;
			if (after < end && (*after == '"' || *after == '\''))
				after++;
			after = skip_space(after, end);
			if (after < end && strchr("=:'\"$", *after))
				return true;
		}
	}
	return false;
}

typedef enum TokenKind
{
	TOKEN_OTHER,
	TOKEN_WORD,
	TOKEN_CONSTANT,
	TOKEN_COMMENT
} TokenKind;

/* The end of a string or quoted name that begins at its quote; a quote in it is doubled, or behind a backslash if there are escapes. */
static const char *
quoted_end(const char *at, const char *end, bool escapes)
{
	char		quote = *at++;

	for (; at < end; at++)
	{
		if (*at == '\\' && at + 1 < end)
		{
			/*
			 * Whether the backslash ends the string depends on a setting of
			 * that session, so all that follows may be code or text.
			 */
			if (quote == '\'' && !escapes && at[1] == '\'')
				return end;
			if (escapes)
				at++;
		}
		else if (*at == quote)
		{
			if (at + 1 == end || at[1] != quote)
				return at + 1;
			at++;
		}
	}
	return end;
}

static const char *
comment_end(const char *at, const char *end)
{
	int			depth = 0;

	if (*at == '-')
	{
		const char *line = memchr(at, '\n', end - at);

		return line ? line : end;
	}
	while (at < end)
	{
		bool		begins = end - at >= 2 && at[0] == '/' && at[1] == '*';
		bool		ends = end - at >= 2 && at[0] == '*' && at[1] == '/';

		at += begins || ends ? 2 : 1;
		depth += begins - ends;
		if (depth == 0)
			return at;
	}
	return end;
}

/* The end of a constant in dollars, or NULL if it is none. */
static const char *
dollar_end(const char *at, const char *end)
{
	const char *tag = at + 1;
	int			len;

	while (tag < end && is_word_character(*tag))
		tag++;
	if (tag == end || *tag != '$' || isdigit((unsigned char) at[1]))
		return NULL;
	len = ++tag - at;
	for (; end - tag >= len; tag++)
		if (memcmp(tag, at, len) == 0)
			return tag + len;
	return end;
}

/* The token at a place in a statement that is not at its end; *next is where it ends. */
static TokenKind
next_token(const char *at, const char *end, const char **next)
{
	*next = at + 1;
	if (end - at >= 2 && ((at[0] == '-' && at[1] == '-') || (at[0] == '/' && at[1] == '*')))
	{
		*next = comment_end(at, end);
		return TOKEN_COMMENT;
	}
	if (*at == '\'')
	{
		*next = quoted_end(at, end, false);
		return TOKEN_CONSTANT;
	}
	if (*at == '"')
	{
		*next = quoted_end(at, end, false);
		return TOKEN_WORD;
	}
	if (*at == '$')
	{
		const char *constant = dollar_end(at, end);

		if (constant)
			*next = constant;
		else
			while (*next < end && isdigit((unsigned char) **next))
				(*next)++;
		return constant ? TOKEN_CONSTANT : TOKEN_OTHER;
	}
	if (isdigit((unsigned char) *at))
	{
		while (*next < end && (is_word_character(**next) || **next == '.'))
			(*next)++;
		return TOKEN_CONSTANT;
	}
	if (!is_word_character(*at))
		return TOKEN_OTHER;
	if (end - at >= 2 && at[1] == '\'' && strchr("eEbBxXnN", *at))
	{
		*next = quoted_end(at + 1, end, *at == 'e' || *at == 'E');
		return TOKEN_CONSTANT;
	}
	while (*next < end && (is_word_character(**next) || **next == '$'))
		(*next)++;
	return TOKEN_WORD;
}

/* Whether this token is COPY's PROGRAM before a command. */
static bool
is_program(const char *at, const char *next, const char *end)
{
	if (!is_this_word(at, next, "program"))
		return false;
	for (at = next; at < end; at = next)
		if (!isspace((unsigned char) *at) && next_token(at, end, &next) != TOKEN_COMMENT)
			return begins_constant(at, end);
		else if (isspace((unsigned char) *at))
			next = at + 1;
	return false;
}

/* of_setting: it is in a statement that changes a setting, whose name is a word or a constant. */
static bool
is_secret_token(TokenKind kind, const char *at, const char *next, const char *end, bool of_setting)
{
	switch (kind)
	{
		case TOKEN_WORD:
			if (*at == '"')
				return is_secret_word(at + 1, Max(next - at - 2, 0), of_setting);
			return is_secret_word(at, next - at, of_setting) || is_secret_call(at, next, end) || is_program(at, next, end);
		case TOKEN_CONSTANT:
			return has_secret(at, next, false) || (of_setting && is_secret_word(at, next - at, true));
		case TOKEN_COMMENT:
			return has_secret(at, next, true);
		case TOKEN_OTHER:
			break;
	}
	return false;
}

void
pgscale_text_command(const char *statement, char *command, Size size)
{
	const char *end = statement + strlen(statement);
	const char *next = statement;
	int			n = 0;

	for (const char *at = statement; at < end; at = next)
	{
		TokenKind	kind = next_token(at, end, &next);

		if (kind == TOKEN_COMMENT || isspace((unsigned char) *at))
			continue;
		if (kind == TOKEN_WORD)
			for (; n < next - at && n < (int) size - 1 && !IS_HIGHBIT_SET(at[n]); n++)
				command[n] = pg_toupper((unsigned char) at[n]);
		break;
	}
	command[n] = '\0';
}

/* Whether among these statements is one that changes a setting: SET, ALTER SYSTEM, ALTER ROLE, set_config(). */
static bool
changes_setting(const char *at, const char *end)
{
	const char *next;
	bool		first = true;
	bool		alter = false;

	for (; at < end; at = next)
	{
		TokenKind	kind = next_token(at, end, &next);

		if (isspace((unsigned char) *at) || kind == TOKEN_COMMENT)
			continue;
		if (kind == TOKEN_WORD)
		{
			const char *after = skip_space(next, end);
			bool		set = is_this_word(at, next, "set");

			if ((first && set) ||
				(alter && (is_this_word(at, next, "system") || is_this_word(at, next, "role") ||
						   is_this_word(at, next, "user") || is_this_word(at, next, "database"))) ||
				((set || is_this_word(at, next, "set_config")) && after < end && *after == '('))
				return true;
		}
		alter = first && kind == TOKEN_WORD && is_this_word(at, next, "alter");
		first = *at == ';';
	}
	return false;
}

/* Statements, which may be cut anywhere, without their constants if they have to do with a secret. */
static char *
hide_secrets(const char *statement, bool all)
{
	const char *end = statement + strlen(statement);
	const char *next;
	StringInfoData out;
	bool		secret = all;
	bool		of_setting = changes_setting(statement, end);
	bool		first = true;
	bool		sets = false;	/* it is a SET or ALTER, in which a constant
								 * may be a word */
	bool		assigned = false;

	for (const char *at = statement; at < end && !secret; at = next)
	{
		TokenKind	kind = next_token(at, end, &next);

		secret = is_secret_token(kind, at, next, end, of_setting);
	}
	if (!secret)
		return pstrdup(statement);
	initStringInfo(&out);
	for (const char *at = statement; at < end; at = next)
	{
		TokenKind	kind = next_token(at, end, &next);

		if (kind == TOKEN_WORD && first)
			sets = is_this_word(at, next, "set") || is_this_word(at, next, "alter");
		if (kind == TOKEN_CONSTANT || (kind == TOKEN_WORD && sets && assigned))
			appendStringInfoString(&out, "(hidden)");
		else if (kind == TOKEN_COMMENT && (all || is_secret_token(kind, at, next, end, of_setting)))
			appendStringInfoString(&out, "/* (hidden) */");
		else
			appendBinaryStringInfo(&out, at, next - at);
		if (kind != TOKEN_COMMENT && !isspace((unsigned char) *at))
		{
			first = *at == ';';
			assigned = *at == '=' || is_this_word(at, next, "to");
		}
	}
	return out.data;
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

	clean = hide_secrets(clean, searched < len);
	return own_text(pgscale_text_read(clean, strlen(clean), PG_UTF8, PGSCALE_STATEMENT_LENGTH, true));
}

/* pgscale_internal.clean_statement(query) */
Datum
pgscale_clean_statement(PG_FUNCTION_ARGS)
{
	char	   *query = text_to_cstring(PG_GETARG_TEXT_PP(0));

	return CStringGetTextDatum(pgscale_text_statement(query, strlen(query), GetDatabaseEncoding()));
}

/* pgscale_internal.statement_command(statement) */
Datum
pgscale_statement_command(PG_FUNCTION_ARGS)
{
	char		command[NAMEDATALEN];

	pgscale_text_command(text_to_cstring(PG_GETARG_TEXT_PP(0)), command, sizeof(command));
	PG_RETURN_TEXT_P(cstring_to_text(command));
}

bool
pgscale_text_is_secret(const char *setting, const char *value)
{
	return (GetConfigOptionFlags(setting, true) & GUC_SUPERUSER_ONLY) != 0 ||
		is_secret_word(setting, strlen(setting), true) || (value && has_secret(value, value + strlen(value), false));
}

/*
 * pgscale_internal.is_secret(setting, value): does the server show it only to
 * superusers, or may it contain a password?
 */
Datum
pgscale_is_secret(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0))
		PG_RETURN_BOOL(true);
	PG_RETURN_BOOL(pgscale_text_is_secret(text_to_cstring(PG_GETARG_TEXT_PP(0)),
										  PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1))));
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

const char *
pgscale_text_name(const char *name)
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
	return DirectFunctionCall1(namein, CStringGetDatum(pgscale_text_name(NameStr(*PG_GETARG_NAME(0)))));
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
