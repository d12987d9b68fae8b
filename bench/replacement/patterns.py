"""Sequences of references to pages, as loads of a database make them; zipf's ranks are spread over the pages at random."""
import numpy

BUFFERS = 16384
PAGES = 8 * BUFFERS
# windows of as many references as there are buffers: what comes before is not measured
WARM_UP, MEASURED = 60, 40
LENGTH = (WARM_UP + MEASURED) * BUFFERS
CHANGES = numpy.uint32(1 << 31)     # of a reference that changes its page


def ranks(random, pages, exponent, length=LENGTH):
    """From 0 on, with probabilities in proportion to 1, 1/2^s, 1/3^s, ..."""
    sums = numpy.cumsum(numpy.arange(1, pages + 1) ** -float(exponent))
    return numpy.searchsorted(sums, random.random(length) * sums[-1], side="right")


def zipf(random, exponent, pages=PAGES):
    return random.permutation(pages)[ranks(random, pages, exponent)]


def pareto(random, pages=4 * BUFFERS):
    """80 % of the references are to 20 % of the pages, 64 % to 4 %, ..., as sysbench has it; hot pages are neighbours."""
    return (pages * random.random(LENGTH) ** (numpy.log(0.2) / numpy.log(0.8))).astype(int)


def hot_and_cold(random, pages=4 * BUFFERS):
    """80 % of the references are to 20 % of the pages, which are equal, as are the others."""
    hot = pages // 5
    return numpy.where(random.random(LENGTH) < 0.8, random.integers(hot, size=LENGTH), random.integers(hot, pages, LENGTH))


def used_once(random):
    """One reference in five is to a page that is never used again."""
    once = random.random(LENGTH) < 0.2
    return numpy.where(once, PAGES + numpy.cumsum(once), zipf(random, 0.99))


def btree(random, rows_of_page=40, keys_of_leaf=256, leaves_of_inner=256):
    """Look-ups of keys: the root, an inner page and a leaf of a B-tree, and a page of a heap that is in another order."""
    heap = PAGES - PAGES // 8
    keys = rows_of_page * heap
    key = random.permutation(keys)[ranks(random, keys, 0.99, LENGTH // 4)]
    leaf = key // keys_of_leaf
    inner = heap + keys // keys_of_leaf + 1
    root = numpy.full(len(key), inner + keys // keys_of_leaf // leaves_of_inner + 1)
    row = random.permutation(keys)[key]
    return numpy.column_stack((root, inner + leaf // leaves_of_inner, heap + leaf, row // rows_of_page)).ravel()


def ranges(random, pages_of_range=64, windows=10):
    """One reference in four in ranges; a pass over a table as large as the cache takes half of two windows in ten."""
    at = numpy.arange(LENGTH)
    found = zipf(random, 0.99)
    in_range = numpy.arange(LENGTH // 4)
    first = random.integers(PAGES // pages_of_range, size=LENGTH // 4 // pages_of_range + 1) * pages_of_range
    found[1::4] = first[in_range // pages_of_range] + in_range % pages_of_range
    passing = (at % (windows * BUFFERS) < 2 * BUFFERS) & (at % 2 == 0)
    found[passing] = PAGES + numpy.arange(passing.sum()) % BUFFERS
    return found


def drift(random, references):
    """After that many references each page takes the next higher rank; the first becomes the last."""
    return random.permutation(PAGES)[(ranks(random, PAGES, 0.99) + numpy.arange(LENGTH) // references) % PAGES]


def move(random):
    """At the end of the warm-up, all pages change their ranks."""
    return numpy.where(numpy.arange(LENGTH) < WARM_UP * BUFFERS, zipf(random, 0.99), zipf(random, 0.99))


def recency(random, mean, references_of_page=40):
    """Rows are inserted at the end of a table, and read the more the newer they are; mean age as a part of the buffers."""
    last = 2 * BUFFERS + numpy.arange(LENGTH) // references_of_page
    age = numpy.where(random.random(LENGTH) < 0.25, 0, random.exponential(mean * BUFFERS, LENGTH))
    return numpy.maximum(last - age.astype(int), 0)


def uniform(random, pages=PAGES):
    return random.integers(pages, size=LENGTH)


PATTERNS = {
    "zipf 0.7": lambda random: zipf(random, 0.7),
    "zipf 0.99": lambda random: zipf(random, 0.99),
    "zipf 1.1": lambda random: zipf(random, 1.1),
    "80/20": lambda random: random.permutation(4 * BUFFERS)[pareto(random)],
    "80/20, equal pages": hot_and_cold,
    "20 % used once": used_once,
    "B-tree and heap": btree,
    "ranges and passes": ranges,
    "drift, slow": lambda random: drift(random, 64),
    "drift, fast": lambda random: drift(random, 8),
    "move": move,
    "recency, N/2": lambda random: recency(random, 0.5),
    "loop": lambda random: numpy.arange(LENGTH) % int(1.4 * BUFFERS),
    "uniform": uniform,
}


def made(pattern, seed=1):
    return pattern(numpy.random.default_rng(seed)).astype(numpy.uint32)
