"""An emulated machine of several NUMA nodes: a kernel, the server's files and a first process, all in memory.

The kernel is Debian's for cloud machines, taken from its package without installing it, and kept in build/bench/numa.
Everything else is this machine's: the server, the libraries that its programs are linked with, and busybox.
"""
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import threading

from cluster import TREE, say

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = ("postgres", "psql")
LIBRARIES = ("plpgsql.so", "dict_snowball.so")


def kernel():
    """The path of a kernel to boot."""
    if platform.machine() != "x86_64":
        sys.exit("the emulated machine is an amd64 one, and so must this machine be: its programs run there")
    cache = TREE / "build" / "bench" / "numa" / "kernel"
    found = sorted(cache.glob("boot/vmlinuz-*"))
    if found:
        return found[-1]
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(parents=True)
    depends = _output("apt-cache", "depends", "linux-image-cloud-amd64")
    package = re.search(r"Depends: (linux-image-\S+)", depends)
    if not package:
        sys.exit("apt does not know the package linux-image-cloud-amd64: the emulated machine has no kernel")
    say(f"fetching {package[1]}")
    _output("apt-get", "-qq", "download", package[1], cwd=cache)
    (deb,) = cache.glob("*.deb")
    _output("dpkg", "-x", deb, cache)
    deb.unlink()
    return max(cache.glob("boot/vmlinuz-*"))


def _output(*command, **kwargs):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, **kwargs).stdout


class Image:
    """What the machine finds in memory when it starts."""

    def __init__(self, place, data):
        self.place = place
        self.root = place.folder / "image"
        for name in ("bin", "etc", "proc", "sys", "dev", "tmp"):
            (self.root / name).mkdir(parents=True)
        shutil.copy("/bin/busybox", self.root / "bin")
        shutil.copy(HERE / "init", self.root / "init")
        (self.root / "etc" / "passwd").write_text("root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/tmp:/bin/sh\n")
        (self.root / "etc" / "group").write_text("root:x:0:\nnogroup:x:65534:\n")
        refuse = self.root / "refuse.so"
        _output("cc", "-shared", "-fPIC", "-o", refuse, HERE / "refuse.c")

        self._files = set()
        libdir = pathlib.Path(place.ask("--pkglibdir"))
        for path in [place.bindir / name for name in PROGRAMS] + [libdir / name for name in LIBRARIES]:
            self._take(path)
        self._take(place.library / "pgscale.so")
        share = pathlib.Path(place.ask("--sharedir"))
        shutil.copytree(share, self._at(share), dirs_exist_ok=True, ignore=shutil.ignore_patterns("extension", "man", "doc"))
        shutil.copytree(data, self._at(data), symlinks=True)

    def _at(self, path):
        return self.root / str(path).lstrip("/")

    def _take(self, path):
        """A program or library, and what it is linked with, at the same place."""
        for each in [str(path)] + re.findall(r"(/\S+) \(0x", _output("ldd", path)):
            if each in self._files:
                continue
            self._files.add(each)
            self._at(each).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(each, self._at(each))

    def pack(self, settings):
        (self.root / "settings").write_text("".join(f"{name}='{value}'\n" for name, value in settings.items()))
        file = self.place.folder / "image.cpio"
        with open(file, "wb") as out:
            subprocess.run("find . | busybox cpio -o -H newc", shell=True, cwd=self.root, stdout=out,
                           stderr=subprocess.DEVNULL, check=True)
        return file


def boot(image, distances, megabytes, cpus=1, limit=900):
    """Runs it to its end. distances: one list a node. Returns {case: {what: value}} of what it has said."""
    nodes = len(distances)
    command = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "qemu64", "-machine", "q35",
               "-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot", "-nic", "none",
               "-smp", str(nodes * cpus), "-m", str(nodes * megabytes),
               "-kernel", kernel(), "-initrd", image, "-append", "console=ttyS0 quiet panic=-1 rdinit=/init"]
    for node in range(nodes):
        first = node * cpus
        command += ["-object", f"memory-backend-ram,id=m{node},size={megabytes}M",
                    "-numa", f"node,nodeid={node},memdev=m{node},cpus={first}-{first + cpus - 1}"]
    for a in range(nodes):
        for b in range(nodes):
            if a != b:
                command += ["-numa", f"dist,src={a},dst={b},val={distances[a][b]}"]
    # setpriv: it ends with this program, however that ends
    machine = subprocess.Popen(["setpriv", "--pdeathsig", "KILL"] + [str(word) for word in command],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace")
    said, lines = {}, []
    alarm = threading.Timer(limit, machine.kill)
    alarm.start()
    try:
        for line in machine.stdout:
            lines.append(line)
            if line.startswith("@@ "):
                case, what, value = (line[3:].strip() + "  ").split(" ", 2)
                if case == "end":
                    break
                if case not in said:
                    say(f"  {case}")
                said.setdefault(case, {})[what] = value.strip()
    finally:
        alarm.cancel()
        machine.kill()
        machine.wait()
    failed = [case for case, what in said.items() if "failed" in what]
    if not said or failed or not lines[-1].startswith("@@ end"):
        sys.exit("the emulated machine did not come to its end:\n" + "".join(lines[-30:]))
    return said
