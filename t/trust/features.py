"""Churn by pgscale's own features: relations move to another tablespace and back, settings are changed and changed back.

Afterwards, be it after a crash or not, each job has come to an end, nothing that was begun is left in the catalogs or on the
disk, each index has what its table has, and postgresql.auto.conf is what was acknowledged and what the journal says it is.
"""
import collections
import re
import shutil
import struct

import checks
from churn import ABSENT, Churn, Expected
from cluster import run, value
from server import Loss, wait_for

# Only relocation puts files into these, so that a file without a relation is its own.
SPACES = ("space_0", "space_1")
SETTINGS = {
    "pgscale.relocation_workers": "2",
    "pgscale.relocation_max_transaction_age": "-1",
}
# Settings whose value matters to nobody here.
CHANGED = ("work_mem", "hash_mem_multiplier", "default_statistics_target", "pgscale.archive_retention")
ENDED = 180         # seconds by which all jobs must have ended
# A job may end so in this load: it did not get its table's lock in time, or lost a deadlock, again and again.
EXCUSED = ("55P03", "40P01")
LINE = re.compile(r"^([\w.]+) = '(.*)'$")
PD_SPECIAL = 16     # where a page's header says where its special space begins
BTREE_SPECIAL = 16  # bytes of it


def create_spaces(connection, place, folder):
    for name in SPACES:
        (folder / name).mkdir()
        place.give(folder / name)
        run(connection, f"CREATE TABLESPACE {name} LOCATION '{folder / name}'")


def move_in(connection, tables):
    """Relocation's tables, with their primary keys, lie in its tablespaces from the start on."""
    for table in tables:
        run(connection, f"ALTER TABLE {table} SET TABLESPACE {SPACES[0]}")
        run(connection, f"ALTER INDEX {table}_pkey SET TABLESPACE {SPACES[0]}")


