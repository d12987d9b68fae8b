"""A temporary folder for a program and all it starts, of which nothing stays: no process, mount, loop device or cgroup.

The programs clean up after themselves. This is for what they could not: those that were killed. Only what lies in the
folder, runs in it or bears the program's number is touched.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

PREFIX = "pgscale-run."
OWNER = "owner"
CGROUPS = pathlib.Path("/sys/fs/cgroup")


class Folder:
    """with Folder() as folder: ... folder.owner = pid of the program that has folder.path as its TMPDIR."""

    def __init__(self, path=None):
        self.path = pathlib.Path(path or tempfile.mkdtemp(prefix=PREFIX))
        self.owner = None
        if not path:
            self.path.chmod(0o711)      # the servers' user has to get through
            (self.path / OWNER).write_text(str(os.getpid()))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for number in (signal.SIGTERM, signal.SIGKILL):
            _end(self._processes(), number)
        mounts = [line.split()[1:3] for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
        for path in (CGROUPS, *(pathlib.Path(mount) for mount, kind in mounts if kind == "cgroup" and self._has(mount))):
            for group in path.glob(f"**/pgscale-bench.{self.owner}") if self.owner else ():
                _remove(group)
        for mount in reversed([mount for mount, _ in mounts if self._has(mount)]):
            _try("umount", "--lazy", mount)
        for line in _said("losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE").splitlines():
            device, *file = line.split(maxsplit=1)
            if file and self._has(file[0]):
                _try("losetup", "--detach", device)
        shutil.rmtree(self.path, ignore_errors=True)

    def _has(self, path):
        return pathlib.Path(path).is_relative_to(self.path)

    def _processes(self):
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if self._has(os.readlink(process / "cwd").removesuffix(" (deleted)")):
                    found.append(int(process.name))
            except OSError:
                pass            # it has ended, or is a zombie
        return found


def of_the_dead():
    """Cleans up after drivers that were killed."""
    for path in pathlib.Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        try:
            os.kill(int((path / OWNER).read_text()), 0)
        except (OSError, ValueError):
            Folder(path).__exit__()


def _end(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
    for _ in range(50):
        if not any(os.path.exists(f"/proc/{pid}/cwd") for pid in pids):
            return
        time.sleep(0.1)


def _remove(group):
    for pid in (group / "cgroup.procs").read_text().split():
        try:
            (group.parent / "cgroup.procs").write_text(pid)
        except OSError:
            pass
    try:
        group.rmdir()
    except OSError as error:
        print(f"{group}: {error}")


def _said(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout
    except FileNotFoundError:
        return ""


def _try(*command):
    subprocess.run(command, stderr=subprocess.DEVNULL)
