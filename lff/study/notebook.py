"""What every notebook of the study starts with: its parameters, checked."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from lff.experiments.benchmarks import BENCHMARKS, Experiment
from lff.defenses import defenses
from lff.errors import InputError, unknown
from lff.experiments.records import find, results
from lff.experiments.runs import DEVICES
from lff.experiments.scales import SCALES
from lff.experiments.sweep import Outcome, grid, run_all

_RUN = ("scale", "seeds", "device")
_GRID = (*_RUN, "benchmarks", "defenses", "ratios", "compute")

# What the cell tagged `parameters` of each notebook declares.
DECLARED = {
    "00_tour": _RUN,
    "01_setup": ("scale", "seeds"),
    "02_gradients": _RUN,
    "03_pca": _RUN,
    "04_robustness": _GRID,
    "05_stability": _GRID,
    "06_runtime": _GRID,
    "07_paper_vs_ours": _GRID,
}

_IPYTHON = ("In", "Out", "exit", "quit", "open")
_CHECKED = "_lff_parameters_checked"


@dataclass(frozen=True)
class Parameters:
    """The parameters of a notebook; an empty list means what the scale runs.

    With `compute = False` a notebook of the grid runs nothing: it shows what is recorded, and
    the gaps.
    """

    scale: str = "smoke"
    seeds: list[int] = field(default_factory=lambda: [0])
    device: str = "auto"
    benchmarks: list[str] = field(default_factory=list)
    defenses: list[str] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    compute: bool = True

    def __post_init__(self):
        _one_of("scale", self.scale, SCALES)
        _one_of("device", self.device, DEVICES)
        for name in ("seeds", "benchmarks", "defenses", "ratios"):
            _check_list(name, getattr(self, name))
        if not self.seeds:
            raise InputError("seeds must name at least one seed, not []")
        for seed in self.seeds:
            if type(seed) is not int or seed < 0:
                raise InputError(f"seeds must be whole numbers of at least 0, not {seed!r}")
        for benchmark in self.benchmarks:
            _one_of("benchmark", benchmark, BENCHMARKS)
        for defense in self.defenses:
            _one_of("defense", defense, defenses())
        for ratio in self.ratios:
            if type(ratio) not in (int, float) or not 0 <= ratio <= 100:
                raise InputError(f"ratios must be between 0 and 100 percent, not {ratio!r}")
        if not isinstance(self.compute, bool):
            raise InputError(f"compute must be True or False, not {self.compute!r}")

    @property
    def products(self) -> str:
        """The folder of figures and tables: the scale's, or for other seeds than 0 and for a
        selection one of its own, so that they do not replace those of the whole study."""
        parts = [self.scale]
        if self.seeds != [0]:
            parts.append("-".join(["seeds", *map(str, self.seeds)]))
        chosen = [self.benchmarks, self.defenses, self.ratios]
        if any(chosen):
            digest = hashlib.sha256(json.dumps(chosen).encode()).hexdigest()[:8]
            parts.append(f"selection-{digest}")
        return "/".join(parts)

    def grid(self, **settings: Any) -> list[Experiment]:
        """The experiments these parameters ask for; `settings` go before them."""
        chosen = {
            "benchmarks": self.benchmarks,
            "defenses": self.defenses,
            "attackers": self.ratios,
            "seeds": self.seeds,
            "scale": self.scale,
        }
        return grid(**{**chosen, **settings})

    def run(self, experiments: Sequence[Experiment]) -> Outcome:
        """Run what has no record yet, or, with `compute = False`, only say what has one."""
        if self.compute:
            return run_all(experiments, device=self.device)
        done = [e for e in dict.fromkeys(experiments) if find(e) is not None]
        if not done:
            raise InputError(
                f"none of the {len(experiments)} runs is recorded at scale {self.scale!r}; "
                "with compute = True they are run"
            )
        return Outcome(done=done)

    def results(self, experiments: Sequence[Experiment]) -> pd.DataFrame:
        """One row per recorded run; with `compute = False` nobody wonders that some are not."""
        return results(experiments, warn=self.compute)


def parameters(namespace: dict[str, Any], notebook: str) -> Parameters:
    """The parameters of this notebook from its `globals()`, refusing those it does not declare.

    papermill injects whatever it is given and only warns, so a mistyped `-p benchmark x` would
    run the wrong study. Only the first call in a session looks for such names: later the
    notebook has variables of its own.
    """
    declared = DECLARED[notebook]
    if not namespace.get(_CHECKED):
        for name, value in namespace.items():
            given = isinstance(value, str | int | float | list | dict | None)
            given &= not name.startswith("_") and not name.isupper()  # an imported constant
            if given and name not in (*declared, *_IPYTHON):
                raise unknown(f"parameter of {notebook}", name, declared)
    namespace[_CHECKED] = True
    return Parameters(**{name: _decoded(namespace[name]) for name in declared if name in namespace})


def _decoded(value: object) -> object:
    """A list that came as text: `papermill -p seeds '[1, 2]'` passes it so."""
    if isinstance(value, str) and value.startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _check_list(name: str, value: object) -> None:
    if not isinstance(value, list):
        raise InputError(f"{name} must be a list, not {value!r}")
    if len(set(map(str, value))) < len(value):
        raise InputError(f"{name} must not repeat itself: {value!r}")


def _one_of(kind: str, value: object, choices: Iterable[str]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise unknown(kind, value, choices)
