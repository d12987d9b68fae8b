"""The ways to move indexes and tables to another tablespace."""
import contextlib
import time

from cluster import run, value

# what only a relation that is copied while it is in use has
COPY = ("copied bytes", "copied again", "WAL read", "lock tries", "locked ms")
OVER = ("done", "failed", "cancelled", "lost")


def request(connection, statement, *parameters):
    """The jobs that a call of a function has queued."""
    return [job for job, in run(connection, statement, *parameters)]


def relocate_index(connection, index, tablespace):
    return request(connection, "SELECT pgscale.relocate_index(%s::regclass, %s, mode => 'rebuild')", index, tablespace)


def relocate_indexes(connection, table, tablespace):
    return request(connection, "SELECT pgscale.relocate_indexes(%s::regclass, %s, mode => 'rebuild')", table, tablespace)


def relocate_table(connection, table, tablespace):
    return request(connection, "SELECT pgscale.relocate_table(%s::regclass, %s)", table, tablespace)


def relocate_tablespace(connection, source, tablespace):
    return request(connection, "SELECT pgscale.relocate_tablespace(%s, %s)", source, tablespace)


def wait(connection, jobs):
    """Until all of them are over; one that is not done ends the experiment. Returns what there is to tell of each."""
    while True:
        rows = run(connection, """
            SELECT job, relation, state, sqlstate, message, attempts, size_bytes, size_after_bytes,
                   extract(epoch FROM started_at)::float8, extract(epoch FROM finished_at)::float8,
                   copied_bytes, recopied_blocks, wal_read_bytes, lock_tries, locked_ms
              FROM pgscale.relocation_jobs WHERE job = ANY (%s) ORDER BY started_at""", jobs)
        for job, relation, state, sqlstate, message, *_ in rows:
            if state in OVER[1:]:
                raise RuntimeError(f"job {job} on {relation} is {state}: {sqlstate} {message}")
        if len(rows) == len(jobs) and all(row[2] == OVER[0] for row in rows):
            return [{"relation": relation, "attempts": attempts, "bytes": before, "bytes after": after,
                     "started": started, "finished": finished, **dict(zip(COPY, copy))}
                    for _, relation, _, _, _, attempts, before, after, started, finished, *copy in rows]
        time.sleep(0.2)


def by_pgscale(server, index, tablespace):
    with contextlib.closing(server.connect()) as connection:
        wait(connection, relocate_index(connection, index, tablespace))


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


def by_repack(server, table, _tablespace):
    """Of PostgreSQL 19: the table stays in its tablespace."""
    with contextlib.closing(server.connect()) as connection:
        run(connection, f"REPACK (CONCURRENTLY) {table}")


def tablespace_of(connection, relation):
    return value(connection, "SELECT spcname FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace"
                             " WHERE c.oid = %s::regclass", relation)
