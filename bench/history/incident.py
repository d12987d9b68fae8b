"""Slow at 03:10: which session was the cause? A load works, a session holds it up, the server crashes; asked at the end.

All is as it is by default, and a minute is a minute. The server's time zone is one in which the run begins at 03:06.
"""
import contextlib
import pathlib
import signal
import subprocess
import time

import psql
from cluster import run, say, value
from load import Load
from report import table

import bed

CLIENTS, RATE = 12, 60
BEGIN_S = (3 * 60 + 6) * 60
# in minutes after the beginning; quick: a minute is a second
STORY = {"minute": 60, "setting": 2, "from": 4, "until": 8, "crash": 10, "end": 12}
QUICK = {"minute": 1, "setting": 3, "from": 10, "until": 18, "crash": 22, "end": 28}
HOLDER = "nightly_report"
PICTURE = pathlib.Path(__file__).with_name("incident.png")
LIMIT_S, LIMIT_GAP = 1, 2

SETUP = """
CREATE TABLE stock (product int PRIMARY KEY, amount int);
INSERT INTO stock SELECT i, 1000000 FROM generate_series(1, 20) i;
CREATE ROLE shop LOGIN;
CREATE ROLE reports LOGIN;
GRANT ALL ON stock TO shop, reports;
"""
LOAD = "\\set product random(1, 20)\nUPDATE stock SET amount = amount - 1 WHERE product = :product;\n"
HOLD = "BEGIN; UPDATE stock SET amount = amount - 10 WHERE product = 7;"

# what doc/cookbook.md asks; {} is the day
ASKED = {
    "who": "SELECT rank, item, round(active_sessions::numeric, 1) AS active_sessions, round(fraction::numeric, 3) AS fraction\n"
           "  FROM pgscale.top_waits({0} + time '{1}', {0} + time '{2}', by => 'blocker');",
    "when": "SELECT at::time(0), event_type, round(active_sessions::numeric, 1) AS active_sessions,\n"
            "       round(covered_fraction::numeric, 2) AS covered\n"
            "  FROM pgscale.activity({0} + time '{3}', {0} + time '{4}', '1 minute')\n"
            " WHERE event_type IN ('Lock', 'CPU') OR event_type IS NULL ORDER BY 1, 2;",
    "before": "SELECT item, round(active_sessions_1::numeric, 1) AS before, round(active_sessions_2::numeric, 1) AS at_03_10\n"
              "  FROM pgscale.compare_waits({0} + time '{5}', {0} + time '{1}', {0} + time '{1}', {0} + time '{2}', by => 'class');",
}


def zone(seconds_of_day):
    """One in which the story begins at that second of the UTC day."""
    west = (seconds_of_day - BEGIN_S) // 60
    return f"NIGHT{'-' if west < 0 else ''}{abs(west) // 60}:{abs(west) % 60:02}"


def clock(story, minute):
    seconds = BEGIN_S + minute * story["minute"]
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}" + (f":{seconds % 60:02}" if story["minute"] < 60 else "")


def sleep_until(began, story, minute):
    time.sleep(max(began + minute * story["minute"] - time.time(), 0))


def night(place, server, story, began):
    """What happens, up to the crash and after it."""
    script = place.script("shop.sql", LOAD)
    load = ("-U", "shop", "-f", script, "-c", CLIENTS, "-j", 2, "-R", RATE)
    with Load(server, *load, may_fail=True):
        sleep_until(began, story, story["setting"])
        with contextlib.closing(server.connect()) as connection:
            run(connection, "ALTER SYSTEM SET checkpoint_completion_target = 0.8")
            run(connection, "SELECT pg_reload_conf()")
        sleep_until(began, story, story["from"])
        say("a session holds the others up")
        with psql.Session(server, HOLDER, "reports") as holder:
            holder.ask(HOLD)
            sleep_until(began, story, story["until"])
            holder.ask("COMMIT;")
        say("it is gone")
        sleep_until(began, story, story["crash"])
        say("the server crashes")
        server.process.send_signal(signal.SIGQUIT)
        server.process.wait()
    server.start()
    with Load(server, *load):
        sleep_until(began, story, story["end"])


def picture(place, page):
    """The beginning of the page, as a browser shows it, as bytes of a PNG."""
    file = place.folder / "report.html"
    file.write_text(page)
    shot = place.folder / "incident.png"
    subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,1100",
                    f"--user-data-dir={place.folder / 'chromium'}", f"--screenshot={shot}", f"file://{file}"],
                   check=True, capture_output=True, timeout=120)
    import pictures     # not for those who only read what was measured: it draws, too
    return pictures.shrunk(shot.read_bytes())


