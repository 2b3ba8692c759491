"""How much of the paper's compute a run spends, and the experiments of a benchmark at a scale.

A scale changes sizes only (examples, peers, rounds, local epochs, batches, words, ResNet18's width,
and the learning rate where the number of rounds forces it), never the method.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from lff.errors import InputError, unknown
from lff.experiments.benchmarks import BENCHMARKS, PAPER_BENCHMARKS
from lff.experiments.experiment import Experiment, check_names
from lff.registry import format_options, parse_options

ATTACKER_RATIOS = (0, 10, 20, 30, 40, 50)  # percent
PAPER_DEFENSES = (
    "fedavg",
    "median",
    "repeated_median",
    "trimmed_mean",
    "multi_krum",
    "foolsgold",
    "lfighter",
)


@dataclass(frozen=True)
class Grid:
    """Which cells of a benchmark's grid the study runs."""

    ratios: tuple[int, ...] = ATTACKER_RATIOS
    defenses: tuple[str, ...] = PAPER_DEFENSES


@dataclass(frozen=True)
class Scale:
    """What a scale changes, by data set or, where one differs, by benchmark."""

    about: str
    sizes: dict[str, dict[str, Any]] = field(default_factory=dict)
    grids: dict[str, Grid] = field(default_factory=dict)

    def grid(self, benchmark: str) -> Grid:
        """The cells this scale runs of a benchmark: all, unless it says otherwise."""
        return self.grids.get(benchmark) or self.grids.get(benchmark.split("-")[0], Grid())


_EMBEDDED = {"data": "embedded"}
_TINY = {
    "cifar10": _EMBEDDED
    | {
        "peers": 10,
        "examples": 80,
        "test_examples": 50,
        "rounds": 2,
        "local_epochs": 1,
        "batch_size": 8,
        "width": 8,
    },
    "imdb": _EMBEDDED
    | {
        "peers": 10,
        "examples": 160,
        "test_examples": 100,
        "rounds": 2,
        "vocabulary": 500,
    },
}
_TWO = Grid(ratios=(0, 30), defenses=("fedavg", "lfighter"))
_THIRTY = {"mnist": Grid(ratios=(0, 30)), "cifar10": _TWO, "imdb": _TWO}
_FIVE = Grid(ratios=(0, 40), defenses=("fedavg", "median", "multi_krum", "foolsgold", "lfighter"))

SCALES: dict[str, Scale] = {
    "smoke": Scale(
        "every step once, in seconds",
        sizes={
            "mnist": _EMBEDDED
            | {
                "peers": 20,
                "examples": 1000,
                "test_examples": 500,
                "rounds": 3,
                "local_epochs": 1,
                "batch_size": 16,
                "learning_rate": 0.05,
            },
            "mnist-extreme": {"peers": 50},
            **_TINY,
        },
        grids=_THIRTY | {"mnist": _TWO, "mnist-mild": Grid(ratios=(0, 30))},
    ),
    "small": Scale(
        "hundreds of runs of MNIST to compare, a few seconds each; the others as in smoke",
        # Found with FedAvg alone: docs/decisions.md tells what was tried.
        sizes={
            "mnist": _EMBEDDED
            | {
                "peers": 30,
                "examples": 2400,
                "test_examples": 500,
                "rounds": 8,
                "local_epochs": 1,
                "batch_size": 16,
                "learning_rate": 0.05,
            },
            **_TINY,
        },
        grids=_THIRTY,
    ),
    "quick": Scale(
        "the paper's effects on small images and reviews, in minutes",
        # Found with FedAvg alone, for its Src-Acc without and with attack: docs/decisions.md.
        sizes={
            "mnist": _EMBEDDED
            | {
                "peers": 20,
                "examples": 3000,
                "rounds": 9,
                "local_epochs": 1,
                "batch_size": 32,
                "learning_rate": 0.05,
            },
            "mnist-mild": {"rounds": 7},
            # One class per peer drifts apart: one step a round, of all her examples.
            "mnist-extreme": {
                "peers": 50,
                "examples": 2000,
                "rounds": 34,
                "batch_size": 128,
                "learning_rate": 0.12,
            },
            # 2,980 images leave no peer of seeds 0 to 4 a last batch of two or three.
            "cifar10": _EMBEDDED
            | {
                "peers": 5,
                "examples": 2980,
                "test_examples": 500,
                "rounds": 8,
                "local_epochs": 1,
                "learning_rate": 0.03,
                "width": 16,
            },
            "imdb": _EMBEDDED
            | {
                "peers": 5,
                "examples": 2400,
                "test_examples": 500,
                "rounds": 6,
                "vocabulary": 2000,
                "batch_size": 16,
                "learning_rate": 0.01,
            },
        },
        # All cells of MNIST-Mild, whose ratios and methods are compared; elsewhere the main ones.
        grids={"mnist": _FIVE, "mnist-mild": Grid(), "cifar10": _FIVE, "imdb": _FIVE},
    ),
    "laptop": Scale(
        "the real data sets on two cores, in a night or two",
        sizes={
            "mnist": {"rounds": 12, "learning_rate": 0.01},
            # Schedules are found with FedAvg alone: docs/decisions.md tells what was tried.
            # One class per peer drifts apart: at 0.001 Src-Acc swings from round 70 on.
            "mnist-extreme": {"rounds": 160, "local_epochs": 1, "learning_rate": 0.0005},
            # A quarter of ResNet18's channels train eight times as fast.
            "cifar10": {"rounds": 32, "local_epochs": 1, "width": 16},
            # Few rounds need a larger learning rate than the paper's.
            "imdb": {
                "examples": 10000,
                "test_examples": 5000,
                "rounds": 12,
                "vocabulary": 10000,
                "learning_rate": 0.003,
            },
        },
    ),
    "paper": Scale("the paper's settings exactly, on a GPU"),
}


