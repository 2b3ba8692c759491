"""Local training: a round of each model against the textbook loop, and against the machine."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from lff.fast import accelerate
from lff.fast.pool import Pool
from lff.fast.stacked import Stacked
from lff.fast.submodels import FastLoop
from lff.models import OUTPUT_LAYER, FlatModel, build_model
from lff.training import Examples, LocalTraining, Loop, Peer, Trainer
from speed import textbook
from speed.common import Report, side_by_side, threads

CORES = 2
TEXTBOOK = f"textbook loop, {CORES} threads"
POOL = f"lff, {CORES} worker processes"
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

    def data(self) -> tuple[np.ndarray, list[Peer]]:
        """Examples as stored (pixels or word ids), and the peers who hold them as tensors."""
        rng = np.random.default_rng(0)
        total = self.peers * self.examples
        if self.model == "bilstm":
            # Words as frequent as in real text: the k-th most frequent has a share of 1/k.
            ranks = np.exp(rng.uniform(0, np.log(self.vocabulary), (total, 128)))
            stored = ranks.astype(np.int64) % self.vocabulary
            x, classes = torch.from_numpy(stored), 2
        else:
            shape = (28, 28, 1) if self.model == "cnn" else (32, 32, 3)
            stored = rng.integers(0, 256, (total, *shape), dtype=np.uint8)
            pixels = torch.from_numpy(stored).permute(0, 3, 1, 2).contiguous()
            x, classes = pixels.float().div(255).sub(0.5).div(0.25), 10
        y = torch.from_numpy(rng.integers(0, classes, total))
        shares = zip(x.split(self.examples), y.split(self.examples), strict=True)
        return stored, [Peer(k, Examples(*share)) for k, share in enumerate(shares)]

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
)
PART_OF_MNIST = replace(
    MNIST,
    title="MNIST-iid, a fifth of a round: CNN, 20 peers x 600 examples x 3 epochs, batch 64",
    peers=20,
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
    for each in (PART_OF_MNIST, CIFAR10, IMDB):
        size = {"peers": 2, "examples": 8, "repeats": 1} if quick else {}
        report.tables[each.title] = compare(replace(each, **size))
    rate = matrix_rate(128 if quick else LIMIT_SIZE)
    best = max(row["examples/s"] for row in report.tables[PART_OF_MNIST.title])
    limit = CORES * rate / CNN_FLOP
    report.notes.append(
        f"One core multiplies {LIMIT_SIZE} x {LIMIT_SIZE} matrices at {rate / 1e9:.0f} GFLOP/s. "
        f"At {CNN_FLOP / 1e6} MFLOP per example, {CORES} cores could train {limit:.0f} examples/s "
        f"on MNIST; the fastest round here reaches {best / limit:.0%} of that."
    )
    return report


def compare(each: Round) -> list[dict[str, Any]]:
    """The textbook loop beside our trainers, as rows of a table."""
    with competing(each) as ways:
        times = side_by_side(ways, passes=each.repeats)
    base = times[TEXTBOOK].seconds
    return [
        {
            "": name,
            "seconds": timing.seconds,
            "examples/s": each.passes / timing.seconds,
            "times the textbook": base / timing.seconds,
        }
        for name, timing in times.items()
    ]


@contextmanager
def competing(each: Round) -> Iterator[dict[str, Callable[[], Any]]]:
    """The round in the textbook's way and by each of our trainers."""
    stored, peers = each.data()
    weights = FlatModel(model(each)).vector
    global_model, datasets = model(each), textbook.datasets(stored, peers)

    def baseline() -> list[dict[str, torch.Tensor]]:
        with threads(CORES):
            return textbook.train_round(global_model, datasets, each.training)

    def ours(trainer: Trainer) -> Callable[[], torch.Tensor]:
        def one_round() -> torch.Tensor:
            with threads(1):
                return trainer.train(weights, peers, seed=0, round=0)

        return one_round

    with ExitStack() as stack:
        trainers = make_trainers(each)
        for trainer in trainers.values():
            stack.enter_context(closing(trainer))
        # The start of processes is not part of a round.
        trainers[POOL].train(weights, peers[:CORES], seed=0, round=0)
        yield {TEXTBOOK: baseline} | {name: ours(t) for name, t in trainers.items()}


def make_trainers(each: Round) -> dict[str, Trainer]:
    """Our trainers, what experiments use first."""
    head, training = OUTPUT_LAYER[each.model], each.training
    plain = FlatModel(model(each), head)
    trainers: dict[str, Trainer] = {
        POOL: Pool(CORES, model(each), head, training),
        "lff, one process": FastLoop(FlatModel(accelerate(model(each), "cpu"), head), training),
        "lff, one process, the plain loop": Loop(plain, training),
    }
    if each.model == "cnn":
        stacked = Stacked(model(each), plain.layout, training)
        trainers["lff, one process, stacked"] = stacked
    return trainers


def model(each: Round) -> torch.nn.Module:
    """The model of a round; it is the same each time."""
    return build_model(each.model, vocabulary=each.vocabulary)


def matrix_rate(size: int) -> float:
    """Single-precision floating-point operations per second of one core in a matrix product."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    with threads(1):
        fastest = side_by_side({"product": lambda: a @ b}, passes=20)["product"]
    return 2 * size**3 / fastest.seconds
