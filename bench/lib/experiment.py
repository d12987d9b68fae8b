"""experiment.py FOLDER ...: measures the parts of a folder of bench/ and keeps the figures, from which tables are made.

parts.ini names the parts. A part is the module of its name, or what PARTS has under its name in the folder's main.py.
"""
import argparse
import contextlib
import importlib
import json
import sys
import time

import digest
import machine
import registry
from cluster import TREE, Place, say
from report import table


def parts_of(here):
    if (here / "main.py").exists():
        return importlib.import_module("main").PARTS
    return {part.name: importlib.import_module(part.name) for part in registry.parts(registry.BENCH) if part.folder == here.name}


def run(here, parts):
    """Returns the exit code.

    A part measures (place, quick) -> results, shows (results) -> Markdown, and names what is required
    (results) -> (what, measured, limit, met) for each. It may have published (results) -> (name, text), the figures
    that pages take, and say how its results are summarised: see digest. Tables and figures come from the summary alone.

    A part may have pieces (quick), names in any order, of which --only chooses some. Then its measure (place, quick, names)
    yields (name, result) of each as it ends, and whole (results by name) makes the results.

    The results of a part that has merged (before, found) are those of several runs: of other pieces, or of other majors. Each
    piece is in the summary as soon as it has ended, and what is measured anew takes the place of what was there. Such a part
    has a caption (results) of its own. Pieces of another part are not all of its results: they are shown, and the summary
    stays. --rounds is for parts that have a number of rounds.
    """
    arguments = _arguments(here, parts)
    if arguments.show:
        blocks, figures, _ = _shown(parts, digest.read(here))
        print(json.dumps({"blocks": blocks, "figures": figures}))
        return 0

    partly = arguments.only and not all(hasattr(parts[name], "merged") for name in arguments.parts)
    aside = "quick" if arguments.quick else "only" if partly else ""
    output = TREE / "build" / "bench" / here.name / aside
    output.mkdir(parents=True, exist_ok=True)
    folder = output if aside else here
    if aside:
        (folder / "summary.json").unlink(missing_ok=True)
    for name in arguments.parts if arguments.rounds else ():
        parts[name].rounds = arguments.rounds
    _measure_all(parts, arguments, output, here, folder)
    blocks, _, verdicts = _shown(parts, digest.read(folder), partly)
    for name, block in blocks.items():
        print(f"\n{name}\n{block}")
    return 0 if aside or all(verdict[-1] for verdict in verdicts) else 1


def _arguments(here, parts):
    parser = argparse.ArgumentParser(prog=f"bench/run {here.name}")
    parser.add_argument("--quick", action="store_true", help="short, to see that all works; no figures to keep")
    parser.add_argument("--show", action="store_true", help="nothing is measured: print what pages take, from summary.json")
    parser.add_argument("--only", metavar="TEXT", action="append", help="pieces of the parts whose names contain this, or are this")
    parser.add_argument("--rounds", type=int, help="as many instead of the part's own")
    parser.add_argument("parts", nargs="*", metavar="PART", help="of: " + " ".join(parts))
    arguments = parser.parse_args()
    arguments.parts = arguments.parts or list(parts)
    unknown = set(arguments.parts) - set(parts)
    if unknown:
        parser.error("no such part: " + " ".join(unknown))
    if arguments.only:
        arguments.parts = [name for name in arguments.parts if _chosen(parts[name], arguments)]
        if not arguments.parts:
            parser.error(f"no piece of these parts is named {', '.join(arguments.only)}")
    without = [name for name in arguments.parts if not isinstance(getattr(parts[name], "rounds", None), int)]
    if arguments.rounds and without:
        parser.error("no rounds to choose: " + " ".join(without))
    return arguments


def _chosen(part, arguments):
    """Of a part's pieces those that are asked for."""
    names = part.pieces(arguments.quick) if hasattr(part, "pieces") else []
    if not arguments.only:
        return names
    wanted = [name for text in arguments.only for name in ([text] if text in names else [each for each in names if text in each])]
    return [name for name in names if name in wanted]


