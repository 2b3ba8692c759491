"""What every notebook of the study starts with: its parameters, checked."""

import hashlib
import json
from dataclasses import dataclass, field, fields
from typing import Any

from lff.benchmarks import BENCHMARKS, Experiment
from lff.defenses import get_defense
from lff.errors import InputError, unknown
from lff.runs import DEVICES
from lff.scales import SCALES
from lff.sweep import grid

_IPYTHON = ("In", "Out", "exit", "quit", "open")
_CHECKED = "_lff_parameters_checked"


@dataclass(frozen=True)
class Parameters:
    """The parameters of a notebook; an empty list means what the scale runs."""

    scale: str = "smoke"
    seeds: list[int] = field(default_factory=lambda: [0])
    device: str = "auto"
    benchmarks: list[str] = field(default_factory=list)
    defenses: list[str] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    def __post_init__(self):
        _one_of("scale", self.scale, SCALES)
        _one_of("device", self.device, DEVICES)
        for name in ("seeds", "benchmarks", "defenses", "ratios"):
            if not isinstance(getattr(self, name), list):
                raise InputError(f"{name} must be a list, not {getattr(self, name)!r}")
        if not self.seeds:
            raise InputError("seeds must name at least one seed, not []")
        for benchmark in self.benchmarks:
            _one_of("benchmark", benchmark, BENCHMARKS)
        for defense in self.defenses:
            get_defense(defense)

    @property
    def products(self) -> str:
        """The folder of figures and tables: the scale's, or one of its own for a selection."""
        chosen = [self.benchmarks, self.defenses, self.ratios]
        if not any(chosen):
            return self.scale
        digest = hashlib.sha256(json.dumps(chosen).encode()).hexdigest()[:8]
        return f"{self.scale}/selection-{digest}"

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


def parameters(namespace: dict[str, Any]) -> Parameters:
    """The notebook's parameters from its `globals()`, refusing names no notebook knows.

    papermill injects whatever it is given and only warns, so a mistyped `-p benchmark x` would
    run the wrong study. Only the first call in a session looks for such names: later the
    notebook has variables of its own.
    """
    known = [f.name for f in fields(Parameters)]
    if not namespace.get(_CHECKED):
        for name, value in namespace.items():
            plain = isinstance(value, str | int | float | list | None)
            if plain and not name.startswith("_") and name not in (*known, *_IPYTHON):
                raise unknown("parameter", name, known)
    namespace[_CHECKED] = True
    return Parameters(**{name: _decoded(namespace[name]) for name in known if name in namespace})


def _decoded(value: object) -> object:
    """A list that came as text: `papermill -p seeds '[1, 2]'` passes it so."""
    if isinstance(value, str) and value.startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _one_of(kind: str, value: object, choices) -> None:
    if value not in choices:
        raise unknown(kind, value, choices)
