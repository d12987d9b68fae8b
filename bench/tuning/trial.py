"""Six servers that are bad in one way each: is the culprit named first, and what is it worth to do as advised?

The first round goes by the book: a minute of evidence under the load, pgscale.advice, pgscale.apply() while the load
runs, a restart if it takes one, another minute, pgscale.verify(), pgscale.revert(); and then pgtune's answer. The other
rounds, in orders of their own, only have pgbench measure the three configurations, each on fresh data.
"""
import contextlib
import time

import psycopg2

import advice
import pgtune
import stats
from bed import CASES, CONNECTIONS, bed_of
from cluster import run, say, value
from load import latencies
from report import between, signed, spread, table

BAD, APPLIED, PGTUNE = LEGS = ("bad", "applied", "pgtune")
# rounds; seconds of evidence, which are as many as verify takes for a verdict
FULL = (1, 66)
# enough for most rules to speak
QUICK = (1, 36)
# what verify may claim beside what pgbench has measured of the same minutes: points of per cent
TOLERANCE = 0.10
GAINS = 1.1


def watch(bed, load, seconds):
    time.sleep(bed.case.settle)
    began = time.time()
    time.sleep(seconds)
    return began, time.time()


def figures(load, began, ended):
    """What pgbench says of the time between."""
    at, ms = load.transactions()
    ms = ms[(began <= at) & (at < ended)]
    return {"tps": len(ms) / (ended - began), "mean": float(ms.mean()), **latencies(ms)}


def leg(bed, settings, seconds):
    with bed.serving(settings):
        with bed.load() as load:
            window = watch(bed, load, seconds)
        return figures(load, *window)


def change(bed, advised):
    """Applies what is advised of what is wrong; else what would help is set. Returns the changes, and an error if any."""
    mine = [row["setting"] for row in advised if row["setting"] in bed.case.culprits]
    changes = {}
    try:
        for setting in mine:
            changes[setting] = advice.apply(bed.connection, setting)
        error = None
    except psycopg2.Error as failed:
        # a finding, too, and no reason to lose what else is measured
        error = str(failed)
        say(f"  {error}")
    if changes:
        return changes, error
    return {setting: advice.set_to(bed.connection, setting, wanted) for setting, wanted in bed.case.cure.items()}, error


def by_the_book(bed, seconds):
    """Returns what pgbench measured before and after, and what pgscale said."""
    with bed.serving(bed.case.bad):
        with bed.load() as load:
            window = watch(bed, load, seconds)
            advised = advice.advice(bed.connection)
            said = {"advice": advised, "rules": advice.rules(bed.connection)}
            conf = bed.auto_conf()
            changes, said["error"] = change(bed, advised)
        before = figures(load, *window)
        if bed.case.restart:
            bed.restart()
        with bed.load() as load:
            window = watch(bed, load, seconds)
            said["changed"] = {setting: value(bed.connection, "SELECT current_setting(%s)", setting)
                               for setting in changes}
            said["verify"] = {setting: advice.verify(bed.connection, number) for setting, number in changes.items()}
            for number in reversed(changes.values()):
                advice.revert(bed.connection, number)
            said["reverted"] = bed.auto_conf() == conf
        return before, figures(load, *window), said


def pgtunes(connection):
    """Its settings, without those that this build of the server cannot have."""
    wanted = pgtune.settings(pgtune.Machine.this(), CONNECTIONS)
    known = dict(run(connection, "SELECT name, enumvals FROM pg_settings"))
    return {name: setting for name, setting in wanted.items()
            if name in known and (known[name] is None or setting in known[name])}


def one(place, number, case, rounds, seconds):
    found = {"case": case.name, "legs": []}

    def keep(at, name, measured):
        say(f"  {name}: {measured['tps']:.0f} TPS, mean {measured['mean']:.2f} ms, p99 {measured['p99']:.1f} ms")
        found["legs"].append({"round": at, "leg": name, **measured})

    with bed_of(place, number, case) as bed:
        say(f" {case.name}")
        before, after, said = by_the_book(bed, seconds + (case.longer if seconds == FULL[1] else 0))
        found.update(said)
        keep(0, BAD, before)
        keep(0, APPLIED, after)
        say("  advised: " + (", ".join(f"{row['setting'] or row['object']} {row['recommended']} ({row['gain']:.2f})"
                                       for row in said["advice"]) or "nothing"))
        for setting, rows in said["verify"].items():
            for row in rows:
                say(f"  {setting}: {claimed(row)}{' (decides)' if row['decides'] else ''}")
        with bed.server, contextlib.closing(bed.server.connect()) as connection:
            found["pgtune"] = pgtunes(connection)
        settings = {BAD: case.bad, APPLIED: {**case.bad, **said["changed"]}, PGTUNE: {**case.bad, **found["pgtune"]}}
        keep(0, PGTUNE, leg(bed, settings[PGTUNE], case.short))
        for at, name in stats.rounds(rounds, LEGS):
            if at > 0:
                keep(at, name, leg(bed, settings[name], case.short))
    return found


LEFT_OUT = ("rules",)


def pieces(quick):
    return [case.name for case in CASES]


def measure(place, quick, names):
    rounds, seconds = QUICK if quick else FULL
    for number, case in enumerate(CASES):
        if case.name in names:
            yield case.name, one(place, number, case, rounds, seconds)


def whole(found):
    return list(found.values())


def case_of(found):
    return next(case for case in CASES if case.name == found["case"])


