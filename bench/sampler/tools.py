"""The two samplers, seen alike: both count on every tick what each process waits for."""
import os
import signal
import time

from cluster import run, value

# Far beyond any experiment: the peer has no switch, but does nothing for so long.
NEVER_MS = 3600 * 1000


class Pgscale:
    name = "pgscale"
    library = "pgscale"
    title = "pgscale sampler"

    @staticmethod
    def settings(period):
        return {"pgscale.sampler_period": period}

    @staticmethod
    def create(server, connection):
        server.create_pgscale(connection)

    @staticmethod
    def reset(connection):
        run(connection, "SELECT pgscale.reset('sampler')")

    @staticmethod
    def set_period(server, connection, period):
        """0 pauses. Only the sampler is told: hundreds of sessions that reload take a second of CPU."""
        run(connection, f"ALTER SYSTEM SET pgscale.sampler = {'on' if period else 'off'}")
        if period:
            run(connection, f"ALTER SYSTEM SET pgscale.sampler_period = {period}")
        os.kill(server.worker(Pgscale.title), signal.SIGHUP)

    @staticmethod
    def ticks(connection):
        return value(connection, "SELECT ticks FROM pgscale.sampler_stats")


class PgWaitSampling:
    name = "pg_wait_sampling"
    library = "pg_wait_sampling"
    title = "pg_wait_sampling collector"

    @staticmethod
    def settings(period):
        return {"pg_wait_sampling.profile_period": period, "pg_wait_sampling.history_period": period}

    @staticmethod
    def create(server, connection):
        run(connection, "CREATE EXTENSION pg_wait_sampling")

    @staticmethod
    def reset(connection):
        run(connection, "SELECT pg_wait_sampling_reset_profile()")
        time.sleep(0.05)

    @staticmethod
    def set_period(server, connection, period):
        """0 pauses. The collector of 1.1.6 and later reads the configuration; before, it is in shared memory, and a read wakes it."""
        reloads = value(connection, "SELECT context = 'sighup' FROM pg_settings WHERE name = 'pg_wait_sampling.profile_period'")
        for kind in ("profile", "history"):
            run(connection, f"{'ALTER SYSTEM ' if reloads else ''}SET pg_wait_sampling.{kind}_period = {period or NEVER_MS}")
        if reloads:
            os.kill(server.worker(PgWaitSampling.title), signal.SIGHUP)
        PgWaitSampling.ticks(connection)

    @staticmethod
    def ticks(connection):
        """It does not count them, but the checkpointer of an idle server waits at every one."""
        return int(value(connection, """
            SELECT coalesce(sum(p.count), 0) FROM pg_wait_sampling_profile p JOIN pg_stat_activity a USING (pid)
             WHERE a.backend_type = 'checkpointer'"""))

    @staticmethod
    def counts_cpu(connection):
        """Since 1.1.6: as rows without an event."""
        return value(connection, "SELECT current_setting('pg_wait_sampling.sample_cpu', true)") == "on"


TOOLS = (Pgscale, PgWaitSampling)
