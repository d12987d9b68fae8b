"""What there is to run: a file parts.ini in each folder of bench/, and in t/trust.

    [*]         about; packages (MAJOR stands for the server's; PACKAGE? is taken where there is one) and root, for all its parts
    [PART]      about, minutes, quick minutes; packages and root where they differ;
                command, arguments, quick arguments: of a program of its own
"""
import configparser
import dataclasses
import pathlib
import re

TREE = pathlib.Path(__file__).resolve().parents[2]
BENCH = TREE / "bench"
TRUST = TREE / "t" / "trust"
PUBLISHED = BENCH / "published"
README_TABLES = ("headline.md.in",)      # in PUBLISHED
COMMON = "*"
FIGURE = re.compile(r"\{(\w+/\w+): ([^{}~]+)(~?)\}")        # {FOLDER/PART: NAME}
TABLE = re.compile(r"^\{(\w+/\w+)\}$", re.M)                     # {FOLDER/PART}


@dataclasses.dataclass(frozen=True)
class Part:
    folder: str
    name: str
    full_name: str              # FOLDER/PART in bench/
    about: str
    minutes: float
    quick_minutes: float
    root: bool
    packages: str
    command: tuple              # empty: a module of the folder, see experiment
    arguments: tuple
    quick_arguments: tuple


def folders(place):
    """What has parts: folders of bench/, or t/trust itself."""
    return sorted(file.parent for file in (*place.glob("parts.ini"), *place.glob("*/parts.ini")))


def parts(place):
    """All of them, folder by folder."""
    found = []
    for folder in folders(place):
        declared = _declared(folder)
        found += [_part(name if folder == place else f"{folder.name}/{name}", folder.name, name, declared[name], declared[COMMON])
                  for name in declared.sections() if name != COMMON]
    return found


def about(folder):
    """What a folder is about."""
    return _declared(folder)[COMMON]["about"]


def measured_by(template):
    """FOLDER/PART of each figure in a template's text, in its order."""
    return list(dict.fromkeys(match[1] for match in FIGURE.finditer(template)))


def headline():
    """The parts whose figures are in README.md's tables."""
    return {part for name in README_TABLES for part in measured_by((PUBLISHED / name).read_text())}


def _declared(folder):
    declared = configparser.ConfigParser(interpolation=None)
    declared.read(folder / "parts.ini")
    return declared


def _part(full_name, folder, name, mine, common):
    return Part(folder, name, full_name, mine["about"], mine.getfloat("minutes"), mine.getfloat("quick minutes"),
                mine.getboolean("root", common.getboolean("root", False)), mine.get("packages", common.get("packages", "")),
                *(tuple(mine.get(key, "").split()) for key in ("command", "arguments", "quick arguments")))
