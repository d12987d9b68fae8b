"""A slow disk: an ext4 file system in a file, behind a loop device whose requests or bytes per second are limited.

The limit holds for all who write to it, the kernel's own writeback included: with cgroup v1 it is blkio's, set in the
root group; with cgroup v2 it is io.max of a group that this program and its servers move into. The kernel's dirty pages
of this one device can be limited as well, since otherwise much memory makes any disk look fast for a while. It needs
root. What was set up is undone when the context ends.
"""
import contextlib
import os
import pathlib
import subprocess
import sys
import time

MIB = 1 << 20
SECTOR = 512


def _run(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout.strip()


def _mounts():
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, path, kind, options, *_ = line.split()
        yield pathlib.Path(path), kind, options.split(",")


def _umount(path):
    # "busy" for as long as the kernel tears down the processes that were killed
    for _ in range(100):
        if not os.path.ismount(path):
            return
        if subprocess.run(["umount", path], stderr=subprocess.DEVNULL).returncode:
            time.sleep(0.1)
    _run("umount", "--lazy", path)


@contextlib.contextmanager
def _blkio(folder):
    """cgroup v1. Yields a function that limits a device: read_iops=0, write_bps=40000000, ...; 0 is no limit."""
    group = next((path for path, kind, options in _mounts() if kind == "cgroup" and "blkio" in options), None)
    with contextlib.ExitStack() as undo:
        if group is None:
            group = folder / "blkio"
            group.mkdir()
            undo.callback(_umount, group)
            _run("mount", "-t", "cgroup", "-o", "blkio", "none", group)

        def limit(number, **limits):
            for what, most in limits.items():
                (group / f"blkio.throttle.{what}_device").write_text(f"{number} {most}")

        yield limit


@contextlib.contextmanager
def _io_max(root):
    """The same with cgroup v2, where the root has no limits and writeback counts for the group that dirtied the page."""
    before = root / pathlib.Path("/proc/self/cgroup").read_text().split("::/")[1].strip()
    group = root / f"pgscale-bench.{os.getpid()}"
    (root / "cgroup.subtree_control").write_text("+io +memory")
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(os.getpid()))

        def limit(number, **limits):
            # read_iops is riops here
            settings = (f"{what[0]}{what.split('_')[1]}={most or 'max'}" for what, most in limits.items())
            (group / "io.max").write_text(f"{number} {' '.join(settings)}")

        yield limit
    finally:
        (before / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def _throttle(folder):
    for path, kind, _ in _mounts():
        if kind == "cgroup2" and "io" in (path / "cgroup.controllers").read_text().split():
            return _io_max(path)
    return _blkio(folder)


class SlowDisk:
    """with SlowDisk(folder, mib=2048) as disk: ... disk.path ...; at first it is as fast as what its file lies on."""

    def __init__(self, folder, mib):
        self.folder = pathlib.Path(folder)
        self.mib = mib
        self.path = self.folder / "mounted"
        self._is_synchronous = False

    def __enter__(self):
        if os.getuid() != 0:
            sys.exit("a slow disk takes a loop device, a mount and a cgroup: run this as root")
        with contextlib.ExitStack() as undo:
            self._set_up(undo)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *exc):
        return self._undo.__exit__(*exc)

    def _set_up(self, undo):
        self.path.mkdir(parents=True)
        file = self.folder / "disk"
        undo.callback(file.unlink, missing_ok=True)
        with open(file, "wb") as f:
            os.posix_fallocate(f.fileno(), 0, self.mib * MIB)
        undo.callback(self._detach, file)
        device = pathlib.Path(_run("losetup", "--find", "--show", file))
        self._block = pathlib.Path("/sys/block") / device.name
        self._number = (self._block / "dev").read_text().strip()
        self._bdi = pathlib.Path("/sys/class/bdi") / self._number
        if not (self._bdi / "strict_limit").exists():
            sys.exit("this kernel cannot limit the dirty pages of one device: strict_limit came with Linux 6.2")
        # a container may have none at /sys/kernel/debug
        debug = self.folder / "debug"
        debug.mkdir()
        undo.callback(_umount, debug)
        _run("mount", "-t", "debugfs", "debugfs", debug)
        self._debug = debug / "bdi" / self._number
        # nothing left for the kernel to initialise later, while something is measured
        _run("mkfs.ext4", "-q", "-m", 0, "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
        undo.callback(_umount, self.path)
        _run("mount", device, self.path)
        self._limit = undo.enter_context(_throttle(self.folder))
        undo.callback(self.lift)

    @staticmethod
    def _detach(file):
        for line in _run("losetup", "--associated", file).splitlines():
            _run("losetup", "--detach", line.split(":")[0])

    def slow(self, read_iops=0, write_iops=0, write_bps=0, dirty_mib=0, synchronous=False):
        """Sets limits, each 0 for none, on a disk that has nothing left to write.

        If synchronous, each write waits for the disk, as the mount option "sync" has it.
        """
        self.lift()
        self.sync()
        self._limit(self._number, read_iops=read_iops, write_iops=write_iops, write_bps=write_bps)
        if dirty_mib:
            (self._bdi / "max_bytes").write_text(str(dirty_mib * MIB))
            (self._bdi / "strict_limit").write_text("1")
        if synchronous:
            self._synchronous(True)

    def lift(self):
        """As fast as it can be."""
        self._synchronous(False)
        self._limit(self._number, read_iops=0, write_iops=0, write_bps=0)
        (self._bdi / "strict_limit").write_text("0")
        (self._bdi / "max_ratio").write_text("100")

    def _synchronous(self, wanted):
        if wanted != self._is_synchronous:
            _run("mount", "-o", "remount," + ("sync,lazytime" if wanted else "async,nolazytime"), self.path)
            self._is_synchronous = wanted

    def sync(self):
        _run("sync", "--file-system", self.path)

    def counters(self):
        """What the device has done since the kernel knows it."""
        fields = [int(field) for field in (self._block / "stat").read_text().split()]
        return {"reads": fields[0], "writes": fields[4], "bytes_written": fields[6] * SECTOR}

    def dirtied(self):
        """Bytes of this device that ever became dirty. A folio counts whole, however little of it was written to."""
        stats = dict(line.split(":") for line in (self._debug / "stats").read_text().splitlines())
        return int(stats["BdiDirtied"].split()[0]) * 1024
