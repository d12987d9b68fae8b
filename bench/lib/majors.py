"""Parts whose results are those of several runs, each of some loads on one major: a record says which server it is of."""
import datetime

import machine


def described(place):
    """Of each record: of which server it is. Of the machine before: later it is the load's own."""
    return {"major": place.major, "version": place.version, "date": datetime.date.today().isoformat(),
            "machine": machine.short(machine.describe(place)["machine"]), "busy before": machine.load()}


def merged(before, found, field, names):
    """Results of other loads and of other majors stay; in the order of the loads' names, which are in that field."""
    anew = {(r["major"], r[field]) for r in found}
    return sorted((*(r for r in before if (r["major"], r[field]) not in anew and r[field] in names), *found),
                  key=lambda r: (names.index(r[field]), r["major"]))


def cases(results, field):
    """Each load and major that there are, with the records."""
    found = {}
    for r in results:
        found.setdefault((r[field], r["major"]), []).append(r)
    for (name, major), mine in found.items():
        yield name, major, mine


def caption(results):
    runs = {}
    for r in results:
        where = f", {r['machine']}" if "machine" in r else ""
        runs.setdefault((r["version"], r["date"], where), []).append(r["busy before"])
    return "\n\n" + "; ".join(f"PostgreSQL {version}, {date}{where}, load average before at most {max(busy):.1f}"
                              for (version, date, where), busy in runs.items()) + "."
