"""What pgscale says of NUMA and does about it, on machines that have several nodes: emulated ones."""
import contextlib
import json
import re
import shutil
import types

import experiment
from guest import Image, boot
from report import percent, table

# Linux takes distances as they are; two sockets, and four of which none is next to all
DISTANCES = {"two": [[10, 21], [21, 10]],
             "four": [[10, 16, 16, 22], [16, 10, 22, 16], [16, 22, 10, 16], [22, 16, 16, 10]]}
MEGABYTES = {"two": 768, "four": 512}
BUFFERS = 128 << 20
NOT_SHOWN = ("feature", "enabled", "reason", "action", "fraction_low", "fraction_high", "free_bytes", "cpus")
PAGES = 12000                   # of 8 kB that a session fills


def _numbers(text):
    """N0=12 N3=4 -> {0: 12, 3: 4}"""
    return {int(node): int(pages) for node, pages in re.findall(r"\bN(\d+)=(\d+)", text)}


def _rows(text):
    return {row["node"]: row for row in json.loads(text)}


def _case(said):
    before, after = (said[name].split() for name in ("kernel_before", "kernel_after"))
    policy, *_ = said["filler"].split()
    return {
        "health": json.loads(said["health"]),
        "forced_kb": int(after[0]) - int(before[0]),
        "forced_huge": int(before[1]) - int(after[1]),
        "untouched": json.loads(said["untouched"]), "filled": json.loads(said["filled"]),
        "sampled": json.loads(said["sampled"]),
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
        return {"nodes": json.loads(said["default"]["nodes"]),
                "kernel": said.pop("booted")["version"], "cases": {case: _case(what) for case, what in said.items()}}

    return types.SimpleNamespace(measure=measure, show=show, published=published, LEFT_OUT=NOT_SHOWN,
                                 required=lambda results: required(name, results))


def _shares(rows):
    return ", ".join(f"{'none' if row['node'] is None else row['node']}: {percent(row['fraction'])}" for row in rows)


def show(results):
    nodes = table(["node", "CPUs", "memory", "distance"],
                  [[n["node"], n["cpu_list"], f"{n['memory_bytes'] >> 20} MB", " ".join(map(str, n["distance"]))]
                   for n in results["nodes"]])
    cases = []
    for case, got in results["cases"].items():
        cases.append([case.replace("_", ", "), _shares(got["untouched"]), _shares(got["filled"]),
                      ", ".join(f"{node}: {pages}" for node, pages in sorted(got["kernel"].items())),
                      ", ".join(f"{row['node']}: {row['pages']}" for row in got["filled"] if row["pages"] and row["node"] is not None),
                      got["policy"]])
    return "\n\n".join([nodes, table(["server", "buffers at its start, by node", "filled by one session",
                                     "pages by numa_maps of that session", "pages by numa_buffers", "policy of the mapping"],
                                    cases)])


def _difference(case, got):
    """The largest difference of a node's MB between the kernel's numbers and pgscale's."""
    ours = {row["node"]: row["pages"] for row in got["filled"] if row["node"] is not None}
    theirs = {int(node): pages for node, pages in got["kernel"].items()}
    return max(abs(ours.get(node, 0) - theirs.get(node, 0)) for node in set(ours) | set(theirs)) * \
        (2 if case.startswith("huge") else 4096 / (1 << 20))


def _grown(got, node):
    """Bytes of shared buffers that came to a node while they were filled."""
    def at(rows):
        return sum(row["bytes"] for row in rows if row["node"] == node)
    return at(got["filled"]) - at(got["untouched"])


def _skew(rows):
    """The greatest share of what is in memory that one node has."""
    pages = [row["bytes"] for row in rows if row["node"] is not None]
    return max(pages) / sum(pages)


def _misplaced(got, n):
    """The most that a node has of what was filled, beside its half if the session ran there."""
    return max(abs(_grown(got, node) / (PAGES * 8192) - (0.5 if node in (0, n - 1) else 0)) for node in range(n))


def published(results):
    cases = results["cases"]
    yield "misplaced", percent(_misplaced(cases["default"], len(results["nodes"])))
    yield "fullest, interleaved", percent(_skew(cases["interleaved"]["filled"]))
    yield "memory brought in", f"{max(got['forced_kb'] for got in cases.values())} kB"
    yield "huge pages brought in", str(max(got["forced_huge"] for got in cases.values()))


def required(name, results):
    cases, n = results["cases"], len(results["nodes"])
    rows = []

    def need(what, measured, limit, met):
        rows.append((f"{name} nodes: {what}", measured, limit, met))

    distances = [row["distance"] for row in results["nodes"]]
    need("distances are those of the machine", distances, DISTANCES[name], distances == DISTANCES[name])
    worst = max(max(abs(sum(r["bytes"] for r in got[what]) - BUFFERS) for what in ("untouched", "filled", "sampled"))
                for got in cases.values())
    need("sum of the rows beside shared_buffers, bytes", worst, 0, worst == 0)
    forced = max(got["forced_kb"] for got in cases.values())
    need("kB of shared memory that looking at all of it brought in", forced, "< 1024", forced < 1024)
    forced = max(got["forced_huge"] for got in cases.values())
    need("huge pages that it brought in", forced, 0, forced == 0)
    worst = max(_difference(case, got) for case, got in cases.items())
    need("MB of a node beside /proc/PID/numa_maps, which has the rest of shared memory, too", f"{worst:.1f}", "< 16", worst < 16)
    for case in ("default", "huge"):
        worst = _misplaced(cases[case], n)
        limit = 0.02 if case != "huge" else 0.05
        need(f"{case}: a node's share of what was filled, beside where the session ran", percent(worst), f"< {percent(limit)}",
             worst < limit)
    left = re.search(r"(\d+) pages in use could not be moved", cases["interleaved"]["log"])
    need("interleaved: pages in use at the start that could not be moved", left[1], 0, left[1] == "0")
    even = 1 / n
    for case in ("interleaved", "huge_interleaved"):
        skew = _skew(cases[case]["filled"])
        limit = even + (0.02 if case == "interleaved" else 0.05)
        need(f"{case.replace('_', ', ')}: the fullest node's share", percent(skew), f"< {percent(limit)}", skew < limit)
    for case, state in (("default", "idle"), ("interleaved", "working"), ("refused", "broken")):
        got = cases[case]["health"]["state"]
        need(f"{case}: health says", got, state, got == state)
    return rows


raise SystemExit(experiment.run(__file__, {name: machine(name) for name in DISTANCES}))
