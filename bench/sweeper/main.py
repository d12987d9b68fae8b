"""The sweeper's experiment: see bench/run and README.md."""
import contest
import elsewhere
import skewed

PARTS = {"main": contest, "skewed": skewed, "elsewhere": elsewhere}
