"""The cost as work grows: more peers, more updates of 11 million entries, more records.

What should stay level is beside each size: seconds for each peer, milliseconds for each update, the
memory beside the updates' own, milliseconds for each record.
"""

import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from lff.defenses import lfighter
from lff.errors import InputError
from lff.experiments import records
from lff.experiments.scales import PAPER_DEFENSES
from lff.fast import RULES, accelerate
from lff.fast.submodels import FastLoop
from lff.federation import Federation
from lff.models import OUTPUT_LAYER, FlatModel
from lff.paths import home_dir
from lff.study import frame
from speed import aggregation, training
from speed.common import Report, peak_extra_memory, side_by_side, threads

PEERS = (10, 100, 1000)  # of 60 examples each
UPDATES = (20, 50, 100, 200)  # of a ResNet18
RECORDS = (100, 1000)  # of the laptop scale: 12 rounds of 100 peers
SLOW = ("repeated_median",)  # minutes for 20 updates
BUDGET = 10.0  # seconds after which a rule sits out the remaining passes
MARGIN = 1.5  # times the updates' own size must be free to measure them


def run(quick: bool = False) -> Report:
    """Measure all three; `quick` is for trying out the code."""
    report = Report("growth")
    peers(2, examples=4)  # what happens only the first time
    report.tables["Peers: a round of the CNN, 60 examples each, one process"] = [
        peers(count, examples=4 if quick else 60) for count in ((2, 4) if quick else PEERS)
    ]
    model, sizes = ("cnn", (5, 10)) if quick else ("resnet18", UPDATES)
    rows, left_out = [], []
    for count in sizes:
        needed = MARGIN * count * 4 * aggregation.layout_of(model).size
        if needed > free_memory():
            left_out.append(f"{count} updates were left out: {needed / 2**30:.0f} GiB are not free")
        else:
            rows += rules(model, count, passes=1 if quick else 3)
    report.tables["Rules: updates of 11.2M entries, one thread"] = rows
    report.tables["Records: loaded into a frame"] = [
        loading(count) for count in ((3,) if quick else RECORDS)
    ]
    report.notes += [
        "Seconds are of the processor. Goals: x own size at most 2; 1,000 records in 5 s.",
        "x own size: the peak extra memory of a rule, its result included, over that of the "
        "updates.",
        *left_out,
    ]
    return report


def peers(count: int, examples: int) -> dict[str, Any]:
    """A whole round of so many peers: training, LFighter and the evaluation."""
    each = replace(training.MNIST, peers=count, examples=examples)
    _, shares = each.data()
    flat = FlatModel(accelerate(training.model(each), "cpu"), OUTPUT_LAYER[each.model])
    federation = Federation(
        [(peer.examples.x, peer.examples.y) for peer in shares],
        shares[0].examples,
        flat,
        rule=lfighter,
        source_class=7,
        target_class=1,
        training=each.training,
        trainer=FastLoop(flat, each.training),
    )
    start = time.process_time()
    memory = peak_extra_memory(federation.play_round)
    seconds = time.process_time() - start
    return {
        "peers": count,
        "round (s)": seconds,
        "ms for each peer": 1e3 * seconds / count,
        "LFighter (s)": federation.seconds["aggregation"][-1],
        "MiB": None if memory is None else memory / 2**20,
    }


def rules(model: str, count: int, passes: int) -> list[dict[str, Any]]:
    """Every rule of the paper on so many updates."""
    updates = aggregation.a_round(model, count)
    ways = {
        name: partial(aggregation.ours, updates, name, RULES.get(name))
        for name in PAPER_DEFENSES
        if name not in SLOW
    }
    own = updates.weights.nbytes
    with threads(1):
        times = side_by_side(ways, passes=passes, budget=BUDGET)
        memory = {name: peak_extra_memory(way) for name, way in ways.items()}
    return [
        {
            "updates": count,
            "rule": name,
            "seconds": min(timing.processor),
            "ms for each update": 1e3 * min(timing.processor) / count,
            "MiB": None if memory[name] is None else memory[name] / 2**20,
            "x own size": None if memory[name] is None else memory[name] / own,
        }
        for name, timing in times.items()
    ]


def loading(count: int) -> dict[str, Any]:
    """Records of so many runs, copies of one in the repository under other seeds."""
    template = next(iter(records.iterate(home_dir() / "results", "laptop")))
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(count):
            e = template.experiment.replace(seed=seed)
            replace(template, experiment=e).save(Path(folder))
        start = time.process_time()
        rounds = frame.rounds(folder=Path(folder))
        seconds = time.process_time() - start
    if rounds["id"].nunique() != count:
        raise InputError(f"{count} records were written, {rounds['id'].nunique()} loaded")
    return {
        "records": count,
        "rounds": len(rounds),
        "seconds": seconds,
        "ms for each": 1e3 * seconds / count,
    }


def free_memory() -> int:
    """Bytes that may be had without swapping."""
    return int(psutil.virtual_memory().available)
