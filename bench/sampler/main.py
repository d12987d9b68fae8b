"""The sampler's experiment: see run and README.md."""
import argparse
import json
import pathlib
import sys
import time

import machine
from cluster import TREE, Place, say
from report import insert, table

import cost
import plot
import readers
import schedule
import tps
import truth

HERE = pathlib.Path(__file__).resolve().parent
PARTS = {"truth": truth, "cost": cost, "tps": tps, "schedule": schedule, "readers": readers}


def main():
    parser = argparse.ArgumentParser(prog="bench/sampler/run")
    parser.add_argument("--quick", action="store_true", help="two minutes, to see that all works; no figures to keep")
    parser.add_argument("--redraw", action="store_true", help="tables and plots from results.json, nothing is measured")
    parser.add_argument("parts", nargs="*", metavar="PART", help="of: " + " ".join(PARTS))
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error("no such part: " + " ".join(unknown))

    output = TREE / "build" / "bench" / "sampler" if arguments.quick else HERE
    output.mkdir(parents=True, exist_ok=True)
    file = output / "results.json"
    keep = file.exists() and (arguments.redraw or (arguments.parts and not arguments.quick))
    results = json.loads(file.read_text()) if keep else {}
    if not arguments.redraw:
        with Place() as place:
            for name, part in PARTS.items():
                if name in (arguments.parts or PARTS):
                    since = time.monotonic()
                    say(f"{name} ...")
                    load = machine.load()
                    if load > 0.7 and not arguments.quick and not results:
                        say(f"this machine is not idle: in the last minute {load:.1f} processes wanted a CPU")
                    measured = part.measure(place, arguments.quick)
                    results[name] = {"machine": machine.describe(place), "load before": load, "results": measured}
                    file.write_text(json.dumps(results, indent=1) + "\n")
                    say(f"{name}: {time.monotonic() - since:.0f} s")

    verdicts = []
    for name, part in PARTS.items():
        if name in results:
            shown = part.show(results[name]["results"])
            print(f"\n{name}\n\n{shown}")
            verdicts += part.required(results[name]["results"])
            if not arguments.quick:
                insert(HERE / "README.md", name, "\n" + shown + "\n")
    shown = table(["required", "measured", "limit", ""],
                  [[what, measured, limit, "met" if met else "**not met**"] for what, measured, limit, met in verdicts])
    print(f"\n{shown}")
    machines = {tuple(part["machine"].items()) for part in results.values()}
    described = "\n\n".join("\n".join(f"- {k}: {v}" for k, v in each) for each in machines)
    described += "\n- processes wanting a CPU in the minute before: " + \
        ", ".join(f"{name} {part['load before']:.1f}" for name, part in results.items())
    print(f"\n{described}")
    if not arguments.quick:
        insert(HERE / "README.md", "required", "\n" + shown + "\n")
        insert(HERE / "README.md", "machine", "\n" + described + "\n")
    plot.draw(results, output)
    print(f"\n{output.relative_to(TREE)}/sampler.png")
    return 0 if arguments.quick or all(verdict[-1] for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
