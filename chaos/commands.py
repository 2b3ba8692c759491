"""A command of `lff` as a process that can be killed, and what it must leave behind."""

import contextlib
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: a process with threads must not fork

from lff import cli

SMALL = ["--scale", "smoke", "--peers", "10", "--examples", "200", "--test-examples", "100",
         "--local-epochs", "1", "--fraction", "0.5", "--quiet"]  # fmt: skip
RUN = ["run", "mnist-mild", "--defense", "foolsgold", "--attackers", "30", *SMALL]
SWEEP = ["sweep", "--benchmarks", "mnist-mild", "mnist-extreme", "--ratios", "30",
         "--defenses", "foolsgold", "lfighter", *SMALL]  # fmt: skip
PATIENCE = 600.0  # seconds after which a command hangs
STARTED = "started\n"  # said when the interpreter has come to the command
_COLD = f"import sys, lff.cli; sys.stderr.write({STARTED!r}); sys.exit(lff.cli.main())"
MAY_DIFFER = ("checksum", "provenance", "seconds")


class LostError(Exception):
    """Something did not end as it should."""


class Command:
    """One life of a command, in a session of its own, with its output in a file.

    It is forked from this process, which has imported everything; a `cold` one starts with a new
    interpreter, as at a terminal. `prepare` is called in the new process.
    """

    def __init__(
        self,
        arguments: list[str],
        results: Path,
        *,
        cold: bool = False,
        prepare: Callable[[], None] = lambda: None,
    ):
        self.log = results.with_suffix(".log")
        self.log.write_bytes(b"")
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            self._become(arguments, results, cold, prepare)

    def _become(self, arguments, results, cold, prepare) -> None:
        code = 70
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it with &
            out = os.open(self.log, os.O_WRONLY | os.O_APPEND)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.environ |= {"LFF_RESULTS": str(results), "LFF_CHECKPOINT_SECONDS": "0"}
            if cold:
                os.execv(sys.executable, [sys.executable, "-c", _COLD, *arguments])
            prepare()
            os.write(2, STARTED.encode())
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

    def started(self) -> bool:
        return STARTED in self.said or not self.alive()

    def alive(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is None

    def wait(self) -> int:
        """Wait for the end of the command; returns its exit code."""
        wait_until(lambda: not self.alive(), "the command did not end")
        return self.code

    def send(self, victim: str, number: signal.Signals, rng: random.Random) -> str:
        """Signal the command (`parent`), one of its workers, or all.

        Returns who was hit: nobody, if the command ended by itself before.
        """
        workers = self.workers() if victim == "worker" else []
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(workers), number)
                return "worker"
            return ""
        (os.killpg if victim == "all" else os.kill)(self.pid, number)
        hit = "all" if victim == "all" else "parent"
        return hit if self.wait() != 0 else ""

    def workers(self) -> list[int]:
        columns = ["-o", "pid=", "-o", "ppid=", "-o", "command="]
        listed = subprocess.run(["ps", "-A", *columns], capture_output=True, text=True, check=True)
        rows = (line.split(None, 2) for line in listed.stdout.splitlines())
        mine = ((int(row[0]), row[-1]) for row in rows if int(row[1]) == self.pid)
        return [pid for pid, command in mine if "spawn_main" in command]

    def has_processes(self) -> bool:
        """Whether the command or any worker of it is left; orphans first keep their rounds."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def end(self) -> None:
        if self.has_processes():
            os.killpg(self.pid, signal.SIGKILL)


def wait_until(condition: Callable[[], bool], complaint: str, pause: float = 0.01) -> None:
    """Wait for a condition, but not for ever."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > limit:
            raise LostError(f"{complaint} within {PATIENCE:.0f} s")
        time.sleep(pause)


def warm_up(folder: Path) -> None:
    """Import and load what every command would, so that those forked from here start at once."""
    from tqdm import tqdm

    from lff import run
    from lff.experiments import sweep  # noqa: F401
    from lff.study import report  # noqa: F401

    tqdm.monitor_interval = 0  # a thread
    small = {"peers": 2, "examples": 20, "test_examples": 20, "rounds": 1, "local_epochs": 1}
    run("mnist-iid", scale="smoke", progress=False, folder=folder, **small)


def undisturbed(arguments: list[str], results: Path) -> float:
    """Run a command that nothing disturbs; returns its seconds."""
    start = time.monotonic()
    command = Command(arguments, results)
    if command.wait() != 0:
        raise LostError(f"the undisturbed command failed:\n{command.said}")
    return time.monotonic() - start


def files(results: Path) -> dict[str, Path]:
    """All files of a results folder, by their path in it."""
    return {str(p.relative_to(results)): p for p in sorted(results.rglob("*")) if p.is_file()}


def check(results: Path, reference: Path) -> None:
    """Every record is there, byte for byte as undisturbed, and nothing else."""
    found, wanted = files(results), files(reference)
    if found.keys() != wanted.keys():
        over, lost = sorted(found.keys() - wanted.keys()), sorted(wanted.keys() - found.keys())
        raise LostError(f"in {results}: left over {over}, lost {lost}")
    for name, path in found.items():
        if _lasting(path) != _lasting(wanted[name]):
            raise LostError(f"{path} differs from {wanted[name]}")


def _lasting(record: Path) -> dict[str, Any]:
    """What of a record is the same in every repetition."""
    content = json.loads(gzip.decompress(record.read_bytes()))
    return {name: value for name, value in content.items() if name not in MAY_DIFFER}


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
