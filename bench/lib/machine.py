"""A description of the machine, for the reader who compares."""
import datetime
import os
import pathlib
import platform
import subprocess


def _output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""


def _cpu():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def describe(place):
    """One line a property."""
    virtual = _output("systemd-detect-virt", "--vm") or ("kvm" if "hypervisor" in pathlib.Path("/proc/cpuinfo").read_text() else "none")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores {_cpu()}, {memory:.0f} GiB, " +
                   ("physical" if virtual == "none" else f"virtual ({virtual})"),
        "kernel": platform.release(),
        "filesystem": _output("stat", "-f", "-c", "%T", str(place.folder)),
        "PostgreSQL": place.version,
    }


def short(described):
    """Its cores alone."""
    return described.split(",")[0].replace("(R)", "").removesuffix(" Processor")


def load():
    """Processes that wanted a CPU in the last minute."""
    return os.getloadavg()[0]
