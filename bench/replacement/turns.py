"""A turn: one load with the sweeper off or with one of its policies, and what the server, the sweeper and the disk count meanwhile."""
import pathlib
import time

from bed import TURNOVERS
from cluster import run, say

# cumulative columns of the views
_SWEEPER = ("ticks", "starved", "consumed", "reused", "supplied_clean", "supplied_written", "written", "runs", "cpu_ms", "writer_cpu_ms")
_POLICY = ("switches",)
_TICKS_A_SECOND = 100       # of /proc/stat


def _one_row(connection, names, what):
    return dict(zip(names, run(connection, f"SELECT {what}")[0]))


def _busy():
    """Seconds that all cores together were busy."""
    user, nice, system, _, _, irq, softirq, steal = map(int, pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS_A_SECOND


def _sums(connection, columns, view):
    return _one_row(connection, columns, ", ".join(f"coalesce(sum({name}), 0)::float8" for name in columns) + f" FROM {view}")


def read(bed, connection):
    # the sessions hand in both counts at once, each second
    database = _one_row(connection, ("transactions", "reads"),
                        "xact_commit, blks_read FROM pg_stat_database WHERE datname = current_database()")
    taken = _one_row(connection, ("allocations",), "buffers_alloc FROM pg_stat_bgwriter")
    found = {**database, **taken, **_sums(connection, _SWEEPER, "pgscale.sweeper_stats"),
             **_sums(connection, _POLICY, "pgscale.replacement_stats"), "busy": _busy(), "seconds": time.time()}
    if bed.disk:
        disk = bed.disk.counters()
        found.update({"device reads": disk["reads"], "device writes": disk["writes"], "device bytes written": disk["bytes_written"]})
    return found


def shadows(connection):
    """The choice in force, and what the shadow caches of the choices in force and of the clock have missed; None without shadows."""
    choice, chosen, half_lives, missed = run(connection, "SELECT choice, chosen_misses, half_lives, shadow_misses"
                                                         " FROM pgscale.replacement_stats WHERE worker = 1")[0]
    return choice, (chosen, missed[half_lives.index(0)]) if choice else None


def saved(before, after):
    """The share of the clock's misses that the choices saved between two such counts; None if there were none."""
    if before is None or after is None or after[1] <= before[1]:
        return None
    return 1 - (after[0] - before[0]) / (after[1] - before[1])


def turn(bed, connection, load, settings, warm_up, settle, seconds):
    """Measures, after a warm-up at the speed of the fast disk."""
    bed.set(**settings)
    turnovers = bed.turn_over(connection, TURNOVERS, warm_up)
    bed.slow()
    time.sleep(settle)
    found = measured(bed, connection, load, seconds)
    bed.lift()
    return {**found, "turnovers": turnovers}


def measured(bed, connection, load, seconds):
    """What happens from now on. The times of transactions are found when the load has ended: those from "began" to "ended"."""
    before, shadows_before = read(bed, connection), shadows(connection)[1]
    time.sleep(seconds)
    after, (choice, shadows_after) = read(bed, connection), shadows(connection)
    return {**{name: after[name] - before[name] for name in after}, "began": before["seconds"], "ended": after["seconds"],
            "tps": load.tps(before["seconds"], after["seconds"]), "choice": choice, "foretold": saved(shadows_before, shadows_after)}


def described(r):
    said = f"{r['tps']:,.0f} TPS, {reads(r):.3f} reads a transaction, {r['busy'] / r['seconds']:.2f} cores busy, {a_second(r):,.0f} buffers/s"
    if r["consumed"]:
        said += f", {served(r) * 100:.1f} % of them supplied, sweeper {cpu(r) * 100:.1f} % of a core, {cpu_a_buffer(r):,.0f} ns a buffer, {r['choice']}"
    if "device reads" in r:
        said += f", {device_reads(r):.3f} device reads a transaction"
        if r["device writes"] > r["seconds"]:
            said += f", {pages_written(r):.2f} pages written, {transactions_a_write(r):.2f} transactions a write"
    if r["foretold"] is not None:
        said += f", foretold {r['foretold'] * 100:.0f} %"
    return said


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


def pages_written(r):
    """By the device, a transaction."""
    return r["device bytes written"] / 8192 / r["transactions"]


def a_second(r):
    """Buffers that sessions took."""
    return r["allocations"] / r["seconds"]


def served(r):
    """The share of these that the sweeper had made ready."""
    return r["consumed"] / max(r["allocations"], 1)


def second_chances(r):
    return r["reused"] / max(r["consumed"] + r["reused"], 1)


def starved(r):
    return r["starved"] / max(r["ticks"], 1)


def cpu(r):
    return r["cpu_ms"] / 1000 / r["seconds"]


def cpu_a_buffer(r):
    """Nanoseconds of CPU time of the sweeper for each buffer that sessions took, of a page that left."""
    return r["cpu_ms"] * 1e6 / max(r["allocations"], 1)


def cpu_at_100k(r):
    """Of a core, if there were 100,000 buffers a second to supply."""
    return cpu_a_buffer(r) / 1e9 * 100000


def say_turn(condition, r):
    say(f"  {condition}: {described(r)}" + (f", {r['turnovers']:.0f} turnovers before" if "turnovers" in r else ""))
