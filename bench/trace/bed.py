"""What the parts share: a server with small buffers, a target, and a trace of its next statement."""
import contextlib
import threading
import time

from cluster import run, value

PAGES, QUICK_PAGES = 40_000, 4_000

TRACES = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1953653091 AND objsubid = 3"
# the last columns of what a Traced asks
QUALITY = "ended_by, coverage_fraction, longest_gap_us"


@contextlib.contextmanager
def server(place, name, quick, **settings):
    """A server whose buffers hold next to nothing, a table that the kernel's cache holds all of, and two sessions."""
    if place.major >= 17:
        settings["io_combine_limit"] = 1
    if place.major >= 18:
        settings["io_method"] = "sync"
    with place.cluster(name, shared_preload_libraries="pgscale", shared_buffers="1MB", compute_query_id="on",
                       track_io_timing="on", track_wal_io_timing="on", wal_writer_delay="10s",
                       max_parallel_workers_per_gather=0, **settings) as cluster:
        control, target = cluster.connect(), cluster.connect()
        cluster.create_pgscale(control)
        pages = QUICK_PAGES if quick else PAGES
        run(control, "CREATE TABLE pages (i int, filler char(7000))")
        run(control, "ALTER TABLE pages ALTER filler SET STORAGE PLAIN")
        run(control, f"INSERT INTO pages SELECT i, 'x' FROM generate_series(1, {pages}) i")
        run(control, "VACUUM pages")
        run(control, "CHECKPOINT")
        value(target, "SELECT count(*) FROM pages")
        yield cluster, control, target


class Traced:
    """with Traced(cluster, control, target, query) as trace: the target executes a statement; then trace.rows and trace.quality.
    The query ends with the columns QUALITY."""

    def __init__(self, cluster, control, target, query):
        self.control, self.tracer = control, cluster.connect()
        self.query = query.format(pid=target.get_backend_pid())
        self.rows, self.quality = [], (None, None, None)

    def _trace(self):
        self.rows = run(self.tracer, self.query)
        if self.rows:
            self.quality = self.rows[0][-3:]

    def __enter__(self):
        self.thread = threading.Thread(target=self._trace)
        self.thread.start()
        while value(self.control, TRACES) == 0:
            time.sleep(0.001)
        # it looks a moment after that
        time.sleep(0.005)
        return self

    def __exit__(self, *exc):
        self.thread.join()
        self.tracer.close()

    @property
    def whole(self):
        return self.quality[0] == "statement ended"

    @property
    def coverage(self):
        return self.quality[1]