def experiment(
    benchmark: str,
    *,
    scale: str = "quick",
    defense_options: Mapping[str, Any] | str = "",
    attack_options: Mapping[str, Any] | str = "",
    hooks: Sequence[str] = "",
    **settings: Any,
) -> Experiment:
    """The experiment of a benchmark at a scale, with any field of `Experiment` set otherwise."""
    known = BENCHMARKS[benchmark]
    if scale not in list(SCALES):
        raise unknown("scale", scale, SCALES)
    check_names(settings)
    if not isinstance(hooks, str | list | tuple):
        raise InputError(f"hooks must be a list of names, not {hooks!r}")
    sizes = SCALES[scale].sizes
    e = Experiment(
        benchmark=benchmark,
        scale=scale,
        defense_options=format_options(parse_options(defense_options)),
        attack_options=format_options(parse_options(attack_options)),
        hooks=hooks if isinstance(hooks, str) else ",".join(map(str, hooks)),
        **{
            **_DEFAULTS,
            **known.settings,
            **sizes.get(known.dataset, {}),
            **sizes.get(benchmark, {}),
            **settings,
        },
    )
    return checked(e, name_code=True)


# Of a user's own benchmark, where it says nothing else.
_DEFAULTS: dict[str, Any] = {
    "defense": "fedavg",
    "attackers": 0,
    "seed": 0,
    "distribution": "iid",
    "rounds": 20,
    "peers": 20,
    "local_epochs": 1,
    "batch_size": 32,
    "learning_rate": 0.01,
}


def checked(e: Experiment, *, name_code: bool = False) -> Experiment:
    """The experiment, whose names and options are known here.

    A user's own code is fingerprinted, so that a changed cell is another experiment: with
    `name_code` the fingerprint is set, otherwise one that differs is refused.
    """
    from lff.attacks import ATTACKS
    from lff.defenses import DEFENSES
    from lff.experiments.code import user_code
    from lff.experiments.hooks import HOOKS

    if e.scale not in list(SCALES):
        raise unknown("scale", e.scale, SCALES)
    known = BENCHMARKS[e.benchmark]
    DEFENSES[e.defense].check(parse_options(e.defense_options))
    ATTACKS[e.attack].check(parse_options(e.attack_options))
    for name in filter(None, e.hooks.split(",")):
        HOOKS[name]
    for name in ("source_class", "target_class"):
        if known.classes and not 0 <= getattr(e, name) < known.classes:
            highest = known.classes - 1
            raise InputError(f"{name} must be between 0 and {highest}, not {getattr(e, name)}")
    if e.width and known.model != "resnet18":
        raise InputError(
            f"width must be 0, not {e.width}, for {e.benchmark}, whose model is "
            f"{known.model if isinstance(known.model, str) else 'your own'}"
        )
    code = user_code(e)
    if name_code:
        return e.replace(user_code=code)
    if e.user_code != code:
        raise InputError(
            f"the code that {e.id} names is not what it was named for: make the experiment again "
            "with lff.experiment(...)"
        )
    return e


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
    lists = {
        "benchmarks": benchmarks,
        "defenses": defenses,
        "attackers": attackers,
        "seeds": seeds,
    }
    for name, value in lists.items():
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise InputError(f"{name} must be a list, not {value!r}")
    asked: dict[str, list[Any]] = {name: list(value) for name, value in lists.items()}
    if not asked["seeds"]:
        raise InputError("seeds must name at least one seed, not []")
    experiments = []
    for benchmark in asked["benchmarks"] or PAPER_BENCHMARKS:
        cells = SCALES[scale].grid(BENCHMARKS[benchmark].name)
        for defense, ratio, seed in product(
            asked["defenses"] or cells.defenses, asked["attackers"] or cells.ratios, asked["seeds"]
        ):
            chosen = {"defense": defense, "attackers": ratio, "seed": seed, **settings}
            experiments.append(experiment(benchmark, scale=scale, **chosen))
    return experiments
