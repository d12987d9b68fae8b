"""sqlsmith: random statements, well-formed and typed, over all that a database has."""
import collections
import re
import signal
import subprocess

from cluster import say

INTERNAL = re.compile(r"(?:ERROR|FATAL):  XX000: (.*)")


def run(server, seconds, seed):
    """Runs it that long; returns what it says of itself."""
    output = server.place.folder / "sqlsmith.out"
    with open(output, "wb") as out:
        process = server.place.popen(
            ["/usr/bin/sqlsmith", f"--target=host={server.folder} user=postgres dbname=regression", f"--seed={seed}",
             "--verbose"], stdout=out, stderr=subprocess.STDOUT)
        try:
            process.wait(seconds)
            say("sqlsmith ended early")
        except subprocess.TimeoutExpired:
            # it then says how far it came
            process.send_signal(signal.SIGINT)
            process.wait(60)
        finally:
            process.kill()
            process.wait()
    text = output.read_text(errors="replace")
    last = {what: re.findall(rf"^{what}: ([0-9.]+)", text, re.MULTILINE) for what in ("queries", "error rate")}
    return {"statements": int(last["queries"][-1]) if last["queries"] else 0,
            "refused": float(last["error rate"][-1]) if last["error rate"] else None}


def internal_errors(log, since):
    """What an SQL user should not see, by message without its numbers; stock PostgreSQL has some of its own."""
    found = collections.Counter()
    with open(log, errors="replace") as lines:
        lines.seek(since)
        for line in lines:
            match = INTERNAL.search(line)
            if match:
                found[re.sub(r"\d+", "N", match[1])] += 1
    return dict(found.most_common())
