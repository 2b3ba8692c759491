"""`Experiment`: one run, named by everything that can change its result."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from lff.errors import InputError, unknown
from lff.partition import DISTRIBUTIONS

PAPER_WIDTH = 64  # channels of ResNet18's first layer

# Which numbers a run gives: raised by every purposeful change of them (`tests/golden.json` holds
# them). It is part of an experiment's id, so that no record of other numbers is taken for its own.
ARITHMETIC = 2

RANGES: dict[str, tuple[float, float]] = {
    "attackers": (0, 100),
    "seed": (0, 2**31 - 1),
    "alpha": (1e-3, 1e6),
    "peers": (1, 100_000),
    "fraction": (0, 1),
    "examples": (0, 10**9),
    "test_examples": (0, 10**9),
    "vocabulary": (0, 10**9),
    "width": (0, 1024),
    "rounds": (1, 100_000),
    "local_epochs": (1, 1000),
    "batch_size": (1, 10**6),
    "learning_rate": (1e-9, 1e3),
    "momentum": (0, 1),
    "weight_decay": (0, 1),
    "source_class": (0, 10**6),
    "target_class": (0, 10**6),
}
CHOICES = {
    "data": ("real", "embedded"),
    "distribution": DISTRIBUTIONS,
    "optimizer": ("sgd", "adam"),
}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One run, named by everything that can change its result.

    All fields are JSON scalars. `attackers` is the attacker ratio in percent; `fraction` the C of
    Algorithm 1; `examples`, `test_examples` and `vocabulary` are 0 for all there are, and `width`,
    the channels of ResNet18's first layer, is 0 for the paper's 64. `defense_options` and
    `attack_options` are canonical texts of options, `hooks` are names with commas between, and
    `user_code` is a fingerprint of all that is named here and not part of this package.

    Defaults never change, and a field that comes later has one that means what held before: the id
    leaves them out, and earlier records keep theirs.
    """

    benchmark: str
    scale: str
    defense: str
    attackers: float
    seed: int
    distribution: str
    peers: int
    rounds: int
    local_epochs: int
    batch_size: int
    learning_rate: float
    source_class: int
    target_class: int
    data: str = "real"
    alpha: float = 1.0
    fraction: float = 1.0
    examples: int = 0
    test_examples: int = 0
    vocabulary: int = 0
    width: int = 0
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 5e-4
    attack: str = "label_flipping"
    defense_options: str = ""
    user_code: str = ""
    attack_options: str = ""
    hooks: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            whole = field.type is float and type(value) is int
            if not whole and type(value) is not field.type:
                raise InputError(f"{field.name} must be {_ARTICLES[field.type]}, not {value!r}")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise unknown(name, getattr(self, name), choices)
        for name, (low, high) in RANGES.items():
            if not low <= getattr(self, name) <= high:
                unit = " percent" if name == "attackers" else ""
                raise InputError(
                    f"{name} must be between {low:g} and {high:g}{unit}, "
                    f"not {getattr(self, name)!r}"
                )
        for field in fields(self):  # 40 and 40.0 are the same experiment
            if field.type is float:
                object.__setattr__(self, field.name, float(getattr(self, field.name)))
        if self.width == PAPER_WIDTH:
            object.__setattr__(self, "width", 0)
        if not self.defense.isidentifier():  # it is part of file names
            raise InputError(f"defense must be a Python identifier, not {self.defense!r}")
        if self.source_class == self.target_class:
            raise InputError(
                f"source_class and target_class are both {self.source_class}; they must differ"
            )

    @property
    def id(self) -> str:
        """A readable prefix, and a hash of the arithmetic and of what differs from the defaults."""
        text = json.dumps({"arithmetic": ARITHMETIC, **self.settings()}, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        return f"{self.benchmark}_{self.defense}_{self.attackers:g}_seed{self.seed}_{digest}"

    def settings(self) -> dict[str, Any]:
        """The fields that differ from their defaults."""
        defaults = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in vars(self).items() if value != defaults[name]}

    def replace(self, **changes: Any) -> "Experiment":
        """The same experiment with some fields changed."""
        check_names(changes)
        return replace(self, **changes)


_ARTICLES: dict[Any, str] = {int: "a whole number", float: "a number", str: "a text"}


def check_names(settings: Iterable[str]) -> None:
    """Refuse names that are no fields of `Experiment`."""
    names = [field.name for field in fields(Experiment)]
    for name in settings:
        if name not in names:
            raise unknown("setting", name, names)
