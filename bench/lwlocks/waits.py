"""What the sessions of a load wait for, and at which LWLocks."""
from cluster import run

SETTINGS = {"shared_preload_libraries": "pgscale", "max_connections": 100, "max_wal_size": "16GB", "synchronous_commit": "off"}

# of all time in which a client backend waited for something other than its client; Extension is who asks pgscale to begin anew
SHARES = """
    SELECT event_type || ':' || event, sum(wait_ms) / sum(sum(wait_ms)) OVER ()
      FROM pgscale.wait_profile()
     WHERE backend_type = 'client backend' AND NOT idle AND event_type NOT IN ('CPU', 'Client', 'Extension') GROUP BY 1 ORDER BY 2 DESC"""
# of all the time of sessions that worked
WAITING = """
    SELECT coalesce(sum(wait_ms) FILTER (WHERE event_type = 'LWLock') / sum(wait_ms), 0)
      FROM pgscale.wait_profile() WHERE backend_type = 'client backend' AND NOT idle AND event_type <> 'Client'"""
TRANCHES = "SELECT tranche, locks, wait_ms, busiest_lock, skew FROM pgscale_internal.lwlock_tranches() ORDER BY wait_ms DESC LIMIT 3"


def measure(server, connection, seconds, *options):
    """Runs pgbench and returns throughput, the shares of waiting and the tranches that were waited for most."""
    run(connection, "SELECT pgscale.reset('sampler')")
    run(connection, "SELECT pgscale.reset('lwlocks')")
    tps = server.pgbench("-n", "-T", seconds, *options)
    names = ("tranche", "locks", "wait_ms", "busiest_lock", "skew")
    return {"tps": tps, "lwlocks": run(connection, WAITING)[0][0],
            "shares": {event: float(share) for event, share in run(connection, SHARES)[:4]},
            "tranches": [dict(zip(names, row)) for row in run(connection, TRANCHES)]}


def cells(measured):
    """Throughput, time in LWLocks, the largest shares of waiting, and how uneven the first tranche is."""
    shares = ", ".join(f"{event} {share * 100:.0f} %" for event, share in measured["shares"].items() if share >= 0.01)
    first = measured["tranches"][0] if measured["tranches"] else None
    skew = f"{first['tranche']} {first['skew']:.1f} of {first['locks']}" if first and first["skew"] else ""
    return [f"{measured['tps']:,.0f}", f"{measured['lwlocks'] * 100:.1f} %", shares, skew]


HEADER = ["tps", "time in LWLocks", "shares of waiting", "skew of the first tranche"]
