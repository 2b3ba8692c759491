"""Checkpoints: what writing one costs beside a round of training at `laptop` scale."""

import tempfile
import time
from dataclasses import fields, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from lff import experiment
from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.experiment import Experiment
from lff.experiments.records import Checkpoint, checkpoint_path, path_of
from lff.experiments.run import CHECKPOINT_SECONDS, CHECKPOINT_SHARE
from lff.fast import accelerate
from lff.fast.submodels import FastLoop
from lff.models import FlatModel, build_model
from lff.training import Examples, LocalTraining
from speed.common import Report, threads
from speed.training import Round

CASES = {
    "MNIST-iid": {"benchmark": "mnist-iid", "examples": 60_000},
    "CIFAR10-iid": {"benchmark": "cifar10-iid", "width": 0, "examples": 5000, "batch_size": 16},
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
    known = BENCHMARKS[e.benchmark]
    vocabulary = e.vocabulary + 2 if e.vocabulary else 0  # padding and unknown words
    training = LocalTraining(**{f.name: getattr(e, f.name) for f in fields(LocalTraining)})
    own = 8 if quick else e.examples // e.peers
    _, [peer] = Round("", known.model, 1, own, training, vocabulary).data()
    few = replace(peer, examples=Examples(*(part[:8] for part in peer.examples)))
    sizes = {"classes": known.classes, "vocabulary": vocabulary, "width": e.width}
    flat = FlatModel(accelerate(build_model(known.model, **sizes), "cpu"), known.output_layer)
    weights = flat.vector.clone()
    trainer = FastLoop(flat, training)
    with threads(1):
        trainer.train(weights, [few], seed=0, round=0)  # what happens only the first time
        start = time.process_time()
        trainer.train(weights, [peer], seed=0, round=0)
        seconds = e.peers * (time.process_time() - start)
        size, writes = write(e, flat, times)
    between = seconds * -(-max(CHECKPOINT_SECONDS, median(writes) / CHECKPOINT_SHARE) // seconds)
    return {
        "MB": size / 1e6,
        "write, median (s)": median(writes),
        "write, slowest (s)": max(writes),
        "round (s of CPU)": seconds,
        "cost (%)": 100 * median(writes) / between,
    }


def write(e: Experiment, flat: FlatModel, times: int) -> tuple[int, list[float]]:
    """The size of a checkpoint late in a run, and the seconds of writing it several times."""
    memory = flat.layout.output_layer_of(flat.vector.unsqueeze(0)).numel()
    tensors = {f"defense.{k}": torch.rand(memory) for k in range(e.peers)}
    entry = {"round": 0, "peers": list(range(e.peers)), "saw": {"scores": [0.123456] * e.peers}}
    values = {"history": [entry] * e.rounds, "seconds": {"training": [1.0] * e.rounds}}
    checkpoint = Checkpoint({"global_weights": flat.vector, **tensors}, values, {})
    seconds = []
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
        for _ in range(times):
            start = time.perf_counter()
            checkpoint.save(e, Path(folder))
            seconds.append(time.perf_counter() - start)
        return checkpoint_path(path_of(e, Path(folder))).stat().st_size, seconds
