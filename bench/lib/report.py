"""Tables in Markdown, and their way into a README."""
import pathlib
import re

import stats


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def insert(readme, name, text):
    """Puts the text between <!-- NAME --> and <!-- end NAME -->."""
    readme = pathlib.Path(readme)
    old = readme.read_text()
    new, n = re.subn(f"(<!-- {name} -->\n).*?(<!-- end {name} -->)", lambda m: m[1] + text + "\n" + m[2], old, flags=re.S)
    if n != 1:
        raise ValueError(f"{readme} has no place for {name}")
    readme.write_text(new)


def percent(share, digits=1):
    return f"{share * 100:.{digits}f} %"


def signed(share, digits=1):
    return f"{share * 100:+.{digits}f} %"


def spread(values, form):
    """The median and, of several, the least and the greatest."""
    shown = form.format(stats.median(values))
    return f"{shown} ({form.format(min(values))} .. {form.format(max(values))})" if len(values) > 1 else shown
