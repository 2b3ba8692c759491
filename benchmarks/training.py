"""Local training: a round of each model against the textbook loop, and against the machine."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import textbook
from benchmarks.common import Report, side_by_side, threads
from lff.fast.engines import Loop, Stacked, Workers
from lff.models import CNN, OUTPUT_LAYER, FlatModel, build
from lff.training import LocalTraining, Peer

CORES = 2
CNN_FLOP = 2.6e6  # per example, forward and backward
LIMIT_SIZE = 1024  # of the square matrices whose product is the machine's rate


@dataclass(frozen=True)
class Round:
    """Synthetic examples in the shape of a benchmark's, and how its peers train on them."""

    title: str
    model: str
    peers: int
    examples: int  # of each peer
    training: LocalTraining
    vocabulary: int = 0
    repeats: int = 3

    def data(self) -> tuple[Any, Tensor, list[Peer]]:
        """Examples as stored (pixels or word ids), as tensors, and the peers who hold them."""
        rng = np.random.default_rng(0)
        total = self.peers * self.examples
        if self.model == "bilstm":
            # Words as frequent as in real text: the k-th most frequent has a share of 1/k.
            ranks = np.exp(rng.uniform(0, np.log(self.vocabulary), (total, 128)))
            stored = torch.from_numpy(ranks.astype(np.int64) % self.vocabulary)
            x, classes = stored, 2
        else:
            shape = (28, 28) if self.model == "cnn" else (32, 32, 3)
            stored = rng.integers(0, 256, (total, *shape), dtype=np.uint8)
            x = torch.from_numpy(stored).float().div(255).sub(0.5).div(0.25)
            x = x.unsqueeze(1) if self.model == "cnn" else x.permute(0, 3, 1, 2).contiguous()
            classes = 10
        y = torch.from_numpy(rng.integers(0, classes, total))
        peers = []
        for k in range(self.peers):
            own = torch.arange(k * self.examples, (k + 1) * self.examples)
            peers.append(Peer(k, own, y[own]))
        return stored, x, peers

    @property
    def passes(self) -> int:
        """Examples trained on in the round."""
        return self.peers * self.examples * self.training.local_epochs


MNIST = Round(
    "MNIST-iid, a whole round: CNN, 100 peers x 600 examples x 3 epochs, batch 64",
    "cnn",
    100,
    600,
    LocalTraining(local_epochs=3, batch_size=64, learning_rate=0.001),
    repeats=2,
)
CIFAR10 = Round(
    "CIFAR10, a part of a round: ResNet18, 4 peers x 160 examples x 1 epoch, batch 32",
    "resnet18",
    4,
    160,
    LocalTraining(local_epochs=1, batch_size=32, learning_rate=0.01),
)
IMDB = Round(
    "IMDB, a part of a round: BiLSTM, 4 peers x 320 reviews x 1 epoch, batch 32, 124,254 words",
    "bilstm",
    4,
    320,
    LocalTraining(
        local_epochs=1, batch_size=32, learning_rate=0.001, optimizer="adam", weight_decay=0.0
    ),
    vocabulary=124_254,
)


def run(quick: bool = False) -> Report:
    """Measure the three models; `quick` only tries every step."""
    report = Report("training")
    for benchmark in (MNIST, CIFAR10, IMDB):
        if quick:
            benchmark = replace(benchmark, peers=2, examples=8)
        rows = compare(benchmark, passes=1 if quick else benchmark.repeats)
        report.tables[benchmark.title] = rows
    rate = matrix_rate(128 if quick else LIMIT_SIZE)
    best = max(row["examples/s"] for row in report.tables[next(iter(report.tables))])
    limit = CORES * rate / CNN_FLOP
    report.notes.append(
        f"One core multiplies {LIMIT_SIZE} x {LIMIT_SIZE} matrices at {rate / 1e9:.0f} GFLOP/s. "
        f"At {CNN_FLOP / 1e6} MFLOP per example, {CORES} cores could train {limit:.0f} examples/s "
        f"on MNIST; the fastest round here reaches {best / limit:.0%} of that."
    )
    return report


def compare(benchmark: Round, passes: int) -> list[dict[str, Any]]:
    """The textbook loop beside our engines, as rows of a table."""
    stored, x, peers = benchmark.data()
    model = {"name": benchmark.model, "vocabulary": benchmark.vocabulary}
    output_layer = OUTPUT_LAYER[benchmark.model]
    flat = FlatModel(build(**model), output_layer)
    weights = flat.vector.clone()
    workers = Workers(CORES, model, output_layer, x, benchmark.training)
    engines = {
        f"lff, {CORES} worker processes": workers,
        "lff, one process": Loop(flat, x, benchmark.training),
    }
    if benchmark.model == "cnn":
        plain = FlatModel(build(**model), output_layer)
        plain.module.__class__ = CNN
        engines["the same with torch's convolution and pooling"] = Loop(
            plain, x, benchmark.training
        )
        engines["lff, stacked (vmap), one process"] = Stacked(
            build(**model), flat.layout, x, benchmark.training
        )
    kind = textbook.Texts if benchmark.model == "bilstm" else textbook.Images
    datasets = [kind(stored, peer) for peer in peers]
    textbook_model = build(**model)

    def baseline() -> None:
        with threads(CORES):
            textbook.train_round(textbook_model, datasets, benchmark.training)

    def train(engine: Any) -> Callable[[], None]:
        def one_round() -> None:
            with threads(1):
                engine.train(weights, peers, seed=0, round=0)

        return one_round

    contestants = {f"textbook loop, {CORES} threads": baseline}
    contestants |= {name: train(engine) for name, engine in engines.items()}
    workers.train(weights, peers[:CORES], seed=0, round=0)  # their start is not part of a round
    try:
        times = side_by_side(contestants, passes=passes, budget=150)
    finally:
        workers.close()
    base = times[f"textbook loop, {CORES} threads"].seconds
    return [
        {
            "": name,
            "seconds": timing.seconds,
            "examples/s": benchmark.passes / timing.seconds,
            "times the textbook": base / timing.seconds,
        }
        for name, timing in times.items()
    ]


def matrix_rate(size: int) -> float:
    """Single-precision floating-point operations per second of one core in a matrix product."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    with threads(1):
        fastest = side_by_side({"product": lambda: a @ b}, passes=20)["product"]
    return 2 * size**3 / fastest.seconds
