"""What the kernel's page cache holds of a relation, asked of pgscale, of pgfincore, and of fincore on the files.

One table of two files. It is brought into several states, and in each of them the three must count the same pages. What
both caches hold is counted a second time, page by page, from pgfincore's bit string and pg_buffercache.

fsync is off, for one reason: then the server does not ask the kernel to begin writing what it hands over, and what the
kernel calls dirty can be compared with what was really written. The experiment brings the files to disk itself.
"""
import contextlib
import itertools
import random
import time

import stats
from bed import GIB, PAGE, timed
from cluster import run, say, value
from report import percent, table
from usage import spread

MIB_OF_TABLE = 1280
ROUNDS, QUICK_ROUNDS = 15, 2
WRITTEN = (100, 1000, 10000)
# how the kernel came to hold the table when pages are written
IN_ORDER, PAGE_BY_PAGE = "read in order", "read where written"
OS_PAGE = 4096
OTHER_FORKS = ("fsm", "vm")
MIB = 1 << 20
TRIES = 10

# A row is nearly half a page, so that a row's next version goes to its own page.
LOAD = """
CREATE TABLE big (n integer, filler text) WITH (fillfactor = 50);
ALTER TABLE big ALTER filler SET STORAGE PLAIN;
INSERT INTO big SELECT n, repeat('x', 3500) FROM generate_series(1, {rows}) n;
"""
MINE, PEER, DIRECT = "relation_os_cache", "pgfincore", "fincore"
ASK_MINE = "SELECT sum(os_cache_bytes)::bigint FROM pgscale.relation_os_cache('big') WHERE fork = 'main'"
ASK_PEER = "SELECT sum(pages_mem * os_page_size)::bigint FROM pgfincore('big')"


class Table:
    """The table, its files, and how to bring it into a state."""

    def __init__(self, server, connection):
        self.server = server
        self.connection = connection
        self.path = server.data / value(connection, "SELECT pg_relation_filepath('big')")
        self.blocks = value(connection, "SELECT pg_relation_size('big') / 8192")
        self.order = random.Random(1).sample(range(self.blocks), self.blocks)

    def files(self, *others):
        """The files of the main fork, and those of other forks."""
        patterns = ("", ".*", *(f"_{fork}*" for fork in others))
        return [file for pattern in patterns for file in self.path.parent.glob(self.path.name + pattern)]

    def sync(self):
        self.server.place.run(["/bin/sync", *self.files(*OTHER_FORKS)])

    def prewarm(self, mode, blocks):
        run(self.connection, f"SELECT pg_prewarm('big', '{mode}', 'main', 0, {blocks - 1})")

    def write(self, pages):
        """Updates a row on each of so many pages that were not written yet, anywhere in the table."""
        blocks, self.order = self.order[:pages], self.order[pages:]
        run(self.connection, "UPDATE big SET n = -n WHERE ctid = ANY (%s::tid[])", [f"({block},1)" for block in blocks])

    def dirty(self):
        """Bytes of its dirty buffers."""
        return PAGE * value(self.connection, """
            SELECT count(*) FROM pg_buffercache WHERE isdirty AND relfilenode = pg_relation_filenode('big')
               AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())""")

    def flush(self, wait=False):
        return value(self.connection, f"SELECT pgscale.os_cache_flush('big', {wait})")

    def evict(self):
        return value(self.connection, "SELECT pgscale.os_cache_evict('big')")

    def direct(self, *others):
        """Bytes in the kernel's cache, by fincore."""
        output = self.server.place.run(["/usr/bin/fincore", "-n", "-b", "-o", "PAGES", *self.files(*others)])
        return OS_PAGE * sum(map(int, output.split()))

    def both(self):
        """Bytes that both caches hold, page by page."""
        bits = "".join(bits for bits, in run(self.connection, "SELECT databit::text FROM pgfincore('big', true)"
                                                              " ORDER BY segment"))
        each = PAGE // OS_PAGE
        held = run(self.connection, """
            SELECT relblocknumber FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('big')
               AND relforknumber = 0""")
        return OS_PAGE * sum(bits.count("1", block * each, (block + 1) * each) for block, in held)


