"""What is in shared buffers, asked of pgscale and of pg_buffercache; and what reading the headers costs at least.

Each question is put twice in a row: once after a program has driven everything out of the CPU's caches, as the queries
of a busy server would, and at once again. The same program says what reading one word of each header takes just then.
Through psql a question is the first one of its session, as when a person asks; the time is the one that \\timing shows.
"""
import itertools
import re
from typing import NamedTuple

import stats
from bed import Floor, buffers, filled, largest, timed
from cluster import run, say, value
from report import between, table

ROUNDS, QUICK_ROUNDS = 15, 2
SCALE, QUICK_SCALE = 20, 2
# buffers of catalogs that the questions themselves touch
MOVED = 10
FORKS = ("main", "fsm", "vm", "init")

BUFFER_USAGE = "SELECT usage_count, buffers, dirty, pinned FROM pgscale.buffer_usage"
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
SAMPLE = Question("buffer_usage_sample(65536)", "SELECT * FROM pgscale.buffer_usage_sample(65536)")
RELATIONS = Question("relation_buffers", RELATION_BUFFERS)
RELATIONS_PEER = Question("pg_buffercache by relation and fork", VIEW_RELATIONS)

QUESTIONS = (NOTHING, USAGE, USAGE_PEER, SAMPLE, RELATIONS, RELATIONS_PEER,
             *(question.through_psql() for question in (NOTHING, USAGE, USAGE_PEER, RELATIONS, RELATIONS_PEER)))


def twice(server, connection, question):
    """Milliseconds of a question, and at once again."""
    if not question.psql:
        return [timed(connection, question.query)[0] for _ in range(2)]
    said = server.place.run(["psql", "-X", "-h", server.folder, "-U", "postgres", "-c", r"\timing on", "-c", question.query,
                             "-c", question.query, "postgres"])
    return [float(ms) for ms in re.findall(r"^Time: ([\d.]+) ms", said, re.M)]


def ask(place, questions, quick):
    """Puts the questions in turns; returns the size of the server, how the answers differ, and the times."""
    gib, rounds, scale = (0.5, QUICK_ROUNDS, QUICK_SCALE) if quick else (largest(), ROUNDS, SCALE)
    floor = Floor(place)
    times = []
    with filled(place, f"usage-{len(questions)}", gib, scale) as (server, connection):
        n = buffers(connection)
        different = differences(connection)
        for question in questions:
            timed(connection, question.query)
        for number, question in stats.rounds(rounds, questions):
            floor_cold, floor_warm = floor.read(n)
            cold, warm = twice(server, connection, question)
            times.append({"round": number, "what": question.name, "cold": cold, "warm": warm,
                          "floor cold": floor_cold, "floor warm": floor_warm})
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


def measure(place, quick):
    return ask(place, QUESTIONS, quick)


def times(results, question, which):
    return [r[which] for r in results["times"] if r["what"] == question.name]


def ratios(results, a, b, which):
    """Of the times of two questions, in each round."""
    return [x / y for x, y in zip(times(results, a, which), times(results, b, which))]


def to_floor(results, question, which):
    """Of the time of a question to that of reading the headers just before it, in each round."""
    return [r[which] / r[f"floor {which}"] for r in results["times"] if r["what"] == question.name]


def spread(values, form="{:.2f}", unit=""):
    return between(stats.median(values), *stats.interval(values), form, unit)


def describe(results):
    n = results["buffers"]
    share = {"none" if count is None else count: b / n for count, b, _, _ in results["answer"]}
    different = results["different"]
    return f"{n:,} buffers ({n * 8192 / 2**30:g} GiB) of {results['relations']} relations and forks, by usage count " \
        + ", ".join(f"{count}: {part * 100:.1f} %" for count, part in share.items()) + \
        f". Counted otherwise than by pg_buffercache: {different['usage']} buffers by usage count, " \
        f"{different['relations']} by relation."


def show_times(results, questions):
    rows = [["plain reading of the headers",
             *(spread([r[f"floor {which}"] for r in results["times"]], "{:,.2f}") for which in ("cold", "warm")), "1"]]
    for question in questions:
        rows.append([question.name, *(spread(times(results, question, which), "{:,.2f}") for which in ("cold", "warm")),
                     f"{stats.median(to_floor(results, question, 'cold')):,.1f}"])
    return table(["", "ms, caches cold (95 %)", "ms, at once again (95 %)", "cold, of plain reading"], rows)


def show_ratios(results, pairs):
    rows = [[f"{theirs.name} / {mine.name}", *(spread(ratios(results, theirs, mine, which), "{:,.1f}")
                                               for which in ("cold", "warm"))] for theirs, mine in pairs]
    return table(["times as fast", "caches cold (95 %)", "at once again (95 %)"], rows)


def show(results):
    pairs = [(USAGE_PEER, USAGE), (USAGE_PEER, SAMPLE), (RELATIONS_PEER, RELATIONS)]
    pairs += [tuple(each.through_psql() for each in pair) for pair in (pairs[0], pairs[2])]
    return "\n\n".join([describe(results), show_times(results, QUESTIONS), show_ratios(results, pairs)])


def published(results):
    for question in (USAGE, USAGE_PEER, RELATIONS, RELATIONS_PEER, SAMPLE):
        found = times(results, question, "cold")
        yield question.name, spread(found, "{:.1f}" if stats.median(found) < 10 else "{:.0f}", " ms")
    yield "buffer_usage / plain reading", spread(to_floor(results, USAGE, "cold"), "{:.1f}")
    mine, theirs = USAGE.through_psql(), USAGE_PEER.through_psql()
    for question in (mine, theirs):
        yield question.name, spread(times(results, question, "cold"), "{:.1f}", " ms")
    yield "by relation, psql", spread(ratios(results, RELATIONS_PEER.through_psql(), RELATIONS.through_psql(), "cold"), "{:.0f}")
    yield "size", f"{results['buffers'] * 8192 / 2**30:g} GiB"


def required(results):
    faster = ratios(results, USAGE_PEER, USAGE, "cold")
    yield "usage: pg_buffercache by usage count / buffer_usage", spread(faster, "{:,.0f}"), "at least 50", \
        stats.median(faster) >= 50
    slower = to_floor(results, USAGE, "cold")
    yield "usage: buffer_usage / plain reading", spread(slower), "at most 2", stats.median(slower) <= 2
    for what, different in results["different"].items():
        yield f"usage: buffers counted otherwise than by pg_buffercache, {what}", f"{different:,}", \
            f"at most {MOVED}", different <= MOVED