class Features(Churn):
    """moving: the tables that relocation moves; each has a column aid, and the primary key TABLE_pkey on it."""

    STEPS = (*Churn.STEPS, "relocation", "changes")

    def __init__(self, server, seed, moving, steps=None, lines=None, strays=None):
        """lines: of postgresql.auto.conf, before; strays: files in SPACES that are known to have no relation."""
        self.moving = self.not_rewritten = moving
        self.asked = set()              # jobs
        self.touched = set()            # tables
        self.lines = Expected()
        self.lines.possible = {name: {state} for name, state in (lines or {}).items()}
        self.strays = strays if strays is not None else set()
        self.counts = collections.Counter()
        super().__init__(server, seed, steps)

    def relocation(self, connection, rng):
        table = rng.choice(self.moving)
        self.touched.add(table)
        relation = table if rng.random() < 0.3 else f"{table}_pkey"
        target = value(connection, "SELECT min(spcname) FROM pg_tablespace WHERE spcname = ANY (%s) AND oid <>"
                       " (SELECT reltablespace FROM pg_class WHERE oid = %s::regclass)", list(SPACES), relation)
        if relation == table:
            statement = f"relocate_table('{table}', '{target}', mode => 'lock')"
        elif rng.random() < 0.2:
            statement = f"relocate_indexes('{table}', '{target}', mode => 'rebuild')"
        else:
            statement = f"relocate_index('{relation}', '{target}', amcheck => {rng.random() < 0.2}, prewarm => false, mode => 'rebuild')"
        jobs = [job for job, in run(connection, f"SELECT * FROM pgscale.{statement}")]
        if not jobs:        # none of the table's could be: another move of it is under way
            return
        self.asked.update(jobs)
        self.counts["jobs"] += len(jobs)
        self.pause(rng.random() / 2)
        fate = rng.random()
        if fate < 0.2 and value(connection, f"SELECT pgscale.relocation_cancel({jobs[0]})"):
            self.counts["cancelled"] += 1
        elif fate < 0.4:
            # is refused of one that is still under way
            self.asked.add(value(connection, f"SELECT pgscale.relocation_undo({jobs[0]})"))
            self.counts["taken back"] += 1

    def changes(self, connection, rng):
        setting, reload = rng.choice(CHANGED), rng.random() < 0.5
        before = self.lines.possible.get(setting, {ABSENT})
        change = self.change(connection, setting, str(rng.randrange(100, 1000)), f"set('{setting}', '{{}}', {reload})")
        self.pause(rng.random() / 4)
        if rng.random() < 0.5 and len(before) == 1:
            self.change(connection, setting, *before, f"revert({change}, {reload})")

    def change(self, connection, setting, state, call):
        """Is on disk once it is acknowledged, whatever synchronous_commit is; a dying disk may answer what it will."""
        rows = self.lines.change(connection, setting, state, f"CALL pgscale.{call.format(state)}", whole=False)
        self.counts["settings changed"] += 1
        return rows[0][0]

    def check(self, connection, durable=True, crashed=True):
        super().check(connection)
        self.check_jobs(connection, durable, crashed)
        self.check_indexes(connection)
        self.check_files(connection, durable, crashed)
        self.check_lines(connection)

    def check_jobs(self, connection, durable, crashed):
        """All have ended, those that a crash had interrupted, too, and what they say is so."""
        unfinished = "FROM pgscale.relocation_jobs WHERE finished_at IS NULL"
        try:
            wait_for("end of all relocation jobs", lambda: not run(connection, f"SELECT job {unfinished}"), ENDED)
        except Loss as loss:
            jobs = run(connection, f"SELECT job, state, phase, relation, attempts, sqlstate, message, wait_until {unfinished}")
            raise Loss(f"{loss}: {jobs[:3]}") from None
        rows = run(connection, "SELECT job, state, relation, sqlstate, message FROM pgscale.relocation_jobs")
        missing = self.asked - {row[0] for row in rows}
        if durable and missing:
            raise Loss(f"relocation jobs that were acknowledged are lost, such as {min(missing)} of {len(missing)}")
        for job, state, relation, sqlstate, message in rows:
            self.counts[f"jobs {state}"] += 1
            # lost: the server crashed twice at it
            allowed = ("done", "cancelled", "lost") if crashed else ("done", "cancelled")
            if state not in allowed and not (state == "failed" and sqlstate in EXCUSED):
                raise Loss(f"relocation job {job} of {relation} is {state}: {sqlstate} {message}")
        elsewhere = run(connection, """
            SELECT j.job, j.relation_name, j.target_name
              FROM (SELECT DISTINCT ON (relation_name) * FROM pgscale_internal.relocation_job ORDER BY relation_name, job DESC) j
              JOIN pg_class c ON c.oid = to_regclass(j.relation_name)
              JOIN pg_database ON datname = current_database()
             WHERE j.state = 'done' AND coalesce(nullif(c.reltablespace, 0), dattablespace) <> j.target""")
        if elsewhere:
            raise Loss(f"relocation jobs are done, and what they moved is elsewhere: {elsewhere[:3]}")
        left = run(connection, """
            SELECT c.oid::regclass::text FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
             WHERE c.relname ~ '_cc(new|old)[0-9]*$' OR NOT (i.indisvalid AND i.indisready AND i.indislive)""")
        if left:
            raise Loss(f"left behind by relocation: {left[:3]}")
        run(connection, "DELETE FROM pgscale_internal.relocation_job")

    def check_indexes(self, connection):
        """By way of the index there is what there is in the table."""
        def found(table, by_index):
            run(connection, f"""
                BEGIN; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_indexonlyscan = off;
                SET LOCAL enable_{'seqscan' if by_index else 'indexscan'} = off""")
            rows = run(connection, f"SELECT count(*), sum(hashtext(t::text)), max(aid) FROM {table} t WHERE aid >= 0")
            run(connection, "COMMIT")
            return rows[0]
        for table in sorted(self.touched):
            heap, index = found(table, False), found(table, True)
            if heap != index:
                raise Loss(f"{table} has {heap}, and {index} by way of its index")

    def check_files(self, connection, durable, crashed):
        """In relocation's tablespaces there are the relations' files. After a crash stock leaves what nobody has committed:
        of ALTER TABLE SET TABLESPACE a copy, of REINDEX an empty file."""
        def look():
            known = {str(node) for node, in run(connection, """
                SELECT pg_relation_filenode(c.oid) FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace
                 WHERE spcname = ANY (%s)""", list(SPACES))}
            return {file for file in self.server.folder.glob("pg_tblspc/*/*/[0-9]*/*")
                    if checks.RELATION.match(file.name) and file.name.split(".")[0].split("_")[0] not in known}

        run(connection, "CHECKPOINT")       # dropped ones go now
        new = look() - self.strays
        if new:
            run(connection, "CHECKPOINT")   # what a checkpoint under way had not seen
            new &= look()
        self.strays |= new
        self.counts["files without a relation"] += len(new)
        for file in new:
            if not crashed or durable and is_index(file):
                raise Loss(f"a file without a relation, of {file.stat().st_size} bytes: {file.relative_to(self.server.folder)}")

    def check_lines(self, connection):
        found = lines(self.server.folder)
        for name in CHANGED:
            self.lines.check(name, found.get(name, ABSENT))
        # the newest of each setting that was not refused
        for setting, state, old, new in run(connection, """
                SELECT DISTINCT ON (setting) setting, state, old_value, new_value
                  FROM pgscale.tuning_journal WHERE state <> 'failed' AND setting = ANY (%s)
                 ORDER BY setting, change DESC""", list(CHANGED)):
            says = {new, old} if state == "begun" else {new}
            if found.get(setting) not in says:
                raise Loss(f"the journal says of {setting}: {state}, {old} -> {new}; in the file it is {found.get(setting)}")
        untrue = run(connection, "SELECT change, setting, state FROM pgscale.tuning_journal WHERE state = 'changed by hand'")
        if untrue:
            raise Loss(f"nobody has changed anything by hand, but the journal says so: {untrue[:3]}")
        self.settle_lines(connection, found)

    def settle_lines(self, connection, found):
        """The next change finds out what became of those that were interrupted."""
        for setting, in run(connection, "SELECT DISTINCT setting FROM pgscale.tuning_journal WHERE state = 'begun'"):
            change = self.change(connection, setting, "99", f"set('{setting}', '99')")
            old = value(connection, "SELECT old_value FROM pgscale.tuning_journal WHERE change = %s", change)
            if old != found.get(setting):
                raise Loss(f"{setting} was {found.get(setting)}, and change {change} says that it was {old}")
            self.counts["changes interrupted"] += 1
        begun = run(connection, "SELECT change, setting, message FROM pgscale.tuning_journal WHERE state = 'begun'"
                                " AND message IS NULL")
        if begun:
            raise Loss(f"changes that nobody is at are begun for ever: {begun[:3]}")
        run(connection, "DELETE FROM pgscale_internal.tuning_change")


