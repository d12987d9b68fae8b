"""Servers on which nothing is wrong: pgscale.advice must be empty, whatever the load."""
import contextlib
import time

import advice
from bed import PREPARED
from cluster import run, say, value
from load import Load
from memory import MemoryGroup
from report import table

CLIENTS = 4
WELL = {
    "max_connections": 50,
    "max_wal_size": "32GB",
    "min_wal_size": "8GB",
    "checkpoint_timeout": "15min",
    "checkpoint_completion_target": 0.9,
    "wal_compression": "on",
    "bgwriter_delay": "50ms",
    "bgwriter_lru_maxpages": 1000,
    "bgwriter_lru_multiplier": 4,
    "random_page_cost": 1.1,
    "effective_io_concurrency": 200,
    "max_worker_processes": 16,
}
# fits: all data in the buffers; else a quarter of the memory is buffers, and that and the kernel's cache hold half
SIZES = {
    "fits": {"scale": 20, "buffers": "1GB", "memory": None},
    "does not fit": {"scale": 100, "buffers": "256MB", "memory": 1024},
}
COPY_ROWS = 20000
COPY = """
BEGIN;
TRUNCATE loaded_:client_id;
COPY loaded_:client_id FROM '{file}';
COMMIT;
"""
LOADS = {
    "read only (-S)": (*PREPARED, "-S"),
    "simple update (-N)": (*PREPARED, "-N"),
    "TPC-B": PREPARED,
    "bulk load (COPY)": ("-j", 2, "-f", "copy.sql"),
    "mixed": (*PREPARED, "-b", "select-only@8", "-b", "tpcb-like@2", "-f", "scan.sql@1"),
}
SCAN = "SELECT count(*), avg(abalance) FROM pgbench_accounts WHERE aid BETWEEN 1 AND 20000;\n"
# more than any rule wants
SECONDS, QUICK_SECONDS = 58, 8


def scripts(place):
    """What pgbench gets in place of a name in its options."""
    rows = place.script("rows", "".join(f"{number}\t{'x' * 80}\n" for number in range(COPY_ROWS)))
    scan = place.script("scan.sql", SCAN)
    return {"copy.sql": place.script("copy.sql", COPY.format(file=rows)), "scan.sql@1": f"{scan}@1"}


def one(server, options, seconds):
    with contextlib.closing(server.connect()) as connection:
        # a start of its own: evidence of another load tells nothing of this one
        with Load(server, "-c", CLIENTS, *options) as load:
            began = time.time()
            time.sleep(seconds)
            advised = advice.advice(connection)
            ended = time.time()
        return {"tps": load.tps(began, ended), "advice": advised}


def measure(place, quick):
    seconds = QUICK_SECONDS if quick else SECONDS
    results = []
    files = scripts(place)
    for size, wanted in SIZES.items():
        with contextlib.ExitStack() as undo:
            server = place.cluster(f"quiet{len(results)}", shared_preload_libraries="pgscale", synchronous_commit="on",
                                   **{"shared_buffers": wanted["buffers"], **WELL})
            memory = undo.enter_context(MemoryGroup()) if wanted["memory"] else None
            say(f"loading scale {wanted['scale']}")
            with server, contextlib.closing(server.connect()) as connection:
                server.pgbench("-i", "-s", wanted["scale"], "-q")
                server.create_pgscale(connection)
                run(connection, "CREATE EXTENSION pg_prewarm")
                for client in range(CLIENTS):
                    run(connection, f"CREATE TABLE loaded_{client} (id int, filler text)")
                bytes_loaded = value(connection, "SELECT pg_database_size(current_database())")
                run(connection, "CHECKPOINT")
            for name, options in LOADS.items():
                with server, contextlib.closing(server.connect()) as connection:
                    if memory:
                        memory.take(server.process.pid)
                        memory.limit(wanted["memory"])
                    run(connection, "SELECT pg_prewarm('pgbench_accounts'), pg_prewarm('pgbench_accounts_pkey')")
                    found = one(server, [files.get(option, option) for option in options], seconds)
                    if memory:
                        memory.lift()
                say(f"  {size}, {name}: {found['tps']:.0f} TPS, advice: " +
                    (", ".join(f"{row['setting'] or row['object']} {row['recommended']}" for row in found["advice"]) or
                     "none"))
                results.append({"size": size, "load": name, "bytes": bytes_loaded, **found})
    return results


def show(results):
    rows = []
    for found in results:
        rows.append([found["load"], found["size"], f"{found['bytes'] / 2**20:,.0f}", f"{found['tps']:,.0f}",
                     str(len(found["advice"])),
                     "; ".join(f"`{row['setting'] or row['object']}` {row['recommended']}: {row['reason']}"
                               for row in found["advice"])])
    return table(["load", "data", "MiB", "TPS", "rows of advice", ""], rows)


def published(results):
    yield "loads", str(len(results))
    yield "advice", str(sum(len(found["advice"]) for found in results))


def required(results):
    false = sum(len(found["advice"]) for found in results)
    return [("quiet: rows of advice on a server on which nothing is wrong", str(false), "0", false == 0)]