def _measure_all(parts, arguments, output, here, folder):
    raw = output / "results.json"
    results = json.loads(raw.read_text()) if raw.exists() else {}
    kept = digest.read(folder)

    def keep(name, found):
        """Of a part, or of a piece of one that merges."""
        part = parts[name]
        # as JSON has it, like what is kept
        found = json.loads(json.dumps(found))
        if hasattr(part, "merged"):
            before = digest.restored(kept[name]["results"]) if name in kept else []
            found["results"] = part.merged(before, found["results"])
        results[name] = found
        raw.write_text(json.dumps(results, indent=1) + "\n")
        kept[name] = {**found, "results": digest.summarise(part, found["results"])}
        digest.write(folder, {part: kept[part] for part in parts if part in kept})

    with Place() as place:
        for name in arguments.parts:
            _measure(place, name, parts[name], arguments, here, keep)


def _measure(place, name, part, arguments, here, keep):
    since = time.monotonic()
    say(f"{name} ...")
    load = machine.load()
    if load > 0.7 and not arguments.quick:
        say(f"this machine is busy, or was just now: in the last minute {load:.1f} processes wanted a CPU")
    described = machine.describe(place)
    peers = machine.peers(place, [word for each in registry.parts(registry.BENCH) if each.full_name == f"{here.name}/{name}"
                                  for word in each.packages.split()])

    def measured(results):
        keep(name, {"machine": described, "peers": peers, "load before": load, "results": results})

    if hasattr(part, "pieces"):
        found = {}
        with contextlib.closing(part.measure(place, arguments.quick, _chosen(part, arguments))) as pieces:
            for piece, result in pieces:
                found[piece] = json.loads(json.dumps(result))
                if hasattr(part, "merged"):
                    measured(part.whole({piece: found[piece]}))
        if not hasattr(part, "merged"):
            measured(part.whole(found))
    else:
        measured(part.measure(place, arguments.quick))
    say(f"{name}: {time.monotonic() - since:.0f} s")


def _shown(parts, kept, partly=False):
    """Each block of the README by name; by part and name the figures that pages take; and what was required of all pieces."""
    blocks, figures, verdicts = {}, {}, []
    restored = {name: {**kept[name], "results": digest.restored(kept[name]["results"])} for name in parts if name in kept}
    for name, part in restored.items():
        caption = parts[name].caption(part["results"]) if hasattr(parts[name], "caption") else ""
        blocks[name] = "\n" + parts[name].show(part["results"]) + caption + "\n"
        if partly:
            continue
        published = getattr(parts[name], "published", lambda results: ())
        figures[name] = {**part["machine"], "cores": machine.short(part["machine"]["machine"]), "caption": caption,
                         **{f"version of {peer}": version for peer, version in part.get("peers", {}).items()},
                         **dict(published(part["results"]))}
        verdicts += parts[name].required(part["results"])
    rows = [[what, measured, limit, "met" if met else "**not met**"] for what, measured, limit, met in verdicts]
    if rows:
        blocks["required"] = "\n" + table(["required", "measured", "limit", ""], rows) + "\n"
    blocks["machine"] = "\n" + _machines(restored) + "\n"
    return blocks, figures, verdicts


def _machines(parts):
    """A line for each part: when, where, beside what."""
    rows = []
    for name, part in parts.items():
        where = part["machine"]
        peers = ", ".join(f"{peer} {version}" for peer, version in part.get("peers", {}).items())
        rows.append([name, where["date"], f"{where['machine']}, Linux {where['kernel']}", where["PostgreSQL"], peers,
                     f"{part['load before']:.1f}"])
    return table(["part", "date", "machine", "PostgreSQL", "peers", "load average before"], rows)


if __name__ == "__main__":
    folder = registry.BENCH / sys.argv.pop(1)
    sys.path.insert(0, str(folder))
    sys.exit(run(folder, parts_of(folder)))
