"""Churn by online moves: a large table with indexes of six kinds, its TOAST table and the books themselves move, while they are
in use, between three tablespaces, of which one lies on a disk of its own.

The ledger's transactions keep the large table's books, too. So a block that a move has lost shows as a wrong sum, as a row
that is not what its version says, or as an index that has other rows than its table.
"""
import contextlib
import os
import time

import checks
from churn import Churn
from cluster import run, value
from features import Features, create_spaces, target_of
from ledger import TABLES
from server import Loss

COPYING, FOLLOWING, WAITING, SWITCHING, DROPPING = PHASES = (
    "copying", "following", "waiting for a gap", "switching", "dropping")
BETWEEN = "between moves"
BRIEF = (FOLLOWING, SWITCHING)      # a cut 50 ms later would be in another phase
MISTAKES = ("42601", "42703", "42883", "42P01", "22")      # SQLSTATEs of this program's own

ROWS = 100_000
TAIL = 3_000        # rows at the end, which come and go, so that VACUUM truncates
TAGS = 100
STAMPS = 1_000
EDGE = 1_000        # of the square in which the points lie
SCHEMA = f"""
CREATE EXTENSION pg_visibility;
CREATE FUNCTION note_of(id int, version bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN id % 20 <> 0 THEN md5(concat(id, '.', version))
                ELSE (SELECT string_agg(md5(concat(id, '.', version, '.', i)), '') FROM generate_series(1, 100) i) END $$;
CREATE FUNCTION hash_key(id int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT (id::bigint * 7919 % 1000003)::int';
CREATE TABLE large (id int, hash_key int NOT NULL, balance bigint NOT NULL, version bigint NOT NULL, tags int[] NOT NULL,
    place point NOT NULL, spot point NOT NULL, stamp int NOT NULL, note text NOT NULL, filler text NOT NULL)
    WITH (fillfactor = 85) TABLESPACE space_0;
CREATE FUNCTION fill_large(first int, last int) RETURNS void LANGUAGE sql AS $$
    INSERT INTO large SELECT i, hash_key(i), 0, 0, ARRAY[i % {TAGS}, {TAGS} + i % 7], point(i % {EDGE}, i % 7),
        point(i % 11, i % {EDGE}), i / 100, note_of(i, 0), repeat('x', 120) FROM generate_series(first, last) i $$;
SELECT fill_large(0, {ROWS - 1});
ALTER TABLE large ADD PRIMARY KEY (id) USING INDEX TABLESPACE space_0;
CREATE INDEX large_note ON large (left(note, 32)) TABLESPACE space_0;
CREATE INDEX large_hash ON large USING hash (hash_key) TABLESPACE space_0;
CREATE INDEX large_gin ON large USING gin (tags) TABLESPACE space_0;
CREATE INDEX large_gist ON large USING gist (place) TABLESPACE space_0;
CREATE INDEX large_spgist ON large USING spgist (spot) TABLESPACE space_0;
CREATE INDEX large_brin ON large USING brin (stamp) WITH (pages_per_range = 8, autosummarize = on) TABLESPACE space_0;
VACUUM ANALYZE large;
"""
INDEXES = ("large_pkey", "large_note", "large_hash", "large_gin", "large_gist", "large_spgist", "large_brin")
BOOKS = ("ledger", "ledger_pkey", "history", "tellers", "branches_pkey", "tellers_pkey")

# What of an account's transaction happens to its row of the large table, and how often of 100
CHANGES = {
    "UPDATE large SET balance = balance + {delta} WHERE id = {id};": 40,
    "UPDATE large SET balance = balance + {delta}, version = version + 1, note = note_of(id, version + 1), "
    "tags = ARRAY[{tag}, {tag} + 100], place = point({x}, {y}), spot = point({y}, {x}), stamp = {stamp} WHERE id = {id};": 40,
    "WITH gone AS (DELETE FROM large WHERE id = {id} RETURNING *) INSERT INTO large "
    "SELECT id, hash_key, balance + {delta}, version, tags, place, spot, stamp, note, filler FROM gone;": 20,
}

