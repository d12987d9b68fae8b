"""What the sessions do: scripts for pgbench, and what is required of each."""
from typing import Callable, NamedTuple

import tpcc

# Ranks are spread over the table at random, so that no neighbourhood helps.
_RANK = "\\set rank random_zipfian(1, :rows, 1.05)\n"
_ZIPF = _RANK + "\\set aid 1 + permute(:rank, :rows)\n"
_UNIFORM = "\\set aid random(1, :rows)\n"
_PAGE = "\\set page random(1, :pages)\nSELECT abalance FROM pgbench_accounts WHERE ctid = ('(' || :page - 1 || ',1)')::tid;\n"
# As sysbench has it: 80 % of the uses are of 20 % of the rows, of these again 80 % of 20 %, and so on; hot rows are neighbours.
_PARETO = "\\set aid 1 + int((:rows - 1) * pow(random(1, 1000000) / 1000000.0, 7.2126))\n"
_SELECT = "SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n"
_UPDATE = "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;\n"

SCANNED = 2500
_SCAN = f"""\\set first random(1, :rows - {SCANNED})
SELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :first AND :first + {SCANNED - 1};
"""

_TPCB = _ZIPF + """\\set bid random(1, :branches)
\\set tid random(1, :branches * 10)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
"""

# All hot rows move on by one row each DRIFT transactions of a client, and so to another page after as many as a page has.
DRIFT = 1000
_DRIFT = f"\\set n :n + 1\n{_RANK}\\set aid 1 + (permute(:rank, :rows) + :n / {DRIFT}) % :rows\n"

# Four rows a page; of the rows that are read, the mean age is half as many pages as there are buffers.
_EVENT_ROWS_A_PAGE = 4
_EVENTS = """
DROP TABLE IF EXISTS events;
CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, filler char(1900));
INSERT INTO events (filler) SELECT '' FROM generate_series(1, {oldest});
VACUUM ANALYZE events;
"""
_AGES = ("a", "b", "c", "d")
_RECENT = "".join(f"\\set {age} random_exponential(50, :oldest - 1, 8)\n" for age in _AGES) + """BEGIN;
INSERT INTO events (filler) VALUES ('');
SELECT count(length(filler))
  FROM events_id_seq s CROSS JOIN LATERAL (VALUES """ + ", ".join(f"(:{age})" for age in _AGES) + """) v (age)
  JOIN events e ON e.id = s.last_value - v.age::bigint;
END;
"""

_WAREHOUSE_PAGES = 12800

# A join by TID: a page each, nearly never the same again.
TAKEN = 200
_TAKE = f"""SELECT count(a.aid)
  FROM (SELECT format('(%s,1)', floor(random() * :pages))::tid AS tid FROM generate_series(1, {TAKEN})) r
  JOIN pgbench_accounts a ON a.ctid = r.tid;
"""


def oldest(buffers):
    """Of the rows that are read, by age."""
    return 4 * _EVENT_ROWS_A_PAGE * buffers


def _events(buffers):
    return [statement for statement in _EVENTS.format(oldest=oldest(buffers)).split(";\n") if statement.strip()]


def _warehouses(buffers, times):
    """So many that their tables have about that many times the buffers."""
    return max(round(buffers * times / _WAREHOUSE_PAGES), 1)


class Tpcc(NamedTuple):
    """Its tables, and its scripts."""
    times: int

    def tables(self, buffers):
        names = ", ".join(f"tpcc_{name}" for name in tpcc.TABLES)
        return [f"DROP TABLE IF EXISTS {names}", tpcc.setup(_warehouses(buffers, self.times)), f"VACUUM ANALYZE {names}"]

    def scripts(self, buffers):
        return {name: (text, tpcc.WEIGHTS[name]) for name, text in tpcc.scripts(_warehouses(buffers, self.times)).items()}


class Load(NamedTuple):
    name: str
    scripts: dict | Callable        # by name: text, weight; or for a number of buffers
    # required: reads a transaction, and transactions a second, to those without the sweeper
    most_reads: float = None
    least_tps: float = None
    rows: float = 1                 # of the table's, so much is used
    buffers: float = 1              # of the experiment's
    tables: Callable = None         # SQL that makes tables for a number of buffers
    grows: bool = False             # do these grow? Then they are made anew for each turn
    clients: int = 8
    takes_none: bool = False        # no buffers, once all is in them
    has_most_cpu: bool = False      # is the sweeper's CPU time limited? If most of the buffers are taken for other pages

    def scripts_for(self, buffers):
        return self.scripts(buffers) if callable(self.scripts) else self.scripts


ZIPF = Load("zipf 1.05", {"zipf": (_ZIPF + _SELECT, 1)}, most_reads=0.80, least_tps=1.25)
# the rows' pages are equally worthy, the key's are not
UNIFORM = Load("uniform", {"uniform": (_UNIFORM + _SELECT, 1)}, least_tps=0.98)
GAINS = (
    Load("zipf 1.05 and index scans", {"zipf": (_ZIPF + _SELECT, 99), "scan": (_SCAN, 1)}, most_reads=0.88),
    Load("TPC-B, zipf 1.05", {"tpcb": (_TPCB, 1)}, most_reads=0.88, rows=0.5, buffers=0.5),
    Load("like TPC-C", Tpcc(6).scripts, buffers=0.5, tables=Tpcc(6).tables, grows=True),
    Load("zipf 1.05, moving", {"drift": (_DRIFT + _SELECT, 1)}),
    UNIFORM,
)
RANDOM_PAGES = Load("random pages", {"page": (_PAGE, 1)}, most_reads=1.05, least_tps=0.98)
ALL_IN_MEMORY = Load("all in memory", {"zipf": (_ZIPF + _SELECT, 1)}, least_tps=0.98, rows=0.08, takes_none=True)
NEUTRAL = (
    RANDOM_PAGES,
    ALL_IN_MEMORY,
    Load("recent rows", {"recent": (_RECENT, 1)}, most_reads=1.05, least_tps=0.98, buffers=0.5, tables=_events, grows=True),
)
CPU = (
    ZIPF._replace(most_reads=None, least_tps=0.98),
    UNIFORM._replace(has_most_cpu=True),
    Load("pages by TID", {"take": (_TAKE, 1)}, least_tps=0.98, clients=2),
)
# Data of about 3.2 times the buffers: where the sweeper saves writes by their neighbours.
WRITES = (
    Load("updates, zipf 1.05", {"update": (_ZIPF + _UPDATE, 1)}, rows=0.4),
    Load("updates, pareto", {"update": (_PARETO + _UPDATE, 1)}, rows=0.4),
    Load("updates, uniform", {"update": (_UNIFORM + _UPDATE, 1)}, rows=0.4),
    Load("like TPC-C", Tpcc(3).scripts, buffers=0.5, tables=Tpcc(3).tables, grows=True),
)
