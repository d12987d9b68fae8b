"""pgscale's part of this experiment, in SQL."""
from cluster import run

ADVICE = ("setting", "object", "current", "recommended", "reason", "needs", "confidence", "gain", "rule")
VERIFIED = ("metric", "unit", "before", "after", "difference", "difference_low", "difference_high", "samples_before", "samples_after",
            "verdict", "decides", "reason")


def _rows(connection, names, source, *parameters):
    return [dict(zip(names, row)) for row in run(connection, f"SELECT {', '.join(names)} FROM {source}", *parameters)]


def advice(connection, seconds=None):
    """Greatest gain first; by the evidence of the last ten minutes, or of the last seconds."""
    if seconds is None:
        return _rows(connection, ADVICE, "pgscale.advice")
    return _rows(connection, ADVICE, "pgscale.tuning_findings(make_interval(secs => %s)) WHERE verdict = 'advises'"
                                     " ORDER BY gain DESC", seconds)


def rules(connection, seconds=600):
    """What each rule says, and why."""
    return {rule: f"{verdict}: {reason}" for rule, verdict, reason in
            run(connection, "SELECT rule, verdict, reason FROM pgscale.tuning_findings(make_interval(secs => %s))",
                seconds)}


def efficiency(connection, seconds):
    """Its columns by name, but for since and until."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM pgscale.wal_efficiency(make_interval(secs => %s))", (seconds,))
        row = cursor.fetchone()
        return {column.name: value for column, value in zip(cursor.description, row or [])
                if column.name not in ("since", "until")}


def apply(connection, setting):
    return run(connection, f"CALL pgscale.apply('{setting}', reload => true)")[0][0]


def set_to(connection, setting, value):
    return run(connection, f"CALL pgscale.set('{setting}', '{value}', reload => true)")[0][0]


def verify(connection, change):
    return _rows(connection, VERIFIED, "pgscale.verify(%s)", change)


def revert(connection, change):
    run(connection, f"CALL pgscale.revert({change}, reload => true)")