DIGEST = "count(*), sum(hashtext(id || '.' || version || '.' || balance)::bigint)"
EVERYWHERE = f"box '((-1,-1),({EDGE + 1},{EDGE + 1}))'"
# index -> (by way of it, without)
BY_INDEX = {
    "large_pkey": (f"SELECT {DIGEST} FROM large WHERE id >= 0",) * 2,
    "large_note": (f"SELECT {DIGEST} FROM large WHERE left(note, 32) >= ''",) * 2,
    "large_hash": (f"SELECT {DIGEST} FROM generate_series(0, {ROWS + TAIL}) i JOIN large ON hash_key = hash_key(i)",
                   f"SELECT {DIGEST} FROM large"),
    "large_gin": (f"SELECT {DIGEST} FROM generate_series(0, {2 * TAGS}) tag JOIN large ON tags @> ARRAY[tag]",
                  f"SELECT {DIGEST} FROM large, unnest(tags)"),
    "large_gist": (f"SELECT {DIGEST} FROM large WHERE place <@ {EVERYWHERE}",) * 2,
    "large_spgist": (f"SELECT {DIGEST} FROM large WHERE spot <@ {EVERYWHERE}",) * 2,
    "large_brin": (f"SELECT {DIGEST} FROM generate_series(0, {2 * STAMPS}, 50) first"
                   " JOIN large ON stamp >= first AND stamp < first + 50", f"SELECT {DIGEST} FROM large"),
    "ledger_pkey": ("SELECT count(*), sum(number) FROM ledger WHERE client >= 0",) * 2,
    "tellers_pkey": ("SELECT count(*), sum(balance) FROM tellers WHERE tid >= 0",) * 2,
    "branches_pkey": ("SELECT count(*), sum(balance) FROM branches WHERE bid >= 0",) * 2,
}


def create(connection, place, folders):
    """The tablespaces in these folders, of different disks, and the large table in the first one."""
    create_spaces(connection, place, folders)
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            run(connection, statement)


