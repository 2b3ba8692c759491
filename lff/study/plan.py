"""What each notebook asks for: its runs, and its looks inside a round.

The notebooks take their lists from here, and so does the study, which runs them beforehand and
can tell how much there is to do.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from operator import attrgetter

from lff.experiments.benchmarks import BENCHMARKS, Experiment
from lff.experiments.forecast import cost
from lff.study.notebook import DECLARED, Parameters
from lff.study.observations import middle, remembered
from lff.experiments.records import find, iterate
from lff.experiments.runs import experiment

CURVES = ("mnist-extreme", "cifar10-iid", "cifar10-mild")  # of the paper's Figure of Src-Acc
CURVES_RATIO = 30
TIMED_RATIO = 30  # which the claims about runtime are judged at

Runs = Callable[[Parameters], list[Experiment]]


def grid(p: Parameters) -> list[Experiment]:
    """The grid: every benchmark, attacker ratio and method."""
    return p.grid()


def tour(p: Parameters) -> list[Experiment]:
    """One attacked run without and with the defense."""
    return p.grid(benchmarks=["mnist-mild"], defenses=["fedavg", "lfighter"], attackers=[40])


def magnitudes(p: Parameters) -> list[Experiment]:
    """The runs whose gradient magnitudes the paper shows."""
    benchmarks = ["mnist-iid", "cifar10-mild"]
    return p.grid(benchmarks=benchmarks, defenses=["fedavg"], attackers=[10, 30])


def curves(p: Parameters) -> list[Experiment]:
    """The runs whose Src-Acc during training the paper shows, and FedAvg without attack."""
    benchmarks = p.benchmarks or CURVES
    attacked = p.grid(benchmarks=benchmarks, attackers=[CURVES_RATIO])
    return attacked + p.grid(benchmarks=benchmarks, defenses=["fedavg"], attackers=[0])


def evidence(p: Parameters) -> list[Experiment]:
    """The grid, and what other notebooks run beside it, as far as it was asked for."""
    shown = magnitudes(p) + curves(replace(p, benchmarks=[]))
    beside = [e for e in shown if _asked(p, e)]
    return together(grid(p), beside)


def timed(p: Parameters) -> list[Experiment]:
    """The runs whose aggregation is timed: the grid, but with the paper's ResNet18.

    Where the scale trains a narrower one, a few rounds of the whole at one ratio are enough, with
    two batches for each peer.
    """
    whole = {"width": 0, "examples": 1280, "test_examples": 500, "rounds": 3}
    return together(e.replace(attackers=TIMED_RATIO, **whole) if e.width else e for e in p.grid())


def together(*lists: Iterable[Experiment]) -> list[Experiment]:
    """Several lists of runs as one, each run once."""
    return list(dict.fromkeys(e for runs in lists for e in runs))


def in_every_seed(runs: Iterable[Experiment]) -> list[Experiment]:
    """These runs, and what is recorded of them in other seeds, by benchmark, ratio and seed."""
    asked = set(runs)
    cells = {e.replace(seed=0) for e in asked}
    scales = sorted({e.scale for e in asked})
    recorded = [record.experiment for scale in scales for record in iterate(scale=scale)]
    further = [e for e in recorded if e not in asked and e.replace(seed=0) in cells]
    order = list(BENCHMARKS)
    by_cell = attrgetter("attackers", "seed", "defense")
    return sorted([*asked, *further], key=lambda e: (order.index(e.benchmark), *by_cell(e)))


def in_peace(runs: Iterable[Experiment]) -> list[Experiment]:
    """The runs of LFighter without attack, and of FedAvg with the same seeds."""
    calm = [e for e in runs if e.attackers == 0 and e.defense in ("fedavg", "lfighter")]
    seeds = {(e.benchmark, e.seed) for e in calm if e.defense == "lfighter"}
    return [e for e in calm if (e.benchmark, e.seed) in seeds]


def with_papers_settings() -> list[Experiment]:
    """What is recorded of the paper's grid with exactly its settings, in any seed."""
    order = {cell: number for number, cell in enumerate(Parameters(scale="paper").grid())}
    recorded = [record.experiment for record in iterate(scale="paper")]
    exact = [e for e in recorded if e.replace(seed=0) in order]
    return sorted(exact, key=lambda e: (order[e.replace(seed=0)], e.seed))


def good_and_bad(p: Parameters) -> list[Experiment]:
    """A peer of CIFAR10-iid who trains honestly and with Cat relabelled as Dog.

    Always the paper's ResNet18: the table is about the size of a model.
    """
    settings = {"source_class": 3, "target_class": 5, "width": 0}
    return [experiment("cifar10-iid", scale=p.scale, seed=seed, **settings) for seed in p.seeds]


def views(p: Parameters, benchmark: str) -> list[Experiment]:
    """The attacked FedAvg runs whose updates are projected, one per seed."""
    ratio = 40 if benchmark == "mnist-extreme" else 30
    return [experiment(benchmark, attackers=ratio, scale=p.scale, seed=seed) for seed in p.seeds]


def tour_view(p: Parameters) -> Experiment:
    """The attacked run of the tour, of the first seed."""
    return tour(p)[0]


@dataclass(frozen=True)
class Plan:
    """The runs of a notebook, and the experiments of its observations by their kind."""

    runs: Runs = lambda p: []
    looks: tuple[tuple[str, Runs], ...] = ()


_VIEWED = ("mnist-iid", "cifar10-iid", "mnist-mild", "cifar10-mild", "mnist-extreme")

PLANS = {
    "00_tour": Plan(tour, (("components", lambda p: [tour_view(p)]),)),
    "01_setup": Plan(),
    "02_gradients": Plan(magnitudes, (("good_and_bad", good_and_bad),)),
    "03_pca": Plan(looks=(("components", lambda p: [e for b in _VIEWED for e in views(p, b)]),)),
    "04_robustness": Plan(grid),
    "05_stability": Plan(lambda p: grid(p) + curves(p)),
    "06_runtime": Plan(lambda p: together(grid(p), timed(p))),
    "07_paper_vs_ours": Plan(
        lambda p: together(evidence(p), timed(p)), (("good_and_bad", good_and_bad),)
    ),
}


def missing_runs(names: Iterable[str], p: Parameters) -> dict[Experiment, str]:
    """The runs these notebooks need that are not recorded, each with the first who needs it."""
    needed: dict[Experiment, str] = {}
    for name in names:
        for e in PLANS.get(name, Plan()).runs(p):
            needed.setdefault(e, name)
    return {e: name for e, name in needed.items() if find(e) is None}


def looking_seconds(name: str, p: Parameters) -> float:
    """About how long a notebook's observations take that are not remembered; with
    `compute = False` those of the grid make none."""
    if not p.compute and "compute" in DECLARED.get(name, ()):
        return 0.0
    looks = [(kind, e) for kind, of in PLANS.get(name, Plan()).looks for e in of(p)]
    missing = [e for kind, e in looks if not remembered(kind, e)]
    return sum(cost(e.replace(rounds=middle(e) + 1)) for e in missing)


def _asked(p: Parameters, e: Experiment) -> bool:
    """Whether an experiment is within the selection of the parameters."""
    chosen = ((p.benchmarks, e.benchmark), (p.defenses, e.defense), (p.ratios, e.attackers))
    return all(not names or name in names for names, name in chosen)
