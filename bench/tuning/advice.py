"""pgscale's part of this experiment, in SQL."""
from cluster import run

ADVICE = ("setting", "object", "recommended", "reason", "gain")
VERIFIED = ("metric", "difference", "difference_low", "difference_high", "verdict", "decides")


def _rows(connection, names, source, *parameters):
    return [dict(zip(names, row)) for row in run(connection, f"SELECT {', '.join(names)} FROM {source}", *parameters)]


def advice(connection):
    """Greatest gain first."""
    return _rows(connection, ADVICE, "pgscale.advice")


def apply(connection, setting):
    return run(connection, f"CALL pgscale.apply('{setting}', reload => true)")[0][0]


def set_to(connection, setting, value):
    return run(connection, f"CALL pgscale.set('{setting}', '{value}', reload => true)")[0][0]


def verify(connection, change):
    return _rows(connection, VERIFIED, "pgscale.verify(%s)", change)


def revert(connection, change):
    run(connection, f"CALL pgscale.revert({change}, reload => true)")
