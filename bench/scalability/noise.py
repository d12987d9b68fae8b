"""Does a fit find the truth? Figures of a known law with 5 % of noise, over different ranges; and published figures."""
import contextlib

import numpy

from report import percent, table

import law

TRUTHS = {"sharp": (0.02, 0.01), "middle": (0.03, 0.0005), "flat": (0.1, 0.0003)}
REACH = (0.25, 1, 2)
REPEATS = 3
NOISE = 0.05
FITS, QUICK = 200, 20
LEFT_OUT = ("r2",)
STATUSES = "insufficient", "no", "ok"

# name: source, concurrencies, throughputs, published lambda, sigma, kappa, N*
PUBLISHED = {
    "specsdm91": (
        "Gunther, Guerrilla Capacity Planning, 2007, as in R's package usl, which fits it",
        (1, 18, 36, 72, 108, 144, 216), (64.9, 995.9, 1652.4, 1853.2, 1828.9, 1775.0, 1702.2),
        (89.9952, 0.0277285, 0.0001044, 96.5)),
    "raytracer": (
        "Gunther, as above", (1, 4, 8, 12, 16, 20, 24, 28, 32, 48, 64), (20, 78, 130, 170, 190, 200, 210, 230, 260, 280, 310),
        (21.8488, 0.057771, 0, None)),
    "cisco": (
        "Schwartz, Practical Scalability Analysis with the Universal Scalability Law, 2015, as in codahale/usl, which fits it",
        tuple(range(1, 33)),
        (955.16, 1878.91, 2688.01, 3548.68, 4315.54, 5130.43, 5931.37, 6531.08, 7219.8, 7867.61, 8278.71, 8646.7, 9047.84,
         9426.55, 9645.37, 9897.24, 10097.6, 10240.5, 10532.39, 10798.52, 11151.43, 11518.63, 11806, 12089.37, 12075.41,
         12177.29, 12211.41, 12158.93, 12155.27, 12118.04, 12140.4, 12074.39),
        (995.6486, 0.02671591, 0.0007690945, 35)),
}


def sizes(end):
    """1, 2, 4 .. and the end."""
    return [2.0 ** i for i in range(20) if 2 ** i < end * 0.99] + [end]


def measure(place, quick):
    cases = []
    random = numpy.random.default_rng(1)
    with place.cluster("noise") as server, contextlib.closing(server.connect()) as connection:
        server.create_pgscale(connection)
        for name, (sigma, kappa) in TRUTHS.items():
            peak = ((1 - sigma) / kappa) ** 0.5
            for reach in REACH:
                at = numpy.repeat(sizes(reach * peak), REPEATS)
                truth = 1000 * at / (1 + (at - 1) * (sigma + kappa * at))
                fits = [law.fit(connection, list(zip(at, truth * (1 + NOISE * random.standard_normal(len(at))))))
                        for _ in range(QUICK if quick else FITS)]
                cases.append({"truth": name, "peak": peak, "reach": reach, "points": len(at), **_counted(fits, peak)})
        published = [{"name": name, **law.fit(connection, list(zip(each[1], each[2])))} for name, each in PUBLISHED.items()]
    return {"cases": cases, "published": published}


def _counted(fits, truth):
    """How many fits came to what; of those that tell N*, how far it is off and if their interval holds it."""
    told = [(abs(fit["peak_concurrency"] / truth - 1), fit["peak_concurrency_low"] <= truth <= fit["peak_concurrency_high"])
            for fit in fits if fit["peak_concurrency"] is not None]
    statuses = [fit["status"].split(" ")[0] for fit in fits]
    return {"fits": len(fits), **{status: statuses.count(status) for status in STATUSES}, "told": len(told),
            "within 10%": sum(off <= 0.1 for off, _ in told), "held": sum(held for _, held in told)}


def total(cases, what, of, **which):
    """The share of what among of, over these cases."""
    mine = [case for case in cases if all(case[name] == value for name, value in which.items())]
    return sum(case[what] for case in mine) / sum(case[of] for case in mine)


def show(results):
    rows = []
    for case in results["cases"]:
        told = case["told"]
        rows.append([f"{case['truth']}, {case['peak']:.0f}", case["reach"], case["points"],
                     *(percent(case[status] / case["fits"], 0) for status in STATUSES),
                     *((percent(case[what] / told, 0) if told else "") for what in ("within 10%", "held"))])
    known = []
    for fit in results["published"]:
        source, _, _, (size, sigma, kappa, peak) = PUBLISHED[fit["name"]]
        known.append([fit["name"], "published", f"{size:,.1f}", f"{sigma:.4f}", f"{kappa:.6f}", peak or "none", source])
        known.append([fit["name"], "usl_fit", f"{fit['lambda']:,.1f}", f"{fit['sigma']:.4f}", f"{fit['kappa']:.6f}",
                      law.peak(fit, "{:.1f}"), fit["status"]])
    return table(["truth, N*", "data reach, of N*", "points", "insufficient", "no peak", "ok", "N* within 10 %, of ok",
                  "interval holds N*"], rows) + "\n\n" + \
        table(["figures", "", "lambda", "sigma", "kappa", "N*", ""], known)


def required(results):
    cases = results["cases"]
    for name in ("sharp", "middle"):
        share = total(cases, "within 10%", "fits", truth=name, reach=2)
        yield f"noise: N* within 10 % of the truth, data to 2 N* three times, {name}", percent(share), "at least 95 %", \
            share >= 0.95
    share = total(cases, "held", "told", reach=2)
    yield "noise: intervals that hold N*, data to 2 N*", percent(share), "at least 92 %", share >= 0.92
    share = total(cases, "told", "fits", reach=0.25)
    yield "noise: fits that tell N* of data to a quarter of it", percent(share), "at most 5 %", share <= 0.05
    for fit in results["published"]:
        there = PUBLISHED[fit["name"]][3][3]
        if there:
            off = fit["peak_concurrency"] / there - 1
            yield f"noise: N* of {fit['name']}, from the published one", percent(off), "within 10 %", abs(off) <= 0.1
