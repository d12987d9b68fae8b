"""What must be true of a server's files and log."""
import re
import subprocess

import numpy

from cluster import value
from server import Loss

BLOCK = 8192
RELATION = re.compile(r"^[0-9]+(_[a-z]+)?(\.[0-9]+)?$")


def amcheck(server, database="postgres", standby=False):
    """All tables and B-trees, each against the other; on a standby without what takes locks that it has not."""
    command = [server.place.bindir / "pg_amcheck", "-h", server.outside, "-U", "postgres", "-d", database, "-j", "2",
               "--heapallindexed"] + ["--parent-check"] * (not standby)
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise Loss("pg_amcheck: " + " | ".join((done.stdout + done.stderr).splitlines()[:4]))


def checksums(server):
    """Of a server that was stopped cleanly."""
    command = server.place.as_user + [str(server.place.bindir / "pg_checksums"), "--check", "-D", str(server.folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Loss("pg_checksums: " + " | ".join((done.stdout + done.stderr).splitlines()[:4]))


def newest_pages(folder, chosen=lambda: True):
    """The greatest LSN of the pages of each chosen file on the disk: [(LSN, file)]."""
    newest = []
    for file in [*folder.glob("base/*/*"), *folder.glob("global/*"), *folder.glob("pg_tblspc/*/*/*/*")]:
        if chosen() and RELATION.match(file.name) and file.stat().st_size >= BLOCK:
            words = numpy.fromfile(file, dtype="<u4")
            pages = words[:len(words) // 2048 * 2048].reshape(-1, 2048)
            # the word with page size and version tells a page from an empty or torn one
            pages = pages[(pages[:, 4] >> 16) == BLOCK + 4]
            if len(pages):
                lsn = (pages[:, 0].astype("u8") << 32) + pages[:, 1]
                newest.append((int(lsn.max()), file.relative_to(folder)))
    return newest


def future(connection, newest):
    """No page may have reached the disk before its WAL did. newest was read before recovery; this is asked right after.

    But stock does not wait for WAL where it builds an index or writes a table anew: without the commit that file is nothing,
    and nor is an index that was not complete.
    """
    end = int(value(connection, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))
    for lsn, file in newest:
        if lsn > end and is_relation(connection, file):
            raise Loss(f"{file} has a page with LSN {lsn:X}, but WAL ends before {end:X}")


def is_relation(connection, file):
    """Is it one of this database's, and in use, or shared by all? Of other databases nobody knows."""
    if file.parts[0] == "global":
        return True
    *_, database, name = file.parts
    space = file.parts[1] if file.parts[0] == "pg_tblspc" else 0
    if database != str(value(connection, "SELECT oid FROM pg_database WHERE datname = current_database()")):
        return False
    return value(connection, """
        SELECT n IS NOT NULL AND NOT EXISTS (SELECT FROM pg_index WHERE indexrelid = n AND NOT indisvalid)
          FROM pg_filenode_relation(%s, %s) n""", space, re.split(r"[._]", name)[0])


# What a server never says, whatever happens to its disk, and what it does not say unless its disk fails it.
NEVER = re.compile(r"TRAP:|was terminated by signal (6|7|8|11)\b|xlog flush request|invalid page|pin count|"
                   r"page verification failed|buffer refcount leak|leaked|invalid memory|stuck spinlock")
# Stock's own, of a process whose postmaster was killed: it has committed, drops a file, waits for who writes a page of it, and
# exits in that wait.
ORPHAN = re.compile(r" PANIC:  cannot abort transaction \d+, it was already committed")
DISK = re.compile(r" PANIC: |could not (write|fsync|flush|extend)")


def log(text, disk_failed=False):
    """PANIC by SIGABRT is how a server answers a failing disk; else neither may be."""
    for line in text.splitlines():
        if ORPHAN.search(line):
            continue
        never = NEVER.search(line)
        if never and not (disk_failed and never[1] == "6") or not disk_failed and DISK.search(line):
            raise Loss(f"the log says: {line.strip()}")
