"""Where a result came from: versions, machine, code and data."""

import platform
import subprocess
from functools import cache
from importlib.metadata import version
from itertools import takewhile
from typing import Any

import torch

from lff.data import Dataset
from lff.experiments.experiment import ARITHMETIC
from lff.paths import checkout_dir

PACKAGES = ("torch", "numpy", "scikit-learn", "hdbscan")  # whose versions can change numbers


def provenance(data: Dataset, device: torch.device, engine: str) -> dict[str, Any]:
    """Everything a reader needs to judge or repeat a run."""
    return {
        "lff": version("lff"),
        "commit": commit(),
        "engine": engine,
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
        "device": device_name(device),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "platform": platform.platform(),
        "data": {"source": data.source, "checksum": data.checksum},
    }


def origin(provenance: dict[str, Any]) -> dict[str, Any]:
    """What the parts of a run that is killed and resumed must have in common."""
    names = ("engine", *PACKAGES)
    return {
        "arithmetic": ARITHMETIC,
        "data": provenance["data"]["checksum"],
        **{name: provenance[name] for name in names},
    }


def device_name(device: torch.device) -> str:
    """The processor a run used, as people call it, and the model behind that name.

    Virtual machines call all of a maker's models the same ("AMD EPYC"), but another model may take
    other kernels, and its last bits differ.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    told = _cpuinfo()
    name = told.get("model name") or platform.processor() or "cpu"
    numbers = {"family": told.get("cpu family"), "model": told.get("model")}
    return ", ".join([name, *(f"{what} {number}" for what, number in numbers.items() if number)])


def _cpuinfo() -> dict[str, str]:
    """What Linux tells of the first processor; nothing elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            pairs = (line.partition(":") for line in takewhile(str.strip, lines))
            return {name.strip(): value.strip() for name, _, value in pairs}
    except OSError:
        return {}


@cache
def commit() -> str:
    """The checkout's commit, marked if files differ from it; empty outside a checkout.

    Never that of the working directory: its settings could name commands for git to run.
    """
    checkout = checkout_dir()
    if checkout is None:
        return ""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=checkout,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return described.stdout.strip()
