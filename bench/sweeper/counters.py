"""What the server, the sweeper and the disk have counted, and what lies between two such counts."""
import time

from cluster import run, value

PAGE = 8192
# of the sweeper's counts
SWEEPER = ("ticks", "starved", "runs", "written", "neighbours", "cpu_ms", "writer_cpu_ms")
# of the disk's counts, those that no table has
NOT_SHOWN = ("reads",)


def states(connection):
    """What the sweeper does, and why."""
    return [f"{state}: {reason}"
            for state, reason in run(connection, "SELECT state, reason FROM pgscale.sweeper_stats")]


def _evictions(bed, connection, written):
    """Dirty pages that sessions wrote to have their buffers."""
    if bed.place.major < 16:
        # counts all pages that neither bgwriter nor checkpointer wrote, the sweeper's and new ones too
        bed.wake_checkpointer()
        by_backends = value(connection, "SELECT buffers_backend FROM pg_stat_bgwriter")
        return by_backends - written - value(connection, "SELECT pg_database_size(current_database())") // PAGE
    pages = "writes" if bed.place.major < 18 else "write_bytes / 8192"
    return int(value(connection, f"SELECT coalesce(sum({pages}), 0) FROM pg_stat_io"
                                 " WHERE backend_type = 'client backend' AND object = 'relation'"))


def read(bed, connection):
    """With the sweeper's counts, if the library is loaded."""
    sweeper, doing = {}, []
    if value(connection, "SELECT to_regclass('pgscale.sweeper_stats') IS NOT NULL"):
        counts = ", ".join(f"{name}::float8" for name in SWEEPER)
        sweeper = dict(zip(SWEEPER, run(connection, f"SELECT {counts} FROM pgscale.sweeper_stats")[0]))
        doing = states(connection)
    return {
        "evictions": _evictions(bed, connection, int(sweeper.get("written") or 0)),
        # of sessions that have ended, and more or less of the others
        "blocks read": value(connection, "SELECT blks_read FROM pg_stat_database WHERE datname = current_database()"),
        "disk": bed.disk.counters(),
        "sweeper": sweeper,
        "state": doing,
        "at": time.time(),
    }


def difference(before, after):
    """Counts in between, with the sweeper's state at the end."""
    return {**{name: after[name] - before[name] for name in ("evictions", "blocks read")}, "seconds": after["at"] - before["at"],
            **{name: {what: count - before[name][what] for what, count in after[name].items()} for name in ("disk", "sweeper")},
            "state": after["state"]}
