"""How much slower is a session while another one traces it? The same statement with and without a trace, in turns."""
import time

import stats
from bed import Traced, server
from cluster import run
from report import spread, table

ROUNDS, QUICK_ROUNDS = 40, 3
STATEMENTS = {
    "page-cache reads": ("SELECT count(*) FROM pages", 1),
    "short statements": ("SELECT 1", 2000),
    "CPU alone": ("SELECT sum(i) FROM generate_series(1, 1000000) i", 1),
}
LIMIT = 1.05

# It ends soon after what it watches: the next statement begins a new round.
QUERY = "SELECT count(*) FROM pgscale.trace_waits({{pid}}, '{} ms', 1000000)"

RECORDS = {"": ("load", "traced")}


def timed(target, name):
    statement, times = STATEMENTS[name]
    since = time.perf_counter()
    for _ in range(times):
        run(target, statement)
    return (time.perf_counter() - since) * 1000


def measure(place, quick):
    results = []
    with server(place, "cost", quick) as (cluster, control, target):
        usual = {name: max(timed(target, name), timed(target, name)) for name in STATEMENTS}
        conditions = [(name, traced) for name in STATEMENTS for traced in (False, True)]
        for number, (name, traced) in stats.rounds(QUICK_ROUNDS if quick else ROUNDS, conditions):
            coverage = None
            if traced:
                # so long that it still runs when the statements end
                with Traced(cluster, control, target, QUERY.format(int(3 * usual[name]) + 50)) as trace:
                    ms = timed(target, name)
                coverage = trace.coverage
            else:
                time.sleep(0.005)
                ms = timed(target, name)
            results.append({"round": number, "load": name, "traced": traced, "ms": ms, "coverage": coverage})
    return results


def ratios(results, name):
    """Of the time with a trace to that without, in each round."""
    times = {traced: {r["round"]: r["ms"] for r in results if r["load"] == name and r["traced"] is traced}
             for traced in (False, True)}
    return [times[True][number] / times[False][number] for number in sorted(times[True])]


def show(results):
    rows = []
    for name in STATEMENTS:
        low, high = stats.interval(ratios(results, name))
        rows.append([name] + [spread([r["ms"] for r in results if r["load"] == name and r["traced"] is traced], "{:.1f}")
                              for traced in (False, True)]
                    + [f"{stats.median(ratios(results, name)):.3f} ({low:.3f} .. {high:.3f})",
                       spread([r["coverage"] for r in results if r["load"] == name and r["traced"]], "{:.3f}")])
    return table(["load", "ms without", "ms traced", "ratio (95 %)", "coverage"], rows)


def published(results):
    for name in STATEMENTS:
        yield f"time of {name} while traced, ratio", f"{stats.median(ratios(results, name)):.2f}"


def required(results):
    for name in STATEMENTS:
        ratio = stats.median(ratios(results, name))
        yield f"cost: time of {name} while traced, ratio", f"{ratio:.3f}", f"at most {LIMIT}", ratio <= LIMIT
