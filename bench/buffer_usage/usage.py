"""What is in shared buffers, asked of pgscale and of pg_buffercache; and what reading the headers costs at least.

Each question is put after a program has driven everything out of the CPU's caches, as the queries of a busy server would. The same
program measures what reading one word of each header takes just then. Through psql a question is the first one of its session, as
when a person asks; the time is the one that \\timing shows.
"""
import itertools
import re
from typing import NamedTuple

import stats
from bed import Floor, buffers, filled, largest, timed
from cluster import run, say, value
from report import interval, table

ROUNDS, QUICK_ROUNDS = 15, 2
SCALE, QUICK_SCALE = 20, 2
# buffers of catalogs that the questions themselves touch
MOVED = 10
FORKS = ("main", "fsm", "vm", "init")

BUFFER_USAGE = "SELECT usage_count, buffers, dirty, pinned FROM pgscale.buffer_usage()"
VIEW_USAGE = """
    SELECT usagecount, count(*), count(*) FILTER (WHERE isdirty), count(*) FILTER (WHERE pinning_backends > 0)
      FROM pg_buffercache GROUP BY 1"""
RELATION_BUFFERS = """
    SELECT datid, reltablespace, relfilenode, fork, buffers, dirty, mean_usage FROM pgscale.relation_buffers"""
VIEW_RELATIONS = """
    SELECT reldatabase, reltablespace, relfilenode, relforknumber,
           count(*), count(*) FILTER (WHERE isdirty), avg(usagecount)
      FROM pg_buffercache WHERE relfilenode IS NOT NULL GROUP BY 1, 2, 3, 4"""


class Question(NamedTuple):
    name: str
    query: str
    psql: bool = False

    def through_psql(self):
        return Question(f"{self.name}, psql", self.query, True)


NOTHING = Question("SELECT 1", "SELECT 1")
USAGE = Question("buffer_usage", BUFFER_USAGE)
USAGE_PEER = Question("pg_buffercache by usage count", VIEW_USAGE)
SAMPLE = Question("buffer_usage(65536)", "SELECT * FROM pgscale.buffer_usage(65536)")
RELATIONS = Question("relation_buffers", RELATION_BUFFERS)
RELATIONS_PEER = Question("pg_buffercache by relation and fork", VIEW_RELATIONS)

# from PostgreSQL 16 on
COUNTS = Question("pg_buffercache_usage_counts()", "SELECT * FROM pg_buffercache_usage_counts()")
SUMMARY = Question("pg_buffercache_summary()", "SELECT * FROM pg_buffercache_summary()")
ALONE = (NOTHING, USAGE, COUNTS, SUMMARY, USAGE_PEER, SAMPLE, RELATIONS, RELATIONS_PEER)
QUESTIONS = (*ALONE, *(question.through_psql() for question in ALONE if question is not SAMPLE))
PEERS = {COUNTS: USAGE, SUMMARY: USAGE, USAGE_PEER: USAGE, RELATIONS_PEER: RELATIONS}


def asked(server, connection, question):
    """Milliseconds of a question."""
    if not question.psql:
        return timed(connection, question.query)
    said = server.place.run(["psql", "-X", "-h", server.folder, "-U", "postgres", "-c", r"\timing on", "-c", question.query, "postgres"])
    return float(re.search(r"^Time: ([\d.]+) ms", said, re.M)[1])


def measure(place, quick):
    """Puts the questions in turns; returns the size of the server, how the answers differ, and the times."""
    questions = [each for each in QUESTIONS if place.major >= 16 or each.query not in (COUNTS.query, SUMMARY.query)]
    gib, rounds, scale = (0.5, QUICK_ROUNDS, QUICK_SCALE) if quick else (largest(), ROUNDS, SCALE)
    floor = Floor(place)
    times = []
    with filled(place, "usage", gib, scale) as (server, connection):
        n = buffers(connection)
        different = differences(connection)
        for question in questions:
            run(connection, question.query)
        for number, question in stats.rounds(rounds, questions):
            least = floor.read(n)
            times.append({"round": number, "what": question.name, "ms": asked(server, connection, question), "floor": least})
        return {"buffers": n, "relations": value(connection, "SELECT count(*) FROM pgscale.relation_buffers"),
                "answer": run(connection, BUFFER_USAGE + " ORDER BY 1"), "different": different, "times": times}


