"""The six benchmarks of the paper, and the `Experiment` that names one run."""

import hashlib
import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from lff.errors import InputError, unknown
from lff.experiments.scales import SCALES
from lff.partition import DISTRIBUTIONS

OPTIMIZERS = ("sgd", "adam")  # of local training

PAPER_WIDTH = 64  # channels of ResNet18's first layer

# Which numbers a run gives: raised by every purposeful change of them (`tests/golden.json` holds
# them). It is part of an experiment's id, so that no record of other numbers is taken for its own.
ARITHMETIC = 2


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A data set, its distribution among the peers, and the paper's training settings."""

    name: str
    label: str
    dataset: str
    classes: int
    model: str
    distribution: str
    source_class: int
    target_class: int
    settings: dict[str, Any]  # of `Experiment`, at `paper` scale


_MNIST = {
    "dataset": "mnist",
    "classes": 10,
    "model": "cnn",
    "source_class": 7,
    "target_class": 1,
    "settings": {
        "peers": 100,
        "rounds": 200,
        "local_epochs": 3,
        "batch_size": 64,
        "learning_rate": 0.001,
    },
}
_CIFAR10 = {
    "dataset": "cifar10",
    "classes": 10,
    "model": "resnet18",
    "source_class": 5,  # Dog
    "target_class": 3,  # Cat
    "settings": {
        "peers": 20,
        "rounds": 100,
        "local_epochs": 3,
        "batch_size": 32,
        "learning_rate": 0.01,
    },
}
_IMDB = {
    "dataset": "imdb",
    "classes": 2,
    "model": "bilstm",
    "source_class": 1,  # positive
    "target_class": 0,  # negative
    "settings": {
        "peers": 20,
        "rounds": 50,
        "local_epochs": 1,
        "batch_size": 32,
        "learning_rate": 0.001,
        "optimizer": "adam",
        "momentum": 0.0,
        "weight_decay": 0.0,
    },
}

BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(name="mnist-iid", label="MNIST-iid", distribution="iid", **_MNIST),
        Benchmark(name="mnist-mild", label="MNIST-Mild", distribution="mild", **_MNIST),
        Benchmark(name="mnist-extreme", label="MNIST-Extreme", distribution="extreme", **_MNIST),
        Benchmark(name="cifar10-iid", label="CIFAR10-iid", distribution="iid", **_CIFAR10),
        Benchmark(name="cifar10-mild", label="CIFAR10-Mild", distribution="mild", **_CIFAR10),
        Benchmark(name="imdb", label="IMDB", distribution="iid", **_IMDB),
    )
}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One run, named by everything that can change its result.

    All fields are JSON scalars. `attackers` is the attacker ratio in percent; `fraction` the C of
    Algorithm 1; `examples`, `test_examples` and `vocabulary` are 0 for all there are, and `width`,
    the channels of ResNet18's first layer, is 0 for the paper's 64. `defense_options` is the
    canonical text of the defense's options, and `user_code` a fingerprint of a defense or attack
    that is not part of this package.

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

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            whole = field.type is float and type(value) is int
            if not whole and type(value) is not field.type:
                raise InputError(f"{field.name} must be {_article(field.type)}, not {value!r}")
        for name, choices in _choices().items():
            if getattr(self, name) not in choices:
                raise unknown(name, getattr(self, name), choices)
        highest_class = BENCHMARKS[self.benchmark].classes - 1
        classes = dict.fromkeys(("source_class", "target_class"), (0, highest_class))
        for name, (low, high) in {**_RANGES, **classes}.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(_range_message(name, getattr(self, name), low, high))
        for field in fields(self):
            if field.type is float:  # 40 and 40.0 are the same experiment
                object.__setattr__(self, field.name, float(getattr(self, field.name)))
        model = BENCHMARKS[self.benchmark].model
        if self.width and model != "resnet18":
            raise InputError(
                f"width must be 0, not {self.width}, for {self.benchmark}, whose model is {model}"
            )
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
        return {name: value for name, value in asdict(self).items() if value != defaults[name]}

    def replace(self, **changes: Any) -> "Experiment":
        """The same experiment with some fields changed."""
        _check_names(changes)
        return replace(self, **changes)


def experiment(benchmark: str, *, scale: str = "quick", **settings: Any) -> Experiment:
    """The experiment of a benchmark at a scale, with any field of `Experiment` set otherwise."""
    if benchmark not in list(BENCHMARKS):
        raise unknown("benchmark", benchmark, BENCHMARKS)
    if scale not in list(SCALES):
        raise unknown("scale", scale, SCALES)
    _check_names(settings)
    known = BENCHMARKS[benchmark]
    sizes = SCALES[scale].sizes
    defaults = {
        "defense": "fedavg",
        "attackers": 0,
        "seed": 0,
        "distribution": known.distribution,
        "source_class": known.source_class,
        "target_class": known.target_class,
    }
    return Experiment(
        benchmark=benchmark,
        scale=scale,
        **{
            **defaults,
            **known.settings,
            **sizes.get(known.dataset, {}),
            **sizes.get(benchmark, {}),
            **settings,
        },
    )


_RANGES = {
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
}


def _choices() -> dict[str, list[str]]:
    return {
        "benchmark": list(BENCHMARKS),
        "scale": list(SCALES),
        "data": ["real", "embedded"],
        "distribution": list(DISTRIBUTIONS),
        "optimizer": list(OPTIMIZERS),
    }


def _check_names(settings: dict[str, Any]) -> None:
    names = [field.name for field in fields(Experiment)]
    for name in settings:
        if name not in names:
            raise unknown("setting", name, names)


def _article(kind: type) -> str:
    return {int: "a whole number", float: "a number", str: "a text"}[kind]


def _range_message(name: str, value: float, low: float, high: float) -> str:
    unit = " percent" if name == "attackers" else ""
    return f"{name} must be between {low:g} and {high:g}{unit}, not {value!r}"
