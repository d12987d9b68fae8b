/*-------------------------------------------------------------------------
 *
 * secrets.c
 *	  Finds secrets in statements and settings, and hides them.
 *
 * A statement that contains a secret loses all its constants.  Signs of a secret are a
 * word like password in its code or in a constant, a URI with a password, and a
 * function with a key.  The secret may stand before that word or after it, in a list of
 * values, or in the text of another statement.  Code stays, so the statement can be
 * recognized.  Comments are searched for assignments only, because prose about
 * passwords contains none.  The text may be truncated anywhere.
 *
 * A false alarm is better than a miss.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "base/secrets.h"

PG_FUNCTION_INFO_V1(pgscale_is_secret);
PG_FUNCTION_INFO_V1(pgscale_statement_command);

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

/* Behind white space and comments. */
static const char *
skip_blank(const char *at, const char *end)
{
	const char *next;

	while (at < end && (isspace((unsigned char) *at) || next_token(at, end, &next) == TOKEN_COMMENT))
		at = isspace((unsigned char) *at) ? at + 1 : next;
	return at;
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
			return is_secret_word(at, next - at, of_setting) || is_secret_call(at, next, end) ||
				(is_this_word(at, next, "program") && begins_constant(skip_blank(next, end), end));
		case TOKEN_CONSTANT:
			return has_secret(at, next, false) || (of_setting && is_secret_word(at, next - at, true));
		case TOKEN_COMMENT:
			return has_secret(at, next, true);
		case TOKEN_OTHER:
			break;
	}
	return false;
}

/* Whether among these statements is one that changes a setting: SET, ALTER SYSTEM, ALTER ROLE, set_config(). */
static bool
changes_setting(const char *at, const char *end)
{
	const char *next;
	bool		first = true;
	bool		alter = false;

	for (at = skip_blank(at, end); at < end; at = skip_blank(next, end))
	{
		TokenKind	kind = next_token(at, end, &next);

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

char *
pgscale_secrets_hide(const char *statement, bool all)
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

bool
pgscale_secret_setting(const char *setting, const char *value)
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
	PG_RETURN_BOOL(pgscale_secret_setting(text_to_cstring(PG_GETARG_TEXT_PP(0)),
										  PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1))));
}

/*
 * pgscale_internal.statement_command(statement): its first word, behind white space and comments, in capitals; none of it
 * that is not ASCII, and none beyond the length of a name.
 */
Datum
pgscale_statement_command(PG_FUNCTION_ARGS)
{
	const char *statement = text_to_cstring(PG_GETARG_TEXT_PP(0));
	const char *end = statement + strlen(statement);
	const char *at = skip_blank(statement, end);
	const char *next;
	char		command[NAMEDATALEN];
	int			n = 0;

	if (at < end && next_token(at, end, &next) == TOKEN_WORD)
		for (; n < next - at && n < NAMEDATALEN - 1 && !IS_HIGHBIT_SET(at[n]); n++)
			command[n] = pg_toupper((unsigned char) at[n]);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(command, n));
}
