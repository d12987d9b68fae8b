"""What the server has written into the kernel, how much of that was dirty there anyway, and what pgscale says."""
import pathlib
import re

from cluster import run, value

PAGE = 8192
# of the disk's counts, those that no table has
NOT_SHOWN = ("reads", "writes")


def pages_written(bed, connection):
    """Pages of relations that checkpointer, background writer and sessions wrote."""
    bed.wake_checkpointer()
    if bed.place.major < 16:
        return value(connection, "SELECT buffers_checkpoint + buffers_clean + buffers_backend FROM pg_stat_bgwriter")
    pages = "writes" if bed.place.major < 18 else "write_bytes / 8192"
    return int(value(connection, f"SELECT coalesce(sum({pages}), 0) FROM pg_stat_io WHERE object = 'relation'"))


def written_in_background(bed):
    """Bytes that checkpointer and background writer, which write nearly no WAL, wrote; and that became dirty by it."""
    written = dirtied = 0
    for title in ("checkpointer", "background writer"):
        text = pathlib.Path(f"/proc/{bed.server.worker(title)}/io").read_text()
        written += int(re.search(r"^wchar: (\d+)", text, re.M)[1])
        dirtied += int(re.search(r"^write_bytes: (\d+)", text, re.M)[1])
    return written, dirtied


def rewritten(written, dirtied):
    """The share of what was written to pages that the kernel had not yet written since their last change."""
    return 1 - dirtied / written if written else 0.0


def _is_loaded(connection):
    return value(connection, "SELECT to_regclass('pgscale.writeback_stats') IS NOT NULL")


def reset(connection):
    """The counts of pgscale.writeback_stats."""
    if _is_loaded(connection):
        run(connection, "SELECT pgscale.reset('writeback')")


def writeback_stats(connection):
    """The worker's state, cap and CPU time; None if the library is not loaded."""
    if not _is_loaded(connection):
        return None
    state, cap, cpu_ms = run(connection, "SELECT state, cap_bytes, cpu_ms FROM pgscale.writeback_stats")[0]
    return {"state": state, "cap": cap, "cpu_ms": cpu_ms}
