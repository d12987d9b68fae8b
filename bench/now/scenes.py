"""An incident, acted out: a usual load for a while, then what goes wrong, then the usual load again; and how it is judged."""
import contextlib
import dataclasses
import time
from typing import Callable

import bed
import watch
from cluster import say
from report import percent, table

# seconds of the usual load, of the incident, and of the usual load after it
NIGHT, SHORT, QUICK = (40, 20, 10), (20, 15, 6), (6, 12, 3)
PICTURE_S = 10          # the screen that is shown is the first one from then on
LIMIT_S = 10
LIMIT_KEPT = 0.9
TPCB = ("-M", "prepared", "-c", 8, "-j", 2, "-R", 100)


@dataclasses.dataclass(frozen=True)
class Scene:
    name: str
    rule: str                   # that has to be first
    said: str                   # what happens, for the table
    # stage -> a context in which it happens; yields a list of process ids, of which the first line must name one, or None
    act: Callable
    usual: tuple = TPCB         # pgbench's options of the usual load
    script: str = None          # its statements, if they are not pgbench's own
    setup: str = ""             # SQL
    scale: int = bed.SCALE
    settings: dict = dataclasses.field(default_factory=dict)
    disk: bed.Disk = None
    standby: dict = None        # the standby's settings
    on_standby: bool = False    # it is asked


RECORDS = {"": ("scene",)}
LEFT_OUT = ("evidence",)


def play(place, scenes, times, names):
    """For measure() of a part with pieces."""
    for scene in scenes:
        if scene.name in names:
            say(f"{scene.name}")
            yield scene.name, one(place, scene, times)


def whole(found):
    return list(found.values())


def one(place, scene, times):
    usual_s, held_s, after_s = times
    with bed.staged(place, scene.name, scene.scale, scene.disk, scene.standby, scene.setup, **scene.settings) as stage:
        options = scene.usual
        if scene.script:
            options += ("-f", stage.script("usual", scene.script))
        asked = stage.standby if scene.on_standby else stage.server
        with bed.pgbench(stage.server, *options) if options else contextlib.nullcontext(), watch.Watch(asked) as watching:
            time.sleep(usual_s)
            before = time.time()
            with scene.act(stage) as pids:
                began = time.time()
                time.sleep(held_s)
                ended = time.time()
            over = time.time()
            time.sleep(after_s)
        record = judged(scene, watching, pids or (), (before - usual_s, before, began, ended, over))
    say(f"  {scene.name}: {scene.rule} named after {record['named_s']} s; first lines {record['changes']}")
    return record


def judged(scene, watching, pids, times):
    start, before, began, ended, over = times

    def right(poll):
        return poll.first() == scene.rule and (not pids or poll.rows[0]["pid"] in pids)

    held = watching.between(began, ended)
    named = next((poll for poll in held if right(poll)), None)
    since = [poll for poll in held if named and poll.at >= named.at]
    usual = watching.between(start, before)
    cleared = next((poll.at - over for poll in watching.between(over, time.time()) if poll.first() != scene.rule), None)
    # the row at the time of the picture, if it is the right one
    row = next((poll.rows[0] for poll in held if right(poll) and poll.at >= began + PICTURE_S), named.rows[0] if named else {})
    return {"scene": scene.name, "rule": scene.rule, "said": scene.said,
            "named_s": round(named.at - began, 1) if named else None,
            "wrong_first": sorted({poll.first() for poll in held if poll.rows and not right(poll)}),
            "beside": sorted({each["rule"] for poll in held for each in poll.rows if each["rule"] != scene.rule}),
            "kept": sum(map(right, since)) / len(since) if since else 0,
            "usual_polls": len(usual), "usual_false": sum(bool(poll.rows) for poll in usual),
            "usual_rules": sorted({each["rule"] for poll in usual for each in poll.rows}),
            "cleared_s": round(cleared, 1) if cleared is not None else None,
            "pids": list(pids), "row": {name: row[name] for name in row},
            "changes": changes(watching.polls, began), "picture": "\n".join(watching.picture(began + PICTURE_S)),
            "widest": watching.widest(), "most_lines": watching.most_lines(), "slowest_ms": watching.slowest_ms()}


def changes(polls, began):
    """The first line's rule, by the seconds since it began at which it changed."""
    found = []
    for poll in polls:
        if not found or found[-1][1] != poll.first():
            found.append([round(poll.at - began, 1), poll.first()])
    return found


def picture(found):
    return "\n".join(line.rstrip() for line in found["picture"].splitlines())


def seconds(figure):
    return "never" if figure is None else f"{figure:.1f} s"


def show(results):
    rows = []
    for found in results:
        row = found["row"]
        rows.append([found["scene"], found["said"], f"`{found['rule']}`", seconds(found["named_s"]), row.get("certainty", ""),
                     percent(found["kept"], 0), ", ".join(f"`{rule}`" for rule in found["wrong_first"]),
                     f"{found['usual_false']} of {found['usual_polls']}", seconds(found["cleared_s"])])
    shown = table(["", "what happens", "rule", "first line after", "certainty", "and it stays", "other first lines",
                   "false in the usual time before", "gone after"], rows)
    for found in results:
        shown += f"\n\n### {found['scene']}\n\nThe screen {PICTURE_S} s after it began.\n\n```text\n{picture(found)}\n```"
    return shown


def published(results):
    named = [found["named_s"] for found in results if found["named_s"] is not None]
    yield "acted out", str(len(results))
    yield "named", str(len(named))
    if named:
        yield "latest", f"{max(named):.1f} s"
    for found in results:
        yield f"{found['scene']}, first line after", seconds(found["named_s"])
        yield f"{found['scene']}, screen", f"```text\n{picture(found)}\n```\n"


def required(part, results):
    for found in results:
        named = found["named_s"]
        yield f"{part}: {found['scene']}: the first line says `{found['rule']}`" + (" and its process" if found["pids"] else ""), \
            seconds(named), f"within {LIMIT_S} s", named is not None and named <= LIMIT_S
    least = min(results, key=lambda found: found["kept"])
    yield f"{part}: part of the time after that in which the first line stays right, least: {least['scene']}", \
        percent(least["kept"], 0), f"at least {percent(LIMIT_KEPT, 0)}", least["kept"] >= LIMIT_KEPT
    false = sum(found["usual_false"] for found in results)
    yield f"{part}: rows in the usual time before", f"{false} of {sum(found['usual_polls'] for found in results)} times asked", "0", not false
    widest, lines = (max((found[what] for found in results), default=0) for what in ("widest", "most_lines"))
    yield f"{part}: widest line of all screens", str(widest), f"{watch.MOST_COLUMNS}", widest <= watch.MOST_COLUMNS
    yield f"{part}: lines of the longest screen", str(lines), f"{watch.MOST_LINES}", lines <= watch.MOST_LINES
