"""A day in the archive: how large it is, and how long the answers take.

Minutes of a load of 50 active sessions are archived for real, at a period of a second, and then multiplied to a day's 1,440
with their times shifted: as many rows, each as large as a real one, but the same ones again and again.
"""
import contextlib
import time

import stats
from cluster import run, value
from load import Load
from report import spread, table

import bed

CLIENTS, QUERIES, REAL = 50, 40, 120
ASKS = 5
QUICK = {"REAL": 5, "ASKS": 1}
LIMIT_MB, LIMIT_S = 15, 1

RECORDS = {"asked": ("what",)}
WHAT = {"top_waits, by event": "SELECT count(*) FROM pgscale.top_waits(now() - interval '1 day', now())",
        "top_waits, by query": "SELECT count(*) FROM pgscale.top_waits(now() - interval '1 day', now(), by => 'query')",
        "activity, by 5 minutes": "SELECT count(*) FROM pgscale.activity(now() - interval '1 day', now(), '5 minutes')",
        "report": "SELECT length(pgscale.report(now() - interval '1 day', now(), 'html'))"}
SIZE = """
    SELECT sum(pg_total_relation_size(oid)) FROM pg_class
     WHERE relnamespace = 'pgscale'::regnamespace AND relname LIKE 'archive%' AND relkind = 'r'"""


def load(place):
    """Different statements, as of an application: most short, some that write, some that wait."""
    lines = ["\\set aid random(1, 1000000)", "\\set which random(1, %d)" % QUERIES]
    for number in range(QUERIES):
        lines += [f"\\if :which = {number + 1}",
                  f"SELECT abalance + {number} AS a{number} FROM pgbench_accounts WHERE aid = :aid;" if number % 4 else
                  f"UPDATE pgbench_accounts SET abalance = abalance + 1, filler = 'a{number}' WHERE aid = :aid;", "\\endif"]
    return place.script("day.sql", "\n".join(lines) + "\n")


def measure(place, quick):
    real, asks = QUICK.values() if quick else (REAL, ASKS)
    found = {"real": real, "asked": []}
    with place.cluster("day", **bed.SETTINGS, **{"pgscale.archive_period": "1s"}) as server, \
            contextlib.closing(server.connect()) as connection:
        bed.create(server, connection)
        server.pgbench("-i", "-s", 10, "-q")
        with Load(server, "-f", load(place), "-c", CLIENTS, "-j", 2):
            bed.await_minutes(connection, real, 10 * real + 60)
        run(connection, "ALTER SYSTEM SET pgscale.archive_database = ''")
        run(connection, "SELECT pg_reload_conf()")
        time.sleep(2)
        # a whole minute each, of the last 24 hours
        columns = [name for name, in run(connection, "SELECT attname FROM pg_attribute WHERE attrelid = 'pgscale.archive_minute'::regclass"
                                                     " AND attnum > 0 AND NOT attisdropped ORDER BY attnum")]
        others = ", ".join(name for name in columns if name not in ("at", "period_s"))
        run(connection, f"CREATE TABLE kept AS SELECT row_number() OVER (ORDER BY at) - 1 AS n, {others} FROM pgscale.archive_minute")
        run(connection, "TRUNCATE pgscale.archive_minute")
        for days in range(2):
            run(connection, "SELECT pgscale.archive_partition('archive_minute', (now() AT TIME ZONE 'UTC')::date - %s)", days)
        run(connection, f"""
            INSERT INTO pgscale.archive_minute (at, period_s, {others})
            SELECT date_trunc('minute', now()) - (i + 1) * interval '1 minute', 60, {others}
              FROM generate_series(0, 1439) i JOIN kept ON n = i % (SELECT count(*) FROM kept)""")
        run(connection, "VACUUM ANALYZE pgscale.archive_minute")
        found["bytes"] = int(value(connection, SIZE))
        found["rows_a_minute"] = float(value(connection, "SELECT avg(cardinality(wait_ms)) FROM pgscale.archive_minute"))
        for _, (what, statement) in stats.rounds(asks, WHAT.items()):
            since = time.monotonic()
            run(connection, statement)
            found["asked"].append({"what": what, "s": time.monotonic() - since})
    return found


def seconds(results, what):
    return [each["s"] for each in results["asked"] if each["what"] == what]


def show(results):
    return f"{CLIENTS} sessions, {QUERIES} statements; {results['real']} real minutes, multiplied to 1,440:" \
        f" {results['bytes'] / 1e6:.1f} MB, {results['rows_a_minute']:.0f} rows of waits a minute.\n\n" + table(
            ["asked of 24 hours", "s"], [[what, spread(seconds(results, what), "{:.2f}")] for what in WHAT])


def published(results):
    yield "size", f"{results['bytes'] / 1e6:.1f} MB"
    for what in WHAT:
        yield what, f"{stats.median(seconds(results, what)):.2f} s"


def required(results):
    size = results["bytes"] / 1e6
    yield "day: size at 50 active sessions", f"{size:.1f} MB", f"{LIMIT_MB} MB", size <= LIMIT_MB
    for what in list(WHAT)[:2]:
        took = stats.median(seconds(results, what))
        yield f"day: {what}, of 24 hours", f"{took:.2f} s", f"{LIMIT_S} s", took < LIMIT_S
