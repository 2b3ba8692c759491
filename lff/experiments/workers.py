"""Runs in local worker processes, one thread each."""

import _thread
import contextlib
import multiprocessing
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from lff.experiments.benchmarks import Experiment
from lff.experiments.forecast import cost
from lff.experiments.monitor import Monitor
from lff.experiments.processes import cores, deaf_to_interrupts
from lff.experiments.runs import choose_device, run

ATTEMPTS = 2  # of a run whose worker dies
PATIENCE = 10.0  # seconds that workers have to keep their rounds and end
WORTH_WORKERS = 60.0  # seconds; starting processes takes some


def default_jobs(device: torch.device) -> int:
    """One run per core, or per GPU."""
    return torch.cuda.device_count() if device.type == "cuda" else cores()


def sensible_workers(e: Experiment, device: str, engine: str) -> int:
    """How many processes a single run's peers are spread over: all cores, if it is worth it."""
    on_cpu = choose_device(device).type == "cpu" and engine != "stacked"
    return cores() if on_cpu and cost(e) > WORTH_WORKERS else 1


def attempt(
    e: Experiment,
    device: str,
    folder: Path | None,
    on_round: Callable[[], None] = lambda: None,
) -> tuple[str, float]:
    """Run one experiment in this process; returns its error, empty if none, and its seconds."""
    try:
        record = run(e, device=device, progress=False, folder=folder, on_round=on_round)
    except Exception:
        return traceback.format_exc(), 0.0
    return "", sum(map(sum, record.seconds.values()))


def run_here(
    experiments: Sequence[Experiment], device: str, folder: Path | None, monitor: Monitor
) -> None:
    """Run experiments one after another in this process."""
    for e in experiments:
        monitor.started(e)
        monitor.ended(e, *attempt(e, device, folder))


def run_in_workers(
    experiments: Sequence[Experiment],
    jobs: int,
    device: str,
    folder: Path | None,
    monitor: Monitor,
) -> None:
    """Spread experiments over `jobs` processes; one that dies is replaced, its run tried again."""
    queue = [(e, 1) for e in reversed(experiments)]
    crew: dict[Connection, Any] = {}
    running: dict[Connection, tuple[Experiment, int]] = {}

    def give(connection: Connection) -> None:
        running[connection] = queue.pop()
        e, _ = running[connection]
        monitor.started(e)
        with contextlib.suppress(OSError):  # a worker that died idle is noticed like any other
            connection.send(asdict(e))

    try:
        while queue or running:
            while queue and len(running) < jobs:
                give(_hire(crew, device, folder))
            for connection in wait(list(running)):
                e, number = running.pop(connection)
                try:
                    error, seconds = connection.recv()
                except (EOFError, OSError):
                    process = crew.pop(connection)
                    process.join()
                    if number < ATTEMPTS:
                        monitor.lost(e)
                        queue.append((e, number + 1))
                        continue
                    error, seconds = f"the worker ended with exit code {process.exitcode}", 0.0
                monitor.ended(e, error, seconds)
                if queue and connection in crew:
                    give(connection)
    finally:
        _dismiss(crew, at_once=bool(running))


def _hire(crew: dict[Connection, Any], device: str, folder: Path | None) -> Connection:
    """Start one more worker; an interrupt comes before or after, and never to the worker."""
    context = multiprocessing.get_context("spawn")
    with deaf_to_interrupts():
        ours, theirs = context.Pipe()
        process = context.Process(target=_worker, args=(theirs, device, folder), daemon=True)
        process.start()
        theirs.close()
        crew[ours] = process
    return ours


def _dismiss(crew: dict[Connection, Any], *, at_once: bool) -> None:
    """End the workers; those at work are told to stop, and killed if they do not."""
    try:
        for connection, process in crew.items():
            connection.close()
            if at_once:
                process.terminate()
        for process in crew.values():
            process.join(PATIENCE)
    finally:
        for process in crew.values():
            process.kill()
            process.join()


def _worker(connection: Connection, device: str, folder: Path | None) -> None:
    """Run the experiments that come through `connection` until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    try:
        while True:
            connection.send(attempt(Experiment(**connection.recv()), device, folder))
    except (EOFError, OSError, KeyboardInterrupt):
        return


def _stop(*_) -> None:
    """Leave the run as Ctrl-C would, so that its rounds are kept."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise KeyboardInterrupt


def _stop_with_parent() -> None:
    """Stop once the parent is gone, however it ended: an orphan would hold a core for long."""
    multiprocessing.parent_process().join()
    _thread.interrupt_main(signal.SIGTERM)
