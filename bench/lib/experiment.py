"""An experiment of several parts: one command measures them, keeps the figures, fills in the tables and draws."""
import argparse
import contextlib
import hashlib
import importlib
import json
import pathlib
import time

import digest
import machine
import registry
from cluster import TREE, Place, say
from report import filled, table


def run(program, parts):
    """The main function of the experiment in the program's folder. Returns the exit code.

    A part measures (place, quick) -> results, shows (results) -> Markdown, and names what is required
    (results) -> (what, measured, limit, met) for each. It may have published (results) -> (name, text), the figures
    that doc/ takes, and say how its results are summarised: see digest. Tables, plots and figures come from the summary alone. The folder's plot.py, if
    there is one, has draw (results, folder).

    A part that takes long may have pieces (quick), names in any order. Then its measure (place, quick, names) yields (name,
    result) of each as it ends, and whole (results by name) makes the results. What was measured is kept: after an interruption
    the next run goes on with the rest, if tree and machine are the same.

    The results of a part that has merged (before, found) are those of several runs: of other pieces, or of other majors. Each
    piece is in the summary as soon as it has ended, some can be chosen (--only), and what is measured anew takes the place of
    what was there. Such a part has a caption (results) of its own. --rounds is for parts that have rounds.
    """
    here = pathlib.Path(program).resolve().parent
    arguments = _arguments(here, parts)
    if arguments.figures:
        print(json.dumps(_figures(parts, digest.read(here))))
        return 0
    if arguments.check:
        return _check(here, parts)

    output = TREE / "build" / "bench" / here.name / ("quick" if arguments.quick else "")
    output.mkdir(parents=True, exist_ok=True)
    folder = output if arguments.quick else here
    kept = {} if arguments.quick else digest.read(here)
    if not arguments.redraw:
        for name in arguments.parts if arguments.rounds else ():
            parts[name].rounds = arguments.rounds
        _measure_all(parts, arguments, output, here, folder, kept)
    results, blocks, verdicts = _shown(parts, kept)
    for name, block in blocks.items():
        print(f"\n{name}\n{block}")
    if not arguments.quick:
        readme = here / "README.md"
        readme.write_text(_with_blocks(readme, blocks))
    if (here / "plot.py").exists():
        importlib.import_module("plot").draw(results, folder)
    return 0 if arguments.quick or all(verdict[-1] for verdict in verdicts) else 1


def _arguments(here, parts):
    parser = argparse.ArgumentParser(prog=f"bench/run {here.name}")
    parser.add_argument("--quick", action="store_true", help="short, to see that all works; no figures to keep")
    parser.add_argument("--redraw", action="store_true", help="tables and plots from summary.json, nothing is measured")
    parser.add_argument("--check", action="store_true", help="do the tables say what summary.json says?")
    parser.add_argument("--figures", action="store_true", help="print the figures that doc/ takes")
    parser.add_argument("--only", metavar="TEXT", action="append", help="pieces of the parts whose names contain this, or are this")
    parser.add_argument("--rounds", type=int, help="as many instead of the part's own")
    parser.add_argument("parts", nargs="*", metavar="PART", help="of: " + " ".join(parts))
    arguments = parser.parse_args()
    arguments.parts = arguments.parts or list(parts)
    unknown = set(arguments.parts) - set(parts)
    if unknown:
        parser.error("no such part: " + " ".join(unknown))
    if arguments.only and not any(_chosen(parts[name], arguments) for name in arguments.parts):
        parser.error(f"no piece of these parts is named {', '.join(arguments.only)}")
    without = [name for name in arguments.parts if not hasattr(parts[name], "rounds")]
    if arguments.rounds and without:
        parser.error("no rounds to choose: " + " ".join(without))
    return arguments


def _chosen(part, arguments):
    """Of a part's pieces those that are asked for, if any; of one that merges."""
    if not arguments.only:
        return part.pieces(arguments.quick)
    names = part.pieces(arguments.quick) if hasattr(part, "merged") else []
    wanted = [name for text in arguments.only for name in ([text] if text in names else [each for each in names if text in each])]
    return [name for name in names if name in wanted]


def _measure_all(parts, arguments, output, here, folder, kept):
    raw = output / "results.json"
    results = json.loads(raw.read_text()) if raw.exists() else {}

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
        # in the parts' order; then what programs of their own keep there
        digest.write(folder, {part: kept[part] for part in dict.fromkeys([*parts, *kept]) if part in kept})

    with Place() as place:
        for name in arguments.parts:
            if not arguments.only or _chosen(parts[name], arguments):
                _measure(place, name, parts[name], arguments, here, output, keep)


