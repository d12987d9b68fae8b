"""PostgreSQL 16 and later: the same questions beside pg_buffercache's own summaries, which read without locks."""
from usage import NOTHING, USAGE, USAGE_PEER, Question, ask, describe, ratios, show_ratios, show_times, spread

COUNTS = Question("pg_buffercache_usage_counts()", "SELECT * FROM pg_buffercache_usage_counts()")
SUMMARY = Question("pg_buffercache_summary()", "SELECT * FROM pg_buffercache_summary()")
QUESTIONS = (NOTHING, USAGE, COUNTS, SUMMARY, USAGE_PEER,
             *(question.through_psql() for question in (NOTHING, USAGE, COUNTS, SUMMARY, USAGE_PEER)))
PAIRS = [(theirs, USAGE) for theirs in (COUNTS, SUMMARY, USAGE_PEER)]
PAIRS += [(theirs.through_psql(), mine.through_psql()) for theirs, mine in PAIRS]

RECORDS = {"times": ("what",)}


def measure(place, quick):
    return ask(place, QUESTIONS, quick) if place.major >= 16 else None


def show(results):
    if results is None:
        return "Not measured: PostgreSQL before 16 has no such functions."
    return "\n\n".join([describe(results), show_times(results, QUESTIONS), show_ratios(results, PAIRS)])


def published(results):
    if results:
        theirs, mine = COUNTS.through_psql(), USAGE.through_psql()
        yield "counts / buffer_usage, psql", spread(ratios(results, theirs, mine, "cold"), "{:.1f}")
        yield "view / buffer_usage, psql", spread(ratios(results, USAGE_PEER.through_psql(), mine, "cold"), "{:.0f}")
        yield "size", f"{results['buffers'] * 8192 / 2**30:g} GiB"


def required(results):
    return ()
