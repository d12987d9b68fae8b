"""The sweeper's experiment: see bench/run and README.md."""
import contest
import elsewhere
from bed import FREELIST, WINDOW
from skewed import Skewed

PARTS = {"main": contest, "skewed": Skewed("skewed", FREELIST, WINDOW), "skewed_window": Skewed("skewed_window", WINDOW),
         "elsewhere": elsewhere}
