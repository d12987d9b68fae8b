"""A disk that fails, under stock and under the sweeper: see faults and README.md."""
import argparse
import contextlib
import dataclasses
import errno
import sys
import time

import psycopg2

import checks
import ledger
import machine
import sweeper
from churn import Churn
from cluster import Place, run, say
from loops import Loops
from record import record
from report import table
from server import Loss, Server, wait_for
from shim import Shim

CLIENTS = 6
# how bad a server's answer is
ERRORS, CRASHED, ENDED = "errors only", "crash and recovery", "server ended"
ANSWERS = (ERRORS, CRASHED, ENDED)
LATER = 5.0     # seconds by which service may resume later than in stock


@dataclasses.dataclass
class Fault:
    name: str
    call: str
    error: int
    rate: float = 1.0
    times: int = None


FAULTS = (
    Fault("disk full", "write", errno.ENOSPC),
    Fault("disk full for 5 % of writes", "write", errno.ENOSPC, rate=0.05),
    Fault("EIO of write", "write", errno.EIO),
    Fault("EIO of 5 % of writes", "write", errno.EIO, rate=0.05),
    Fault("EIO of sync_file_range, once", "writeback", errno.EIO, times=1),
    Fault("EIO of fsync, once", "sync", errno.EIO, times=1),
    Fault("EIO of fsync", "sync", errno.EIO),
)

SWEEPER = {
    **sweeper.SETTINGS,
    "pgscale.sweeper_high_watermark": "0.1",
}


class Watch(Loops):
    """Reads the sweeper's counters all the time: a crash resets them."""

    def __init__(self, server):
        super().__init__(server)
        self.seen = []          # (when, errors, pages written)
        self.writers = 0        # at most at once
        self.add("watch", self._look, 0)

    def _look(self, connection, rng):
        errors, written, writers = run(connection, """
            SELECT sum(errors)::int, sum(written)::int, sum(writers)::int FROM pgscale.sweeper_stats""")[0]
        self.writers = max(self.writers, writers)
        self.seen.append((time.monotonic(), errors, written))
        self.stopping.wait(0.1)

    def most_errors(self):
        return max((errors for _, errors, _ in self.seen), default=0)

    def written_since(self, moment):
        written = [pages for when, _, pages in self.seen if when > moment]
        return max(written) - min(written) if written else 0


class Ordeal:
    """One fault on a fresh server under load."""

    def __init__(self, place, fault, kind):
        self.fault = fault
        self.kind = kind
        name = f"{kind}-{FAULTS.index(fault)}"
        self.shim = Shim(place, name)
        self.server = Server(place, name, shim=self.shim)
        self.result = {"fault": fault.name, "kind": kind, "answer": ERRORS, "lost": None}

    def run(self, seconds):
        """Returns what happened."""
        server = self.server
        policy = sweeper.POLICIES[FAULTS.index(self.fault) % len(sweeper.POLICIES)]
        server.start(**({**SWEEPER, "pgscale.sweeper_policy": policy} if self.kind == "sweeper" else {}))
        connection = server.connect()
        ledger.create(connection)
        if self.kind == "sweeper":
            server.create_pgscale(connection)
        born = server.mark()
        watch = None
        try:
            with contextlib.ExitStack() as loops:
                load = loops.enter_context(ledger.Ledger(server, CLIENTS, 1))
                if self.kind == "sweeper":
                    sweeper.wait_at_work(connection)
                    watch = loops.enter_context(Watch(server))
                loops.enter_context(Churn(server, 1, ("checkpoint", "vacuum")))
                connection.close()
                lifted = self.suffer(load, seconds)
                self.resume(load, lifted)
                time.sleep(seconds)
            connection = server.connect()
            load.check(connection)
            connection.close()
            checks.amcheck(server)
            server.shut()
            checks.checksums(server)
            checks.log(server.said(born), disk_failed=True)
        except (Loss, psycopg2.Error) as error:
            self.result["lost"] = str(error).splitlines()[0]
        if watch:
            self.result.update({"sweeper errors": watch.most_errors(), "writers": watch.writers,
                                "swept after": watch.written_since(lifted)})
        said = server.said(born)
        self.result.update({"panics": said.count(" PANIC: "), "restarts": said.count("all server processes terminated"),
                            "answers": {answer: n for (_, answer), n in load.errors.most_common(5)}})
        if self.result["restarts"]:
            self.worse(CRASHED)
        server.stop()
        return self.result

    def worse(self, answer):
        self.result["answer"] = max(self.result["answer"], answer, key=ANSWERS.index)

    def suffer(self, load, seconds):
        """Normal work, then with the fault; returns when it was lifted."""
        time.sleep(seconds)
        fault = self.fault
        before = load.count()
        self.shim.on(fault.call, "/base/", fault.error, fault.rate, fault.times)
        time.sleep(seconds)
        self.shim.off()
        during = load.count() - before
        self.result.update({"injected": self.shim.hits(), "acknowledged": during[ledger.ACKNOWLEDGED],
                            "refused": during[ledger.REFUSED]})
        return time.monotonic()

    def resume(self, load, lifted):
        """Until each client has a commit again; a server that ended is started by hand."""
        def resumed():
            if self.server.process.poll() is not None:
                self.worse(ENDED)
                self.server.start()
            return min(load.last.values()) > lifted
        self.result["resumed"] = round(wait_for("service after the fault was lifted", resumed, 60), 2)