def change(rng, aid, delta):
    """What an account's transaction does to the large table. All that change a row have its lock first: none is missed."""
    statement = rng.choices(tuple(CHANGES), tuple(CHANGES.values()))[0]
    row = aid % ROWS
    return f"SELECT pg_advisory_xact_lock({row});" + statement.format(
        id=row, delta=delta, tag=rng.randrange(TAGS), x=rng.randrange(EDGE), y=rng.randrange(EDGE),
        stamp=rng.randrange(STAMPS) if rng.random() < 0.05 else row // 100)


def forget(tree):
    """Changes the copy of the source that is built: of ten changed blocks one is not copied again."""
    source = tree / "src" / "relocation" / "online" / "online_copy.c"
    text = source.read_text()
    marks = "\tif (block >= copy->copied)\n\t\treturn;\n"
    if text.count(marks) != 1:
        raise RuntimeError("online_copy.c marks changed blocks otherwise by now")
    source.write_text(text.replace(
        marks, marks + "\tstatic int forgotten;\n\tif (++forgotten % 10 == 0)\n\t\treturn;\n"))


def files(folder):
    """file of a relation in the tablespaces -> its size"""
    found = {}
    for place in folder.glob("pg_tblspc/*/*/[0-9]*"):
        with os.scandir(place) as entries:
            for entry in entries:
                # the server removes files meanwhile
                with contextlib.suppress(FileNotFoundError):
                    if checks.RELATION.match(entry.name):
                        found[place / entry.name] = entry.stat().st_size
    return found


def phases(connection):
    """job -> where it is, of the moves under way"""
    return dict(run(connection, "SELECT job, phase FROM pgscale_internal.relocation_progress()"))


def await_phase(connection, rng, phase, seconds):
    """Returns a random moment after some move is there, with (job, its phase); (None, BETWEEN) if none was seen."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = [job for job, its in phases(connection).items() if its == phase]
        if found:
            until = time.monotonic() + rng.uniform(0, 0.003 if phase in BRIEF else 0.05)
            while True:
                its = phases(connection).get(found[0], BETWEEN)
                if time.monotonic() >= until:
                    return found[0], its
    return None, BETWEEN


class Moves(Features):
    """large and the books move; readers are in the way, rows come and go at the end of the table."""

    STEPS = ("move_large", "move_books", "reader", "tail", "vacuum", "checkpoint", "bulk")

    def __init__(self, server, seed, strays=None, steps=None):
        """strays: files that are known to have no relation."""
        self.strays = strays if strays is not None else set()
        super().__init__(server, seed, (), steps)

    def move_large(self, connection, rng):
        self.move(connection, rng, rng.choice(("large", "large", "large", *INDEXES)))

    def move_books(self, connection, rng):
        self.move(connection, rng, rng.choice((*BOOKS, *BOOKS, f"accounts_{rng.randrange(TABLES)}")))

    def move(self, connection, rng, relation):
        self.pause(0.02)
        target = target_of(connection, rng, relation)
        if relation == "large" and rng.random() < 0.15:
            statement = f"relocate_indexes('{relation}', '{target}', mode => 'online')"
        elif value(connection, "SELECT relkind = 'i' FROM pg_class WHERE oid = %s::regclass", relation):
            statement = f"relocate_indexes('{relation}', '{target}', prewarm => false, mode => 'online')"
        else:
            statement = f"relocate_table('{relation}', '{target}')"
        jobs = self.ask(connection, rng, statement, 0.07)
        while not self.stopping.is_set() and value(
                connection, "SELECT count(*) FROM pgscale_internal.relocation_job"
                            " WHERE job = ANY (%s) AND finished_at IS NULL", jobs):
            self.pause(0.02)
        if jobs and rng.random() < 0.1 and value(
                connection, "SELECT state = 'done' FROM pgscale_internal.relocation_job WHERE job = %s", jobs[0]):
            self.undo(connection, jobs[0])

    def reader(self, connection, rng):
        """In the way of a switch."""
        table = rng.choice(("large", "large", "ledger"))
        run(connection, f"BEGIN; SELECT count(*) FROM (SELECT FROM {table} LIMIT 10) AS rows_read")
        self.pause(rng.random() / 2)
        run(connection, "COMMIT")
        self.pause(rng.random() / 2)

    def tail(self, connection, rng):
        self.pause(rng.random())
        if value(connection, f"SELECT count(*) FROM large WHERE id >= {ROWS}"):
            run(connection, f"DELETE FROM large WHERE id >= {ROWS}")
            run(connection, "VACUUM large")
        else:
            run(connection, f"SELECT fill_large({ROWS}, {ROWS + TAIL - 1})")

    def vacuum(self, connection, rng):
        self.pause(rng.random() / 2)
        table = rng.choice(("large", "large", "ledger", "history", "tellers"))
        run(connection, f"VACUUM {rng.choice(('', '', 'FREEZE', 'ANALYZE'))} {table}")

    def bulk(self, connection, rng):
        first = rng.randrange(ROWS)
        run(connection, f"""
            BEGIN; SET LOCAL synchronous_commit = off;
            UPDATE large SET filler = repeat('{rng.randrange(10)}', 120)
             WHERE id BETWEEN {first} AND {first + rng.randrange(2_000)};
            {rng.choice(('COMMIT', 'ROLLBACK'))}""")
        self.pause(rng.random())

    def excused(self):
        return []

    def check(self, connection, durable=True):
        mistakes = [error for error in self.errors if error[1].startswith(MISTAKES)]
        if mistakes:
            raise RuntimeError(f"{mistakes[0]}")
        Churn.check(self, connection)
        self.check_ends(connection)
        self.check_jobs(connection, durable)
        self.check_tables(connection)
        self.check_maps(connection)

    def check_tables(self, connection):
        """What can be said of a standby, too."""
        self.check_together(connection)
        self.check_large(connection)
        self.check_indexes(connection)
        self.check_files(connection)

    @staticmethod
    def check_together(connection):
        """A table's TOAST table and that one's index lie where it lies."""
        apart = run(connection, """
            SELECT c.relname FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid JOIN pg_index i ON i.indrelid = t.oid
              JOIN pg_class x ON x.oid = i.indexrelid
             WHERE c.relnamespace = 'public'::regnamespace
               AND (c.reltablespace, c.reltablespace) <> (t.reltablespace, x.reltablespace)""")
        if apart:
            raise Loss(f"{apart[0][0]} is not where its TOAST table is")

    @staticmethod
    def check_large(connection):
        """Each row is what its version says, and the sum is that of the other books."""
        rows, tail, wrong, balance = run(connection, f"""
            SELECT count(*) FILTER (WHERE id < {ROWS}), count(*) FILTER (WHERE id >= {ROWS}),
                   count(*) FILTER (WHERE note <> note_of(id, version) OR hash_key <> hash_key(id) OR length(filler) <> 120),
                   sum(balance) FROM large""")[0]
        total = value(connection, "SELECT sum(balance) FROM tellers")
        if (rows, wrong, balance) != (ROWS, 0, total) or tail not in (0, TAIL):
            raise Loss(f"large has {rows} rows of {ROWS}, {tail} more of {TAIL}, {wrong} wrong ones, "
                       f"and the sum {balance}, not {total}")

    def check_indexes(self, connection):
        run(connection, "SET jit = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_indexonlyscan = off")
        wrong = []
        for index, (by_index, without) in BY_INDEX.items():
            run(connection, f"SET enable_seqscan = off; SET enable_indexscan = on; SET enable_bitmapscan = "
                            f"{'on' if index in ('large_gin', 'large_brin') else 'off'}")
            plan = "\n".join(line for line, in run(connection, f"EXPLAIN {by_index}"))
            if f"on {index}" not in plan and f"using {index}" not in plan:
                raise RuntimeError(f"{index} is not used: {plan}")
            found = run(connection, by_index)
            run(connection, "SET enable_seqscan = on; SET enable_indexscan = off; SET enable_bitmapscan = off")
            there = run(connection, without)
            if found != there:
                wrong.append(f"{index} has {found[0]} of {there[0]}")
        run(connection, "RESET ALL")
        if value(connection, "SELECT count(*) FROM pg_proc WHERE proname = 'gin_index_check'"):
            run(connection, "SELECT gin_index_check('large_gin')")
        if wrong:
            raise Loss("; ".join(wrong))

    @staticmethod
    def check_maps(connection):
        """The visibility maps promise nothing that is not so."""
        for table, visible, frozen in run(connection, """
                SELECT oid::regclass::text, (SELECT count(*) FROM pg_check_visible(oid)),
                       (SELECT count(*) FROM pg_check_frozen(oid))
                  FROM pg_class WHERE oid IN (SELECT unnest(ARRAY[c.oid, c.reltoastrelid]) FROM pg_class c
                                               WHERE relname IN ('large', 'ledger', 'history', 'tellers')) AND oid <> 0"""):
            if visible or frozen:
                raise Loss(f"{table}: {visible} rows are not visible to all, {frozen} not frozen, as its visibility map says")

    def check_files(self, connection):
        """No file is without a relation, in no tablespace: nothing but moves makes any here.

        Except those that a power cut brought back, and empty ones. A dropped file is emptied and, after the next checkpoint,
        unlinked. Stock syncs neither, so the file can be there again after a cut, and nothing drops it once more.
        """
        def look():
            known = set(run(connection, """
                SELECT coalesce(nullif(reltablespace, 0), dattablespace)::text, pg_relation_filenode(c.oid)::text
                  FROM pg_class c, pg_database WHERE datname = current_database()"""))
            folder = self.server.folder
            database = value(connection, "SELECT oid FROM pg_database WHERE datname = current_database()")
            there = [("1663", file) for file in folder.glob(f"base/{database}/*")]
            there += [(file.relative_to(folder).parts[1], file) for file in files(folder)]
            return {file for space, file in there if checks.RELATION.match(file.name)
                    and (space, file.name.split(".")[0].split("_")[0]) not in known} - self.strays

        for _ in range(3):      # dropped ones go at a checkpoint, and not at one that had begun
            run(connection, "CHECKPOINT")
            left = look()
            if not left:
                return
        self.strays |= left
        self.counts["empty files without a relation"] += len(left)
        for file in left:
            if file.stat().st_size:
                raise Loss(f"a file without a relation, of {file.stat().st_size} bytes: {file.relative_to(self.server.folder)}")
