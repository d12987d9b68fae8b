"""What is shown, published and required of the loads on real servers."""
import stats
import turns
from bed import ADAPTIVE, AGAIN, BY_ITSELF, CLOCK, HISTORY, OFF
from report import percent, spread, table

SHOWN = (OFF, AGAIN, CLOCK, HISTORY, ADAPTIVE, BY_ITSELF)
SWEEPING = (CLOCK, HISTORY, ADAPTIVE, BY_ITSELF)
MAJORS = (15, 18, 19)       # that others may take figures of
WITHIN = 0.2                # of the real saving, the foretold one
MOST_CPU = 0.05             # of a core, at 100,000 buffers a second

# of all parts on the slow disk
PICTURE = "![pages read and transactions a second with each policy, relative to a server without the sweeper](reads.png)"

READS = ("pages read a transaction", turns.reads, "{:.3f}")
DEVICE_READS = ("device reads a transaction", turns.device_reads, "{:.3f}")
TPS = ("TPS", turns.tps, "{:,.0f}")
P99 = ("p99, ms", turns.p99, "{:.2f}")
A_WRITE = ("transactions a device write", turns.transactions_a_write, "{:.2f}")
WRITTEN = ("pages written a transaction", turns.pages_written, "{:.2f}")


class Tables:
    RECORDS = {"": ("load", "major", "condition")}
    LEFT_OUT = ("began", "ended", "supplied_clean", "supplied_written", "p50", "p95", "p99.9", "max")

    def __init__(self, name, of_loads, limits):
        self.name = name
        self.loads = of_loads
        self.limits = limits
        on_device = (DEVICE_READS,) if limits else ()
        writes = (A_WRITE, WRITTEN) if limits and any(load.writes for load in of_loads) else ()
        # of writes, where few of them are the limit
        first = writes[:1] if limits and "write_iops" in limits else ()
        self.figures = (*first, READS, *on_device, TPS, P99, *(each for each in writes if each not in first))

    def _measured(self, results, conditions):
        """Each load, major and condition that there are."""
        for load in self.loads:
            for condition in conditions:
                for major in majors(results):
                    if mine := select(results, load, condition, major):
                        yield load, condition, major, mine

    @staticmethod
    def _has(figure, load):
        """Does this figure say anything of this load?"""
        if figure in (A_WRITE, WRITTEN):
            return load.writes
        return not load.takes_none or figure in (TPS, P99)

    def show(self, results):
        return "\n\n".join([*([PICTURE] if self.name == "reads" else []), *([self._show_majors(results)] if len(majors(results)) > 1 else []),
                            self._show_loads(results), self._show_ratios(results), self._show_sweeper(results)])

    def caption(self, results):
        runs = dict.fromkeys((r["version"], r["date"], f"{r['busy before']:.1f}") for r in results)
        return "\n\n" + "; ".join(f"PostgreSQL {version}, {date}, {busy} processes wanting a CPU in the minute before"
                                  for version, date, busy in runs) + "."

    def _show_majors(self, results):
        """Policy adaptive on all of them."""
        found = majors(results)
        rows = []
        for load in self.loads:
            if any(select(results, load, ADAPTIVE, major) for major in found):
                rows.append([load.name, *(self._ratio(results, load, ADAPTIVE, major, figure) for figure in self.figures for major in found)])
        return table(["adaptive to off", *(f"{name}, {major}" for name, _, _ in self.figures for major in found)], rows)

    def _ratio(self, results, load, condition, major, figure):
        found = ratios(results, load, condition, major, figure[1]) if self._has(figure, load) else []
        return spread(found, "{:.2f}") if found else ""

    def _show_loads(self, results):
        rows = [[load.name, condition, major, *(by_round(map(figure, mine), form) if self._has((name, figure, form), load) else ""
                                                for name, figure, form in self.figures), *show_cpu(condition, mine),
                 f"{stats.median([r['busy'] / r['seconds'] for r in mine]):.1f}"]
                for load, condition, major, mine in self._measured(results, SHOWN)]
        return table(["every round", "", "PostgreSQL", *(name for name, _, _ in self.figures), *CPU_COLUMNS, "cores busy"], rows)

    def _show_ratios(self, results):
        rows = [[load.name, condition, major, *(self._ratio(results, load, condition, major, figure) for figure in self.figures),
                 *show_cpu(condition, mine), *(show_savings(results, load, major) if condition == ADAPTIVE else ["", ""])]
                for load, condition, major, mine in self._measured(results, SHOWN[1:])]
        return table(["to off", "", "PostgreSQL", *(name.removesuffix(", ms") for name, _, _ in self.figures), *CPU_COLUMNS,
                      "reads saved, foretold", "reads saved"], rows)

    def _show_sweeper(self, results):
        rows = [[load.name, condition, major, spread([turns.a_second(r) for r in mine], "{:,.0f}"),
                 "" if load.takes_none else spread([turns.served(r) * 100 for r in mine], "{:.1f}", " %"),
                 percent(stats.median([turns.starved(r) for r in mine])),
                 percent(stats.median([turns.second_chances(r) for r in mine])), *show_cpu(condition, mine),
                 "" if load.takes_none else spread([turns.cpu_at_100k(r) * 100 for r in mine], "{:.1f}", " %"),
                 percent(stats.median([r["writer_cpu_ms"] / 1000 / r["seconds"] for r in mine])),
                 ", ".join(dict.fromkeys(r["choice"] for r in mine if r["choice"])), by_round([r["switches"] for r in mine], "{:.0f}"),
                 f"{min(r['turnovers'] for r in mine):.0f}", by_round(map(turns.p99, mine), "{:.2f}")]
                for load, condition, major, mine in self._measured(results, SWEEPING)]
        return table(["the sweeper", "", "PostgreSQL", "buffers taken/s", "of them supplied", "ticks starved", "used again before", *CPU_COLUMNS,
                      "at 100,000 buffers/s", "CPU of its writers", "choice at the end", "switches", "times all buffers were taken before",
                      "p99, ms"], rows)

    def published(self, results):
        """What is not measured is None."""
        for major in MAJORS:
            for load in self.loads:
                for condition in SHOWN:
                    mine = select(results, load, condition, major)
                    for figure in self.figures:
                        name, value, form = figure
                        yield f"{load.name}: {name}, {condition}, {major}", spread([value(r) for r in mine], form) if mine else None
                        if condition != OFF:
                            yield f"{load.name}: {name}, {condition} / off, {major}", self._ratio(results, load, condition, major, figure) or None
                    if condition in SWEEPING:
                        yield f"{load.name}: CPU of the sweeper, {condition}, {major}", \
                            spread([turns.cpu(r) * 100 for r in mine], "{:.1f}", " %") if mine else None

    def required(self, results):
        for load, _, major, mine in self._measured(results, (ADAPTIVE,)):
            what = f"{self.name}: {load.name}, {major}"
            reads = ratios(results, load, ADAPTIVE, major, turns.reads)
            if load.most_reads and reads:
                yield f"{what}: pages read a transaction / off", spread(reads, "{:.2f}"), f"at most {load.most_reads:.2f}", \
                    stats.median(reads) <= load.most_reads
            saved = savings(results, load, major) if load.most_reads and load.most_reads < 1 else None
            if saved:
                foretold, real = saved
                yield f"{what}: reads saved, foretold / real", f"{percent(foretold, 0)} / {percent(real, 0)}", \
                    f"within {percent(WITHIN, 0)}", abs(foretold - real) <= WITHIN * real
            if load.least_tps:
                yield from self._required_tps(results, load, major, what)
            if load.has_most_cpu:
                found = [turns.cpu_at_100k(r) for r in mine]
                yield f"{what}: CPU of the sweeper at 100,000 buffers/s", spread([each * 100 for each in found], "{:.1f}", " %"), \
                    f"at most {percent(MOST_CPU, 0)} of a core", stats.median(found) <= MOST_CPU

    def _required_tps(self, results, load, major, what):
        least, limit = load.least_tps, f"at least {load.least_tps:.2f}"
        if least < 1:
            same = min(ratios(results, load, AGAIN, major, turns.tps))
            limit += f", or {same:.2f}, the least of off again / off" if same < least else ""
            least = min(least, same)
        for condition in (ADAPTIVE, BY_ITSELF):
            found = ratios(results, load, condition, major, turns.tps)
            if found:
                yield f"{what}: TPS, {condition} / off", spread(found, "{:.2f}"), limit, stats.median(found) >= least


