"""structs.py OLD NEW: do two builds of one source, each with another minor's headers, see the same layout?

OLD and NEW are libraries with debug information. It fails if a member of a struct of OLD is elsewhere in NEW or has another size,
if a struct of both has another size, or if an enumerator has another value. GROWN lists structs that may be larger in NEW. What
only one of them knows cannot be compared, nor can macros.
"""
import collections
import re
import subprocess
import sys

# The library neither makes one nor has an array of them.
GROWN = {"catcache"}


def lines_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout.splitlines()


def structs_of(library):
    """By name: the size, and the members as lines with their offsets and sizes."""
    structs, name = {}, None
    for line in lines_of("pahole", "-F", "dwarf", library):
        start = re.match(r"struct (\w+) \{$", line)
        size = re.match(r"\t/\* size: (\d+),", line)
        if start:
            name, members = start.group(1), collections.Counter()
        elif line.startswith("}"):
            name = None
        elif name and size:
            structs[name] = int(size.group(1)), members
        elif name and re.search(r"/\* +\d+(: *\d+)? +\d+ \*/$", line):
            members[" ".join(line.split())] += 1
    return structs


def enumerators_of(library):
    values, tag, name = {}, None, None
    for line in lines_of("readelf", "--debug-dump=info", library):
        start = re.search(r"\((DW_TAG_\w+)\)$", line)
        if start:
            tag, name = start.group(1), None
        elif tag == "DW_TAG_enumerator" and "DW_AT_name" in line:
            name = line.split(":")[-1].strip()
        elif tag == "DW_TAG_enumerator" and "DW_AT_const_value" in line:
            values[name] = int(line.split(":")[-1].split()[-1], 0)
    return values


def main():
    old, new = (structs_of(library) for library in sys.argv[1:])
    bad, grown = [], []
    for name in sorted(set(old) & set(new)):
        (old_size, old_members), (new_size, new_members) = old[name], new[name]
        bad += [f"struct {name} has no more: {member}" for member in old_members - new_members]
        if old_size != new_size:
            (grown if name in GROWN and new_size > old_size else bad).append(f"struct {name} has {new_size} bytes instead of {old_size}")
    old_values, new_values = (enumerators_of(library) for library in sys.argv[1:])
    common = sorted(set(old_values) & set(new_values))
    bad += [f"{name} is {new_values[name]} instead of {old_values[name]}" for name in common if old_values[name] != new_values[name]]
    print(*bad, *grown, sep="\n", file=sys.stderr)
    print(f"{len(set(old) & set(new))} structs and {len(common)} enumerators")
    # a library without debug information has none
    sys.exit(1 if bad or len(common) < 100 or len(set(old) & set(new)) < 100 else 0)


main()