def differences(connection):
    """Buffers that the two count otherwise, on a server that rests: by usage count, and by relation and fork."""
    for query in (BUFFER_USAGE, VIEW_USAGE, RELATION_BUFFERS, VIEW_RELATIONS):
        run(connection, query)          # which looks up in the catalogs what it needs
    usage = differ(*({count: figures for count, *figures in run(connection, query)}
                     for query in (BUFFER_USAGE, VIEW_USAGE)))
    relations = differ({(*key, fork): (buffers, dirty)
                        for *key, fork, buffers, dirty, _ in run(connection, RELATION_BUFFERS)},
                       {(*key, FORKS[fork]): (buffers, dirty)
                        for *key, fork, buffers, dirty, _ in run(connection, VIEW_RELATIONS)})
    say(f"  counted otherwise: {usage} buffers by usage count, {relations} by relation")
    return {"usage": usage, "relations": relations}


def differ(mine, theirs):
    """The sum over all keys of the largest difference of their figures; what one of them lacks, it counts as 0."""
    absent = itertools.repeat(0)
    return sum(max(abs(a - b) for a, b in zip(mine.get(key, absent), theirs.get(key, absent)))
               for key in mine.keys() | theirs.keys())


RECORDS = {"times": ("what",)}


def times(results, question):
    return [r["ms"] for r in results["times"] if r["what"] == question.name]


def ratios(results, a, b):
    """Of the times of two questions, in each round."""
    return [x / y for x, y in zip(times(results, a), times(results, b))]


def to_floor(results, question):
    """Of the time of a question to that of reading the headers just before it, in each round."""
    return [r["ms"] / r["floor"] for r in results["times"] if r["what"] == question.name]


def describe(results):
    n = results["buffers"]
    share = {"none" if count is None else count: b / n for count, b, _, _ in results["answer"]}
    different = results["different"]
    return f"{n:,} buffers ({n * 8192 / 2**30:g} GiB) of {results['relations']} relations and forks, by usage count " \
        + ", ".join(f"{count}: {part * 100:.1f} %" for count, part in share.items()) + \
        f". Counted otherwise than by pg_buffercache: {different['usage']} buffers by usage count, " \
        f"{different['relations']} by relation."


def show(results):
    asked = {r["what"] for r in results["times"]}
    pairs = {**PEERS, **{theirs.through_psql(): mine.through_psql() for theirs, mine in PEERS.items()}}
    rows = [["plain reading of the headers", interval([r["floor"] for r in results["times"]], "{:,.2f}"), "1", ""]]
    for question in QUESTIONS:
        if question.name in asked:
            rows.append([question.name, interval(times(results, question), "{:,.2f}"), f"{stats.median(to_floor(results, question)):,.1f}",
                         interval(ratios(results, question, pairs[question]), "{:,.1f}") if question in pairs else ""])
    return describe(results) + "\n\n" + table(["", "ms (95 %)", "times plain reading", "times as long as pgscale"], rows)


def published(results):
    for name, theirs in (("view", USAGE_PEER), ("counts", COUNTS), ("by relation", RELATIONS_PEER)):
        if times(results, theirs.through_psql()):
            yield f"{name}, psql", interval(ratios(results, theirs.through_psql(), PEERS[theirs].through_psql()),
                                            "{:.1f}" if theirs is COUNTS else "{:.0f}")


def required(results):
    faster = ratios(results, USAGE_PEER, USAGE)
    yield "usage: pg_buffercache by usage count / buffer_usage", interval(faster, "{:,.0f}"), "at least 50", \
        stats.median(faster) >= 50
    slower = to_floor(results, USAGE)
    yield "usage: buffer_usage / plain reading", interval(slower), "at most 2", stats.median(slower) <= 2
    for what, different in results["different"].items():
        yield f"usage: buffers counted otherwise than by pg_buffercache, {what}", f"{different:,}", \
            f"at most {MOVED}", different <= MOVED
