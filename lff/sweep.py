"""Many runs: local worker processes, one thread each, longest runs first."""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from lff import records
from lff.benchmarks import BENCHMARKS, Experiment
from lff.errors import InputError, unknown
from lff.progress import bar
from lff.runs import choose_device, experiment, run, tidy
from lff.scales import SCALES

ATTEMPTS = 2
WORTH_WORKERS = 60.0  # seconds; starting processes takes some

# Measured seconds per thousand training examples on one core, to order runs and foresee their end.
_COST = {"cnn": 0.15, "resnet18": 7.0, "bilstm": 4.0}
_EXAMPLES = {
    "real": {"mnist": 60_000, "cifar10": 50_000, "imdb": 40_000},
    "embedded": {"mnist": 4_000, "cifar10": 4_000, "imdb": 20_000},
}
_PARAMETERS = {"cnn": 2.2e4, "resnet18": 1.1e7, "bilstm": 1e6}
_START = 2.0  # seconds before the first round, and for evaluation


def grid(
    benchmarks: Iterable[str] = (),
    defenses: Iterable[str] = (),
    attackers: Iterable[float] = (),
    seeds: Iterable[int] = (0,),
    *,
    scale: str = "quick",
    **settings: Any,
) -> list[Experiment]:
    """Every combination, as experiments; what is left empty is what the scale runs.

    `settings` are common to all (`rounds`, `alpha`, ...).
    """
    if scale not in list(SCALES):
        raise unknown("scale", scale, SCALES)
    lists = {"benchmarks": benchmarks, "defenses": defenses, "attackers": attackers}
    for name, value in {**lists, "seeds": seeds}.items():
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise InputError(f"{name} must be a list, not {value!r}")
    experiments = []
    for benchmark in benchmarks or BENCHMARKS:
        cells = SCALES[scale].grid(benchmark)
        for defense, ratio, seed in product(
            defenses or cells.defenses, attackers or cells.ratios, seeds
        ):
            chosen = {"defense": defense, "attackers": ratio, "seed": seed, **settings}
            experiments.append(experiment(benchmark, scale=scale, **chosen))
    return experiments


@dataclass
class Outcome:
    """What became of a sweep: which experiments have a record, and why others do not."""

    done: list[Experiment] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def run_all(
    experiments: Sequence[Experiment],
    *,
    jobs: int | None = None,
    device: str = "auto",
    progress: bool | None = None,
    on_end: Callable[[Experiment], None] = lambda e: None,
    folder: Path | None = None,
) -> Outcome:
    """Run every experiment that has no record yet, `jobs` at a time (default: one per core).

    Records appear as each run ends, and `on_end` is told. A run whose worker crashes or is killed
    is tried once more.
    Experiments with a defense or attack of the caller's own run in this process.
    """
    choose_device(device)
    if jobs is not None and (type(jobs) is not int or jobs < 1):
        raise InputError(f"jobs must be a whole number of at least 1, not {jobs!r}")
    tidy(folder)
    outcome = Outcome()
    waiting = []
    for e in dict.fromkeys(experiments):
        if records.find(e, folder) is None:
            waiting.append(e)
        else:
            outcome.done.append(e)
    waiting.sort(key=cost, reverse=True)
    here = [e for e in waiting if e.user_code]
    away = [e for e in waiting if not e.user_code]
    jobs = min(jobs or default_jobs(choose_device(device)), len(away))
    with _Progress(outcome, waiting, progress, on_end) as ending:
        if jobs > 1:
            for e, error in _in_workers(away, jobs, device, folder):
                ending.finished(e, error)
        else:
            here = away + here
        for e in here:
            ending.finished(e, _attempt(e, device, folder))
    return outcome


def default_jobs(device: torch.device) -> int:
    """One run per core, or per GPU."""
    return torch.cuda.device_count() if device.type == "cuda" else os.cpu_count() or 1