def first(found):
    """The rank of what is wrong in the advice, from 1; None if it is not there."""
    ranks = [rank for rank, row in enumerate(found["advice"], 1) if row["setting"] in case_of(found).culprits]
    return ranks[0] if ranks else None


def decisive(found):
    """What verify claims of the first change: the row that decides, if there is one."""
    rows = next(iter(found["verify"].values()))
    return next((row for row in rows if row["decides"]), rows[0] if rows else None)


def of_time(found):
    """What verify claims of sessions' time, which is the mean latency where clients do nothing but wait for sessions."""
    if case_of(found).metric != "tps":
        return None
    rows = next(iter(found["verify"].values()))
    return next((row for row in rows if "time per transaction" in row["metric"] and row["difference_low"] is not None), None)


def claimed(row):
    if row is None:
        return "nothing"
    if row["difference"] is None:
        return row["verdict"]
    interval = f" ({signed(row['difference_low'], 0)} .. {signed(row['difference_high'], 0)})" if row["difference_low"] is not None else ""
    return f"{row['metric']} {signed(row['difference'], 0)}{interval}, {row['verdict']}"


def gains(found, name):
    """How many times better than bad in each round: transactions a second, or a latency."""
    metric = case_of(found).metric
    legs = {(each["round"], each["leg"]): each[metric] for each in found["legs"]}
    ratios = [legs[at, name] / legs[at, BAD] for at, each in legs if each == name and (at, BAD) in legs]
    return ratios if metric == "tps" else [1 / ratio for ratio in ratios]


def measured_change(found):
    """Of the mean latency, in the round that went by the book."""
    legs = {each["leg"]: each for each in found["legs"] if each["round"] == 0}
    return legs[APPLIED]["mean"] / legs[BAD]["mean"] - 1


def values(found, name, metric, form):
    return spread([each[metric] for each in found["legs"] if each["leg"] == name], form)


def show(results):
    said, gained, told = [], [], []
    for found in results:
        case = case_of(found)
        rank = first(found)
        said.append([case.name, case.said + (f"; {case.disk.said}" if case.disk else ""),
                     {None: "**not named**", 1: "yes"}.get(rank, f"**no, {rank}.**"),
                     ", ".join(f"`{row['setting'] or row['object']}` {row['recommended']}"
                               for row in found["advice"] if row["setting"] not in case.culprits) or "nothing",
                     ", ".join(f"`{setting}` {applied}" for setting, applied in found["changed"].items())])
        gained.append([case.name, "TPS" if case.metric == "tps" else f"{case.metric}, ms"] +
                      [values(found, name, case.metric, "{:,.0f}") for name in LEGS] +
                      [spread(gains(found, name), "{:.2f}") for name in (APPLIED, PGTUNE)])
        others = [row for row in next(iter(found["verify"].values())) if row is not decisive(found)]
        told.append([case.name, signed(measured_change(found), 0), claimed(decisive(found)),
                     "; ".join(claimed(row) for row in others), "as before" if found["reverted"] else "**differs**"])
    return "\n\n".join([
        table(["what is wrong", "load and disk", "named first", "advised besides", "applied"], said),
        table(["what is wrong", "measured by pgbench", *LEGS, "applied is better by", "pgtune's"], gained),
        table(["what is wrong", "mean latency, by pgbench", "claimed by `verify`: what decides", "and besides",
               "`postgresql.auto.conf` once reverted"], told)])


def verdict(found):
    row = decisive(found)
    return row["verdict"] if row else "cannot tell"


def contradicts(found):
    """Does verify say the opposite of what pgbench has measured of the same minutes?"""
    return verdict(found) == ("worse" if gains(found, APPLIED)[0] > 1 else "better")


def within(found):
    """Is what pgbench measured where verify says it is?"""
    row = of_time(found)
    return row["difference_low"] - TOLERANCE <= measured_change(found) <= row["difference_high"] + TOLERANCE


def published(results):
    for found in results:
        case = case_of(found)
        for name in LEGS:
            yield f"{name}, {case.name}", values(found, name, case.metric, "{:,.0f}")
        claim = of_time(found) or decisive(found)
        yield f"verify, {case.name}", between(*(100 * claim[end] for end in ("difference", "difference_low", "difference_high")), "{:.0f}", " %")
    yield "reverted", f"{sum(found['reverted'] for found in results)} of {len(results)}"


def required(results):
    named = sum(first(found) == 1 for found in results)
    reverted = sum(found["reverted"] for found in results)
    won = [found for found in results if gains(found, APPLIED)[0] >= GAINS]
    better = sum(verdict(found) == "better" for found in won)
    wrong = sum(contradicts(found) for found in results)
    inside = [within(found) for found in results if of_time(found)]
    failed = sum(found["error"] is not None for found in results)
    n = len(results)
    return [
        ("cases: what is wrong is named first", f"{named} of {n}", "all", named == n),
        (f"cases: verify says better where pgbench does, by {GAINS} or more", f"{better} of {len(won)}", "all",
         better == len(won)),
        ("cases: verify says the opposite of pgbench", f"{wrong} of {n}", "none", wrong == 0),
        (f"cases: pgbench's mean latency within verify's interval, {TOLERANCE * 100:.0f} points of tolerance",
         f"{sum(inside)} of {len(inside)}", "all", all(inside)),
        ("cases: errors of pgscale.apply", str(failed), "none", failed == 0),
        ("cases: postgresql.auto.conf as before after revert", f"{reverted} of {n}", "all", reverted == n),
    ]
