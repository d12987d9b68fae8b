"""Tables of bench/, and figures of README.md and doc/results.md, from the committed summaries.

The parts of a folder make the blocks of its README and name the figures that others take (experiment.py FOLDER --show).
Templates in bench/published/ say where those go: {FOLDER/PART} in a line of its own becomes the part's tables,
{FOLDER/PART: NAME} a figure, with ~ at its end without interval or spread; {command} in a row the command that measures the
row's figures. results.md.in is the whole page; another template is what follows <!-- figures: NAME --> in README.md, up to
the next empty line.
"""
import argparse
import json
import re
import subprocess
import sys
import textwrap

import digest
import registry
from report import Wrong, filled, table

TREE = registry.TREE
WIDTH = 120
TABLE = ""      # the name of a part's tables among its figures
HEAD = "<!-- Made by bench/run --redraw from bench/published/results.md.in: edit that -->\n"


def shown(folder):
    """The folder's blocks and figures."""
    said = subprocess.run([sys.executable, str(TREE / "bench/lib/experiment.py"), folder.name, "--show"], stdout=subprocess.PIPE, text=True)
    if said.returncode:
        raise Wrong(f"bench/{folder.name} shows nothing")
    return json.loads(said.stdout)


def captioned(name, tables, figures):
    """The tables of a part, and of what server they are, unless the part's own caption says it."""
    if figures["caption"]:
        return f"{tables}\n\n`bench/run {name}`."
    peers = "".join(f", {what.removeprefix('version of ')} {version}" for what, version in figures.items() if what.startswith("version of "))
    return f"{tables}\n\n`bench/run {name}`, PostgreSQL {figures['PostgreSQL']}{peers}, {figures['cores']}, {figures['date']}."


def trust_table():
    runs = digest.read(registry.TRUST).values()
    return table(["experiment", "PostgreSQL", "result", "date"],
                 [[run["experiment"], run["machine"]["PostgreSQL"], run["result"], run["machine"]["date"]] for run in runs])


def rendered(template, known):
    """The template's text with its figures."""
    def figure(match):
        part, name, alone = match.groups()
        if known.get(part, {}).get(name) is None:
            raise Wrong(f"bench/published/{template}: nothing of bench/ is {match[0]}")
        return known[part][name].split(" (")[0] if alone else known[part][name]

    lines = [line.replace("{command}", f"`bench/run {' '.join(registry.measured_by(line))}`")
             for line in (registry.PUBLISHED / template).read_text().splitlines()]
    def tables(match):
        if match[1] not in known:
            raise Wrong(f"bench/published/{template}: nothing of bench/ is {match[0]}")
        return known[match[1]][TABLE]

    text = registry.FIGURE.sub(figure, registry.TABLE.sub(tables, "\n".join(lines)))
    return "\n".join(textwrap.fill(line, WIDTH) if len(line) > WIDTH and not line.startswith("|") else line for line in text.splitlines())


def pages():
    """What each page has to be, by its path."""
    found, known = {}, {}
    for folder in registry.folders(registry.BENCH):
        if (folder / "summary.json").exists():
            of = shown(folder)
            for part, figures in of["figures"].items():
                name = f"{folder.name}/{part}"
                known[name] = {**figures, TABLE: captioned(name, of["blocks"][part].strip(), figures)}
            text = (folder / "README.md").read_text()
            for name, block in of["blocks"].items():
                text = filled(text, name, block)
            found[folder / "README.md"] = text
    found[TREE / "doc/results.md"] = HEAD + rendered("results.md.in", known) + "\n"
    text = (TREE / "README.md").read_text()
    for template in registry.README_TABLES:
        block = rendered(template, known)
        text, n = re.subn(f"(<!-- figures: {template.removesuffix('.md.in')} -->\n).*?(?=\n\n)", lambda m: m[1] + block, text, flags=re.S)
        if n != 1:
            raise Wrong(f"README.md has no place for bench/published/{template}")
    found[TREE / "README.md"] = text
    readme = registry.TRUST / "README.md"
    found[readme] = filled(readme.read_text(), "results", "\n" + trust_table() + "\n")
    return found


def main():
    parser = argparse.ArgumentParser(prog="bench/lib/publish")
    parser.add_argument("--check", action="store_true", help="change nothing; fails if anything would change")
    options = parser.parse_args()
    failed = False
    for path, text in pages().items():
        if path.exists() and path.read_text() == text:
            continue
        if options.check:
            print(f"{path.relative_to(TREE)} does not say what was measured, or was edited where it is made: bench/run --redraw")
            failed = True
        else:
            path.write_text(text)
    return failed


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Wrong as wrong:
        sys.exit(str(wrong))
