"""Many runs, spread over processes of this machine or a Dask cluster."""

import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import torch

from lff.errors import InputError, RecordError, unknown
from lff.experiments import records
from lff.experiments.build import DEVICES, choose_device
from lff.experiments.cluster import (
    check_address,
    connected,
    local_cluster,
    number_of_workers,
    spread,
)
from lff.experiments.experiment import Experiment
from lff.experiments.processes import cores
from lff.experiments.progress import Progress, cost
from lff.experiments.run import run, tidy
from lff.experiments.scales import checked
from lff.paths import results_dir

WORTH_WORKERS = 60.0  # seconds; starting processes takes some


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
    cluster: str | None = None,
    dashboard: bool = False,
    progress: bool | None = None,
    on_end: Callable[[Experiment], None] = lambda e: None,
    folder: Path | None = None,
) -> Outcome:
    """Run every experiment that has no record yet, `jobs` at a time, longest first.

    By default they are spread over processes of this machine, one per core; with the address of a
    Dask scheduler (`tcp://host:8786`) as `cluster`, or in the environment variable `LFF_CLUSTER`,
    over its workers. A single job runs in this process. Records appear in `folder` as each run
    ends, and `on_end` is told. A run whose worker dies is tried once more (over an existing cluster
    as often as its scheduler allows); one that fails is reported, and the others go on. What is the
    caller's own (a defense, an attack, a benchmark, a hook) goes with it.

    Dask unpickles between its own processes: a cluster belongs on a network one trusts.
    """
    if jobs is not None and (type(jobs) is not int or jobs < 1):
        raise InputError(f"jobs must be a whole number of at least 1, not {jobs!r}")
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)
    if cluster is None:
        cluster = os.environ.get("LFF_CLUSTER") or None
    if cluster is not None:
        check_address(cluster)
    home = Path(folder or results_dir())
    tidy(home)
    outcome, waiting = Outcome(), []
    for e in dict.fromkeys(experiments):
        if records.find(e, home) is None:
            checked(e)
            waiting.append(e)
        else:
            outcome.done.append(e)
    waiting.sort(key=cost, reverse=True)
    if not waiting:
        return outcome
    with ExitStack() as stack:
        stack.callback(tidy, home)  # after workers that were killed
        client, at_once = None, 1
        if cluster is None:
            at_once = min(jobs or default_jobs(choose_device(device)), len(waiting))
        if cluster is not None or at_once > 1:
            address = cluster or stack.enter_context(local_cluster(at_once, dashboard=dashboard))
            client = stack.enter_context(connected(address, device))
            at_once = min(jobs or len(waiting), number_of_workers(client))
        bar = Progress(waiting, done=len(outcome.done), at_once=at_once, show=progress)
        stack.enter_context(bar)
        if client is None:
            ends = _one_by_one(waiting, device=device, folder=home, on_start=bar.started)
        else:
            ends = spread(
                waiting, client, jobs=jobs, device=device, folder=home, on_start=bar.started
            )
        for e, error in ends:
            seconds, error = (None, error) if error else _seconds(e, home)
            if error:
                outcome.failed[e.id] = error
            else:
                outcome.done.append(e)
            bar.ended(e, seconds)
            on_end(e)
    return outcome


def default_jobs(device: torch.device) -> int:
    """One run per core, or per GPU."""
    return torch.cuda.device_count() if device.type == "cuda" else cores()


def sensible_workers(e: Experiment, device: str, engine: str) -> int:
    """How many processes a single run's peers are spread over: all cores, if it is worth it."""
    on_cpu = choose_device(device).type == "cpu" and engine != "stacked"
    return cores() if on_cpu and cost(e) > WORTH_WORKERS else 1


def _one_by_one(
    experiments: Sequence[Experiment],
    *,
    device: str,
    folder: Path,
    on_start: Callable[[Experiment], None],
) -> Iterator[tuple[Experiment, str]]:
    """Run experiments in this process; yields each as it ends, with its error if it failed."""
    for e in experiments:
        on_start(e)
        error = ""
        try:
            run(e, device=device, progress=False, folder=folder)
        except Exception:
            error = traceback.format_exc()
        yield e, error


def _seconds(e: Experiment, folder: Path) -> tuple[float | None, str]:
    """The seconds that a recorded run took, or why it has no record after all."""
    try:
        record = records.find(e, folder)
    except RecordError as error:
        return None, str(error)
    if record is None:
        return None, f"it ended, but there is no record of it in {folder}"
    return sum(map(sum, record.seconds.values())), ""
