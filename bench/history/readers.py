"""A month in the archive: how long it takes to ask for a day and a week of it.

Each row has 200 waits and the rest, of 3,000 combinations of statement, event, user, application and database; sixty different rows
repeat over the month. The details are kept for all of it, so that a week is 10,080 rows.
"""
import contextlib
import time

import machine
import stats
from cluster import run, value
from report import spread, table

import bed

DAYS, WEEK, ROWS, ASKS = 30, 7, 60, 7
QUICK = {"DAYS": 2, "WEEK": 1, "ASKS": 1}
LIMITS = {"top_waits of a day": 0.5, "report of a day": 3, "report of 7 days": 10}

RECORDS = {"asked": ("what",)}
ROW = """
    CREATE TABLE made AS
    SELECT n, array_agg(CASE WHEN i = 201 THEN 'other' WHEN c % 50 = 0 THEN 'checkpointer' ELSE 'client backend' END ORDER BY i) AS backend_types,
           array_agg(CASE WHEN i < 201 AND c % 50 > 0 THEN (5 + c % 2)::oid END ORDER BY i) AS datids,
           array_agg(CASE WHEN i < 201 AND c % 50 > 0 THEN (ARRAY['shop', 'bank'])[1 + c % 2] END ORDER BY i) AS datnames,
           array_agg(CASE WHEN i < 201 AND c % 50 > 0 THEN 'user_' || c % 5 END ORDER BY i) AS usenames,
           array_agg(CASE WHEN i < 201 AND c % 50 > 0 THEN 'application_' || c % 6 END ORDER BY i) AS application_names,
           array_agg(CASE WHEN i < 201 AND c % 50 > 0 THEN hashtextextended((c % 250)::text, 0) END ORDER BY i) AS queryids,
           array_agg(CASE WHEN i = 201 THEN 'other' ELSE (ARRAY['CPU', 'IO', 'IO', 'LWLock', 'Lock', 'Client'])[1 + c % 6] END ORDER BY i) AS event_types,
           array_agg(CASE WHEN i = 201 THEN 'other' ELSE (ARRAY['CPU', 'DataFileRead', 'WALSync', 'BufferContent', 'transactionid', 'ClientWrite'])[1 + c % 6]
                     END ORDER BY i) AS events,
           array_agg(CASE WHEN i < 201 AND c % 6 = 4 THEN (4000 + c % 40) || ' application_' || c % 3 END ORDER BY i) AS blockers,
           array_agg((60000 / (i + 3))::real ORDER BY i) AS wait_ms
      FROM generate_series(0, {rows} - 1) n, generate_series(1, 201) i, LATERAL (SELECT abs(hashint8(n * 1000 + i)) % 3000 AS c) c
     GROUP BY n"""
FILL = """
    INSERT INTO pgscale_internal.archive_minute (at, period_s, rounds, node, cluster, database, backend_types, datids, datnames, usenames,
                                        application_names, queryids, event_types, events, blockers, wait_ms,
                                        observed_ms, active_session_ms, idle_in_transaction_session_ms, {names})
    SELECT date_trunc('minute', now()) - (m + 1) * interval '1 minute', 60, 1, i.node, i.system_identifier, d.oid, backend_types, datids, datnames, usenames,
           application_names, queryids, event_types, events, blockers, wait_ms, 60000, 60000, 0, {values}
      FROM generate_series({first}, {last} - 1) m JOIN made ON n = m % {rows}, pgscale.node_identity() i, pg_database d
     WHERE d.datname = current_database()"""


def asked(week):
    period = "now() - interval '{} days', now()"
    return {"top_waits of a day": f"SELECT count(*) FROM pgscale.top_waits({period.format(1)})",
            f"top_waits of {week} days": f"SELECT count(*) FROM pgscale.top_waits({period.format(week)})",
            "activity of a day": f"SELECT count(*) FROM pgscale.activity({period.format(1)})",
            "report of a day": f"SELECT length(pgscale.report({period.format(1)}, 'html'))",
            f"report of {week} days": f"SELECT length(pgscale.report({period.format(week)}, 'html'))"}


def temporary(connection):
    """Bytes of temporary files so far."""
    run(connection, "SELECT pg_stat_force_next_flush()")
    return int(value(connection, "SELECT temp_bytes FROM pg_stat_database WHERE datname = current_database()"))


def measure(place, quick):
    days, week, asks = QUICK.values() if quick else (DAYS, WEEK, ASKS)
    found = {"days": days, "week": week, "asked": []}
    with place.cluster("readers", **bed.SETTINGS) as server, contextlib.closing(server.connect()) as connection:
        bed.create(server, connection)
        run(connection, ROW.format(rows=ROWS))
        for day in range(days + 2):
            run(connection, "SELECT pgscale_internal.archive_partition('archive_minute', (now() AT TIME ZONE 'UTC')::date - %s)", day)
        names, values = run(connection, "SELECT string_agg(name, ', '), string_agg((1000 * n)::text, ', ')"
                                        " FROM pgscale_internal.archive_counter WHERE source <> 'sampler'")[0]
        for day in range(days):
            run(connection, FILL.format(rows=ROWS, first=1440 * day, last=1440 * (day + 1), names=names, values=values))
        run(connection, "VACUUM ANALYZE pgscale_internal.archive_minute")
        found["bytes"] = int(value(connection, "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('pgscale_internal.archive_minute')"))
        found["waits"] = float(value(connection, "SELECT avg(cardinality(wait_ms)) FROM pgscale_internal.archive_minute"))
        found["temporary"] = -temporary(connection)
        found["load"] = machine.load()
        for _, (what, statement) in stats.rounds(asks, asked(week).items()):
            since = time.monotonic()
            run(connection, statement)
            found["asked"].append({"what": what, "s": time.monotonic() - since})
        found["temporary"] += temporary(connection)
    return found


def seconds(results, what):
    return [each["s"] for each in results["asked"] if each["what"] == what]


def show(results):
    kinds = list(dict.fromkeys(each["what"] for each in results["asked"]))
    return table([f"asked of {results['days']} days, {results['waits']:.0f} waits a row, {results['bytes'] / 2**20:.0f} MiB", "s"],
                 [[what, spread(seconds(results, what), "{:.2f}")] for what in kinds]
                 + [["temporary files of all of them, bytes", results["temporary"]], ["load average before", f"{results['load']:.1f}"]])


def published(results):
    for what in LIMITS:
        if seconds(results, what):
            yield what, f"{stats.median(seconds(results, what)):.2f} s"


def required(results):
    for what, limit in LIMITS.items():
        if seconds(results, what):
            took = stats.median(seconds(results, what))
            yield f"readers: {what}", f"{took:.2f} s", f"{limit} s", took <= limit
    yield "readers: temporary files at the default work_mem", f"{results['temporary']} bytes", "0", results["temporary"] == 0
