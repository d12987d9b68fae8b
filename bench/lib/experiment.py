"""An experiment of several parts: one command measures them, keeps the figures, fills in the tables and draws."""
import argparse
import json
import pathlib
import time

import machine
from cluster import TREE, Place, say
from report import insert, table


def run(program, parts, draw):
    """The main function of the experiment in the program's folder. Returns the exit code.

    A part measures (place, quick) -> results, shows (results) -> Markdown, and names what is required
    (results) -> (what, measured, limit, met) for each. draw (results, folder) writes the plots.
    """
    here = pathlib.Path(program).resolve().parent
    parser = argparse.ArgumentParser(prog=f"bench/{here.name}/run")
    parser.add_argument("--quick", action="store_true", help="short, to see that all works; no figures to keep")
    parser.add_argument("--redraw", action="store_true", help="tables and plots from results.json, nothing is measured")
    parser.add_argument("parts", nargs="*", metavar="PART", help="of: " + " ".join(parts))
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(parts)
    if unknown:
        parser.error("no such part: " + " ".join(unknown))

    output = TREE / "build" / "bench" / here.name if arguments.quick else here
    output.mkdir(parents=True, exist_ok=True)
    file = output / "results.json"
    keep = file.exists() and (arguments.redraw or (arguments.parts and not arguments.quick))
    results = json.loads(file.read_text()) if keep else {}
    if not arguments.redraw:
        with Place() as place:
            for name in arguments.parts or parts:
                results[name] = _measure(place, name, parts[name], arguments.quick)
                file.write_text(json.dumps(results, indent=1) + "\n")

    verdicts = []
    for name, part in parts.items():
        if name in results:
            shown = part.show(results[name]["results"])
            print(f"\n{name}\n\n{shown}")
            verdicts += part.required(results[name]["results"])
            if not arguments.quick:
                insert(here / "README.md", name, "\n" + shown + "\n")
    shown = table(["required", "measured", "limit", ""],
                  [[what, measured, limit, "met" if met else "**not met**"] for what, measured, limit, met in verdicts])
    print(f"\n{shown}")
    described = _machines(results)
    print(f"\n{described}")
    if not arguments.quick:
        insert(here / "README.md", "required", "\n" + shown + "\n")
        insert(here / "README.md", "machine", "\n" + described + "\n")
    draw(results, output)
    return 0 if arguments.quick or all(verdict[-1] for verdict in verdicts) else 1


def _measure(place, name, part, quick):
    since = time.monotonic()
    say(f"{name} ...")
    load = machine.load()
    if load > 0.7 and not quick:
        say(f"this machine is busy, or was just now: in the last minute {load:.1f} processes wanted a CPU")
    measured = part.measure(place, quick)
    say(f"{name}: {time.monotonic() - since:.0f} s")
    return {"machine": machine.describe(place), "load before": load, "results": measured}


def _machines(results):
    different = dict.fromkeys(tuple(part["machine"].items()) for part in results.values())
    lines = ["\n".join(f"- {k}: {v}" for k, v in each) for each in different]
    return "\n\n".join(lines) + "\n- processes wanting a CPU in the minute before: " + \
        ", ".join(f"{name} {part['load before']:.1f}" for name, part in results.items())
