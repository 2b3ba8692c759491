"""A fault at every file operation of a run in turn, and disks that take nothing.

An audit hook in the process that runs sees its file operations before they happen, and kills the
process there, or lets them fail.
"""

import errno
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from chaos.commands import RUN, SWEEP, Command, LostError, check, files, say, undisturbed
from lff.experiments import runs

SHORT = [*RUN, "--rounds", "2"]
COMPLAINT, WARNING = "lff: error: cannot write", "cannot write the checkpoint"
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
FOREVER = sys.maxsize


class Disturbed:
    """Calls `act` with the name of each of the file operations `first` to `last` below a folder."""

    def __init__(self, folder: Path, act: Callable[[str], None], first: int, last: int):
        self.folder, self.act = str(folder), act
        self.first, self.last, self.seen = first, last, 0

    def install(self) -> None:
        sys.addaudithook(self.hook)
        fsync = os.fsync  # the moment when a full disk shows; the only one without an event

        def audited(descriptor: int) -> None:
            self.operation("fsync")
            fsync(descriptor)

        os.fsync = audited

    def hook(self, event: str, arguments: tuple) -> None:
        if event == "open":
            writes = arguments[2] & WRITING
        else:
            writes = event in ("os.mkdir", "os.rename", "os.remove")
        if writes and f"{arguments[0]}{os.sep}".startswith(f"{self.folder}{os.sep}"):
            self.operation(event)

    def operation(self, name: str) -> None:
        self.seen += 1
        if self.first <= self.seen <= self.last:
            self.act(name)


def play(folder: Path, *, short: bool = False) -> dict[str, int]:
    """Disturb a run in every way, run it again in peace, and compare; returns trials by kind."""
    reference = folder / "undisturbed"
    undisturbed(SHORT, reference)
    operations = _operations(folder / "counted")
    counted = {}
    kinds = list(_KINDS.items())[: 2 if short else None]
    for kind, (act, lasting) in kinds:
        for n in range(1, len(operations) + 1):
            results = folder / f"{kind} {n}"
            last = FOREVER if lasting else n
            command = Command(
                SHORT, results, prepare=Disturbed(results, act, first=n, last=last).install
            )
            _check_end(command, killed=act is _kill)
            undisturbed(SHORT, results)
            check(results, reference)
        counted[kind] = len(operations)
    _small_files(folder, reference)
    _read_only(folder, reference)
    _two_at_once(folder)
    return counted


def _kill(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _full(operation: str) -> None:
    if operation != "os.remove":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _forbid(_: str) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


_KINDS = {
    "kill -9 before a file operation": (_kill, False),
    "disk full from a file operation on": (_full, True),
    "disk full for one file operation": (_full, False),
}


def _operations(results: Path) -> list[str]:
    """The names of a run's file operations."""
    listed = results.with_suffix(".operations")

    def note(operation: str) -> None:
        with listed.open("a") as file:
            file.write(f"{operation}\n")

    command = Command(SHORT, results, prepare=Disturbed(results, note, 1, FOREVER).install)
    command.wait()
    return listed.read_text().split()


def _check_end(command: Command, *, killed: bool) -> None:
    """A disturbed run was killed, finishes all the same, or says clearly why it cannot."""
    code = command.wait()
    clear = code == 0 or (code == 2 and COMPLAINT in command.said)
    if (code != -signal.SIGKILL) if killed else (not clear or "Traceback" in command.said):
        raise LostError(f"exit code {code}; it said:\n{command.said}")


def _small_files(folder: Path, reference: Path) -> None:
    """The system cuts off files: too small for a record, then only too small for a checkpoint."""
    for limit, code, said in ((500, 2, COMPLAINT), (20_000, 0, WARNING)):
        results = folder / f"limit {limit}"

        def cut(limit: int = limit) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        command = Command(SHORT, results, prepare=cut)
        if command.wait() != code or command.said.count(said) != 1:
            raise LostError(f"exit code {command.code} of {code}; it said:\n{command.said}")
        undisturbed(SHORT, results)
        check(results, reference)
    say("files cut off by the system: a clear message, and a run that finishes without checkpoints")


def _read_only(folder: Path, reference: Path) -> None:
    """Nothing can be written: a new run is refused, a recorded one is read."""
    for results, code in ((folder / "new", 2), (folder / "recorded", 0)):
        if code == 0:
            shutil.copytree(reference, results)
        command = Command(SHORT, results, prepare=Disturbed(results, _forbid, 1, FOREVER).install)
        if command.wait() != code or (COMPLAINT in command.said) != (code == 2):
            raise LostError(f"exit code {command.code} of {code}; it said:\n{command.said}")
    say("read-only folder: a new run is refused with a clear message, a recorded one is read")


def _two_at_once(folder: Path) -> None:
    """Two sweeps share a folder: both end well, and no run is played twice."""
    reference, results = folder / "one", folder / "two"
    sweep = [*SWEEP, "--rounds", "10", "--jobs", "1"]
    undisturbed(sweep, reference)
    played = folder / "played"

    def note_plays() -> None:
        play = runs._play

        def noted(federation, *rest):
            with played.open("a") as file:
                file.write(f"{federation.experiment.id}\n")
            return play(federation, *rest)

        runs._play = noted

    results.mkdir()
    link = folder / "link"  # another name, so that each has a log of its own
    link.symlink_to(results)
    both = [Command(sweep, path, prepare=note_plays) for path in (results, link)]
    ends = [(command.wait(), command.said) for command in both]
    check(results, reference)
    wanted = sorted(Path(name).name.removesuffix(".json.gz") for name in files(reference))
    if [code for code, _ in ends] != [0, 0] or sorted(played.read_text().split()) != wanted:
        raise LostError(f"two sweeps at once played {played.read_text()} and ended with {ends}")
    say(f"two sweeps at once: {len(wanted)} runs, each played once")