def is_index(file):
    """Has it pages of a B-tree?"""
    with open(file, "rb") as pages:
        page = pages.read(checks.BLOCK)
    return len(page) == checks.BLOCK and struct.unpack_from("<H", page, PD_SPECIAL)[0] == checks.BLOCK - BTREE_SPECIAL


def lines(folder):
    """Settings of postgresql.auto.conf; ALTER SYSTEM writes one line for each."""
    found = {}
    for line in (folder / "postgresql.auto.conf").read_text().splitlines():
        if not line.startswith("#"):
            match = LINE.match(line)
            if not match or match[1] in found:
                raise Loss(f"postgresql.auto.conf has the line {line!r}")
            found[match[1]] = match[2]
    return found


def stale(connection, table):
    """Rows change, and the index is not told."""
    ready = f"UPDATE pg_index SET indisready = {{}} WHERE indexrelid = '{table}_pkey'::regclass"
    run(connection, ready.format("false"))
    run(connection, f"UPDATE {table} SET balance = balance + 1 WHERE aid % 100 = 0")
    run(connection, ready.format("true"))


def stray(folder):
    """A copy of the largest file, an index or not: called as none is."""
    for file in folder.glob("pg_tblspc/*/*/[0-9]*/*"):
        if checks.RELATION.match(file.name) and is_index(file):
            shutil.copy(file, file.with_name("4000000000"))
            return
    raise RuntimeError("no index lies in relocation's tablespaces")


def edit(folder):
    """Somebody edits a line."""
    file = folder / "postgresql.auto.conf"
    file.write_text(re.sub(r"(?m)^(work_mem) = .*", r"\1 = '12345'", file.read_text()))


# What a check must see: name -> (spoil, mend), of (connection, folder, table)
SPOILS = {
    "an index without entries": (
        lambda c, folder, table: stale(c, table),
        lambda c, folder, table: run(c, f"REINDEX TABLE {table}; UPDATE {table} SET balance = balance - 1 WHERE aid % 100 = 0")),
    "an index left invalid": (
        lambda c, folder, table: run(c, f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{table}_pkey'::regclass"),
        lambda c, folder, table: run(c, f"UPDATE pg_index SET indisvalid = true WHERE indexrelid = '{table}_pkey'::regclass")),
    "a file left behind": (
        lambda c, folder, table: stray(folder),
        lambda c, folder, table: [file.unlink() for file in folder.glob("pg_tblspc/*/*/*/4000000000")]),
    "a job lost": (
        lambda c, folder, table: run(c, "DELETE FROM pgscale_internal.relocation_job WHERE job ="
                                        " (SELECT max(job) FROM pgscale_internal.relocation_job)"),
        lambda c, folder, table: None),
    "a job that is not done": (
        lambda c, folder, table: run(c, "UPDATE pgscale_internal.relocation_job SET target = 1663 WHERE state = 'done'"),
        lambda c, folder, table: None),
    "a line edited": (
        lambda c, folder, table: edit(folder),
        lambda c, folder, table: None),
    "a journal that is wrong": (
        lambda c, folder, table: run(c, "UPDATE pgscale_internal.tuning_change SET new_value = '54321'"),
        lambda c, folder, table: None),
}
