"""Many runs: a grid of experiments, spread over local processes or an existing Dask cluster."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from importlib.metadata import entry_points
from itertools import product
from pathlib import Path
from typing import Any

from lff.attacks import get_attack
from lff.defenses.registry import ENTRY_POINTS, get_defense
from lff.errors import InputError, unknown
from lff.experiments import records
from lff.experiments.benchmarks import BENCHMARKS, Experiment
from lff.experiments.cluster import run_in_cluster
from lff.experiments.crew import check_address, hired
from lff.experiments.forecast import cost
from lff.experiments.monitor import Monitor, Outcome
from lff.experiments.runs import check_code, choose_device, experiment, tidy
from lff.experiments.scales import SCALES
from lff.experiments.workers import default_jobs, run_here, run_in_workers


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
    benchmarks, defenses, attackers, seeds = map(list, (benchmarks, defenses, attackers, seeds))
    if not seeds:
        raise InputError("seeds must name at least one seed, not []")
    experiments = []
    for benchmark in benchmarks or BENCHMARKS:
        cells = SCALES[scale].grid(benchmark)
        for defense, ratio, seed in product(
            defenses or cells.defenses, attackers or cells.ratios, seeds
        ):
            chosen = {"defense": defense, "attackers": ratio, "seed": seed, **settings}
            experiments.append(experiment(benchmark, scale=scale, **chosen))
    return experiments


def _travels(e: Experiment) -> bool:
    """Whether another process knows this experiment's defense and attack by their names."""
    if not e.user_code:
        return True
    entries = entry_points(group=ENTRY_POINTS)
    known = {"lff", *(entry.module.split(".")[0] for entry in entries)}
    modules = [get_defense(e.defense).factory.__module__, get_attack(e.attack).__module__]
    return {name.split(".")[0] for name in modules} <= known


def run_all(
    experiments: Sequence[Experiment],
    *,
    jobs: int | None = None,
    device: str = "auto",
    cluster: str | None = None,
    progress: bool | None = None,
    on_end: Callable[[Experiment], None] = lambda e: None,
    folder: Path | None = None,
) -> Outcome:
    """Run every experiment that has no record yet, `jobs` at a time, longest first.

    By default they are spread over processes of this machine, one per core; with the address of a
    Dask scheduler as `cluster` (`tcp://host:8786`), over its workers. Records appear in `folder`
    as each run ends, and `on_end` is told. A run whose worker crashes or is killed is tried once
    more. Experiments with a defense or attack of the caller's own run in this process, unless it
    comes from an installed package, which other processes can import.
    """
    if jobs is not None and (type(jobs) is not int or jobs < 1):
        raise InputError(f"jobs must be a whole number of at least 1, not {jobs!r}")
    if cluster is not None:
        check_address(cluster)
    tidy(folder)
    outcome = Outcome()
    waiting = []
    for e in dict.fromkeys(experiments):
        if records.find(e, folder) is None:
            check_code(e)
            waiting.append(e)
        else:
            outcome.done.append(e)
    waiting.sort(key=cost, reverse=True)
    here = [e for e in waiting if not _travels(e)]
    away = [e for e in waiting if _travels(e)]
    at_once = jobs or 1
    if cluster is None or here:
        chosen = choose_device(device)
        at_once = min(jobs or default_jobs(chosen), len(away))
    with ExitStack() as stack:
        crew = stack.enter_context(hired(cluster, device)) if cluster and away else None
        watched = Monitor(outcome, waiting, at_once=at_once, show=progress, on_end=on_end)
        monitor = stack.enter_context(watched)
        if crew:
            run_in_cluster(away, crew, jobs, folder, monitor)
        elif at_once > 1:
            run_in_workers(away, at_once, device, folder, monitor)
        else:
            here = away + here
        run_here(here, device, folder, monitor)
    return outcome
