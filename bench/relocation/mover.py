"""The ways to move indexes and tables to another tablespace."""
import contextlib
import time

from cluster import run, value

OVER = ("done", "failed", "cancelled", "lost")


def request(connection, statement, *parameters):
    """The jobs that a call of a function has queued."""
    return [job for job, in run(connection, statement, *parameters)]


def relocate_indexes(connection, relation, tablespace):
    return request(connection, "SELECT pgscale.relocate_indexes(%s::regclass, %s, mode => 'rebuild')", relation, tablespace)


def relocate_table(connection, table, tablespace):
    return request(connection, "SELECT pgscale.relocate_table(%s::regclass, %s)", table, tablespace)


def wait(connection, jobs):
    """Until all of them are over; one that is not done ends the experiment. Returns what there is to tell of each."""
    while True:
        rows = run(connection, """
            SELECT job, relation, state, sqlstate, message, locked_ms
              FROM pgscale.relocation_jobs WHERE job = ANY (%s) ORDER BY started_at""", jobs)
        for job, relation, state, sqlstate, message, *_ in rows:
            if state in OVER[1:]:
                raise RuntimeError(f"job {job} on {relation} is {state}: {sqlstate} {message}")
        if len(rows) == len(jobs) and all(row[2] == OVER[0] for row in rows):
            return [{"relation": relation, "locked ms": locked} for _, relation, *_, locked in rows]
        time.sleep(0.2)


def by_pgscale(server, index, tablespace):
    with contextlib.closing(server.connect()) as connection:
        wait(connection, relocate_indexes(connection, index, tablespace))


def by_alter_index(server, index, tablespace):
    with contextlib.closing(server.connect()) as connection:
        run(connection, f"ALTER INDEX {index} SET TABLESPACE {tablespace}")


def by_pg_repack(server, index, tablespace):
    server.place.run(["pg_repack", "-h", server.folder, "-U", "postgres", f"--index={index}",
                      f"--tablespace={tablespace}", "postgres"])


def table_by_pgscale(server, table, tablespace):
    with contextlib.closing(server.connect()) as connection:
        return wait(connection, relocate_table(connection, table, tablespace))[0]


def by_alter_table(server, table, tablespace):
    with contextlib.closing(server.connect()) as connection:
        run(connection, f"ALTER TABLE {table} SET TABLESPACE {tablespace}")


def table_by_pg_repack(server, table, tablespace):
    server.place.run(["pg_repack", "-h", server.folder, "-U", "postgres", f"--table={table}", f"--tablespace={tablespace}",
                      "postgres"])


def by_pg_squeeze(server, table, tablespace):
    with contextlib.closing(server.connect()) as connection:
        run(connection, "SELECT squeeze.squeeze_table('public', %s, NULL, %s)", table, tablespace)


def tablespace_of(connection, relation):
    return value(connection, "SELECT spcname FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace"
                             " WHERE c.oid = %s::regclass", relation)
