"""The experiment on replacement: see bench/run and README.md."""
import begins
import keep
import real
import simulator
import writes

PARTS = {"simulator": simulator, "writes": writes, **real.PARTS, "begins": begins, "keep": keep}
