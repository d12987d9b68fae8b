"""What the server, the sweeper and the disk have counted, and what lies between two such counts."""
import time

from cluster import run, value

PAGE = 8192
# columns of pgscale.sweeper_stats that are no counts of one worker
GAUGES = {"worker", "mode", "state", "reason", "state_change", "buffers", "low_watermark", "high_watermark", "ready", "backend_writes",
          "stats_reset"}
# its counts, and the disk's, that no table has
NOT_SHOWN = ("scanned", "runs_by_pages", "consumed", "decremented", "writers", "supplied_written", "queued", "supplied_clean",
             "reused", "wal_flushes", "errors", "reads", "bytes_read", "writes_merged", "bgwriter")


def sweeper(bed, connection):
    """The rows of the sweeper's workers; none if the library is not loaded."""
    if not value(connection, "SELECT to_regclass('pgscale.sweeper_stats') IS NOT NULL"):
        return []
    return [row for row, in run(connection, "SELECT row_to_json(s) FROM pgscale.sweeper_stats s ORDER BY worker")]


def _evictions(bed, connection, workers):
    """Dirty pages that sessions wrote to have their buffers."""
    if bed.place.major < 16:
        # counts all pages that neither bgwriter nor checkpointer wrote, the sweeper's and new ones too
        bed.wake_checkpointer()
        written = value(connection, "SELECT buffers_backend FROM pg_stat_bgwriter")
        size = value(connection, "SELECT pg_database_size(current_database())")
        return written - sum(worker["written"] for worker in workers) - size // PAGE
    pages = "writes" if bed.place.major < 18 else "write_bytes / 8192"
    return int(value(connection, f"""
        SELECT coalesce(sum({pages}), 0) FROM pg_stat_io
         WHERE backend_type = 'client backend' AND object = 'relation'"""))


def read(bed, connection):
    workers = sweeper(bed, connection)
    return {
        "evictions": _evictions(bed, connection, workers),
        # of sessions that have ended, and more or less of the others
        "blocks read": value(connection, "SELECT blks_read FROM pg_stat_database WHERE datname = current_database()"),
        "bgwriter": value(connection, "SELECT buffers_clean FROM pg_stat_bgwriter"),
        "disk": bed.disk.counters() if bed.disk else None,
        "workers": workers,
        "at": time.time(),
    }


def _add(a, b, sign):
    """Of numbers, or of lists of numbers."""
    return [_add(x, y, sign) for x, y in zip(a, b)] if isinstance(a, list) else a + sign * b


def difference(before, after):
    """Counts in between; the sweeper's summed over its workers, with the state that it was in at the end."""
    found = {name: after[name] - before[name] for name in ("evictions", "blocks read", "bgwriter")}
    found["seconds"] = after["at"] - before["at"]
    if after["disk"]:
        found["disk"] = {name: after["disk"][name] - before["disk"][name] for name in after["disk"]}
    if after["workers"]:
        found["sweeper"] = {}
        for old, new in zip(before["workers"], after["workers"]):
            for name in new.keys() - GAUGES:
                grown = _add(new[name], old[name], -1)
                found["sweeper"][name] = _add(grown, found["sweeper"][name], 1) if name in found["sweeper"] else grown
        found["state"] = [f"{worker['state']}: {worker['reason']}" for worker in after["workers"]]
    return found


def density(connection):
    """The share of the pages of pgbench_accounts that are dirty buffers."""
    return float(value(connection, """
        SELECT count(*) FILTER (WHERE isdirty) * 8192.0 / pg_relation_size('pgbench_accounts')
          FROM pg_buffercache
         WHERE relfilenode = pg_relation_filenode('pgbench_accounts') AND relforknumber = 0
           AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())"""))
