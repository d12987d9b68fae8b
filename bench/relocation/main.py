"""The experiments on moving indexes and tables between tablespaces: see run and README.md."""
import live
import many
import move

PARTS = {"move": move, **live.PARTS, "many": many}