CPU_COLUMNS = ["CPU of the sweeper, of a core", "ns a buffer taken"]


def show_cpu(condition, mine):
    if condition not in SWEEPING:
        return ["", ""]
    a_buffer = [turns.cpu_a_buffer(r) for r in mine if r["allocations"] > r["seconds"]]
    return [spread([turns.cpu(r) * 100 for r in mine], "{:.1f}", " %"), spread(a_buffer, "{:,.0f}") if a_buffer else ""]


def by_round(values, form):
    """Every round's."""
    return " ".join(form.format(value) for value in values)


def majors(results):
    return sorted({r["major"] for r in results})


def select(results, load, condition, major):
    return [r for r in results if (r["load"], r["condition"], r["major"]) == (load.name, condition, major)]


def ratios(results, load, condition, major, figure, to=OFF):
    """In each round in which the other is not 0."""
    found = {(r["round"], r["condition"]): figure(r) for r in results if (r["load"], r["major"]) == (load.name, major)}
    return [mine / found[number, to] for (number, each), mine in found.items() if each == condition and found[number, to]]


def savings(results, load, major):
    """The share of reads that policy adaptive saves: as it foretells itself, and as they are fewer than without the sweeper.

    Medians; none where nothing was read.
    """
    foretold = [r["foretold"] for r in select(results, load, ADAPTIVE, major)]
    reads = ratios(results, load, ADAPTIVE, major, turns.reads)
    if None in foretold or not reads:
        return None
    return stats.median(foretold), 1 - stats.median(reads)


def show_savings(results, load, major):
    found = None if load.takes_none else savings(results, load, major)
    return [percent(share, 0) for share in found] if found else ["", ""]
