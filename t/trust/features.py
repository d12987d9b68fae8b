"""Churn by pgscale's own features: relations move to another tablespace and back, settings are changed and changed back.

Afterwards, after a crash or not, each job has come to an end, nothing that was begun is left in the catalogs, and
postgresql.auto.conf is what was acknowledged and what the journal says it is.
"""
import collections
import re

from churn import ABSENT, Churn, Expected
from cluster import run, value
from server import Loss, wait_for

SPACES = ("space_0", "space_1", "space_2")
SETTINGS = {
    "pgscale.relocation_workers": "3",
    "pgscale.relocation_max_transaction_age": "-1",
    "pgscale.relocation_switch_timeout": "120",
}
# Settings whose value matters to nothing here
CHANGED = ("work_mem", "hash_mem_multiplier", "default_statistics_target", "pgscale.archive_retention")
ENDED = 180         # seconds by which all jobs must have ended
# A rebuild may fail so in this load: it did not get its table's lock in time, or lost a deadlock, again and again.
EXCUSED = ["55P03", "40P01"]
LINE = re.compile(r"^([\w.]+) = '(.*)'$")


def create_spaces(connection, place, folders):
    for name, folder in zip(SPACES, folders):
        (folder / name).mkdir()
        place.give(folder / name)
        run(connection, f"CREATE TABLESPACE {name} LOCATION '{folder / name}'")


def move_in(connection, tables):
    """Relocation's tables, with their primary keys, lie in its tablespaces from the start on."""
    for table in tables:
        run(connection, f"ALTER TABLE {table} SET TABLESPACE {SPACES[0]}")
        run(connection, f"ALTER INDEX {table}_pkey SET TABLESPACE {SPACES[0]}")


def target_of(connection, rng, relation):
    """Another tablespace than that of the relation."""
    return rng.choice([name for name, in run(
        connection, "SELECT spcname FROM pg_tablespace WHERE spcname = ANY (%s) AND oid <>"
                    " (SELECT reltablespace FROM pg_class WHERE oid = %s::regclass)", list(SPACES), relation)])


class Features(Churn):
    """moving: the tables that relocation moves; each has the primary key TABLE_pkey."""

    STEPS = (*Churn.STEPS, "relocation", "changes")

    def __init__(self, server, seed, moving, steps=None, lines=None):
        """lines: of postgresql.auto.conf, before."""
        self.moving = self.not_rewritten = moving
        self.asked, self.cancelled = set(), set()       # jobs
        self.lines = Expected()
        self.lines.possible = {name: {state} for name, state in (lines or {}).items()}
        self.counts = collections.Counter()
        super().__init__(server, seed, steps)

    def ask(self, connection, rng, statement, cancel):
        """Has relations moved; sometimes a job is cancelled then. Returns the jobs."""
        jobs = [job for job, in run(connection, f"SELECT * FROM pgscale.{statement}")]
        self.asked.update(jobs)
        self.counts["jobs"] += len(jobs)
        if jobs and rng.random() < cancel:      # none, if another move of all of them is under way
            self.pause(rng.random() / 2)
            self.cancelled.add(jobs[0])
            self.counts["cancelled"] += value(connection, f"SELECT pgscale.relocation_cancel({jobs[0]})")
        return jobs

    def undo(self, connection, job):
        self.asked.add(value(connection, f"SELECT pgscale.relocation_undo({job})"))
        self.counts["taken back"] += 1

    def relocation(self, connection, rng):
        table = rng.choice(self.moving)
        relation = table if rng.random() < 0.3 else f"{table}_pkey"
        target = target_of(connection, rng, relation)
        if relation == table:
            statement = f"relocate_table('{table}', '{target}', mode => 'lock')"
        else:
            amcheck = rng.random() < 0.2
            statement = f"relocate_indexes('{relation}', '{target}', amcheck => {amcheck}, prewarm => false, mode => 'rebuild')"
        jobs = self.ask(connection, rng, statement, 0.2)
        self.pause(rng.random() / 2)
        if jobs and rng.random() < 0.2:
            self.undo(connection, jobs[0])      # is refused while the job is under way

    def changes(self, connection, rng):
        setting, reload = rng.choice(CHANGED), rng.random() < 0.5
        before = self.lines.possible.get(setting, {ABSENT})
        change = self.change(connection, setting, str(rng.randrange(100, 1000)), f"set('{setting}', '{{}}', {reload})")
        self.pause(rng.random() / 4)
        if rng.random() < 0.5 and len(before) == 1:
            self.change(connection, setting, *before, f"revert({change}, {reload})")

    def change(self, connection, setting, state, call):
        """Is on disk once it is acknowledged, whatever synchronous_commit is; a dying disk may answer anything."""
        rows = self.lines.change(connection, setting, state, f"CALL pgscale.{call.format(state)}", whole=False)
        self.counts["settings changed"] += 1
        return rows[0][0]

    def check(self, connection, durable=True):
        super().check(connection)
        self.check_ends(connection)
        self.check_jobs(connection, durable)
        self.check_lines(connection)

    def check_ends(self, connection):
        """A job is done unless it was cancelled, or the server crashed twice at it; nothing of it is left to be removed."""
        try:
            wait_for("end of all jobs", lambda: not run(
                connection, "SELECT job FROM pgscale_internal.relocation_job WHERE finished_at IS NULL"), ENDED)
        except Loss as late:
            raise Loss(f"{late}: " + str(run(connection, "SELECT job, relation, state, phase, attempts, message FROM"
                                             " pgscale.relocation_jobs WHERE finished_at IS NULL")[:3])) from None
        wrong = run(connection, """
            SELECT job, relation_name, state, crashes, sqlstate, message, files FROM pgscale_internal.relocation_job
             WHERE files IS NOT NULL OR NOT (state = 'done' OR state = 'lost' AND crashes >= 2
                   OR state = 'cancelled' AND job = ANY (%s) OR state = 'failed' AND sqlstate = ANY (%s))""",
                    list(self.cancelled), self.excused())
        if wrong:
            raise Loss(f"jobs have not ended as they must: {wrong[:3]}")

    def excused(self):
        return EXCUSED

    def check_jobs(self, connection, durable):
        """Those that were acknowledged are there, and what they say is so."""
        states = dict(run(connection, "SELECT job, state FROM pgscale.relocation_jobs"))
        self.counts.update(f"jobs {state}" for state in states.values())
        missing = self.asked - states.keys()
        if durable and missing:
            raise Loss(f"relocation jobs that were acknowledged are lost, such as {min(missing)} of {len(missing)}")
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
            raise Loss(f"nothing was changed by hand, but the journal says so: {untrue[:3]}")
        # the next change finds out what became of those that were interrupted
        for setting, in run(connection, "SELECT DISTINCT setting FROM pgscale.tuning_journal WHERE state = 'begun'"):
            change = self.change(connection, setting, "99", f"set('{setting}', '99')")
            old = value(connection, "SELECT old_value FROM pgscale.tuning_journal WHERE change = %s", change)
            if old != found.get(setting):
                raise Loss(f"{setting} was {found.get(setting)}, and change {change} says that it was {old}")
            self.counts["changes interrupted"] += 1
        begun = run(connection, "SELECT change, setting FROM pgscale.tuning_journal WHERE state = 'begun' AND message IS NULL")
        if begun:
            raise Loss(f"changes that no session is at are begun for ever: {begun[:3]}")
        run(connection, "DELETE FROM pgscale_internal.tuning_change")


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
