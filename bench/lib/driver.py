"""bench/run and t/trust/run: starts what is asked for, one after the other, says how long it will take, and cleans up."""
import argparse
import os
import signal
import subprocess
import sys
import threading
import time

import leftovers
import registry

TREE = registry.TREE
PLACE = TREE / sys.argv[1]      # whose parts these are
OUTPUT = TREE / "build" / PLACE.name
SAID_EVERY = 60         # seconds, where there is no terminal
GRACE = 90              # seconds for a program to clean up


class Interrupted(BaseException):
    pass


def _interrupt(number, frame):
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)


class Progress:
    """One line with what is at work, for how long, and its last words."""

    def __init__(self):
        self.is_terminal = sys.stderr.isatty()
        self._said = 0

    def show(self, line, now=False):
        if not self.is_terminal and not now and time.monotonic() - self._said < SAID_EVERY:
            return
        self._said = time.monotonic()
        if self.is_terminal:
            line = "\r\x1b[K" + line[:os.get_terminal_size(sys.stderr.fileno()).columns - 1]
        print(line, end="" if self.is_terminal else "\n", file=sys.stderr, flush=True)

    def end(self, line):
        print(("\r\x1b[K" if self.is_terminal else "") + line, file=sys.stderr, flush=True)


def clock(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Job:
    """A folder's parts in one process, or one program of its own."""

    def __init__(self, parts, options, arguments):
        self.parts = parts
        first = parts[0]
        self.name = first.full_name if first.command else first.folder
        self.log = OUTPUT / self.name / "log"
        self.minutes = sum(part.quick_minutes if options.quick else part.minutes for part in parts)
        self._command = self._program(first, options, arguments)
        self._words = ""

    def _program(self, first, options, arguments):
        if first.command:
            given = first.quick_arguments if options.quick else first.arguments
            return [*first.command, *(arguments if arguments is not None else given)]
        chosen = ["--quick"] if options.quick else []
        chosen += [f"--only={text}" for text in options.only or ()] + ([f"--rounds={options.rounds}"] if options.rounds else [])
        packages = dict.fromkeys(package for part in self.parts for package in part.packages.split())
        return ["t/lib/setup.sh", "demo", "bench/lib/start", "bench/lib/experiment.py", " ".join(packages), first.folder, *chosen,
                *(part.name for part in self.parts)]

    def run(self, progress):
        """Says how it ended. Returns the exit code."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with leftovers.Folder() as folder, open(self.log, "w") as log:
            # a session of its own, so that Ctrl-C reaches this program alone, which then ends it
            child = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", *self._command], cwd=TREE,
                                     env={**os.environ, "TMPDIR": str(folder.path)}, stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                     start_new_session=True)
            folder.owner = child.pid
            reader = threading.Thread(target=self._read, args=(child.stdout, log), daemon=True)
            reader.start()
            try:
                progress.show(f"{self.name}: starts, {clock(60 * self.minutes)} usually", now=True)
                while child.poll() is None:
                    time.sleep(0.2)
                    progress.show(f"{self.name} {clock(time.monotonic() - began)} of {clock(60 * self.minutes)}: {self._words}")
            finally:
                stop(child)
                reader.join(5)
        ended = f"{clock(time.monotonic() - began)}, {self.log.relative_to(TREE)}"
        progress.end(f"{self.name}: done, {ended}" if child.returncode == 0 else
                     f"{self.name}: failed, or a requirement was missed ({child.returncode}), {ended}\n  {self._words}")
        return child.returncode

    def _read(self, stream, log):
        for line in stream:
            log.write(line)
            log.flush()
            self._words = line.strip() or self._words


def stop(child):
    """Lets it clean up, and then ends what is left of its process group."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(GRACE)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def arguments_of_this():
    own, extra = sys.argv[2:], None
    if "--" in own:
        extra = own[own.index("--") + 1:]
        own = own[:own.index("--")]
    program = f"{sys.argv[1]}/run"
    parser = argparse.ArgumentParser(prog=program, usage=f"{program} [--quick | --redraw] [--only TEXT]... [--rounds N] [NAME...] [-- OPTIONS]")
    parser.add_argument("--list", action="store_true", help="what there is, and how long it takes")
    parser.add_argument("--quick", action="store_true", help="short, to see that all works; no figures to keep")
    parser.add_argument("--redraw", action="store_true", help="tables from what is committed; nothing is measured")
    parser.add_argument("--only", metavar="TEXT", action="append",
                        help="pieces whose names contain this, or are this, of parts that allow it; may be repeated")
    parser.add_argument("--rounds", type=int, metavar="N", help="as many instead of a part's own")
    parser.add_argument("names", nargs="*", metavar="NAME", help="as --list has them; all, if none")
    options = parser.parse_args(own)
    parts = chosen(parser, options.names)
    if extra is not None and (len(parts) != 1 or not parts[0].command):
        parser.error("options are for one program of its own: NAME -- OPTIONS")
    if (options.only or options.rounds) and any(part.command for part in parts):
        parser.error("programs of their own have neither pieces nor rounds")
    return options, parts, extra


def chosen(parser, names):
    every = registry.parts(PLACE)
    headline = registry.headline() if "headline" in names else ()
    wanted = {name: [part for part in every if name in (part.folder, part.full_name) or name == "headline" and part.full_name in headline]
              for name in names}
    unknown = [name for name, found in wanted.items() if not found]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}: {parser.prog} --list")
    return [part for part in every if not names or any(part in found for found in wanted.values())]


def show_list(parts):
    headline = registry.headline()
    print(f"{'NAME':24}{'MINUTES':>8}{'QUICK':>7}   headline (H), as root (R)")
    for folder in registry.folders(PLACE):
        mine = [part for part in parts if part.folder == folder.name]
        if not mine:
            continue
        print(f"\n{folder.name:24}{sum(part.minutes for part in mine):8.1f}{sum(part.quick_minutes for part in mine):7.1f}"
              f"      {registry.about(folder)}")
        for part in mine:
            marks = ("H" if part.full_name in headline else " ") + ("R" if part.root else " ")
            print(f"  {part.full_name:22}{part.minutes:8.1f}{part.quick_minutes:7.1f}   {marks} {part.about}")


def jobs_of(parts, options, extra):
    jobs = []
    for folder in dict.fromkeys(part.folder for part in parts):
        mine = [part for part in parts if part.folder == folder]
        inside = [part for part in mine if not part.command]
        if inside:
            jobs.append(Job(inside, options, None))
        jobs += [Job([part], options, extra) for part in mine if part.command]
    return jobs


def publish():
    return subprocess.run([str(TREE / "bench/lib/publish")], cwd=TREE).returncode


def main():
    options, parts, extra = arguments_of_this()
    if options.list:
        show_list(parts)
        return 0
    if options.redraw:
        return publish()
    if os.getuid() != 0 and any(part.root for part in parts):
        sys.exit("as root, please: " + ", ".join(part.full_name for part in parts if part.root))
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    leftovers.of_the_dead()
    progress = Progress()
    failed = sum(job.run(progress) != 0 for job in jobs_of(parts, options, extra))
    if not options.quick:
        failed += publish() != 0
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Interrupted as interrupted:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(128 + interrupted.args[0])
