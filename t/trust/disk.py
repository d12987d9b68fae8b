"""An ext4 file system of its own, whose power can be cut.

It lies in one file and is mounted through a loop device. run starts the program in a mount namespace of its own, so that
the kernel takes mount and loop device away with it, however it ends.
"""
import fcntl
import os
import pathlib
import struct
import subprocess
import time

# from linux/ext4.h: _IOR('X', 125, __u32), and the flag for "write nothing more, not even the journal"
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2


class Disk:
    def __init__(self, place, name="disk", size="4G"):
        self.place = place
        self.image = place.folder / f"{name}.image"
        self.path = place.folder / name
        self.path.mkdir()
        self._run("truncate", "-s", size, self.image)
        self._run("mkfs.ext4", "-q", "-F", self.image)
        self.mount()
        place.give(self.path)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for cluster in self.place.clusters:
            cluster.stop()
        if os.path.ismount(self.path):
            self.umount()

    @staticmethod
    def _run(*command):
        subprocess.run([str(word) for word in command], check=True)

    def mount(self):
        self._run("mount", "-o", "loop", self.image, self.path)
        # A loop device keeps what its last user made of its limits; a small dirty limit would have the kernel write
        # everything at once, and so hide that something is never synced.
        device = os.stat(self.path).st_dev
        limits = pathlib.Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}")
        (limits / "strict_limit").write_text("0")
        (limits / "max_ratio").write_text("100")

    def umount(self):
        # "busy" for as long as the kernel tears down the processes that were killed
        for _ in range(100):
            if subprocess.run(["umount", self.path], stderr=subprocess.DEVNULL).returncode == 0:
                return
            time.sleep(0.1)
        self._run("umount", self.path)

    def cut(self):
        """From now on nothing reaches the disk: what it has is what was synced, or written back by chance."""
        mount = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(mount, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(mount)

    def sync(self):
        self._run("sync", "-f", self.path)
