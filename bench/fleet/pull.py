"""What it costs to keep the archive of all nodes: a round's time and memory by number of nodes, and what one node pays and sends.

The nodes are servers of their own on Unix sockets, without a load, except one: there some sessions execute more different
statements than a row of the archive has, so that its rows are as long as they get.
"""
import contextlib
import os
import pathlib
import subprocess
import time

import stats
from cluster import run, say, value
from report import spread, table

COUNTS, STATEMENTS, SESSIONS, FILL_S, CALLS = (2, 10, 50), 260, 20, 130, 20
QUICK = {"COUNTS": (2, 4), "STATEMENTS": 260, "SESSIONS": 10, "FILL_S": 65, "CALLS": 5}
ROUNDS = 5
MOST_BYTES, MOST_CPU, TIMEOUT_S = 1 << 20, 0.001, 5
SETTINGS = {"shared_preload_libraries": "pgscale", "shared_buffers": "16MB", "max_connections": 60, "compute_query_id": "on"}
TICKS = os.sysconf("SC_CLK_TCK")
ANSWER = "SELECT sum(length(m::text)), count(at), max(cardinality(wait_ms)) FROM pgscale_internal.node_minutes(60, %s, 200) m"

RECORDS = {"counts": ("nodes",)}


def peak_kb(pid):
    return int(next(line.split()[1] for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")))


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def kib(size):
    return f"{size / 1024:,.0f} KiB"


def backend(connection):
    return value(connection, "SELECT pg_backend_pid()")


def one_node(place, node, statements, sessions, fill_s, calls):
    """What a minute of it costs there, once a row is as long as it gets: bytes, waits in the row, seconds of CPU."""
    files = [place.script(f"statement{n}.sql", f"SELECT {', '.join(['1'] * (n + 1))}, pg_sleep(0.01);\n") for n in range(statements)]
    # pgbench takes 128 at most
    loads = [place.popen(["pgbench", "-h", node.folder, "-U", "postgres", "-n", "-c", sessions // 4, "-j", 1, "-T", fill_s,
                          *(word for file in files[part::4] for word in ("-f", file)), "postgres"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
             for part in range(4)]
    for load in loads:
        load.wait()
    with contextlib.closing(node.connect()) as connection:
        key, now = run(connection, "SELECT node_id::text, date_trunc('minute', now() - interval '2 s') - interval '1 min' FROM pgscale_internal.node_key()")[0]
        known = f'{{"{key}": {{"since": "{now.isoformat()}"}}}}'
        sent, minutes, waits = run(connection, ANSWER, known)[0]
        before = cpu_s(backend(connection))
        for _ in range(calls):
            run(connection, ANSWER, known)
        return {"bytes": int(sent), "minutes": minutes, "waits": waits, "cpu_s": (cpu_s(backend(connection)) - before) / calls}


def one_count(main, nodes, count):
    """Rounds that ask so many nodes for a minute each."""
    with contextlib.closing(main.connect()) as connection:
        for number, node in enumerate(nodes[:count]):
            run(connection, "SELECT pgscale.fleet_add(%s, %s)", f"n{number:02}", f"host={node.folder} dbname=postgres user=postgres")
        # the first one takes all that their memory has
        run(connection, "SELECT pgscale_internal.archive_pull(60)")
        seconds = []
        for _ in range(ROUNDS):
            run(connection, "UPDATE pgscale_internal.archive_node SET known_until = known_until - interval '1 min' WHERE name IS NOT NULL;"
                            " DELETE FROM pgscale_internal.archive_minute WHERE pulled AND at > now() - interval '3 min'")
            with contextlib.closing(main.connect()) as fresh:
                before = peak_kb(backend(fresh))
                begun = time.monotonic()
                wrong = value(fresh, "SELECT pgscale_internal.archive_pull(60)")
                seconds.append(time.monotonic() - begun)
                grown = peak_kb(backend(fresh)) - before
        rows = value(connection, "SELECT count(DISTINCT node_id) FROM pgscale_internal.archive_minute WHERE pulled")
        for number in range(count):
            run(connection, "SELECT pgscale.fleet_remove(%s)", f"n{number:02}")
    say(f"  {count} nodes: {stats.median(seconds):.2f} s, {wrong or 'all answered'}")
    return {"nodes": count, "seconds": seconds, "grown_kb": grown, "told": rows, "wrong": wrong}


def measure(place, quick):
    counts, statements, sessions, fill_s, calls = QUICK.values() if quick else (COUNTS, STATEMENTS, SESSIONS, FILL_S, CALLS)
    with contextlib.ExitStack() as stack:
        nodes = []
        for number in range(max(counts)):
            node = place.cluster(f"n{number}", cluster_name=f"n{number}", **SETTINGS)
            stack.enter_context(node)
            with contextlib.closing(node.connect()) as connection:
                place.create_pgscale(connection)
            nodes.append(node)
        main = stack.enter_context(place.cluster("main", cluster_name="main", **SETTINGS))
        with contextlib.closing(main.connect()) as connection:
            place.create_pgscale(connection)
            run(connection, "SELECT pgscale_internal.archive_partition('archive_minute', (now() AT TIME ZONE 'UTC')::date)")
        say("one node with a load")
        load = one_node(place, nodes[0], statements, sessions, fill_s, calls)
        return {"load": load, "counts": [one_count(main, nodes, count) for count in counts]}


def show(results):
    load = results["load"]
    return table(["a node with a load", ""],
                 [["waits in a row of the archive", str(load["waits"])], ["answer to a question", kib(load["bytes"])],
                  ["CPU time of the answer", f"{1000 * load['cpu_s']:.0f} ms"],
                  ["that of each minute, of a core", f"{load['cpu_s'] / 60:.3%}"]]) + "\n\n" + table(
        ["nodes", "round", "memory of the round", "nodes that told"],
        [[str(one["nodes"]), spread([1000 * s for s in one["seconds"]], "{:.0f}", " ms"), kib(1024 * one["grown_kb"]), str(one["told"])]
         for one in results["counts"]])


def required(results):
    load = results["load"]
    yield "pull: waits in a row of the archive", load["waits"], "201, the most", load["waits"] == 201
    yield "pull: answer of a node, a minute", kib(load["bytes"] / load["minutes"]), "at most 1 MiB", load["bytes"] <= load["minutes"] * MOST_BYTES
    yield "pull: CPU time of a node, of a core", f"{load['cpu_s'] / 60:.3%}", f"at most {MOST_CPU:.1%}", load["cpu_s"] / 60 <= MOST_CPU
    most = results["counts"][-1]
    yield f"pull: round of {most['nodes']} nodes", f"{stats.median(most['seconds']):.2f} s", f"at most {TIMEOUT_S} s", stats.median(most["seconds"]) <= TIMEOUT_S
    yield f"pull: nodes that told, of {most['nodes']}", most["told"], most["nodes"], most["told"] == most["nodes"] and not most["wrong"]
