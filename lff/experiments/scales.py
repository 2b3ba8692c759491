"""How much of the paper's compute a run spends, and the experiments of a benchmark at a scale.

A scale changes sizes only (examples, peers, rounds, local epochs, batches, words, ResNet18's width,
and the learning rate where the number of rounds forces it), never the method.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
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

    ratios: Sequence[int] = ATTACKER_RATIOS
    defenses: Sequence[str] = PAPER_DEFENSES


@dataclass(frozen=True)
class Scale:
    """What a scale changes, by data set or, where one differs, by benchmark: see `scales.toml`."""

    about: str
    sizes: dict[str, dict[str, Any]] = field(default_factory=dict)
    grids: dict[str, Grid] = field(default_factory=dict)

    def grid(self, benchmark: str) -> Grid:
        """The cells this scale runs of a benchmark: all, unless it says otherwise."""
        return self.grids.get(benchmark) or self.grids.get(benchmark.split("-")[0], Grid())


def _read_scales() -> dict[str, Scale]:
    told = tomllib.loads(Path(__file__).with_name("scales.toml").read_text(encoding="utf-8"))
    return {
        name: Scale(
            scale["about"],
            scale.get("sizes", {}),
            {which: Grid(**cells) for which, cells in scale.get("grids", {}).items()},
        )
        for name, scale in told.items()
    }


SCALES = _read_scales()


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