def sensible_workers(e: Experiment, device: str, engine: str) -> int:
    """How many processes a single run's peers are spread over: all cores, if it is worth it."""
    on_cpu = choose_device(device).type == "cpu" and engine != "stacked"
    return (os.cpu_count() or 1) if on_cpu and cost(e) > WORTH_WORKERS else 1


def cost(e: Experiment) -> float:
    """About how many seconds a run takes on one core."""
    benchmark = BENCHMARKS[e.benchmark]
    examples = e.examples or _EXAMPLES[e.data][benchmark.dataset]
    training = e.local_epochs * e.fraction * examples / 1000 * _COST[benchmark.model]
    pairs = (e.fraction * e.peers) ** 2 if e.defense == "repeated_median" else 0
    return _START + e.rounds * (training + pairs * _PARAMETERS[benchmark.model] * 1e-8)


def _attempt(e: Experiment, device: str, folder: Path | None) -> str | None:
    """Run one experiment; the error as a text if it fails."""
    try:
        run(e, device=device, progress=False, folder=folder)
    except Exception:
        return traceback.format_exc()
    return None


def _worker(connection: Connection, device: str, folder: Path | None) -> None:
    """Run the experiments that come through `connection` until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    try:
        while True:
            connection.send(_attempt(Experiment(**connection.recv()), device, folder))
    except (EOFError, BrokenPipeError):
        return


def _in_workers(
    experiments: Sequence[Experiment], jobs: int, device: str, folder: Path | None
) -> Iterator[tuple[Experiment, str | None]]:
    """Spread experiments over `jobs` processes; yields each with its error, as it ends."""
    context = multiprocessing.get_context("spawn")
    queue = [(e, 1) for e in reversed(experiments)]
    workers: dict[Connection, tuple[Any, Experiment, int]] = {}

    def start(process=None, connection=None) -> None:
        """Give the next experiment to this worker, or to a new one."""
        e, attempt = queue.pop()
        if process is None:
            connection, theirs = context.Pipe()
            process = context.Process(target=_worker, args=(theirs, device, folder), daemon=True)
            process.start()
            theirs.close()
        connection.send(asdict(e))
        workers[connection] = (process, e, attempt)

    try:
        while queue or workers:
            while queue and len(workers) < jobs:
                start()
            for connection in wait(list(workers)):
                process, e, attempt = workers.pop(connection)
                try:
                    error = connection.recv()
                except (EOFError, OSError):
                    process.join()
                    error = f"the worker ended with exit code {process.exitcode}"
                    if attempt < ATTEMPTS:
                        queue.append((e, attempt + 1))
                        continue
                else:
                    if queue:
                        start(process, connection)
                    else:
                        connection.close()
                        process.join()
                yield e, error
    finally:
        for process, _, _ in workers.values():
            process.terminate()
        for process, _, _ in workers.values():
            process.join()


class _Progress:
    """One bar over the runs, advancing by their expected cost so that the time left is fair."""

    def __init__(
        self,
        outcome: Outcome,
        waiting: Sequence[Experiment],
        show: bool | None,
        on_end: Callable[[Experiment], None],
    ):
        self.outcome = outcome
        self.on_end = on_end
        self.runs = len(waiting) + len(outcome.done)
        self.bar = bar(
            total=sum(map(cost, waiting)),
            desc=f"{len(outcome.done)}/{self.runs} runs",
            bar_format="{desc} |{bar}| {percentage:3.0f}% [{elapsed}<{remaining}{postfix}]",
            show=show,
        )

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_) -> None:
        self.bar.close()

    def finished(self, e: Experiment, error: str | None) -> None:
        if error is None:
            self.outcome.done.append(e)
        else:
            self.outcome.failed[e.id] = error
            self.bar.set_postfix(failed=len(self.outcome.failed), refresh=False)
        self.bar.set_description_str(f"{len(self.outcome.done)}/{self.runs} runs", refresh=False)
        self.bar.update(cost(e))
        self.on_end(e)