@contextlib.contextmanager
def loaded(place):
    server = place.cluster("os_cache", shared_buffers="1GB", fsync="off", wal_level="minimal", max_wal_senders=0,
                           bgwriter_lru_maxpages=0, max_wal_size="16GB")
    with server, contextlib.closing(server.connect()) as connection:
        run(connection, "CREATE EXTENSION pg_buffercache; CREATE EXTENSION pg_prewarm; CREATE EXTENSION pgfincore")
        server.create_pgscale(connection)
        since = time.monotonic()
        run(connection, LOAD.format(rows=MIB_OF_TABLE * 128))
        run(connection, "VACUUM (FREEZE) big")
        say(f"  loaded {MIB_OF_TABLE} MiB: {time.monotonic() - since:.0f} s")
    # its buffers are empty when it starts again
    with server, contextlib.closing(server.connect()) as connection:
        yield Table(server, connection)


def state(big, name):
    """Asks all of them about the table as it is."""
    before = ask(big)
    for _ in range(TRIES):
        found = {PEER: value(big.connection, ASK_PEER), DIRECT: big.direct(), "both by page": big.both()}
        after = ask(big)
        if after == before:
            break
        # the kernel has taken memory back meanwhile, for somebody else
        before = after
    say(f"  {name}: {after[MINE] / GIB:.3f} GiB")
    return {"state": name, **after, **found}


def ask(big):
    rows = run(big.connection, """
        SELECT os_cache_bytes, buffers_bytes, both_bytes FROM pgscale.relation_os_cache('big') WHERE fork = 'main'""")
    return dict(zip((MINE, "buffers", "both"), rows[0]))


