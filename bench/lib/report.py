"""Tables in Markdown, and their way into a page."""
import re

import stats


class Wrong(Exception):
    pass


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def filled(text, name, block):
    """The text with the block between its lines <!-- NAME --> and <!-- end NAME -->."""
    new, n = re.subn(f"(<!-- {name} -->\n).*?(<!-- end {name} -->)", lambda m: m[1] + block + "\n" + m[2], text, flags=re.S)
    if n != 1:
        raise Wrong(f"there is no place for {name}")
    return new


def percent(share, digits=1):
    return f"{share * 100:.{digits}f} %"


def signed(share, digits=1):
    return f"{share * 100:+.{digits}f} %"


def spread(values, form, unit=""):
    """The median and, of several, the least and the greatest."""
    if len(values) == 1:
        return form.format(values[0]) + unit
    return between(stats.median(values), min(values), max(values), form, unit)


def interval(values, form="{:.2f}", unit=""):
    """The median and its interval."""
    return between(stats.median(values), *stats.interval(values), form, unit)


def between(middle, low, high, form, unit=""):
    return f"{form.format(middle)}{unit} ({form.format(low)} .. {form.format(high)})"
