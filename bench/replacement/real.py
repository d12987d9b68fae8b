"""Loads on real servers: the sweeper off, and on with each of its policies, in turns within one running server.

Two of the turns of a round are without the sweeper, so that it is seen by how much two equal turns differ.
"""
import itertools

import loads
import stats
import turns
from bed import ADAPTIVE, AGAIN, CLOCK, FULL, HISTORY, OFF, QUICK, WINDOW, Bed, limited_bed, mode_of, settings_of
from cluster import run, say
from load import Load, latencies
from report import percent, spread, table

CONDITIONS = (OFF, AGAIN, CLOCK, HISTORY, ADAPTIVE)
FEWER = (OFF, AGAIN, CLOCK, ADAPTIVE)
SWEEPING = (CLOCK, HISTORY, ADAPTIVE)
# of the transactions, so many are in pgbench's log
SAMPLED = 0.2
WITHIN = 0.2                # of the real saving, the foretold one
MOST_CPU = 0.05             # of a core, at 100,000 buffers a second
# seconds: a warm-up at most, where all is in memory; settling; measured
TIMES = (60, 6, 3, 15)
QUICK_TIMES = (5, 2, 1, 4)


def by_round(values, form):
    """Every round's."""
    return " ".join(form.format(value) for value in values)


class Part:
    RECORDS = {"": ("load", "condition")}
    LEFT_OUT = ("began", "ended", "supplied_clean", "supplied_written", "p50", "p95", "p99.9", "max")

    def __init__(self, name, of_loads, rounds, conditions=FEWER, is_limited=True, mode=None):
        self.name = name
        self.loads = of_loads
        self.rounds = rounds
        self.conditions = conditions
        self.is_limited = is_limited
        self.mode = mode

    def pieces(self, quick):
        return [load.name for load in self.loads]

    def measure(self, place, quick, names):
        size = QUICK if quick else FULL
        wanted = [load for load in self.loads if load.name in names]
        if self.is_limited:
            with limited_bed(place, self.name, size) as bed:
                yield from self._all(bed, size, wanted, quick)
        else:
            yield from self._all(Bed(place, self.name, size), size, wanted, quick)

    def _all(self, bed, size, wanted, quick):
        for load in wanted:
            say(load.name)
            with bed.running_with(int(size.buffers_mib * load.buffers)) as connection:
                yield load.name, self._one(bed, connection, load, quick)

    def _one(self, bed, connection, load, quick):
        most, most_if_none, *times = QUICK_TIMES if quick else TIMES
        found = []
        turns_of_round = itertools.groupby(stats.rounds(1 if quick else self.rounds, self.conditions), key=lambda both: both[0])
        for number, conditions in turns_of_round:
            mine = []
            if load.events:
                for statement in loads.events(bed.buffers):
                    run(connection, statement)
            with Load(bed.server, *options(bed, load), f"--sampling-rate={SAMPLED}", log=True) as running:
                for _, condition in conditions:
                    settings = settings_of(condition, self.mode or mode_of(bed.place.major))
                    mine.append({"load": load.name, "round": number, "condition": condition,
                                 **turns.turn(bed, connection, running, settings, most_if_none if load.takes_none else most, *times)})
                    turns.say_turn(condition, mine[-1])
            at, ms = running.transactions()
            found += [{**r, "ms": latencies(ms[(at >= r["began"]) & (at < r["ended"])])} for r in mine]
        return found

    def whole(self, found):
        return [record for records in found.values() for record in records]

    def _measured(self, results):
        """Each load with the sweeper's conditions, and the second turn without it, that there are."""
        for load in self.loads:
            for condition in CONDITIONS[1:]:
                if select(results, load, condition):
                    yield load, condition

    def show(self, results):
        return "\n\n".join([self._show_loads(results), self._show_ratios(results), self._show_sweeper(results)])

    def _show_loads(self, results):
        rows = []
        for load in self.loads:
            for condition in CONDITIONS:
                if mine := select(results, load, condition):
                    disk = [spread([turns.device_reads(r) for r in mine], "{:.3f}"),
                            spread([turns.transactions_a_write(r) for r in mine], "{:,.2f}")] if self.is_limited else []
                    rows.append([load.name, condition, by_round(map(turns.reads, mine), "{:.3f}"), by_round(map(turns.tps, mine), "{:,.0f}"), *disk,
                                 spread([turns.p99(r) for r in mine], "{:.2f}"),
                                 f"{stats.median([r['busy'] / r['seconds'] for r in mine]):.1f}"])
        disk = ["device reads a transaction", "transactions a device write"] if self.is_limited else []
        return table(["", "", "pages read a transaction, every round", "TPS, every round", *disk, "p99, ms", "cores busy"], rows)

    def _figures(self):
        return [turns.reads, *([turns.device_reads] if self.is_limited else []), turns.tps, turns.p99]

    def _show_ratios(self, results):
        rows = []
        for load, condition in self._measured(results):
            figures = [turns.tps, turns.p99] if load.takes_none else self._figures()
            rows.append([load.name, condition, *[""] * (len(self._figures()) - len(figures)),
                         *(spread(ratios(results, load, condition, figure), "{:.2f}") for figure in figures),
                         *(show_savings(results, load) if condition == ADAPTIVE else ["", ""])])
        return table(["to off", "", "pages read a transaction", *(["device reads a transaction"] if self.is_limited else []), "TPS", "p99",
                      "reads saved, foretold", "reads saved"], rows)

    def _show_sweeper(self, results):
        rows = []
        for load, condition in self._measured(results):
            if condition in SWEEPING:
                mine = select(results, load, condition)
                rows.append([load.name, condition, spread([turns.a_second(r) for r in mine], "{:,.0f}"),
                             spread([turns.served(r) * 100 for r in mine], "{:.1f}", " %"),
                             percent(stats.median([turns.starved(r) for r in mine])),
                             percent(stats.median([turns.second_chances(r) for r in mine])),
                             spread([turns.cpu(r) * 100 for r in mine], "{:.1f}", " %"),
                             "" if load.takes_none else spread([turns.cpu_at_100k(r) * 100 for r in mine], "{:.1f}", " %"),
                             percent(stats.median([r["writer_cpu_ms"] / 1000 / r["seconds"] for r in mine])),
                             ", ".join(dict.fromkeys(r["choice"] for r in mine if r["choice"])), by_round([r["switches"] for r in mine], "{:.0f}"),
                             f"{min(r['turnovers'] for r in mine):.0f}"])
        return table(["", "", "buffers taken/s", "of them supplied", "ticks starved", "used again before", "CPU of the sweeper",
                      "at 100,000 buffers/s", "CPU of its writers", "choice at the end", "switches", "times all buffers were taken before"], rows)

    def published(self, results):
        for load, condition in self._measured(results):
            for name, figure in (("TPS", turns.tps), ("p99", turns.p99), *([] if load.takes_none else [("reads", turns.reads)])):
                yield f"{load.name}: {name}, {condition} / off", spread(ratios(results, load, condition, figure), "{:.2f}")
        for load in self.loads:
            for condition in CONDITIONS:
                if mine := select(results, load, condition):
                    yield f"{load.name}: TPS, {condition}", spread([turns.tps(r) for r in mine], "{:,.0f}")
                    yield f"{load.name}: reads, {condition}", spread([turns.reads(r) for r in mine], "{:.3f}")

    def required(self, results):
        for load in self.loads:
            if not select(results, load, ADAPTIVE):
                continue
            what = f"{self.name}: {load.name}"
            if load.most_reads:
                found = ratios(results, load, ADAPTIVE, turns.reads)
                yield f"{what}: pages read a transaction / off", spread(found, "{:.2f}"), f"at most {load.most_reads:.2f}", \
                    stats.median(found) <= load.most_reads
            if load.most_reads and load.most_reads < 1:
                foretold, real = savings(results, load)
                yield f"{what}: reads saved, foretold / real", f"{percent(foretold, 0)} / {percent(real, 0)}", \
                    f"within {percent(WITHIN, 0)}", abs(foretold - real) <= WITHIN * real
            if load.least_tps:
                yield self._required_tps(results, load, what)
            if load.has_most_cpu:
                found = [turns.cpu_at_100k(r) for r in select(results, load, ADAPTIVE)]
                yield f"{what}: CPU of the sweeper at 100,000 buffers/s", spread([each * 100 for each in found], "{:.1f}", " %"), \
                    f"at most {percent(MOST_CPU, 0)} of a core", stats.median(found) <= MOST_CPU

    def _required_tps(self, results, load, what):
        found = ratios(results, load, ADAPTIVE, turns.tps)
        least, limit = load.least_tps, f"at least {load.least_tps:.2f}"
        if least < 1:
            same = min(ratios(results, load, AGAIN, turns.tps))
            limit += f", or {same:.2f}, the least of off again / off" if same < least else ""
            least = min(least, same)
        return f"{what}: TPS / off", spread(found, "{:.2f}"), limit, stats.median(found) >= least


