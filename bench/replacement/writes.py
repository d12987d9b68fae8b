"""What the choice of pages costs the writes, in the simulator with a disk of few writes a second; all references change their pages."""
import patterns
import simulator
from cluster import say
from report import table

BUFFERS = 8192
REFERENCES, WRITES = 12000, 300
TOUCHES = 6             # references of a transaction, as in simulator.c
LOADS = {
    "uniform, 1.7x": lambda random: patterns.uniform(random, int(1.7 * BUFFERS)),
    "uniform, 3.2x": lambda random: patterns.uniform(random, int(3.2 * BUFFERS)),
    "pareto, 3.2x": lambda random: patterns.pareto(random, int(3.2 * BUFFERS)),
    "zipf 1.05, 3.2x": lambda random: patterns.zipf(random, 1.05, int(3.2 * BUFFERS)),
}
SERVERS = ("stock", "clock", "sweeper")
LENGTH = (patterns.WARM_UP + patterns.MEASURED) * BUFFERS
FIGURES = {
    "transactions a write": lambda r: r["transactions"] / r["writes"],
    "pages read a transaction": lambda r: r["misses"] / r["transactions"],
    "pages written a transaction": lambda r: r["pages written"] / r["transactions"],
}
RECORDS = {"": ("load", "server")}


def measure(place, quick):
    program, trace = simulator.compiled(place), place.folder / "trace"
    results = []
    for load in list(LOADS)[:2] if quick else LOADS:
        say(load)
        (patterns.made(LOADS[load])[:LENGTH] | patterns.CHANGES).tofile(trace)
        for server in SERVERS:
            counts = simulator.run(program, trace, BUFFERS, server, REFERENCES, WRITES)[:, patterns.WARM_UP:].sum(axis=1)
            results.append({"load": load, "server": server, "transactions": patterns.MEASURED * BUFFERS // TOUCHES,
                            **{name: int(count) for name, count in zip(("misses", "writes", "pages written"), counts)}})
    return results


def show(results):
    found = {(r["load"], r["server"]): r for r in results}
    return table(["", *(f"{name}: {server}" for name in FIGURES for server in SERVERS)], [
        [load, *(f"{figure(found[load, server]):.2f}" for figure in FIGURES.values() for server in SERVERS)]
        for load in dict.fromkeys(r["load"] for r in results)])


def required(results):
    return []
