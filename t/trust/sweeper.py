"""The sweeper as the experiments here want it: always at work."""
from cluster import value
from server import wait_for

SETTINGS = {
    "shared_preload_libraries": "pgscale",
    "pgscale.sweeper": "on",
    "pgscale.sweeper_adaptive": "off",
}

# One of these at random, from life to life.
POLICIES = ("clock", "history", "adaptive", "adaptive")


def wait_at_work(connection):
    """Under load; not while buffers are free, and dropped tables free some all the time: so before there are any."""
    wait_for("all sweepers at work", lambda: value(
        connection, "SELECT bool_and(state = 'working') FROM pgscale.sweeper_stats"), 60)


def swept(connection):
    """Pages written since the server started."""
    return int(value(connection, "SELECT sum(written) FROM pgscale.sweeper_stats"))