def measure(place, quick):
    story = QUICK if quick else STORY
    # at a whole minute, as those of the archive and a time zone's do, when the server has been set up
    began = ((time.time() + 20) // 60 + 1) * 60
    settings = {**bed.SETTINGS, "timezone": zone(int(began) % 86400)}
    if quick:
        settings |= {"pgscale.sampler_debug_period": "1s", "deadlock_timeout": "100ms"}
    with place.cluster("incident", **settings) as server:
        with contextlib.closing(server.connect()) as connection:
            bed.create(server, connection)
            run(connection, SETUP)
        night(place, server, story, began)
        with contextlib.closing(server.connect()) as connection, psql.Session(server, "psql") as asker:
            bed.await_minutes(connection, 1, 3 * story["minute"] + 30)
            times = [clock(story, story[name]) for name in ("from", "until")]
            around = [clock(story, story["from"] - 3), clock(story, story["until"] + 3), clock(story, story["from"] - 4)]
            found = {"minutes": story["end"], "statements": {}, "answers": {}}
            for name, text in ASKED.items():
                found["statements"][name] = text.format("current_date", *times, *around)
                since = time.monotonic()
                found["answers"][name] = asker.ask(found["statements"][name])
                if name == "who":
                    found["who_ms"] = 1000 * (time.monotonic() - since)
            found["waiting"] = [float(each[0]) for each in run(connection, f"""
                SELECT coalesce(sum(wait_ms) FILTER (WHERE event_type = 'Lock' AND backend_type = 'client backend'), 0)
                       / {1000 * story["minute"]}
                  FROM generate_series({story["from"] + 1}, {story["until"] - 2}) minute
                  LEFT JOIN pgscale.archive_waits
                    ON at >= to_timestamp({began}) + minute * interval '{story["minute"]} s'
                   AND at < to_timestamp({began}) + (minute + 1) * interval '{story["minute"]} s'
                 GROUP BY minute ORDER BY minute""")]
            found["before"] = float(value(connection, f"""
                SELECT coalesce(sum(wait_ms), 0) / {1000 * story["minute"] * (story["from"] - 1)}
                  FROM pgscale.archive_waits WHERE event_type = 'Lock' AND backend_type = 'client backend'
                   AND at < to_timestamp({began}) + {story["from"] - 1} * interval '{story["minute"]} s'"""))
            found["named"] = float(value(connection, f"""
                SELECT coalesce(sum(wait_ms) FILTER (WHERE blocker LIKE '%{HOLDER}%') / sum(wait_ms), 0)
                  FROM pgscale.archive_waits WHERE event_type = 'Lock' AND backend_type = 'client backend'
                   AND at >= to_timestamp({began}) + {story["from"]} * interval '{story["minute"]} s'
                   AND at < to_timestamp({began}) + {story["until"]} * interval '{story["minute"]} s'"""))
            found["written"] = value(connection, f"""
                SELECT count(*) FROM pgscale.archive_minutes
                 WHERE at >= to_timestamp({began}) AND at < to_timestamp({began}) + {story["end"]} * interval '{story["minute"]} s'""")
            page = value(connection, f"""
                SELECT pgscale.report(to_timestamp({began}),
                                      to_timestamp({began}) + {story["end"]} * interval '{story["minute"]} s', 'html')""")
            found["page_bytes"] = len(page.encode())
    shot = picture(place, page)
    if not quick:
        PICTURE.write_bytes(shot)
    return found


def show(results):
    return f"What was different from before?\n\n{psql.fences(results['statements']['before'], results['answers']['before'])}\n" + table(
        ["minutes of the run", "written", "sessions that waited, each minute", "in the minutes before", "of it under the holder's name"],
        [[results["minutes"], results["written"], f"{min(results['waiting']):.1f} .. {max(results['waiting']):.1f} of {CLIENTS}",
          f"{results['before']:.2f}", f"{100 * results['named']:.1f} %"]])


def published(results):
    for name in ASKED:
        yield name, psql.fences(results["statements"][name], results["answers"][name])
    yield "ms", f"{results['who_ms']:.0f} ms"
    yield "picture", "\n![The report on that time: sessions by minute, and the waits](../bench/history/incident.png)\n"


def required(results):
    ms = results["who_ms"]
    yield "incident: one statement, answered in", f"{ms:.0f} ms", f"{LIMIT_S} s", ms < 1000 * LIMIT_S
    named = HOLDER in "".join(results["answers"]["who"].splitlines()[2:3])
    yield "incident: first in its answer", HOLDER if named else "another", HOLDER, named
    yield "incident: sessions found waiting, in each minute", f"{min(results['waiting']):.1f}", f"at least {CLIENTS - 1} of {CLIENTS}", \
        min(results["waiting"]) >= CLIENTS - 1
    yield "incident: of their time under the holder's name", f"{100 * results['named']:.1f} %", "at least 95 %", results["named"] >= 0.95
    gap = results["minutes"] - results["written"]
    yield "incident: minutes lost, with a crash", str(gap), f"at most {LIMIT_GAP}", gap <= LIMIT_GAP
