"""Checkpoints: what writing one costs beside a round of training at `laptop` scale."""

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.common import Report, threads
from benchmarks.training import Round
from lff import experiment
from lff.experiments.benchmarks import BENCHMARKS, Experiment
from lff.experiments.checkpoints import Checkpoint, checkpoint_path
from lff.experiments.runs import CHECKPOINT_SECONDS, CHECKPOINT_SHARE
from lff.fast.engines import Loop
from lff.models import OUTPUT_LAYER, FlatModel, build
from lff.training import LocalTraining

EXAMPLES = {"mnist": 60_000}  # where the scale takes all
CASES = {
    "MNIST-iid": {"benchmark": "mnist-iid"},
    "CIFAR10-iid": {
        "benchmark": "cifar10-iid",
        "width": 0,
        "examples": 5000,
        "batch_size": 16,
    },
    "IMDB, 10,000 words": {"benchmark": "imdb"},
    "IMDB, the whole vocabulary": {"benchmark": "imdb", "vocabulary": 124_252},
}


def run(quick: bool = False) -> Report:
    """Measure the three models under FoolsGold, whose memory is saved too."""
    report = Report("checkpoint")
    rows = []
    for title, settings in CASES.items():
        e = experiment(scale="laptop", defense="foolsgold", attackers=40, **settings)
        rows.append({"benchmark": title, **measure(e, times=2 if quick else 9, quick=quick)})
    report.tables["A checkpoint beside a round of training, one thread"] = rows
    report.notes += [
        "The round is one peer's training times the number of peers, in seconds of the processor, "
        "the shortest it could take; aggregation and evaluation would only add to it.",
        f"A checkpoint is written at most every {CHECKPOINT_SECONDS:.0f} s and never more often "
        f"than makes {CHECKPOINT_SHARE:.0%} of the time, whatever the disk.",
        "cost: a median write, over the time between two (rounds until the next is due).",
    ]
    return report


def measure(e: Experiment, *, times: int, quick: bool) -> dict[str, Any]:
    """One row of the table."""
    dataset, name = BENCHMARKS[e.benchmark].dataset, BENCHMARKS[e.benchmark].model
    own = 8 if quick else (e.examples or EXAMPLES[dataset]) // e.peers
    vocabulary = e.vocabulary + 2 if dataset == "imdb" else 0  # padding and unknown words
    classes = 2 if dataset == "imdb" else 10
    settings = ("local_epochs", "batch_size", "learning_rate", "optimizer", "momentum")
    training = LocalTraining(
        weight_decay=e.weight_decay, **{setting: getattr(e, setting) for setting in settings}
    )
    _, x, peers = Round("", name, 1, own, training, vocabulary).data()
    sizes = {"vocabulary": vocabulary, "width": e.width}
    flat = FlatModel(build(name, classes=classes, **sizes), OUTPUT_LAYER[name])
    weights = flat.vector.clone()
    few = [replace(peers[0], examples=peers[0].examples[:8], labels=peers[0].labels[:8])]
    engine = Loop(flat, x, training)
    with threads(1):
        engine.train(weights, few, seed=0, round=0)  # what happens only the first time
        start = time.process_time()
        engine.train(weights, peers, seed=0, round=0)
        seconds = e.peers * (time.process_time() - start)
        size, writes = write(e, weights, flat, times)
    between = seconds * -(-max(CHECKPOINT_SECONDS, median(writes) / CHECKPOINT_SHARE) // seconds)
    return {
        "MB": size / 1e6,
        "write, median (s)": median(writes),
        "write, slowest (s)": max(writes),
        "round (s of CPU)": seconds,
        "cost (%)": 100 * median(writes) / between,
    }


def write(
    e: Experiment, weights: torch.Tensor, flat: FlatModel, times: int
) -> tuple[int, list[float]]:
    """The size of a checkpoint late in a run, and the seconds of writing it several times."""
    features = getattr(flat.module, flat.layout.output_layer).weight
    memory = {str(k): torch.rand(features.numel() + len(features)) for k in range(e.peers)}
    entry = {"round": 0, "peers": list(range(e.peers)), "saw": {"scores": [0.123456] * e.peers}}
    checkpoint = Checkpoint(weights, memory, [entry] * e.rounds, {"training": [1.0] * e.rounds}, {})
    seconds = []
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
        for _ in range(times):
            start = time.perf_counter()
            checkpoint.save(e, Path(folder))
            seconds.append(time.perf_counter() - start)
        return checkpoint_path(e, Path(folder)).stat().st_size, seconds
