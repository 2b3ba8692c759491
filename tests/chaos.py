"""`python tests/chaos.py [--kills N] [--seed N] [--short]`: disturb on purpose, compare, count.

Runs and sweeps are killed (-9) and interrupted at random moments and started again until they end
by themselves. A run is killed, or its disk is full, at each of its file operations in turn. In the
end there must be the records of undisturbed commands, no other file, and no process. The seed says
who is hit and about when; the moment itself also depends on the machine.
"""

import argparse
import contextlib
import errno
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: a process with threads must not fork

import tqdm

import lff
import lff.experiments.sweep
import lff.study.terminal
from lff import cli

SMALL = ["--scale", "smoke", "--peers", "10", "--examples", "200", "--test-examples", "100",
         "--local-epochs", "1", "--fraction", "0.5"]  # fmt: skip
RUN = ["run", "mnist-mild", "--defense", "foolsgold", "--attackers", "30", *SMALL]
SWEEP = ["sweep", "--benchmarks", "mnist-mild", "mnist-extreme", "--ratios", "30", "--defenses",
         "foolsgold", "lfighter", *SMALL]  # fmt: skip
PATIENCE = 300.0  # seconds after which a command hangs
MAY_DIFFER = ("checksum", "provenance", "seconds")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Command:
    """One life of a command in a session of its own, forked from here, so that it starts at once.

    `prepare` is called in the new process.
    """

    def __init__(
        self, arguments: list[str], results: Path, prepare: Callable[[], None] = lambda: None
    ):
        self.log = results.with_name(f"{results.name}.log")
        self.log.write_text("")
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            self._become([*arguments, "--quiet"], results, prepare)

    def _become(self, arguments: list[str], results: Path, prepare: Callable[[], None]) -> None:
        code = 70
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it with &
            out = os.open(self.log, os.O_WRONLY | os.O_APPEND)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.environ |= {"LFF_RESULTS": str(results), "LFF_CHECKPOINT_SECONDS": "0"}
            prepare()
            code = cli.main(arguments)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def alive(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is None

    def wait(self) -> int | None:
        """The exit code, once the command has ended."""
        wait_until(lambda: not self.alive())
        return self.code

    def has_processes(self) -> bool:
        """Whether the command or any process that it started is left."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def workers(self) -> list[int]:
        columns = ["-o", "pid=", "-o", "ppid=", "-o", "command="]
        listed = subprocess.run(["ps", "-A", *columns], capture_output=True, text=True, check=True)
        rows = (line.split(None, 2) for line in listed.stdout.splitlines())
        mine = ((int(row[0]), row[-1]) for row in rows if int(row[1]) == self.pid)
        return [pid for pid, command in mine if "spawn_main" in command]


class Count:
    """What was done to commands, and what went wrong."""

    def __init__(self) -> None:
        self.hits: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()

    def check(self, results: Path, reference: Path, lives: list[Command]) -> None:
        """Compare with the undisturbed: what is lost, changed or left over?"""
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: not any(life.has_processes() for life in lives), 30.0)
        left = [life for life in lives if life.has_processes()]
        found, wanted = files(results), files(reference)
        same = [name for name in found.keys() & wanted.keys()
                if lasting(found[name]) == lasting(wanted[name])]  # fmt: skip
        self.wrong["records lost"] += len(wanted.keys() - found.keys())
        self.wrong["records changed"] += len(found.keys() & wanted.keys()) - len(same)
        self.wrong["half files and locks left"] += len(found.keys() - wanted.keys())
        self.wrong["processes left"] += len(left)
        for life in left:
            os.killpg(life.pid, signal.SIGKILL)

    def end(self, life: Command, *, expected: bool) -> None:
        """Note how a command ended, and show what it said if that was not to be expected."""
        if not expected or ("Traceback" in life.said and life.code != -signal.SIGKILL):
            self.wrong["commands that ended otherwise"] += 1
            say(f"exit code {life.code}; it said:\n{life.said}")


def kill_at_random(
    name: str, arguments: list[str], times: int, victims: list[str], number: signal.Signals,
    count: Count, folder: Path, rng: random.Random,
) -> None:  # fmt: skip
    """Hit commands until they have been hit so many times, each until it ends by itself."""
    reference, start = folder / "undisturbed", time.monotonic()
    Command(arguments, reference).wait()
    horizon, hits, trials = time.monotonic() - start, 0, 0
    while hits < times and trials < 10 * times:
        results, lives = folder / f"trial{trials}", list[Command]()
        trials += 1
        while (not lives or lives[-1].wait() != 0) and len(lives) <= times + 1:
            life = Command(arguments, results)
            lives.append(life)
            while life.alive() and hits < times:
                where = wait_for_moment(life, results, horizon, rng)
                victim = rng.choice(victims)
                if life.alive() and hit(life, victim, number, rng):
                    hits += 1
                    count.hits[f"{name}: {victim}, {where}"] += 1
            code = life.wait()
            expected = code in (0, -number) or (code == 130 and number == signal.SIGINT)
            if "a worker" in victims:  # killed twice at the same run, or before it had begun
                expected |= code == 1 and "its worker was lost" in life.said
                expected |= code == 2 and "a worker process ended before" in life.said
            count.end(life, expected=expected)
        count.check(results, reference, lives)


def hit(life: Command, victim: str, number: signal.Signals, rng: random.Random) -> bool:
    """Signal the command, one of its workers, or all; returns whether anybody was hit."""
    workers = life.workers() if victim == "a worker" else []
    if victim == "a worker" and not workers:
        return False
    try:
        if workers:
            os.kill(rng.choice(workers), number)
        else:
            (os.killpg if victim == "all" else os.kill)(life.pid, number)
    except ProcessLookupError:
        return False
    return bool(workers) or life.wait() != 0


def wait_for_moment(life: Command, results: Path, horizon: float, rng: random.Random) -> str:
    """Wait for a random moment, and half of the time from there on until a file is written."""
    until = time.monotonic() + rng.uniform(0, horizon)
    wait_until(lambda: not life.alive() or time.monotonic() > until)
    if rng.random() < 0.5:
        return "at any moment"
    before = half_files(results)
    wait_until(lambda: not life.alive() or bool(half_files(results) - before), pause=0.0005)
    return "while a file is written"


def half_files(results: Path) -> set[tuple[str, int, int]]:
    """Files that are being written, told from those of earlier lives by inode and time."""
    found = set()
    for path in results.rglob(".*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            found.add((path.name, path.stat().st_ino, path.stat().st_ctime_ns))
    return found


def at_file_operations(count: Count, folder: Path, step: int) -> None:
    """Kill a run, or let its disk be full, at each `step`-th of its file operations in turn."""
    run, reference, listed = [*RUN, "--rounds", "2"], folder / "undisturbed", folder / "listed"

    def note(operation: str) -> None:
        with listed.open("a") as file:
            file.write(f"{operation}\n")

    Command(run, reference, disturbed(reference, note, 1, sys.maxsize)).wait()
    operations = len(listed.read_text().split())
    for name, act, lasts in (
        ("kill -9 before a file operation", kill, False),
        ("disk full from a file operation on", full, True),
        ("disk full for one file operation", full, False),
    ):
        for n in range(1, operations + 1, step):
            results = folder / f"{name} {n}"
            last = sys.maxsize if lasts else n
            life = Command(run, results, disturbed(results, act, n, last))
            code = life.wait()
            clear = code == 0 or (code == 2 and "lff: error: cannot write" in life.said)
            count.end(life, expected=code == -signal.SIGKILL if act is kill else clear)
            again = Command(run, results)
            again.wait()
            count.check(results, reference, [life, again])
            count.hits[name] += 1


def read_only(count: Count, folder: Path) -> None:
    """Nothing can be written: a new run is refused, a recorded one is read."""
    run, results = [*RUN, "--rounds", "2"], folder / "results"
    for wanted in (2, 0):
        life = Command(run, results, disturbed(results, forbid, 1, sys.maxsize))
        count.end(life, expected=life.wait() == wanted)
        Command(run, results).wait()
    count.hits["read-only folder"] += 2


def two_at_once(count: Count, folder: Path) -> None:
    """Two sweeps share a folder, the second under another name."""
    sweep, results = [*SWEEP, "--rounds", "5", "--jobs", "1"], folder / "results"
    Command(sweep, folder / "undisturbed").wait()
    results.mkdir()
    (folder / "link").symlink_to(results)
    lives = [Command(sweep, path) for path in (results, folder / "link")]
    for life in lives:
        count.end(life, expected=life.wait() == 0)
    count.check(results, folder / "undisturbed", lives)
    count.hits["two sweeps at once"] += 1


def disturbed(
    folder: Path, act: Callable[[str], None], first: int, last: int
) -> Callable[[], None]:
    """Lets `act` meet each of the file operations `first` to `last` below a folder."""
    seen = 0

    def meet(operation: str) -> None:
        nonlocal seen
        seen += 1
        if first <= seen <= last:
            act(operation)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event in ("os.mkdir", "os.rename", "os.remove")
        if event == "open":
            writes = bool(arguments[2] & WRITING)
        if writes and f"{arguments[0]}{os.sep}".startswith(f"{folder}{os.sep}"):
            meet(event)

    def install() -> None:
        sys.addaudithook(hook)
        fsync = os.fsync  # when a full disk shows; the only operation without an event

        def disturbed_fsync(fd: Any) -> None:
            meet("fsync")
            fsync(fd)

        os.fsync = disturbed_fsync

    return install


def kill(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def full(operation: str) -> None:
    if operation != "os.remove":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def forbid(_: str) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def files(results: Path) -> dict[str, Path]:
    return {str(p.relative_to(results)): p for p in results.rglob("*") if p.is_file()}


def lasting(record: Path) -> dict[str, Any]:
    """What of a record is the same in every repetition."""
    content = json.loads(gzip.decompress(record.read_bytes()))
    return {name: value for name, value in content.items() if name not in MAY_DIFFER}


def wait_until(
    condition: Callable[[], bool], patience: float = PATIENCE, pause: float = 0.005
) -> None:
    limit = time.monotonic() + patience
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError(f"it did not happen within {patience:.0f} s")
        time.sleep(pause)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--kills", type=int, default=60, help="at random moments (default: 60)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--short", action="store_true", help="runs only, some file operations")
    options = parser.parse_args()
    say(f"chaos: seed {options.seed}")
    start, count, rng = time.monotonic(), Count(), random.Random(options.seed)
    tqdm.tqdm.monitor_interval = 0  # a thread
    run, sweep = [*RUN, "--rounds", "25"], [*SWEEP, "--rounds", "25", "--jobs", "2"]
    third = 1 if options.short else -(-options.kills // 3)
    victims = ["the command", "a worker", "all"]
    kills: list[tuple[Any, ...]] = [
        ("kill -9 of a run", run, third, victims[:1], signal.SIGKILL),
        ("kill -9 of a sweep", sweep, 2 * third, victims, signal.SIGKILL),
        ("Ctrl-C of a run", run, third, ["all"], signal.SIGINT),
        ("Ctrl-C of a sweep", sweep, -(-third // 4), ["all"], signal.SIGINT),
    ]
    with tempfile.TemporaryDirectory(prefix="lff-chaos-") as home:

        def room(name: str) -> Path:
            say(f"{name} ...")
            (Path(home) / name).mkdir()
            return Path(home) / name

        warm = room("warming up")
        lff.run("mnist-iid", scale="smoke", progress=False, folder=warm, rounds=1)
        for name, arguments, times, who, number in kills[::2] if options.short else kills:
            kill_at_random(name, arguments, times, who, number, count, room(name), rng)
        at_file_operations(count, room("faults at file operations"), 4 if options.short else 1)
        read_only(count, room("read-only folder"))
        if not options.short:
            two_at_once(count, room("two sweeps at once"))
    for name, times in sorted(count.hits.items()):
        say(f"{times:4} {name}")
    for name, times in count.wrong.items():
        say(f"{times:4} {name}")
    say(f"{time.monotonic() - start:.0f} s")
    return 1 if count.wrong.total() else 0


if __name__ == "__main__":
    sys.exit(main())
