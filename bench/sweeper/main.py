"""The sweeper's experiment: see bench/run and README.md."""
import contest
import elsewhere
import rate
import skewed

PARTS = {"main": contest, "rate": rate, "skewed": skewed, "elsewhere": elsewhere}
