"""How large the tour is: by the machine's cores, or as the environment says."""
import dataclasses
import os
import sys

CORES = os.cpu_count()
# TOUR="seconds=60 rounds=3 clients=1,16,64,256 scale=1000 large=32GB small=4GB"
GIVEN = dict(word.partition("=")[::2] for word in os.environ.get("TOUR", "").split())


@dataclasses.dataclass(frozen=True)
class Sizes:
    """pgbench's data have 15 MB a unit of scale; "large" holds them, "small" does not."""

    seconds: int
    rounds: int
    clients: tuple
    scale: int
    large: str
    small: str

    @property
    def most(self):
        return self.clients[-1]

    def __str__(self):
        return f"scale {self.scale}, shared_buffers {self.large} or {self.small}, {self.rounds} rounds of {self.seconds} s"


KNOWN = [field.name for field in dataclasses.fields(Sizes)]
if not GIVEN.keys() <= set(KNOWN):
    sys.exit("TOUR is a list of " + ", ".join(f"{name}=..." for name in KNOWN))


def pieces(names, quick):
    """Their names with the sizes: what was measured with others is not taken for theirs."""
    return [f"{name}: {sizes(quick)}, {sizes(quick).clients}" for name in names]


def sizes(quick):
    most = 8 if quick else max(64, 4 * CORES)
    clients = tuple(sorted(map(int, GIVEN["clients"].split(",")))) if "clients" in GIVEN else \
        tuple(sorted({most, *(2**n for n in range(most.bit_length()))}))
    # more branches than clients: with fewer, they would mostly wait for the same rows
    scale = int(GIVEN.get("scale", clients[-1] + 6))
    return Sizes(int(GIVEN.get("seconds", 1 if quick else 3)), int(GIVEN.get("rounds", 1 if quick else 2)), clients, scale,
                 GIVEN.get("large", f"{22 * scale}MB"), GIVEN.get("small", f"{2 * scale}MB"))
