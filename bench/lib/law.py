"""The law, as pgscale fits it, and how a fit is written down."""
from cluster import run

FIELDS = ("status", "lambda", "sigma", "kappa", "r2", "peak_concurrency", "peak_concurrency_low", "peak_concurrency_high", "peak_throughput",
          "peak_throughput_low", "peak_throughput_high", "points", "min_concurrency", "max_concurrency")


def throughput(fit, n):
    """Of a fit as a dictionary."""
    return fit["lambda"] * n / (1 + max(n - 1, 0) * (fit["sigma"] + fit["kappa"] * n))


def fit(connection, points):
    """Points are (concurrency, throughput)."""
    concurrencies, throughputs = (list(map(float, each)) for each in zip(*points))
    row = run(connection, f"SELECT {', '.join(FIELDS)} FROM pgscale.usl_fit(%s::float8[], %s::float8[])",
              concurrencies, throughputs)[0]
    return dict(zip(FIELDS, row))


def between(fit, what, form):
    """A peak with its interval; nothing if there is none."""
    names = {"peak_concurrency": ("peak_concurrency_low", "peak_concurrency_high"),
             "peak_throughput": ("peak_throughput_low", "peak_throughput_high")}[what]
    if fit[what] is None:
        return ""
    low, high = (form.format(fit[name]) for name in names)
    return f"{form.format(fit[what])} ({low} .. {high})"


def cells(fit):
    """Lambda, sigma, kappa, r2, N*, throughput there, status."""
    if fit["lambda"] is None:
        return ["", "", "", "", "", "", fit["status"]]
    return [f"{fit['lambda']:,.0f}", f"{fit['sigma']:.3f}", f"{fit['kappa']:.6f}", f"{fit['r2'] or 0:.3f}",
            between(fit, "peak_concurrency", "{:.0f}"), between(fit, "peak_throughput", "{:,.0f}"), fit["status"]]
