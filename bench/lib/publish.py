"""Tables of bench/, and figures of README.md and doc/results.md, from the committed summaries.

The parts of a folder make the blocks of its README and name the figures that others take (experiment.py FOLDER --show).
Templates in bench/published/ say where those go: {FOLDER/PART} in a line of its own becomes the part's tables,
{FOLDER/PART: NAME} a figure, {FOLDER/PART: A; B -> COLUMN} the cell of the row of its tables that begins with A and B; with ~ at
its end without interval or spread. {command} in a row is the command that measures the row's figures, {missed} in a line of its
own a table of all requirements that are not met. results.md.in is the whole page; another template is what follows
<!-- figures: NAME --> in README.md, up to the next empty line.
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


def rows(block):
    """Each row of the tables of a block: its cells, and the names of their columns."""
    names = None
    for line in block.splitlines():
        if not line.startswith("|"):
            names = None
        elif names is None:
            names = [name.strip() for name in line[1:-1].split("|")]
        elif not line.startswith("|---"):
            yield [text.strip() for text in line[1:-1].split("|")], names


def cell(block, name):
    """The cell that is named BEGINNING OF A ROW -> COLUMN, or None."""
    row, _, column = name.partition(" -> ")
    begins = row.split("; ")
    return next((cells[names.index(column)] for cells, names in rows(block) if column in names and cells[:len(begins)] == begins), None)


def missed_table(required):
    """All that was required and is not met, of the blocks of that by folder."""
    return table(["goal", "measured", "limit"],
                 [[f"[{folder}](../bench/{folder}/README.md) {cells[0]}", re.sub(r" \([^()]* \.\. [^()]*\)", "", cells[1]), cells[2]]
                  for folder, block in required.items() for cells, _ in rows(block) if cells[-1] != "met"])


def rendered(template, known, required):
    """The template's text with its figures."""
    def figure(match):
        part, name, alone = match.groups()
        found = known.get(part, {}).get(name)
        if found is None:
            found = cell(known.get(part, {}).get(TABLE, ""), name)
        if found is None:
            raise Wrong(f"bench/published/{template}: nothing of bench/ is {match[0]}")
        return found.split(" (")[0] if alone else found

    lines = [missed_table(required) if line == "{missed}" else line.replace("{command}", f"`bench/run {' '.join(registry.measured_by(line))}`")
             for line in (registry.PUBLISHED / template).read_text().splitlines()]
    def tables(match):
        if match[1] not in known:
            raise Wrong(f"bench/published/{template}: nothing of bench/ is {match[0]}")
        return known[match[1]][TABLE]

    text = registry.FIGURE.sub(figure, registry.TABLE.sub(tables, "\n".join(lines)))
    return "\n".join(textwrap.fill(line, WIDTH) if len(line) > WIDTH and not line.startswith("|") else line for line in text.splitlines())


def pages():
    """What each page has to be, by its path."""
    found, known, required = {}, {}, {}
    for folder in registry.folders(registry.BENCH):
        if (folder / "summary.json").exists():
            of = shown(folder)
            for part, figures in of["figures"].items():
                name = f"{folder.name}/{part}"
                known[name] = {**figures, TABLE: captioned(name, of["blocks"][part].strip(), figures)}
            required[folder.name] = of["blocks"].get("required", "")
            text = (folder / "README.md").read_text()
            for name, block in of["blocks"].items():
                text = filled(text, name, block)
            found[folder / "README.md"] = text
    found[TREE / "doc/results.md"] = HEAD + rendered("results.md.in", known, required) + "\n"
    text = (TREE / "README.md").read_text()
    for template in registry.README_TABLES:
        block = rendered(template, known, required)
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
