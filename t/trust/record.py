"""What each run found, one file a kind of run."""
import json

from cluster import TREE

OUTPUT = TREE / "build" / "trust"


def record(name, result):
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / f"{name.replace(' ', '-')}.json").write_text(json.dumps(result, indent=1) + "\n")