def verdict(fault, seconds, stock, sweeper):
    """What is worse under the sweeper than in stock's answer to the same fault."""
    if sweeper["lost"]:
        return [sweeper["lost"]]
    worse = []
    if ANSWERS.index(sweeper["answer"]) > ANSWERS.index(stock["answer"]):
        worse.append(f"{sweeper['answer']}, stock: {stock['answer']}")
    if not stock["lost"] and sweeper["resumed"] > stock["resumed"] + LATER:
        worse.append(f"service after {sweeper['resumed']} s, stock {stock['resumed']} s")
    if not sweeper["swept after"]:
        worse.append("the sweeper wrote nothing after the fault was lifted")
    if fault.call == "write" and not sweeper["sweeper errors"]:
        worse.append("the sweeper counted no error")
    if sweeper["sweeper errors"] > (sweeper["writers"] + 1) * (seconds + 1):
        worse.append(f"{sweeper['sweeper errors']} errors of {sweeper['writers']} writers: they do not pause")
    return worse


def main():
    parser = argparse.ArgumentParser(prog="t/trust/faults")
    parser.add_argument("--seconds", type=float, default=5, help="before, during and after each fault; 5")
    parser.add_argument("--only", type=int, metavar="N", help="the fault of this number, from 1 on")
    arguments = parser.parse_args()
    chosen = FAULTS if arguments.only is None else FAULTS[arguments.only - 1:arguments.only]
    results, rows, bad = [], [], 0
    with Place() as place:
        for fault in chosen:
            both = {}
            for kind in ("stock", "sweeper"):
                say(f"{fault.name}: {kind} ...")
                both[kind] = Ordeal(place, fault, kind).run(arguments.seconds)
                results.append(both[kind])
            worse = verdict(fault, arguments.seconds, both["stock"], both["sweeper"])
            bad += bool(worse)
            rows += [row(both["stock"], both["stock"]["lost"] or ""), row(both["sweeper"], "; ".join(worse) or "no worse")]
        record(f"faults {place.major}", {**machine.describe(place), "results": results})
    print(table(["fault", "server", "answer", "injected", "commits meanwhile", "refused", "PANICs", "restarts",
                 "service after", "sweeper's errors", ""], rows))
    print(f"{len(chosen)} faults, {bad} answered worse than stock")
    return 1 if bad else 0


def row(result, remark):
    return [result["fault"], result["kind"], result["answer"], result["injected"], result["acknowledged"], result["refused"],
            result["panics"], result["restarts"], f"{result['resumed']} s" if "resumed" in result else "-",
            result.get("sweeper errors", ""), remark]


if __name__ == "__main__":
    sys.exit(main())
