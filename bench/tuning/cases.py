"""Six servers that are bad in one way each: is the culprit named first, and what is it worth to do as advised?

A minute of evidence under the load, pgscale.advice, pgscale.apply() while the load runs, a restart if it takes one, another
minute, pgscale.verify(), pgscale.revert(); and then the same load with pgtune's answer.
"""
import contextlib
import time

import psycopg2

import advice
import pgtune
from bed import CASES, CONNECTIONS, bed_of
from cluster import run, say, value
from load import latencies
from report import signed, table

BAD, APPLIED, PGTUNE = LEGS = ("bad", "applied", "pgtune")
# of evidence, which are as many as verify takes for a verdict; and enough for most rules to speak
SECONDS, QUICK_SECONDS = 66, 36
# what verify may claim beside what pgbench has measured of the same minutes: points of per cent
TOLERANCE = 0.10
GAINS = 1.1
LEFT_OUT = ("gain", "object", "reason", "recommended")


def watch(bed, load, seconds):
    time.sleep(bed.case.settle)
    began = time.time()
    time.sleep(seconds)
    return began, time.time()


def figures(load, began, ended):
    """What pgbench says of the time between."""
    at, ms = load.transactions()
    ms = ms[(began <= at) & (at < ended)]
    return {"tps": len(ms) / (ended - began), "mean": float(ms.mean()), "p99": latencies(ms)["p99"]}


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
            said = {"advice": advised}
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


def one(place, number, case, seconds):
    say(f" {case.name}")
    with bed_of(place, number, case) as bed:
        before, after, said = by_the_book(bed, seconds + (case.longer if seconds == SECONDS else 0))
        with bed.server, contextlib.closing(bed.server.connect()) as connection:
            settings = pgtunes(connection)
        legs = {BAD: before, APPLIED: after, PGTUNE: leg(bed, {**case.bad, **settings}, case.short)}
    for name, measured in legs.items():
        say(f"  {name}: {measured['tps']:.0f} TPS, mean {measured['mean']:.2f} ms, p99 {measured['p99']:.1f} ms")
    return {"case": case.name, "legs": legs, **said}


def pieces(quick):
    return [case.name for case in CASES]


def measure(place, quick, names):
    for number, case in enumerate(CASES):
        if case.name in names:
            yield case.name, one(place, number, case, QUICK_SECONDS if quick else SECONDS)


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


def gains(found):
    """How many times better than bad it is with the advice applied: transactions a second, or a latency."""
    metric = case_of(found).metric
    ratio = found["legs"][APPLIED][metric] / found["legs"][BAD][metric]
    return ratio if metric == "tps" else 1 / ratio


def measured_change(found):
    """Of the mean latency."""
    return found["legs"][APPLIED]["mean"] / found["legs"][BAD]["mean"] - 1


def measured(found, name):
    metric = case_of(found).metric
    return f"{found['legs'][name][metric]:,.0f}" + ("" if metric == "tps" else " ms")


def show(results):
    rows = []
    for found in results:
        case = case_of(found)
        besides = ", ".join(f"`{row['setting'] or row['object']}`" for row in found["advice"] if row["setting"] not in case.culprits)
        rows.append([case.name, case.said + (f"; {case.disk.said}" if case.disk else ""),
                     ", ".join(f"`{setting}` {applied}" for setting, applied in found["changed"].items()) +
                     (f"; besides {besides}" if besides else ""),
                     "TPS" if case.metric == "tps" else case.metric, *(measured(found, name) for name in LEGS),
                     signed(measured_change(found), 0), claimed(decisive(found))])
    return table(["what is wrong", "load and disk", "advised and applied", "", "before", "applied", "pgtune's settings",
                  "mean latency, by pgbench", "claimed by `verify`"], rows)


def verdict(found):
    row = decisive(found)
    return row["verdict"] if row else "cannot tell"


def contradicts(found):
    """Does verify say the opposite of what pgbench has measured of the same minutes?"""
    return verdict(found) == ("worse" if gains(found) > 1 else "better")


def within(found):
    """Is what pgbench measured where verify says it is?"""
    row = of_time(found)
    return row["difference_low"] - TOLERANCE <= measured_change(found) <= row["difference_high"] + TOLERANCE


def published(results):
    for found in results:
        for name in LEGS:
            yield f"{name}, {found['case']}", measured(found, name)


def required(results):
    named = sum(first(found) == 1 for found in results)
    reverted = sum(found["reverted"] for found in results)
    won = [found for found in results if gains(found) >= GAINS]
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
