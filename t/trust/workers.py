"""The memory of pgscale's workers."""
import pathlib


def memory(server):
    """Resident and private memory in kB by (title, process id) of each worker of pgscale."""
    found = {}
    for pid in pathlib.Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split():
        try:
            title = pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
            lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue        # it has just ended
        if title.startswith("postgres: pgscale"):
            numbers = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmRSS", "RssAnon"))}
            found[title.removeprefix("postgres: "), int(pid)] = (int(numbers["VmRSS"]), int(numbers["RssAnon"]))
    return found


def compare(before, after):
    """One row for each worker that was there all the time: title, resident before and after, private before and after."""
    return [(who[0], before[who][0], after[who][0], before[who][1], after[who][1])
            for who in sorted(before) if who in after]
