"""How much of the paper's compute a run spends: sizes, and how much of the grid is run.

A scale changes sizes only (examples, peers, rounds, local epochs, batches, words, ResNet18's width,
and the learning rate where the number of rounds forces it), never the method.
"""

from dataclasses import dataclass, field
from typing import Any

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
        return self.grids.get(benchmark.split("-")[0], Grid())


_EMBEDDED = {"data": "embedded"}

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
            "cifar10": _EMBEDDED
            | {
                "peers": 10,
                "examples": 80,
                "test_examples": 50,
                "rounds": 2,
                "local_epochs": 1,
                "batch_size": 8,
            },
            "imdb": _EMBEDDED
            | {
                "peers": 10,
                "examples": 160,
                "test_examples": 100,
                "rounds": 2,
                "vocabulary": 500,
            },
        },
        grids={
            "mnist": Grid(ratios=(0, 30)),
            "cifar10": Grid(ratios=(0, 30), defenses=("fedavg", "lfighter")),
            "imdb": Grid(ratios=(0, 30), defenses=("fedavg", "lfighter")),
        },
    ),
    "quick": Scale(
        "the paper's effects on MNIST images, in minutes",
        sizes={
            "mnist": _EMBEDDED
            | {"peers": 50, "batch_size": 16, "learning_rate": 0.02, "rounds": 10},
            "mnist-iid": {"rounds": 6},
            # One class per peer drifts apart fast: small full-batch steps, but many of them.
            "mnist-extreme": {
                "local_epochs": 6,
                "batch_size": 128,
                "learning_rate": 0.01,
                "rounds": 6,
            },
            "cifar10": _EMBEDDED
            | {"peers": 10, "examples": 200, "test_examples": 100, "rounds": 4, "local_epochs": 1},
            "imdb": _EMBEDDED
            | {
                "peers": 10,
                "examples": 1000,
                "test_examples": 500,
                "rounds": 4,
                "vocabulary": 2000,
            },
        },
        grids={
            "mnist": Grid(ratios=(0, 40)),
            "cifar10": Grid(ratios=(0, 30)),
            "imdb": Grid(ratios=(0, 30)),
        },
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
