"""What experiments share: fair orders, medians with an interval."""
import random

import numpy


def rounds(n, conditions):
    """n rounds of all conditions, each round in a random order of its own, the same in every run."""
    conditions = list(conditions)
    for number in range(n):
        order = conditions.copy()
        random.Random(number).shuffle(order)
        for condition in order:
            yield number, condition


def median(values):
    return float(numpy.median(values))


def interval(values, level=0.95):
    """A bootstrap confidence interval of the median; of few values, just the least and the greatest."""
    if len(values) < 6:
        return min(values), max(values)
    values = numpy.asarray(values, dtype=float)
    draws = numpy.random.default_rng(1).choice(values, (10000, len(values)))
    low, high = numpy.quantile(numpy.median(draws, axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def worst(values):
    """The one farthest from zero."""
    return max(values, key=abs)
