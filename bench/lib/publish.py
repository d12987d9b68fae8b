"""Figures of README.md and doc/ from the committed summaries: what is published cannot drift from what was measured.

A folder's main.py makes the tables of its README from summary.json, and names the figures that others take. Templates in
bench/published/ say where those go: {FOLDER/PART: NAME} becomes the figure, with ~ at its end without interval or spread,
with ^ these alone; {command} in a row becomes the command that measures the row's figures. A page's template is the whole
page; a block's takes the place of what follows <!-- figures: NAME --> up to the next empty line. The programs of t/trust
have their figures in summary.json as they are.
A line that begins with "? " is optional, for parts that are measured load by load: these have None for what is not measured.
It is left out as long as a figure of it is missing. If it has no figure, it is left out if all others of its paragraph are;
if none there has one, if the next paragraph is. In prose each such line is a sentence.
A page that is written by hand takes figures within its sentences, and whole answers of a server between lines: see INLINE
and MEASURED. What is there stays as long as their part has not been measured.
"""
import argparse
import json
import re
import subprocess
import sys
import textwrap

import digest
import registry
from report import filled, table

TREE = registry.TREE
PAGES = {"results.md.in": "doc/results.md"}
BLOCKS = {**{template: "README.md" for template in registry.README_TABLES}, "replacement.md.in": "doc/sweeper.md"}
# <!-- FOLDER/PART: NAME -->the figure<!-- -->
INLINE = re.compile(r"(<!-- ((\w+/\w+): [^<>]+?) -->)[^<>]*(<!-- -->)")
# a line <!-- measured: FOLDER/PART: NAME -->, an answer, a line <!-- end measured -->
MEASURED = re.compile(r"(<!-- measured: ((\w+/\w+): [^<>]+?) -->\n).*?(<!-- end measured -->)", re.S)
OPTIONAL = "? "
WIDTH = 120
HEAD = "<!-- Made by bench/run --redraw from bench/published/{}: edit that -->\n"


class Wrong(Exception):
    pass


def folders():
    return [folder for place in (registry.BENCH, registry.TRUST) for folder in registry.folders(place)
            if (folder / "summary.json").exists()]


def program(folder, option):
    """Runs a folder's main.py; None if it has none."""
    main = folder / "main.py"
    if not main.exists():
        return None
    return subprocess.run([sys.executable, str(main), option], stdout=subprocess.PIPE, text=True)


def figures():
    """By FOLDER/PART and name."""
    found = {}
    for folder in folders():
        said = program(folder, "--figures")
        if said and said.returncode:
            raise Wrong(f"bench/{folder.name}/main.py has no figures")
        for part, each in (json.loads(said.stdout) if said else {}).items():
            found[f"{folder.name}/{part}"] = each
        for part, kept in digest.read(folder).items():
            if "figures" in kept:
                found[f"{folder.name}/{part}"] = {**kept["machine"], **kept["figures"]}
    return found


def rendered(template, known):
    lines = [row.replace("{command}", f"`bench/run {' '.join(registry.measured_by(row))}`")
             for row in (registry.PUBLISHED / template).read_text().split("\n")]
    paragraphs = []
    for paragraph in reversed("\n".join(lines).split("\n\n")):
        paragraphs.insert(0, measured(paragraph, known, template, paragraphs[0] if paragraphs else None))
    text = replaced("\n\n".join(each for each in paragraphs if each is not None), known, f"bench/published/{template}")
    return "\n\n".join(map(wrapped, text.split("\n\n")))


def measured(paragraph, known, template, following):
    """The paragraph without the optional lines that cannot be filled in; None if nothing of it is left.

    If no line has a figure, it is about the following paragraph, which has been asked for before.
    """
    lines = paragraph.split("\n")
    optional = [line for line in lines if line.startswith(OPTIONAL)]
    if not optional:
        return paragraph
    declared = {part.full_name for part in registry.parts(registry.BENCH)}
    for part in registry.measured_by("\n".join(optional)):
        if part not in declared:
            raise Wrong(f"bench/published/{template}: there is no part {part}")
    if not registry.FIGURE.search("\n".join(optional)):
        return "\n".join(line.removeprefix(OPTIONAL) for line in lines) if following is not None else None
    filled_in = [line for line in optional if registry.FIGURE.search(line) and is_measured(line, known)]
    rest = [line for line in lines if line not in optional or line in filled_in or filled_in and not registry.FIGURE.search(line)]
    rows = rest[0].removeprefix(OPTIONAL).startswith(("|", "- ")) if rest else False
    # of prose each line is a sentence
    return ("\n" if rows else " ").join(line.removeprefix(OPTIONAL) for line in rest) if rest else None


