"""The checkpoints of which a server's log tells."""
import re

LINE = re.compile(r"^([\d.]+) LOG: +checkpoint complete: wrote (\d+) buffers.* write=([\d.]+) s, sync=([\d.]+) s, "
                  r"total=([\d.]+) s", re.M)


def completed(log, offset, since):
    """Those that ended after a time, of the part of the log that begins at an offset; times are seconds after it."""
    found = []
    for ended, buffers, write, sync, total in LINE.findall(log.read_bytes()[offset:].decode()):
        if float(ended) >= since:
            ended = float(ended) - since
            found.append({"began": ended - float(total), "ended": ended, "buffers": int(buffers), "write": float(write),
                          "sync": float(sync)})
    return found
