"""The law, as pgscale fits it."""
from cluster import run

FIELDS = ("status", "lambda", "sigma", "kappa", "r2", "peak_concurrency", "peak_concurrency_low", "peak_concurrency_high")


def fit(connection, points):
    """Points are (concurrency, throughput)."""
    concurrencies, throughputs = (list(map(float, each)) for each in zip(*points))
    row = run(connection, f"SELECT {', '.join(FIELDS)} FROM pgscale.usl_fit(%s::float8[], %s::float8[])",
              concurrencies, throughputs)[0]
    return dict(zip(FIELDS, row))


def peak(fit, form):
    """The concurrency at the peak with its interval; nothing if there is none."""
    if fit["peak_concurrency"] is None:
        return ""
    return "{} ({} .. {})".format(*(form.format(fit[f"peak_concurrency{end}"]) for end in ("", "_low", "_high")))
