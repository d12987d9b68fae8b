"""The experiments on moving indexes and tables between tablespaces: see run and README.md."""
import online
import many
import move

PARTS = {"move": move, **online.PARTS, "many": many}