def _measure(place, name, part, arguments, here, output, keep):
    since = time.monotonic()
    say(f"{name} ...")
    load = machine.load()
    if load > 0.7 and not arguments.quick:
        say(f"this machine is busy, or was just now: in the last minute {load:.1f} processes wanted a CPU")
    described = machine.describe(place)
    peers = machine.peers(place, [word for each in registry.parts(registry.BENCH) if each.full_name == f"{here.name}/{name}"
                                  for word in each.packages.split()])

    def measured(results, load):
        keep(name, {"machine": described, "peers": peers, "load before": load, "results": results})

    if hasattr(part, "pieces"):
        of = {"tree": _tree(here), "rounds": getattr(part, "rounds", None),
              **{what: words for what, words in described.items() if what != "date"}}
        _pieces(place, name, part, arguments, load, of, output / f"{name}.pieces.json", measured)
    else:
        measured(part.measure(place, arguments.quick), load)
    say(f"{name}: {time.monotonic() - since:.0f} s")


def _tree(here):
    """A digest of all that is measured, and of the programs that measure."""
    tree = hashlib.sha256()
    for folder in (TREE / "src", TREE / "sql", TREE / "bench" / "lib", here):
        for file in sorted(each for each in folder.rglob("*") if each.suffix in (".c", ".h", ".sql", ".py")):
            tree.update(file.read_bytes())
    return tree.hexdigest()


def _pieces(place, name, part, arguments, load, of, file, measured):
    """All pieces that are asked for, those of an interrupted run too. With the greatest load before."""
    quick = arguments.quick
    kept = json.loads(file.read_text()) if file.exists() and not quick else {}
    if kept.get("of") != of:
        kept = {"of": of, "load": load, "found": {}}
    kept["load"] = max(kept["load"], load)
    wanted = _chosen(part, arguments)
    rest = [piece for piece in wanted if piece not in kept["found"]]
    if len(rest) < len(wanted):
        say(f"{name}: {len(wanted) - len(rest)} of {len(wanted)} pieces were measured before")
    if rest:
        with contextlib.closing(part.measure(place, quick, rest)) as pieces:
            for piece, result in pieces:
                kept["found"][piece] = json.loads(json.dumps(result))
                file.write_text(json.dumps(kept) + "\n")
                if hasattr(part, "merged"):
                    measured(part.whole({piece: kept["found"][piece]}), kept["load"])
    measured(part.whole({piece: kept["found"][piece] for piece in wanted}), kept["load"])
    kept["found"] = {piece: result for piece, result in kept["found"].items() if piece not in wanted}
    if kept["found"] and not quick:
        file.write_text(json.dumps(kept) + "\n")
    else:
        file.unlink(missing_ok=True)


def _restored(parts, kept):
    return {name: {**kept[name], "results": digest.restored(kept[name]["results"])} for name in parts if name in kept}


def _shown(parts, kept):
    """The results, each block of the README by name, and what was required."""
    results = _restored(parts, kept)
    blocks, verdicts = {}, []
    for name, part in results.items():
        caption = parts[name].caption(part["results"]) if hasattr(parts[name], "caption") else _caption(part)
        blocks[name] = "\n" + parts[name].show(part["results"]) + caption + "\n"
        verdicts += parts[name].required(part["results"])
    rows = [[what, measured, limit, "met" if met else "**not met**"] for what, measured, limit, met in verdicts]
    blocks["required"] = "\n" + table(["required", "measured", "limit", ""], rows) + "\n"
    blocks["machine"] = "\n" + _machines(results) + "\n"
    return results, blocks, verdicts


def _caption(part):
    """Of what the tables are, and beside which peers."""
    if "peers" not in part:
        return ""
    beside = ", ".join(f"{name} {version}" for name, version in part["peers"].items())
    return f"\n\nPostgreSQL {part['machine']['PostgreSQL']}" + (f", {beside}" if beside else "") + f", {part['machine']['date']}."


def _with_blocks(readme, blocks):
    text = readme.read_text()
    for name, block in blocks.items():
        text = filled(text, name, block)
    return text


def _check(here, parts):
    readme = here / "README.md"
    if _with_blocks(readme, _shown(parts, digest.read(here))[1]) == readme.read_text():
        return 0
    print(f"{readme.relative_to(TREE)} does not say what summary.json says: bench/run --redraw {here.name}")
    return 1


def _figures(parts, kept):
    """By part and name, as text."""
    found = {}
    for name, part in _restored(parts, kept).items():
        published = getattr(parts[name], "published", lambda results: ())
        found[name] = {**part["machine"], "cores": machine.short(part["machine"]["machine"]),
                       **{f"version of {peer}": version for peer, version in part.get("peers", {}).items()},
                       **dict(published(part["results"]))}
    return found


def _machines(results):
    different = dict.fromkeys(tuple(part["machine"].items()) for part in results.values())
    lines = ["\n".join(f"- {k}: {v}" for k, v in each) for each in different]
    return "\n\n".join(lines) + "\n- processes wanting a CPU in the minute before: " + \
        ", ".join(f"{name} {part['load before']:.1f}" for name, part in results.items())