def is_measured(text, known):
    """Are all its figures?"""
    return all(part in known and known[part].get(name, "") is not None for part, name, _ in registry.FIGURE.findall(text))


def replaced(text, known, page):
    """The text with its figures."""
    def figure(match):
        part, name, piece = match.groups()
        if name not in known.get(part, {}):
            raise Wrong(f"{page}: nothing of bench/ is {match[0]}")
        middle, *spread = known[part][name].split(" (", 1)
        return {"": known[part][name], "~": middle, "^": "".join(f" ({each}" for each in spread)}[piece]

    return registry.FIGURE.sub(figure, text)


def wrapped(paragraph):
    """Lines of prose as long as elsewhere, also with other figures. Tables, headings and code stay as they are."""
    if all(len(line) <= WIDTH for line in paragraph.splitlines()) or paragraph.startswith(("|", "#", "    ", "<!--")):
        return paragraph
    items = re.split(r"\n(?=- )", paragraph.rstrip("\n"))
    return "\n".join(textwrap.fill(" ".join(item.split()), WIDTH, subsequent_indent="  " * item.startswith("- "),
                                   break_long_words=False, break_on_hyphens=False) for item in items) + \
        "\n" * paragraph.endswith("\n")


def pages(known):
    """What each page has to be, by its path."""
    found = {path: HEAD.format(template) + rendered(template, known) for template, path in PAGES.items()}
    for template, path in BLOCKS.items():
        text = found.get(path) or (TREE / path).read_text()
        found[path] = with_block(text, template, rendered(template, known))
    for page in ("README.md", *(str(file.relative_to(TREE)) for file in sorted(TREE.glob("doc/*.md")))):
        text = found.get(page) or (TREE / page).read_text()
        found[page] = by_hand(text, known, page)
    readme = registry.TRUST / "README.md"
    found[str(readme.relative_to(TREE))] = filled(readme.read_text(), "results", "\n" + trust_table() + "\n")
    return found


def by_hand(text, known, page):
    """A page that is written by hand, with what it takes of the parts that were measured."""
    def taken(match):
        head, name, part, end = match.groups()
        figure = f"{{{name}}}"
        return head + replaced(figure, known, page) + end if is_measured(figure, known) else match[0]

    return MEASURED.sub(taken, INLINE.sub(taken, text))


def with_block(text, template, block):
    head = f"<!-- figures: {template.removesuffix('.md.in')} -->\n"
    before, found, rest = text.partition(head)
    if not found:
        raise Wrong(f"there is no place for bench/published/{template}")
    # the old block may be empty
    return before + head + (block.rstrip("\n") + "\n" if block.strip() else "") + rest[("\n" + rest).index("\n\n"):]


def trust_table():
    runs = digest.read(registry.TRUST).values()
    return table(["experiment", "PostgreSQL", "result", "date"],
                 [[run["experiment"], run["machine"]["PostgreSQL"], run["result"], run["machine"]["date"]] for run in runs])


def check_trust():
    """Those figures are entered by hand, beside the sentence that has them."""
    for name, run in digest.read(registry.TRUST).items():
        for what, figure in run["figures"].items():
            if figure not in run["experiment"] + run["result"]:
                raise Wrong(f"t/trust/summary.json, {name}: {what} {figure} is not in what it says")


def main():
    parser = argparse.ArgumentParser(prog="bench/lib/publish")
    parser.add_argument("--check", action="store_true", help="change nothing; fails if anything would change")
    parser.add_argument("--redraw", nargs="*", metavar="FOLDER", default=[], help="tables and plots of these folders first")
    options = parser.parse_args()
    failed = False
    for folder in folders():
        said = program(folder, "--redraw") if folder.name in options.redraw else None
        # 1: a requirement was missed when that was measured
        failed |= said is not None and said.returncode not in (0, 1)
    for folder in folders():
        said = program(folder, "--check")
        if said and said.returncode:
            print(said.stdout, end="")
            failed = True
    check_trust()
    for path, text in pages(figures()).items():
        if (TREE / path).exists() and (TREE / path).read_text() == text:
            continue
        if options.check:
            print(f"{path} does not say what was measured, or was edited where it is made: bench/run --redraw")
            failed = True
        else:
            (TREE / path).write_text(text)
    return failed


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Wrong as wrong:
        sys.exit(str(wrong))
