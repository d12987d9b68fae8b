"""What a session notices of a scan: pgbench -S -M prepared, while another session scans the buffers over and over.

One pgbench with as many clients as there are cores runs throughout, and what runs beside it changes in turns of random
order. A loop without a pause takes its share of the cores whatever it does, so one that only computes is the control;
and since the scans of such a loop cost so unequally much, there are also turns of one scan a second.
"""
import os
import time

import numpy

import stats
from bed import filled, largest
from cluster import run, say, value
from load import Load, latencies
from report import table
from usage import BUFFER_USAGE, RELATION_BUFFERS, VIEW_USAGE, spread

ROUNDS, QUICK_ROUNDS = 12, 2
TURN, QUICK_TURN = 3, 1
SCALE, QUICK_SCALE = 50, 2
# of pgbench's transactions, so many are logged
SAMPLED = 0.25
CLIENTS = os.cpu_count()

NOTHING = "nothing"
# what runs, and seconds from the begin of one to that of the next
BESIDE = {
    NOTHING: (None, 0),
    "computing": ("SELECT sum(n) FROM generate_series(1, 10000) n", 0),
    "buffer_usage": (BUFFER_USAGE, 0),
    "relation_buffers": (RELATION_BUFFERS, 0),
    "pg_buffercache by usage count": (VIEW_USAGE, 0),
    "buffer_usage, once a second": (BUFFER_USAGE, 1),
    "pg_buffercache by usage count, once a second": (VIEW_USAGE, 1),
}
HEADER = ["beside", "a second", "TPS", "p50, ms", "p99, ms", "p99.9, ms", "TPS ratio (95 %)", "p99 ratio (95 %)",
          "p99.9 ratio (95 %)"]
# in the server, so that the scan alone takes the time
LOOP = """
DO $$
DECLARE
    deadline timestamptz := clock_timestamp() + interval '{seconds} s';
    due timestamptz;
    scans integer := 0;
    one record;
BEGIN
    WHILE clock_timestamp() < deadline LOOP
        due := clock_timestamp() + interval '{period} s';
        FOR one IN {query} LOOP
        END LOOP;
        scans := scans + 1;
        PERFORM pg_sleep(extract(epoch FROM least(due, deadline) - clock_timestamp()));
    END LOOP;
    PERFORM set_config('bench.scans', scans::text, false);
END
$$"""


def turn(connection, what, seconds):
    """Lets a query run in a loop so long, or nothing. Returns begin, end, and how often it ran."""
    query, period = BESIDE[what]
    # the last turn's last words are over
    time.sleep(0.1)
    began = time.time()
    if query is None:
        time.sleep(seconds)
        return began, time.time(), 0
    run(connection, LOOP.format(seconds=seconds, period=period, query=query))
    return began, time.time(), int(value(connection, "SHOW bench.scans"))


RECORDS = {"turns": ("beside",)}


def measure(place, quick):
    gib, rounds, seconds, scale = (0.5, QUICK_ROUNDS, QUICK_TURN, QUICK_SCALE) if quick else \
        (largest(), ROUNDS, TURN, SCALE)
    options = ("-S", "-M", "prepared", "-c", CLIENTS, "-j", CLIENTS, f"--sampling-rate={SAMPLED}")
    turns = []
    with filled(place, "beside", gib, scale) as (server, connection):
        for query in (BUFFER_USAGE, RELATION_BUFFERS, VIEW_USAGE):
            run(connection, query)          # so that its session has the memory mapped
        with Load(server, *options, log=True) as load:
            time.sleep(1 if quick else 4)
            for number, what in stats.rounds(rounds, BESIDE):
                turns.append((number, what, *turn(connection, what, seconds)))
    ended, ms = load.transactions()
    found = []
    for number, what, began, until, scans in turns:
        inside = ms[(began <= ended) & (ended < until)]
        found.append({"round": number, "beside": what, "tps": len(inside) / SAMPLED / (until - began),
                      "ms": latencies(inside), "scans": scans / (until - began)})
    for what in BESIDE:
        say(f"  {what}: {numpy.median([r['tps'] for r in found if r['beside'] == what]):,.0f} TPS")
    return {"gib": gib, "clients": CLIENTS, "seconds": seconds, "turns": found}


def tps(result):
    return result["tps"]


def p50(result):
    return result["ms"]["p50"]


def p99(result):
    return result["ms"]["p99"]


def p999(result):
    return result["ms"]["p99.9"]


def select(results, what):
    return [r for r in results["turns"] if r["beside"] == what]


def ratios(results, what, figure):
    """Of a figure beside something to that beside nothing, in each round."""
    return [figure(a) / figure(b) for a, b in zip(select(results, what), select(results, NOTHING))]


def show(results):
    rows = []
    for what in BESIDE:
        mine = select(results, what)
        row = [what, "", f"{stats.median([tps(r) for r in mine]):,.0f}",
               *(f"{stats.median([figure(r) for r in mine]):.3f}" for figure in (p50, p99, p999))]
        if what != NOTHING:
            row[1] = f"{stats.median([r['scans'] for r in mine]):,.1f}"
            row += [spread(ratios(results, what, figure)) for figure in (tps, p99, p999)]
        rows.append(row + [""] * (len(HEADER) - len(row)))
    clients = results["clients"]
    described = f"{results['gib']:g} GiB of buffers, {clients} client{'s' if clients > 1 else ''}, " \
        f"{len(select(results, NOTHING))} turns of {results['seconds']:g} s each. Ratios are to nothing in that round."
    return described + "\n\n" + table(HEADER, rows)


def published(results):
    for what in ("buffer_usage", "pg_buffercache by usage count"):
        yield f"TPS beside {what}", spread(ratios(results, f"{what}, once a second", tps))


def required(results):
    return ()