def states(big):
    big.sync()
    evictions = [evict(big, "as loaded")]
    found = [state(big, "evicted")]
    big.prewarm("read", big.blocks // 2)
    found.append(state(big, "half read"))
    evictions.append(evict(big, "half read"))
    big.prewarm("buffer", big.blocks // 4)
    found.append(state(big, "a quarter read through the buffers"))
    big.prewarm("read", big.blocks)
    found.append(state(big, "all read"))
    return found, evictions


def evict(big, name):
    before = big.direct(*OTHER_FORKS)
    told = big.evict()
    return {"state": name, "told": told, "before": before, "after": big.direct(*OTHER_FORKS)}


def writes(big):
    """Pages known to have been written, and how many the kernel then calls dirty. The disk gets them afterwards.

    How large its folios are depends on how it came to read them: ahead of a reader who reads in order, or page by page.
    """
    for cached, pages in itertools.product((IN_ORDER, PAGE_BY_PAGE), WRITTEN):
        big.sync()
        big.evict()
        if cached == IN_ORDER:
            big.prewarm("read", big.blocks)
        before = dirty(big)
        big.write(pages)
        buffers = big.dirty()
        told = big.flush()
        after = dirty(big)
        say(f"  {pages} pages, {cached}: {told // MIB} MiB written, kernel-dirty {(after or 0) // MIB} MiB")
        yield {"cached": cached, "pages": pages, "buffers": buffers, "told": told, "left": big.dirty(),
               "kernel before": before, "kernel": after}


def dirty(big):
    """Bytes that the kernel has to write or writes; None where it does not tell."""
    figures = [d + w for d, w in run(big.connection, "SELECT dirty_bytes, writeback_bytes"
                                                     " FROM pgscale.relation_os_cache('big')") if d is not None]
    return sum(figures) if figures else None


def cost(big, rounds):
    """Milliseconds of each, in turns, with the whole table in the kernel's cache."""
    askers = {MINE: lambda: timed(big.connection, ASK_MINE)[0],
              PEER: lambda: timed(big.connection, ASK_PEER)[0],
              DIRECT: lambda: clocked(big.direct)}
    return [{"round": number, "who": who, "ms": askers[who]()} for number, who in stats.rounds(rounds, askers)]


def clocked(function):
    began = time.monotonic()
    function()
    return (time.monotonic() - began) * 1000


RECORDS = {"times": ("who",)}


def measure(place, quick):
    with loaded(place) as big:
        found, evictions = states(big)
        bytes_cached = big.direct()
        times = cost(big, QUICK_ROUNDS if quick else ROUNDS)
        written = list(writes(big))
        found.append(state(big, "written here and there"))
        big.sync()
        evictions.append(evict(big, "written, then synced"))
        return {"blocks": big.blocks, "states": found, "evictions": evictions, "cached": bytes_cached, "times": times,
                "writes": written}


def pages(size):
    return "unknown" if size is None else f"{size // OS_PAGE:,}"


def per_gib(results, who):
    return [r["ms"] / (results["cached"] / GIB) for r in results["times"] if r["who"] == who]


def ratios(results, who):
    """Of the time of pgscale to that of another, in each round."""
    return [a / b for a, b in zip(per_gib(results, MINE), per_gib(results, who))]


def show(results):
    rows = [[r["state"], *(pages(r[who]) for who in (MINE, PEER, DIRECT)), pages(r["buffers"]), pages(r["both"]),
             pages(r["both by page"])] for r in results["states"]]
    counts = table(["table", MINE, PEER, DIRECT, "in shared buffers", "in both", "in both, page by page"], rows)
    times = table(["", "ms a GiB resident (95 %)", f"{MINE} / it (95 %)"],
                  [[who, spread(per_gib(results, who)), "" if who == MINE else spread(ratios(results, who))]
                   for who in (MINE, PEER, DIRECT)])
    rows = [[r["cached"], f"{r['pages']:,}", *(f"{r[what] // PAGE:,}" for what in ("buffers", "told", "left")),
             *(("unknown", "") if r["kernel"] is None else
               (f"{r['kernel'] // PAGE:,}", f"{(r['kernel'] - r['kernel before']) / r['told']:.2f}"))]
            for r in results["writes"]]
    written = table(["kernel's cache", "pages updated", "dirty buffers before", "os_cache_flush", "dirty buffers after",
                     "kernel-dirty after", "kernel-dirty / written"], rows)
    rows = [[r["state"], *map(pages, (r["told"], r["before"], r["after"], r["before"] - r["after"]))]
            for r in results["evictions"]]
    evictions = table(["os_cache_evict of", "told", "fincore before", "fincore after", "fincore, difference"], rows)
    return "\n\n".join([
        f"{results['blocks'] * PAGE / GIB:.2f} GiB in two files. Pages of 4 kB in the kernel's cache:", counts,
        "Cost with all of it in the kernel's cache:", times,
        "Pages of 8 kB, written and then called dirty by the kernel:", written,
        "Pages of 4 kB, all forks:", evictions])


def published(results):
    for who in (MINE, PEER, DIRECT):
        yield f"{who} for a GiB", spread(per_gib(results, who), "{:.1f}", " ms")


def required(results):
    states, evictions, writes = results["states"], results["evictions"], results["writes"]
    known = [r for r in writes if r["kernel"] is not None]
    for what, wrong in (
            ("states in which pgfincore or fincore counts other pages",
             [r[MINE] != r[who] for r in states for who in (PEER, DIRECT)]),
            ("states in which what is in both differs", [r["both"] != r["both by page"] for r in states]),
            ("evictions that tell other bytes than fincore",
             [r["told"] != r["before"] - r["after"] for r in evictions]),
            ("flushes that tell other bytes than were dirty", [r["told"] != r["buffers"] for r in writes]),
            ("flushes that left something dirty", [r["left"] != 0 for r in writes]),
            ("writes of which the kernel called less dirty", [r["kernel"] < r["told"] for r in known])):
        yield f"os_cache: {what}", f"{sum(wrong)} of {len(wrong)}", "0", not any(wrong)
    left = max(r["after"] / r["before"] for r in evictions)
    yield "os_cache: left in the kernel's cache by os_cache_evict", percent(left, 2), "at most 1 %", left <= 0.01
