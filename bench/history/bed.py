"""Servers with an archive, and what to wait for."""
import time

from cluster import run, value

SETTINGS = {"shared_preload_libraries": "pgscale,pg_stat_statements", "pgscale.archive_database": "postgres",
            "max_connections": 100, "track_io_timing": "on"}


def create(server, connection):
    run(connection, "CREATE EXTENSION pg_stat_statements")
    server.create_pgscale(connection)


def minutes(connection):
    return value(connection, "SELECT count(*) FROM pgscale.archive_minutes")


def await_minutes(connection, more, seconds):
    """Waits until there are so many more of them."""
    wanted = minutes(connection) + more
    until = time.monotonic() + seconds
    while minutes(connection) < wanted:
        if time.monotonic() > until:
            raise RuntimeError("the archive does not go on: " + str(
                run(connection, "SELECT state, reason FROM pgscale.health WHERE feature = 'archive'")))
        time.sleep(0.2)
