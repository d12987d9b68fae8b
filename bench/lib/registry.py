"""What there is to run: a file bench.ini in each folder of bench/.

    [*]         about; packages (MAJOR stands for the server's) and root, for all its parts
    [PART]      about, minutes, quick minutes; headline: is it in README.md's table? packages and root where they differ;
                command, arguments, quick arguments: of a program of its own, which is no part of main.py
"""
import configparser
import dataclasses
import pathlib

BENCH = pathlib.Path(__file__).resolve().parents[1]
COMMON = "*"


@dataclasses.dataclass(frozen=True)
class Part:
    folder: str
    name: str
    about: str
    minutes: float
    quick_minutes: float
    headline: bool
    root: bool
    packages: str
    command: tuple              # empty: a part of main.py
    arguments: tuple
    quick_arguments: tuple

    @property
    def full_name(self):
        return f"{self.folder}/{self.name}"


def parts():
    """All of them, folder by folder."""
    return [_part(folder, name, declared[name], declared[COMMON])
            for folder, declared in _folders() for name in declared.sections() if name != COMMON]


def abouts():
    """What each folder is about."""
    return {folder: declared[COMMON]["about"] for folder, declared in _folders()}


def _folders():
    for file in sorted(BENCH.glob("*/bench.ini")):
        declared = configparser.ConfigParser(interpolation=None)
        declared.read(file)
        yield file.parent.name, declared


def _part(folder, name, mine, common):
    return Part(folder, name, mine["about"], mine.getfloat("minutes"), mine.getfloat("quick minutes"),
                mine.getboolean("headline", False), mine.getboolean("root", common.getboolean("root", False)),
                mine.get("packages", common.get("packages", "")),
                *(tuple(mine.get(key, "").split()) for key in ("command", "arguments", "quick arguments")))
