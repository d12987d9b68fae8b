"""A memory limit for a server and all its processes: a cgroup (v1) of its own.

The kernel's page cache of what they have read or written counts, too, so that on a machine with much memory a small
limit lets the disk show; what others have cached before does not count. It needs root. The group is gone when the
context ends.
"""
import contextlib
import errno
import os
import pathlib
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20


@contextlib.contextmanager
def _hierarchy():
    """Where the controller is; mounted for a while where it is not, as in a chroot."""
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, path, kind, options, *_ = line.split()
        if kind == "cgroup" and "memory" in options.split(","):
            yield pathlib.Path(path)
            return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="pgscale-memory."))
    try:
        if subprocess.run(["mount", "-t", "cgroup", "-o", "memory", "none", folder], stderr=subprocess.DEVNULL).returncode:
            sys.exit("a memory limit takes the memory controller of cgroup v1, which is not to be had here")
        try:
            yield folder
        finally:
            subprocess.run(["umount", folder], check=True)
    finally:
        folder.rmdir()


def _own(hierarchy):
    """This program's group, or the root where that is not to be seen."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(",") and (hierarchy / path.lstrip("/")).is_dir():
            return hierarchy / path.lstrip("/")
    return hierarchy


class MemoryGroup:
    """with MemoryGroup() as group: ... group.take(server.process.pid); group.limit(96); at first there is no limit."""

    def __enter__(self):
        if os.getuid() != 0:
            sys.exit("a memory limit takes a cgroup: run this as root")
        with contextlib.ExitStack() as undo:
            self._parent = _own(undo.enter_context(_hierarchy()))
            self._group = self._parent / f"pgscale-bench.{os.getpid()}"
            self._group.mkdir()
            undo.callback(self._remove)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *exc):
        return self._undo.__exit__(*exc)

    def _remove(self):
        self.lift()
        # what still ends, or was left by an interruption, goes back to where it came from
        for _ in range(100):
            for pid in self._pids():
                self._move(pid, self._parent)
            try:
                self._group.rmdir()
                return
            except OSError:
                time.sleep(0.1)
        self._group.rmdir()

    def _pids(self):
        return (self._group / "cgroup.procs").read_text().split()

    @staticmethod
    def _move(pid, group):
        try:
            (group / "cgroup.procs").write_text(str(pid))
        except ProcessLookupError:
            pass                # it has just ended

    def take(self, pid):
        """A process and its children; those that it starts from now on are in the group anyway."""
        self._move(pid, self._group)
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            self._move(child, self._group)

    def limit(self, mib):
        """What is there beyond is dropped, as far as that can be."""
        for _ in range(100):
            try:
                (self._group / "memory.limit_in_bytes").write_text(str(mib * MIB))
                return
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                time.sleep(0.1)         # dirty pages have to be written before
        sys.exit(f"the servers' processes cannot do with {mib} MiB")

    def lift(self):
        (self._group / "memory.limit_in_bytes").write_text("-1")

    def kills(self):
        """How many processes the kernel has killed because of the limit."""
        for line in (self._group / "memory.oom_control").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return 0
