"""Kills and interrupts at random moments of runs and sweeps.

A trial is one command in a folder of its own, killed, started again, and so on until it ends by
itself; then its records are compared with those of an undisturbed command. The seed decides who
is killed and about when; the moment itself also depends on the machine.
"""

import contextlib
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from chaos.commands import (
    RUN,
    SWEEP,
    Command,
    LostError,
    check,
    files,
    say,
    undisturbed,
    wait_until,
)

ROUNDS = ["--rounds", "25"]
RECORD, CHECKPOINT = ".json.gz.tmp", ".ckpt.tmp"


@dataclass
class Scenario:
    """A command, whom to send which signal, and how many times."""

    name: str
    arguments: list[str]
    victims: tuple[str, ...]
    wanted: int
    cold: float = 0.0
    sends: signal.Signals = signal.SIGKILL
    hits: Counter = field(default_factory=Counter)
    trials: int = 0

    @property
    def complete(self) -> bool:
        return self.hits.total() >= self.wanted


def scenarios(kills: int, *, short: bool = False) -> list[Scenario]:
    """Half of the kills for a run, half for a sweep with two workers; and interrupts.

    Workers are new interpreters always; in the long form, so are a quarter of the runs.
    """
    run, cold = [*RUN, *ROUNDS], 0.0 if short else 0.25
    spread, sweep = [*run, "--workers", "2"], [*SWEEP, *ROUNDS, "--jobs", "2"]
    chosen = [
        Scenario("kill -9 of a run", run, ("parent",), kills - kills // 2, cold),
        Scenario("kill -9 of a sweep", sweep, ("parent", "worker", "all"), kills // 2),
        Scenario("Ctrl-C of a run", run, ("all",), 2 if short else 20, cold, signal.SIGINT),
    ]
    if not short:
        name = "Ctrl-C of a run over two processes"
        chosen.append(Scenario(name, spread, ("all",), 10, sends=signal.SIGINT))
        name = "Ctrl-C of a sweep"
        chosen.append(Scenario(name, sweep, ("all",), 10, sends=signal.SIGINT))
    return chosen


def play(scenario: Scenario, folder: Path, rng: random.Random) -> None:
    """Trials until enough have been hit."""
    reference = folder / "undisturbed"
    horizon = undisturbed([*scenario.arguments, *_alone(scenario)], reference)
    while not scenario.complete:
        if scenario.trials > 10 * scenario.wanted:
            raise LostError(f"of {scenario.trials} commands too few could be hit")
        results = folder / f"trial{scenario.trials}"
        lives: list[Command] = []
        try:
            _trial(scenario, results, horizon, rng, lives)
            for life in lives:
                wait_until(lambda life=life: not life.has_processes(), "orphans did not end")
        finally:
            for life in lives:
                life.end()
        check(results, reference)
        scenario.trials += 1
        say(f"  trial {scenario.trials}: {len(lives)} lives, {scenario.hits.total()} hits so far")


def summary(scenario: Scenario) -> str:
    """How often whom, and at what."""
    lines = [f"{scenario.name}: {scenario.hits.total()} in {scenario.trials} trials"]
    for (victim, where), hits in sorted(scenario.hits.items()):
        lines.append(f"  {hits:3} {victim:7} {where}")
    return "\n".join(lines)


def _alone(scenario: Scenario) -> list[str]:
    """The undisturbed command needs no workers; records do not depend on them."""
    flags = [flag for flag in ("--jobs", "--workers") if flag in scenario.arguments]
    return [word for flag in flags for word in (flag, "1")]


def _trial(
    scenario: Scenario, results: Path, horizon: float, rng: random.Random, lives: list[Command]
) -> None:
    """Start a command, hit it, and so on until it ends by itself; adds all its lives."""
    while True:
        command = Command(scenario.arguments, results, cold=rng.random() < scenario.cold)
        lives.append(command)
        while command.alive() and not scenario.complete:
            before = _temporary(results)
            _wait_for_moment(command, results, horizon, rng)
            if command.alive():
                victim = command.send(rng.choice(scenario.victims), scenario.sends, rng)
                if victim:
                    scenario.hits[victim, _stage(results, before)] += 1
        if command.wait() == 0:
            return
        _check_end(scenario, command)


def _wait_for_moment(command: Command, results: Path, horizon: float, rng: random.Random) -> None:
    """Wait for a random moment, and half of the time from there on until a file is written.

    A command hears of nothing before its interpreter has come to it.
    """
    wait_until(command.started, "the command did not start", 0.002)
    until = time.monotonic() + rng.uniform(0, horizon)
    kind = rng.choice([None, None, RECORD, CHECKPOINT])
    wait_until(lambda: not command.alive() or time.monotonic() > until, "no moment came", 0.002)
    if kind:
        before = _temporary(results)

        def written() -> bool:
            new = _temporary(results) - before
            return not command.alive() or any(name.endswith(kind) for name, *_ in new)

        wait_until(written, "nothing was written", 0.0005)


def _temporary(results: Path) -> set[tuple[str, int, int]]:
    """Files that are being written, told from those of earlier lives by inode and time."""
    found = set()
    for path in results.rglob(".*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            stat = path.stat()
            found.add((path.name, stat.st_ino, stat.st_ctime_ns))
    return found


def _stage(results: Path, before: set[tuple[str, int, int]]) -> str:
    """At what a command was, by what it has left behind."""
    written = " ".join(name for name, *_ in _temporary(results) - before)
    names = " ".join(files(results)) if results.exists() else ""
    if RECORD in written:
        return "while writing a record"
    if CHECKPOINT in written:
        return "while writing a checkpoint"
    if ".ckpt" in names:
        return "between checkpoints"
    if ".lock" in names:
        return "before the first checkpoint"
    return "after a record" if ".json" in names else "before the first run"


def _check_end(scenario: Scenario, command: Command) -> None:
    """A command that did not finish was killed or interrupted, or lost a run to killed workers."""
    said = command.said
    if scenario.sends == signal.SIGINT:
        wait_until(lambda: not command.has_processes(), "an interrupted command's workers remain")
        expected = command.code == 130 and "the same command goes on" in said
        expected = expected and "Traceback" not in command.said
    else:
        expected = command.code == -signal.SIGKILL or (command.code == 1 and "exit code -9" in said)
    if not expected:
        raise LostError(f"exit code {command.code}; it said:\n{said}")
