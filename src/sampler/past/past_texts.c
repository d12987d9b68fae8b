/*-------------------------------------------------------------------------
 *
 * past_texts.c
 *	  Texts as numbers.
 *
 * A day of the archive repeats a few hundred texts a million times.  Numbers are found,
 * hashed and compared at no cost.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"

#include "base/wait_events.h"
#include "sampler/past/past.h"

typedef struct TextKey
{
	const char *bytes;
	int			len;
} TextKey;

typedef struct Text
{
	TextKey		key;
	char		status;
	PgscaleSamplerPastText number;
} Text;

#define SH_PREFIX		texts
#define SH_ELEMENT_TYPE Text
#define SH_KEY_TYPE		TextKey
#define SH_KEY			key
#define SH_HASH_KEY(tb, k)	hash_bytes((const unsigned char *) (k).bytes, (k).len)
#define SH_EQUAL(tb, a, b)	((a).len == (b).len && memcmp((a).bytes, (b).bytes, (a).len) == 0)
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

struct PgscaleSamplerPastTexts
{
	MemoryContext context;
	texts_hash *hash;
	const char **texts;			/* by number */
	uint32		n;
	uint32		size;
};

PgscaleSamplerPastTexts *
pgscale_sampler_past_texts_create(void)
{
	PgscaleSamplerPastTexts *texts = palloc(sizeof(PgscaleSamplerPastTexts));

	texts->context = CurrentMemoryContext;
	texts->hash = texts_create(CurrentMemoryContext, 256, NULL);
	texts->size = 256;
	texts->texts = palloc(texts->size * sizeof(char *));
	texts->texts[0] = NULL;
	texts->n = 1;
	return texts;
}

PgscaleSamplerPastText
pgscale_sampler_past_number_of(PgscaleSamplerPastTexts *texts, const char *bytes, int len)
{
	TextKey		key = {bytes, len};
	Text	   *text = texts_lookup(texts->hash, key);
	char	   *copy;
	bool		found;

	if (text)
		return text->number;

	copy = MemoryContextAlloc(texts->context, len + 1);
	memcpy(copy, bytes, len);
	copy[len] = '\0';
	if (texts->n == texts->size)
	{
		texts->size *= 2;
		texts->texts = repalloc_huge(texts->texts, texts->size * sizeof(char *));
	}
	key.bytes = copy;
	text = texts_insert(texts->hash, key, &found);
	text	  ->number = texts->n;

	texts->texts[texts->n++] = copy;
	return text->number;
}

PgscaleSamplerPastText
pgscale_sampler_past_number(PgscaleSamplerPastTexts *texts, const char *text)
{
	return text ? pgscale_sampler_past_number_of(texts, text, strlen(text)) : 0;
}

PgscaleSamplerPastText
pgscale_sampler_past_class(PgscaleSamplerPastTexts *texts, uint32 wait_event)
{
	return pgscale_sampler_past_number(texts, wait_event == PGSCALE_WAIT_IDLE_IN_TRANSACTION ? PGSCALE_WAIT_IDLE_NAME :
									   pgscale_wait_event_type(wait_event));
}

const char *
pgscale_sampler_past_text(const PgscaleSamplerPastTexts *texts, PgscaleSamplerPastText number)
{
	return texts->texts[number];
}
