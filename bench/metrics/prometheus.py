"""A Prometheus of its own, and the two exporters that Debian has, by the files of doc/monitoring/; all of it on 127.0.0.1."""
import collections
import contextlib
import json
import pathlib
import re
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request

from cluster import end, free_port

FILES = pathlib.Path(__file__).parents[2] / "doc" / "monitoring"
INTERVAL = "2s"         # between two scrapes, to save time
EXPORTERS = ("postgres_exporter", "sql-exporter")
QUICK = {r"for: (30s|\dm)": "for: 2s", r"> [36]0\b": "> 3", r"\[\d+m\]": "[8s]"}


class Prometheus:
    """with Prometheus(server, quick) as prometheus: prometheus.ask("up")"""

    def __init__(self, server, quick):
        self.server = server
        self.place = server.place
        self.folder = self.place.folder / "prometheus"
        self.ports = {name: free_port() for name in ("prometheus", *EXPORTERS)}
        self.folder.mkdir()
        self._write(quick)
        self._started = contextlib.ExitStack()

    def _write(self, quick):
        """The files of doc/monitoring/, with other ports and a shorter interval; quick: the rules wait for less."""
        rules = (FILES / "pgscale.rules.yml").read_text()
        for old, new in QUICK.items() if quick else ():
            rules = re.sub(old, new, rules)
        config = (FILES / "prometheus.yml").read_text().replace("10s", INTERVAL)
        # both exporters as targets of the one job, with a label each
        target = re.search(r" *- targets: .*\n", config).group()
        config = config.replace(target, "".join(
            target.replace("127.0.0.1:9187", f"127.0.0.1:{self.ports[name]}") + f"        labels: {{exporter: {name}}}\n"
            for name in EXPORTERS))
        sql = (FILES / "sql-exporter.yml").read_text().replace("interval: 10s", f"interval: {INTERVAL}")
        sql = sql.replace("/var/run/postgresql", str(self.server.folder))
        for name, text in {"pgscale.rules.yml": rules, "prometheus.yml": config, "sql-exporter.yml": sql}.items():
            (self.folder / name).write_text(text)
        shutil.copy(FILES / "postgres_exporter.yml", self.folder)
        self.place.give(self.folder)

    def __enter__(self):
        try:
            self._start("prometheus-postgres-exporter", "--extend.query-path", self.folder / "postgres_exporter.yml",
                        "--disable-default-metrics", "--disable-settings-metrics",
                        f"--web.listen-address=127.0.0.1:{self.ports['postgres_exporter']}",
                        environment=f"DATA_SOURCE_NAME=user=prometheus dbname=postgres host={self.server.folder} sslmode=disable")
            self._start("prometheus-sql-exporter", "-config.file", self.folder / "sql-exporter.yml",
                        "-web.listen-address", f"127.0.0.1:{self.ports['sql-exporter']}", environment="LOGLEVEL=warn")
            self._start("prometheus", "--config.file", self.folder / "prometheus.yml", "--storage.tsdb.path", self.folder / "data",
                        f"--web.listen-address=127.0.0.1:{self.ports['prometheus']}", environment="TZ=UTC")
            self.wait(self.is_ready, 30)
        except BaseException:
            self._started.close()
            raise
        return self

    def __exit__(self, *exc):
        self._started.close()

    def _start(self, program, *options, environment):
        log = self._started.enter_context(open(self.folder / f"{program}.log", "wb"))
        process = self.place.popen(["/usr/bin/env", environment, program, *options], stdout=log, stderr=log)
        self._started.callback(end, process)

    def logs(self):
        return "\n".join(f"{log.name}:\n{log.read_text()[-1000:]}" for log in self.folder.glob("*.log"))

    def wait(self, condition, seconds):
        """Until that is so; how long it took."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > seconds:
                raise RuntimeError(f"in vain for {seconds} s\n{self.logs()}")
            time.sleep(0.2)
        return time.monotonic() - began

    def get(self, path, **parameters):
        url = f"http://127.0.0.1:{self.ports['prometheus']}/api/v1/{path}?" + urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def is_ready(self):
        try:
            return self.get("status/buildinfo")
        except (urllib.error.URLError, ConnectionError):
            return False

    def ask(self, expression):
        """What a query answers now: a list of labels and value."""
        return [(each["metric"], float(each["value"][1])) for each in self.get("query", query=expression)["result"]]

    def firing(self, everywhere=True):
        """The alerts that fire, by name and, where it has one, feature or rule: for both exporters, or for any."""
        found = collections.defaultdict(set)
        for each in self.get("alerts")["alerts"]:
            labels = each["labels"]
            if each["state"] == "firing":
                found[" ".join(filter(None, (labels["alertname"], labels.get("feature"), labels.get("rule"))))].add(labels.get("instance"))
        return {name for name, instances in found.items() if not everywhere or len(instances) == len(EXPORTERS)}
