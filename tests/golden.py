"""What a run's numbers are, so that none of them changes by accident.

Two rounds of every benchmark with every defense, at 40% attackers and tiny sizes, through
`lff.run`. `python tests/golden.py` writes what they give now to `golden.json`: only a purposeful
change of the arithmetic renews it, in a commit that says so.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

import lff
from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.experiment import ARITHMETIC
from lff.experiments.provenance import device_name
from lff.experiments.scales import PAPER_DEFENSES

FILE = Path(__file__).with_name("golden.json")
CASES = [
    (benchmark, defense) for benchmark in BENCHMARKS for defense in (*PAPER_DEFENSES, "oracle")
]
FIELDS = (
    "test_error",
    "all_acc",
    "src_acc",
    "asr",
    "confusion",
    "weights",
    "dropped",
    "magnitudes",
)


def machine() -> dict[str, str]:
    """Where the same bits are expected: the processor, its instructions, and torch."""
    return {
        "device": device_name(torch.device("cpu")),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__.split("+")[0],
    }


def play(benchmark: str, defense: str, folder: Path) -> dict[str, Any]:
    """Chosen fields of a tiny run's history, and its final weights' checksum and length."""
    width = {"width": 8} if benchmark.startswith("cifar10") else {}
    record = lff.run(
        benchmark, defense=defense, attackers=40, scale="smoke", rounds=2, seed=3,
        folder=folder, progress=False, **width,
    )  # fmt: skip
    return {
        "attackers": record.attackers,
        "history": [{name: entry[name] for name in FIELDS} for entry in record.history],
        "model": record.model,
    }


def play_all() -> dict[str, Any]:
    """Every case by name."""
    with tempfile.TemporaryDirectory() as folder:
        return {f"{b} {d}": play(b, d, Path(folder)) for b, d in CASES}


if __name__ == "__main__":
    content = {"arithmetic": ARITHMETIC, "machine": machine(), "cases": play_all()}
    FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(content['cases'])} cases in {FILE}\n")
