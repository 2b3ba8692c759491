"""Runs spread over an existing Dask cluster; their records come back to the caller's folder.

A record travels as the text of its file and is checked like one that is read from disk.
"""

import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lff.errors import ClusterError, LffError
from lff.experiments import records
from lff.experiments.benchmarks import Experiment
from lff.experiments.crew import ANSWER, Crew, Worker
from lff.experiments.monitor import Monitor
from lff.experiments.workers import ATTEMPTS, attempt
from lff.experiments.writing import claim, unwritable


def run_in_cluster(
    experiments: Sequence[Experiment],
    crew: Crew,
    jobs: int | None,
    folder: Path | None,
    monitor: Monitor,
) -> None:
    """Spread experiments over the workers, one at a time each and at most `jobs` at once.

    Who waits for whom is decided here, not by the scheduler: so a lost worker's run is tried again
    exactly once, the longest runs come first, and a worker that joins later gets its share.
    """
    queue = [(e, 1) for e in reversed(experiments)]
    running: dict[Any, tuple[Worker, Experiment, int]] = {}
    try:
        while queue or running:
            there = crew.look()
            for future, (worker, e, number) in list(running.items()):
                try:
                    answer = _answer(future, present=worker in there)
                except _LostError:
                    del running[future]
                    crew.cancel([future])
                    if number < ATTEMPTS:
                        monitor.lost(e)
                        queue.append((e, number + 1))
                    else:
                        monitor.ended(e, f"the worker {worker.address} was lost", 0.0)
                    continue
                if answer is not None:
                    del running[future]
                    error, text = answer
                    monitor.ended(e, *((error, 0.0) if error else _keep(e, text, folder)))
            busy = {worker for worker, _, _ in running.values()}
            free = [worker for worker, ready in there.items() if ready and worker not in busy]
            at_once = min(jobs or len(there), len(there))
            monitor.spread_over(at_once)
            while queue and free and len(running) < at_once:
                worker = free.pop(0)
                e, number = queue.pop()
                future = crew.submit(worker, play, asdict(e), crew.device)
                running[future] = (worker, e, number)
                monitor.started(e)
            crew.wait(running)
    finally:
        crew.cancel(running)


def play(settings: dict[str, Any], device: str) -> tuple[str, bytes]:
    """Run one experiment at a worker; returns its error, or else its record's file."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def go_on() -> None:
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            raise ClusterError("nobody waits for this run any more")

    try:
        e = Experiment(**settings)
        with tempfile.TemporaryDirectory(dir=worker.local_directory) as name:
            error, _ = attempt(e, device, Path(name), on_round=go_on)
            packed = b"" if error else records.path_of(e, Path(name)).read_bytes()
    except Exception:
        return traceback.format_exc(), b""
    return error, packed


class _LostError(Exception):
    """A run went down with its worker."""


def _answer(future: Any, *, present: bool) -> tuple[str, bytes] | None:
    """What `play` returned, None if it is under way."""
    if future.status in ("error", "cancelled", "lost"):  # `play` itself raises nothing
        raise _LostError
    if future.status == "finished":
        try:
            return future.result(timeout=ANSWER)
        except TimeoutError:  # it may be gone with a worker that was just lost
            return None
        except Exception as error:
            raise _LostError from error
    if not present:
        raise _LostError
    return None


def _keep(e: Experiment, packed: bytes, folder: Path | None) -> tuple[str, float]:
    """Write a record that came back, if it is sound; returns an error, and the run's seconds."""
    path = records.path_of(e, folder)
    try:
        record = records.parse(packed, path)
        with claim(path):
            if not path.exists():  # another sweep may have made it meanwhile
                record.save(folder)
    except LffError as error:
        return f"its record came back, but {error}", 0.0
    except OSError as error:
        return str(unwritable(path, error)), 0.0
    return "", sum(map(sum, record.seconds.values()))