def options(bed, load):
    scripts = []
    for name, (text, weight) in load.scripts.items():
        file = bed.server.folder / f"{name}.sql"
        file.write_text(text)
        scripts += ["-f", f"{file}@{weight}"]
    variables = {"rows": int(bed.rows * load.rows), "branches": bed.branches, "n": 0, "oldest": loads.oldest(bed.buffers), "pages": bed.pages}
    return ["-M", "prepared", "-c", load.clients, "-j", 2,
            *(word for name, value in variables.items() for word in ("-D", f"{name}={value}")), *scripts]


def select(results, load, condition):
    return [r for r in results if (r["load"], r["condition"]) == (load.name, condition)]


def ratios(results, load, condition, figure, to=OFF):
    """In each round."""
    found = {(r["round"], r["condition"]): figure(r) for r in results if r["load"] == load.name}
    return [mine / found[number, to] for (number, each), mine in found.items() if each == condition]


def savings(results, load):
    """The share of reads that policy adaptive saves: as it foretells itself, and as they are fewer than without the sweeper.

    Medians; none where nothing was read.
    """
    each_foretold = [r["foretold"] for r in select(results, load, ADAPTIVE)]
    if None in each_foretold:
        return None
    return stats.median(each_foretold), 1 - stats.median(ratios(results, load, ADAPTIVE, turns.reads))


def show_savings(results, load):
    found = savings(results, load)
    return [percent(share, 0) for share in found] if found else ["", ""]


PARTS = {part.name: part for part in (
    Part("reads", (loads.ZIPF,), rounds=4, conditions=CONDITIONS),
    Part("reads_window", (loads.ZIPF,), rounds=4, conditions=CONDITIONS, mode=WINDOW),
    Part("cases", loads.GAINS, rounds=2),
    Part("neutral", loads.NEUTRAL, rounds=3),
    Part("cpu", loads.CPU, rounds=3, is_limited=False),
)}
