"""One device: the time and memory of whole rounds of the three models, by engine.

`lff speed --device cuda` prints them and writes one small JSON file.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lff.defenses import lfighter
from lff.experiments.provenance import device_name
from lff.fast import accelerate, choose_trainer
from lff.fast.stacked import disagreement
from lff.federation import Federation
from lff.models import OUTPUT_LAYER, FlatModel
from lff.training import Examples, Peer
from speed import training
from speed.common import machine, peak_extra_memory, table

ENGINES = {"cnn": ("loop", "stacked"), "resnet18": ("loop",), "bilstm": ("loop",)}
ROUNDS = 3  # the first also does what happens only once
TEST_EXAMPLES = 1000
# Examples times epochs of a round with the paper's settings, to which times are scaled.
WHOLE = {"cnn": 60_000 * 3, "resnet18": 50_000 * 3, "bilstm": 25_000}


def run(device: torch.device, file: Path, *, quick: bool = False) -> str:
    """Measure this device, write the file, and give what to print."""
    rounds = (training.MNIST, training.CIFAR10, training.IMDB)
    if quick:
        rounds = tuple(replace(each, peers=3, examples=6) for each in rounds)
    rows = [
        measure(each, engine, device, test_examples=10 if quick else TEST_EXAMPLES)
        for each in rounds
        for engine in ENGINES[each.model]
    ]
    about = machine() | {"device": device_name(device), "cuda": torch.version.cuda}
    content = {"machine": about, "stack apart from the loop": apart(device), "rounds": rows}
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return f"{about['device']}\n\n{table(rows)}\n\nwritten to {file}\n"


def apart(device: torch.device) -> float | str:
    """How far a step of the stack is from the loop's (experiments take it up to `AGREEMENT`)."""
    each = replace(training.MNIST, peers=2, examples=64)
    plain, (_, peers) = training.model(each).to(device), each.data()
    held = [Peer(p.id, Examples(*(part.to(device) for part in p.examples))) for p in peers]
    try:
        return disagreement(plain, OUTPUT_LAYER[each.model], each.training, held)
    except RuntimeError as error:
        return f"failed: {error}"


def measure(
    each: training.Round, engine: str, device: torch.device, test_examples: int
) -> dict[str, Any]:
    """Whole rounds with LFighter, of which the quickest counts; or why they failed."""
    row: dict[str, Any] = {"model": each.model, "engine": engine}
    try:
        federation = make_federation(each, engine, device, test_examples)
        memory = peak_memory(federation, device)
        for _ in range(ROUNDS - 1):
            federation.play_round()
    except RuntimeError as error:
        return row | {"failed": str(error).splitlines()[0]}
    seconds = {part: min(times[1:]) for part, times in federation.seconds.items()}
    return row | {
        "engine": federation.trainer.name,  # not the one asked for, if that does not agree
        **{f"{part} (s)": value for part, value in seconds.items()},
        "examples/s": each.passes / seconds["training"],
        "the paper's round (s)": seconds["training"] * WHOLE[each.model] / each.passes,
        "MiB": None if memory is None else memory / 2**20,
    }


def make_federation(
    each: training.Round, engine: str, device: torch.device, test_examples: int
) -> Federation:
    """A federation of these peers on the device."""
    _, peers = each.data()
    held = [(peer.examples.x.to(device), peer.examples.y.to(device)) for peer in peers]
    plain = training.model(each).to(device)
    module = accelerate(training.model(each), device)
    model = FlatModel(module, OUTPUT_LAYER[each.model], device)
    x, y = (torch.cat(parts)[:test_examples] for parts in zip(*held, strict=True))
    federation = Federation(
        held,
        (x, y),
        model,
        rule=lfighter,
        source_class=1,
        target_class=0,
        training=each.training,
    )
    federation.trainer = choose_trainer(
        engine, 1, model=model, plain=plain, training=each.training, peers=federation.peers
    )
    return federation


def peak_memory(federation: Federation, device: torch.device) -> int | None:
    """The most memory that a round takes: of the GPU in all, of the CPU beside what was held."""
    if device.type != "cuda":
        return peak_extra_memory(federation.play_round)
    torch.cuda.reset_peak_memory_stats(device)
    federation.play_round()
    return torch.cuda.max_memory_allocated(device)
