"""The six benchmarks of the paper, and how to add one's own."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lff.errors import InputError
from lff.experiments.experiment import check_names
from lff.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A data set, its distribution among the peers, a model, and training settings.

    `data` and `model` are names of `lff`'s own, or functions: of a user's data set (see
    `lff.data.as_dataset` for what it may return) and of her freshly made `nn.Module`, whose
    `output_layer` she names or leaves to be found. `classes` is 0 if only the data can tell.
    `settings` are fields of `Experiment`, as scale `paper` has them.
    """

    name: str
    label: str
    data: str | Callable[[], Any]
    model: str | Callable[[], Any]
    output_layer: str = ""
    classes: int = 0
    task: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> tuple[Callable[..., Any], ...]:
        """The functions behind it."""
        return tuple(part for part in (self.data, self.model) if callable(part))

    @property
    def source_class(self) -> int:
        """The class that attackers relabel."""
        return int(self.settings["source_class"])

    @property
    def target_class(self) -> int:
        """The class that they call it."""
        return int(self.settings["target_class"])

    @property
    def distribution(self) -> str:
        """How the examples fall to the peers."""
        return str(self.settings.get("distribution", "iid"))

    @property
    def dataset(self) -> str:
        """The name of its data set; a user's goes by that of the benchmark."""
        return self.data if isinstance(self.data, str) else self.name


BENCHMARKS: Registry[Benchmark] = Registry("benchmark")


def benchmark(
    name: str,
    *,
    data: str | Callable[[], Any],
    model: str | Callable[[], Any],
    output_layer: str = "",
    label: str = "",
    classes: int = 0,
    task: str = "",
    **settings: Any,
) -> Benchmark:
    """Register a benchmark; `settings` are any fields of `Experiment` that it fixes.

    lff.benchmark("mine", data=load_mine, model=make_mine, distribution="mild", peers=50,
                  source_class=3, target_class=8, rounds=20)
    """
    check_names(settings)
    for needed in ("source_class", "target_class"):
        if needed not in settings:
            raise InputError(f"benchmark {name!r} needs a {needed}")
    made = Benchmark(
        name=name,
        label=label or name,
        data=data,
        model=model,
        output_layer=output_layer,
        classes=classes,
        task=task,
        settings=settings,
    )
    BENCHMARKS.add(made)
    return made


_MNIST: dict[str, Any] = {
    "data": "mnist",
    "model": "cnn",
    "output_layer": "fc2",
    "classes": 10,
    "task": "image classification",
    "source_class": 7,
    "target_class": 1,
    "peers": 100,
    "rounds": 200,
    "local_epochs": 3,
    "batch_size": 64,
    "learning_rate": 0.001,
}
_CIFAR10: dict[str, Any] = {
    "data": "cifar10",
    "model": "resnet18",
    "output_layer": "fc",
    "classes": 10,
    "task": "image classification",
    "source_class": 5,  # Dog
    "target_class": 3,  # Cat
    "peers": 20,
    "rounds": 100,
    "local_epochs": 3,
    "batch_size": 32,
    "learning_rate": 0.01,
}
_IMDB: dict[str, Any] = {
    "data": "imdb",
    "model": "bilstm",
    "output_layer": "output",
    "classes": 2,
    "task": "sentiment analysis",
    "source_class": 1,  # positive
    "target_class": 0,  # negative
    "peers": 20,
    "rounds": 50,
    "local_epochs": 1,
    "batch_size": 32,
    "learning_rate": 0.001,
    "optimizer": "adam",
    "momentum": 0.0,
    "weight_decay": 0.0,
}


benchmark("mnist-iid", label="MNIST-iid", distribution="iid", **_MNIST)
benchmark("mnist-mild", label="MNIST-Mild", distribution="mild", **_MNIST)
benchmark("mnist-extreme", label="MNIST-Extreme", distribution="extreme", **_MNIST)
benchmark("cifar10-iid", label="CIFAR10-iid", distribution="iid", **_CIFAR10)
benchmark("cifar10-mild", label="CIFAR10-Mild", distribution="mild", **_CIFAR10)
benchmark("imdb", label="IMDB", distribution="iid", **_IMDB)
PAPER_BENCHMARKS = tuple(BENCHMARKS.entries)
