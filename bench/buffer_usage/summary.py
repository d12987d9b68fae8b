"""PostgreSQL 16 and later: the same questions beside pg_buffercache's own summaries, which read without locks."""
from usage import NOTHING, USAGE, USAGE_PEER, Question, ask, describe, show_ratios, show_times

COUNTS = Question("pg_buffercache_usage_counts()", "SELECT * FROM pg_buffercache_usage_counts()")
SUMMARY = Question("pg_buffercache_summary()", "SELECT * FROM pg_buffercache_summary()")
QUESTIONS = (NOTHING, USAGE, COUNTS, SUMMARY, USAGE_PEER)


def measure(place, quick):
    return ask(place, QUESTIONS, quick) if place.major >= 16 else None


def show(results):
    if results is None:
        return "Not measured: PostgreSQL before 16 has no such functions."
    return "\n\n".join([describe(results), show_times(results, QUESTIONS),
                        show_ratios(results, [(theirs, USAGE) for theirs in (COUNTS, SUMMARY, USAGE_PEER)])])


def required(results):
    return ()
