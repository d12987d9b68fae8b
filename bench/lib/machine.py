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
        "kernel": platform.release().split("-")[0],
        "PostgreSQL": place.version,
    }


def peers(place, packages):
    """The versions of other extensions for this server, by their names, as Debian's packages have them."""
    found, prefix = {}, "postgresql-MAJOR-"
    for package in packages:
        if package.startswith(prefix):
            name = package.removeprefix(prefix).removesuffix("?").replace("-", "_")
            version = _output("dpkg-query", "-W", "-f", "${Version}", package.removesuffix("?").replace("MAJOR", str(place.major)))
            if package.endswith("?") and not version:
                continue
            # without the epoch, and the package's own revision
            found[name if name.startswith("pg") else f"pg_{name}"] = version.split(":")[-1].rsplit("-", 1)[0]
    return found


def short(described):
    """Its cores alone."""
    return described.split(",")[0].replace("(R)", "").removesuffix(" Processor")


def load():
    """Processes that wanted a CPU in the last minute."""
    return os.getloadavg()[0]
