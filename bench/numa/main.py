"""What pgscale says of NUMA and does about it, on machines that have several nodes: emulated ones."""
import contextlib
import json
import re
import shutil
import types

from guest import Image, boot
from report import percent, table

# Linux takes distances as they are; two sockets, and four of which none is next to all
DISTANCES = {"two": [[10, 21], [21, 10]],
             "four": [[10, 16, 16, 22], [16, 10, 22, 16], [16, 22, 10, 16], [22, 16, 16, 10]]}
MEGABYTES = {"two": 768, "four": 512}
BUFFERS = 128 << 20
PAGES = 12000                   # of 8 kB that a session fills


def _numbers(text):
    """N0=12 N3=4 -> {"0": 12, "3": 4}"""
    return {node: int(pages) for node, pages in re.findall(r"\bN(\d+)=(\d+)", text)}


def _rows(text):
    """Pages and bytes by node, of numa_buffers; pages of no node are those of "none"."""
    rows = json.loads(text)
    return {what: {"none" if row["node"] is None else str(row["node"]): row[what] for row in rows} for what in ("pages", "bytes")}


def _case(said):
    before, after = (said[name].split() for name in ("kernel_before", "kernel_after"))
    policy, *_ = said["filler"].split()
    return {
        "state": json.loads(said["health"])["state"], "forced_kb": int(after[0]) - int(before[0]), "forced_huge": int(before[1]) - int(after[1]),
        "untouched": {"bytes": _rows(said["untouched"])["bytes"]}, "filled": _rows(said["filled"]),
        "policy": policy, "log": said["log"], "kernel": _numbers(said["filler"]),
    }


def machine(name):
    distances = DISTANCES[name]

    def measure(place, quick):
        server = place.cluster(f"guest-{name}", shared_preload_libraries="pgscale")
        with server, contextlib.closing(server.connect()) as connection:
            server.create_pgscale(connection)
        image = Image(place, server.data)
        file = image.pack({"BINDIR": place.bindir, "LIBRARY": place.library, "DATA": server.data,
                           "NODE": len(distances) - 1, "PAGES": PAGES})
        said = boot(file, distances, MEGABYTES[name])
        shutil.rmtree(image.root)
        file.unlink()
        del said["booted"]
        return {"distances": [row["distance"] for row in json.loads(said["default"]["nodes"])],
                "cases": [{"case": case, **_case(what)} for case, what in said.items()]}

    return types.SimpleNamespace(measure=measure, show=show, published=published, required=lambda results: required(name, results))


def _shares(rows):
    return ", ".join(f"{node}: {percent(size / BUFFERS)}" for node, size in rows["bytes"].items())


def show(results):
    cases = []
    for got in results["cases"]:
        cases.append([got["case"].replace("_", ", "), _shares(got["untouched"]), _shares(got["filled"]),
                      ", ".join(f"{node}: {pages}" for node, pages in sorted(got["kernel"].items())),
                      ", ".join(f"{node}: {pages}" for node, pages in got["filled"]["pages"].items() if pages and node != "none"),
                      got["policy"]])
    return table(["server", "buffers at its start, by node", "filled by one session", "pages by numa_maps of that session",
                  "pages by numa_buffers", "policy of the mapping"], cases)


def by_name(results):
    return {got["case"]: got for got in results["cases"]}


def _difference(case, got):
    """The largest difference of a node's MB between the kernel's numbers and pgscale's."""
    ours, theirs = {node: pages for node, pages in got["filled"]["pages"].items() if node != "none"}, got["kernel"]
    return max(abs(ours.get(node, 0) - theirs.get(node, 0)) for node in {*ours, *theirs}) * (2 if case.startswith("huge") else 4096 / (1 << 20))


def _skew(rows):
    """The greatest share of what is in memory that one node has."""
    there = [size for node, size in rows["bytes"].items() if node != "none"]
    return max(there) / sum(there)


def _misplaced(got, n):
    """The most that a node has of what was filled, beside its half if the session ran there."""
    grown = [got["filled"]["bytes"].get(str(node), 0) - got["untouched"]["bytes"].get(str(node), 0) for node in range(n)]
    return max(abs(grown[node] / (PAGES * 8192) - (0.5 if node in (0, n - 1) else 0)) for node in range(n))


def published(results):
    cases = by_name(results)
    yield "misplaced", percent(_misplaced(cases["default"], len(results["distances"])))
    yield "fullest, interleaved", percent(_skew(cases["interleaved"]["filled"]))


def required(name, results):
    cases, n = by_name(results), len(results["distances"])
    rows = []

    def need(what, measured, limit, met):
        rows.append((f"{name} nodes: {what}", measured, limit, met))

    distances = results["distances"]
    need("distances are those of the machine", "yes" if distances == DISTANCES[name] else distances, "yes", distances == DISTANCES[name])
    worst = max(abs(sum(got[what]["bytes"].values()) - BUFFERS) for got in cases.values() for what in ("untouched", "filled"))
    need("sum of the rows beside shared_buffers, bytes", worst, 0, worst == 0)
    forced = max(got["forced_kb"] for got in cases.values())
    need("kB of shared memory that looking at all of it brought in", forced, "< 1024", forced < 1024)
    forced = max(got["forced_huge"] for got in cases.values())
    need("huge pages that it brought in", forced, 0, forced == 0)
    worst = max(_difference(case, got) for case, got in cases.items())
    need("MB of a node beside /proc/PID/numa_maps, which has the rest of shared memory, too", f"{worst:.1f}", "< 16", worst < 16)
    for case, limit in (("default", 0.02), ("huge", 0.05)):
        worst = _misplaced(cases[case], n)
        need(f"{case}: a node's share of what was filled, beside where the session ran", percent(worst), f"< {percent(limit)}", worst < limit)
    left = re.search(r"(\d+) pages in use could not be moved", cases["interleaved"]["log"])
    need("interleaved: pages in use at the start that could not be moved", left[1], 0, left[1] == "0")
    for case, limit in (("interleaved", 1 / n + 0.02), ("huge_interleaved", 1 / n + 0.05)):
        skew = _skew(cases[case]["filled"])
        need(f"{case.replace('_', ', ')}: the fullest node's share", percent(skew), f"< {percent(limit)}", skew < limit)
    states = [cases[case]["state"] for case in ("default", "interleaved", "refused")]
    need("default, interleaved, refused: states by health", ", ".join(states), "idle, working, broken", states == ["idle", "working", "broken"])
    return rows


PARTS = {name: machine(name) for name in DISTANCES}
