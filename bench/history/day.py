"""A day in the archive: how large it is at 10 to 500 active sessions, and how long the answers take.

Rows of a real load are archived, and then multiplied to a day's 1,440 with their times shifted: as many rows, each as large as
a real one, but the same ones again and again.
"""
import contextlib
import time

import stats
from cluster import run, value
from load import Load
from report import spread, table

import bed

# active sessions, and MiB a day that pg_ash 2.0-beta publishes for them (samples of a second, and rollups)
PG_ASH = {10: 11, 50: 30, 100: 50, 500: 245}
ASKED_AT = 50
QUERIES, PERIOD_S, REAL = 40, 15, 4
ASKS = 5
QUICK = {"REAL": 2, "PERIOD_S": 1, "ASKS": 1}
LIMIT_MIB, LIMIT_S = 14, 1
# of the sessions: fewer active ones would be another load
ACTIVE = 0.9

RECORDS = {"asked": ("what",)}
WHAT = {"top_waits, by event": "SELECT count(*) FROM pgscale.top_waits(now() - interval '1 day', now())",
        "top_waits, by query": "SELECT count(*) FROM pgscale.top_waits(now() - interval '1 day', now(), by => 'query')",
        "activity, by 5 minutes": "SELECT count(*) FROM pgscale.activity(now() - interval '1 day', now(), '5 minutes')",
        "report": "SELECT length(pgscale.report(now() - interval '1 day', now(), 'html'))"}
SIZE = """
    SELECT sum(pg_total_relation_size(oid)) FROM pg_class
     WHERE relnamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND relname LIKE 'archive%' AND relkind = 'r'"""


def script(place, sessions):
    """Statements of as many identifiers, which constants and names do not give them: some write, and all wait, so that no session
    is idle for long."""
    lines = ["\\set aid random(1, 1000000)", "\\set which random(1, %d)" % QUERIES, f"\\set ms random(1, {2 * sessions})"]
    for number in range(QUERIES):
        amount = "abalance" + " + bid" * number
        lines += [f"\\if :which = {number + 1}",
                  f"SELECT {amount}, pg_sleep(:ms / 1000.0) FROM pgbench_accounts WHERE aid = :aid;" if number % 4 else
                  f"UPDATE pgbench_accounts SET abalance = {amount}, filler = pg_sleep(:ms / 1000.0)::text WHERE aid = :aid;", "\\endif"]
    return place.script(f"day-{sessions}.sql", "\n".join(lines) + "\n")


def keep(place, server, connection, sessions, real):
    """Archives rows of that many sessions and puts them aside. Returns the sessions found active."""
    # the rows are taken after the sessions have started
    with Load(server, "-f", script(place, sessions), "-c", sessions, "-j", 2, "-M", "prepared"):
        bed.await_minutes(connection, 2, 120)
        since = value(connection, "SELECT max(at + make_interval(secs => period_s)) FROM pgscale.archive_minutes")
        bed.await_minutes(connection, real, 30 * real + 60)
    run(connection, f"CREATE TABLE kept_{sessions} AS SELECT row_number() OVER (ORDER BY at) - 1 AS n, *"
                    f" FROM pgscale_internal.archive_minute WHERE at >= %s ORDER BY at LIMIT {real}", since)
    active, waits = run(connection, f"SELECT avg(active_session_ms / observed_ms), avg(cardinality(wait_ms)) FROM kept_{sessions}")[0]
    queries = value(connection, f"SELECT count(DISTINCT queryid) FROM kept_{sessions}, unnest(queryids) queryid")
    return {"active": float(active), "waits": float(waits), "queries": queries}


def multiply(connection, sessions):
    """Fills the archive with a whole row for each minute of the last 24 hours. Returns its bytes."""
    columns = ", ".join(name for name, in run(
        connection, "SELECT attname FROM pg_attribute WHERE attrelid = 'pgscale_internal.archive_minute'::regclass AND attnum > 0"
                    " AND NOT attisdropped AND attname NOT IN ('at', 'period_s') ORDER BY attnum"))
    run(connection, "TRUNCATE pgscale_internal.archive_minute")
    for days in range(2):
        run(connection, "SELECT pgscale_internal.archive_partition('archive_minute', (now() AT TIME ZONE 'UTC')::date - %s)", days)
    run(connection, f"""
        INSERT INTO pgscale_internal.archive_minute (at, period_s, {columns})
        SELECT date_trunc('minute', now()) - (i + 1) * interval '1 minute', 60, {columns}
          FROM generate_series(0, 1439) i JOIN kept_{sessions} ON n = i % (SELECT count(*) FROM kept_{sessions})""")
    run(connection, "VACUUM ANALYZE pgscale_internal.archive_minute")
    return int(value(connection, SIZE))


def measure(place, quick):
    real, period, asks = QUICK.values() if quick else (REAL, PERIOD_S, ASKS)
    found = {"sizes": [], "asked": []}
    with place.cluster("day", **{**bed.SETTINGS, "max_connections": max(PG_ASH) + 20, "pgscale.debug_period": f"{period}s"}) as server, \
            contextlib.closing(server.connect()) as connection:
        bed.create(server, connection)
        server.pgbench("-i", "-s", 10, "-q")
        kept = {sessions: keep(place, server, connection, sessions, real) for sessions in PG_ASH}
        run(connection, "ALTER SYSTEM SET pgscale.archive_database = ''")
        run(connection, "SELECT pg_reload_conf()")
        time.sleep(2)
        for sessions, figures in kept.items():
            found["sizes"].append({"sessions": sessions, **figures, "bytes": multiply(connection, sessions)})
            if sessions != ASKED_AT:
                continue
            for _, (what, statement) in stats.rounds(asks, WHAT.items()):
                since = time.monotonic()
                run(connection, statement)
                found["asked"].append({"what": what, "s": time.monotonic() - since})
    return found


def seconds(results, what):
    return [each["s"] for each in results["asked"] if each["what"] == what]


def mib(each):
    return each["bytes"] / 2**20


def show(results):
    sizes = table(["sessions", "active, on average", "statements", "waits in a row", "MiB a day", "pg_ash 2.0-beta, published"],
                  [[each["sessions"], f"{each['active']:.0f}", each["queries"], f"{each['waits']:.0f}", f"{mib(each):.1f}", PG_ASH[each["sessions"]]]
                   for each in results["sizes"]])
    return f"{sizes}\n\n" + table([f"asked of 24 hours of {ASKED_AT} sessions", "s"],
                                  [[what, spread(seconds(results, what), "{:.2f}")] for what in WHAT])


def required(results):
    for each in results["sizes"]:
        limit = LIMIT_MIB if each["sessions"] == ASKED_AT else PG_ASH[each["sessions"]]
        yield f"day: size at {each['sessions']} active sessions", f"{mib(each):.1f} MiB", f"{limit} MiB", mib(each) <= limit
    fewest = min(each["active"] / each["sessions"] for each in results["sizes"])
    yield "day: sessions that were active, of all", f"{100 * fewest:.0f} %", f"at least {100 * ACTIVE:.0f} %", fewest >= ACTIVE
    for what in list(WHAT)[:2]:
        took = stats.median(seconds(results, what))
        yield f"day: {what}, of 24 hours", f"{took:.2f} s", f"{LIMIT_S} s", took < LIMIT_S
