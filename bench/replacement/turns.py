"""A turn: one load with the sweeper off or on, and what server, sweeper and disk count meanwhile."""
import time

from bed import TURNOVERS
from cluster import run, say

SWEEPER = ("consumed", "cpu_ms")


def read(bed, connection):
    def one_row(names, what):
        return dict(zip(names, run(connection, f"SELECT {what}")[0]))

    found = {
        # the sessions report both counts together, each second
        **one_row(("transactions", "reads"), "xact_commit, blks_read FROM pg_stat_database WHERE datname = current_database()"),
        **one_row(("allocations",), "buffers_alloc FROM pg_stat_bgwriter"),
        **one_row(SWEEPER, ", ".join(f"{name}::float8" for name in SWEEPER) + " FROM pgscale.sweeper_stats"),
        "seconds": time.time()}
    if bed.disk:
        disk = bed.disk.counters()
        found.update({"device reads": disk["reads"], "device writes": disk["writes"]})
    return found


def shadows(connection):
    """What the shadow caches of the choices in force and of the clock have missed; None without shadows."""
    choice, chosen, half_lives, missed = run(connection, "SELECT choice, chosen_misses, half_lives, shadow_misses"
                                                         " FROM pgscale.replacement_stats")[0]
    return (chosen, missed[half_lives.index(0)]) if choice else None


def saved(before, after):
    """The share of the clock's misses that the choices saved between two such counts; None if there were none."""
    if before is None or after is None or after[1] <= before[1]:
        return None
    return 1 - (after[0] - before[0]) / (after[1] - before[1])


def turn(bed, connection, load, settings, warm_up, settle, seconds):
    """Measures, after a warm-up at the speed of the fast disk."""
    bed.set(**settings)
    bed.turn_over(connection, TURNOVERS, warm_up)
    bed.slow()
    time.sleep(settle)
    found = measured(bed, connection, load, seconds)
    bed.lift()
    return found


def measured(bed, connection, load, seconds):
    """What happens from now on. The latencies are known when the load has ended: of the transactions from "began" to "ended"."""
    before, shadows_before = read(bed, connection), shadows(connection)
    time.sleep(seconds)
    after, shadows_after = read(bed, connection), shadows(connection)
    return {**{name: after[name] - before[name] for name in after}, "began": before["seconds"], "ended": after["seconds"],
            "tps": load.tps(before["seconds"], after["seconds"]), "foretold": saved(shadows_before, shadows_after)}


def tps(r):
    return r["tps"]


def p99(r):
    return r["ms"]["p99"]


def reads(r):
    return r["reads"] / r["transactions"]


def device_reads(r):
    return r["device reads"] / r["transactions"]


def transactions_a_write(r):
    return r["transactions"] / max(r["device writes"], 1)


def served(r):
    """The share of the buffers that sessions took which the sweeper had made ready."""
    return r["consumed"] / max(r["allocations"], 1)


def cpu(r):
    """Of the sweeper, of a core."""
    return r["cpu_ms"] / 1000 / r["seconds"]


def cpu_a_buffer(r):
    """Nanoseconds of CPU time of the sweeper for each buffer that sessions took."""
    return r["cpu_ms"] * 1e6 / max(r["allocations"], 1)


def say_turn(condition, r):
    say(f"  {condition}: {r['tps']:,.0f} TPS, {reads(r):.3f} reads a transaction, {served(r) * 100:.1f} % of the buffers supplied, "
        f"sweeper {cpu(r) * 100:.1f} % of a core")
