"""What every measurement shares: the machine, a fair clock, peak memory, and the report."""

import contextlib
import ctypes
import gc
import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import torch
from threadpoolctl import threadpool_limits

from lff.experiments.provenance import commit, device_name

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parent / "README.md"
BLOCK = re.compile(r"<!-- results/(\w+)\.md -->\n.*?<!-- end -->", re.DOTALL)
Name = TypeVar("Name")
PACKAGES = ("lff", "torch", "numpy", "scikit-learn", "scipy", "byzfl")


def machine() -> dict[str, Any]:
    """What the numbers depend on beside the code: processor, versions, threads, other load."""
    return {
        "processor": device_name(torch.device("cpu")),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "platform": platform.platform(),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "commit": commit(),
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "not set"),
        "load_at_start": round(os.getloadavg()[0], 2),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute on this many CPU threads, in torch and in NumPy's and scikit-learn's libraries."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Timing:
    """A contestant's times in seconds, one for each pass.

    On a busy machine the processor time of one thread says more than the time elapsed.
    """

    elapsed: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)  # used by all threads of this process

    @property
    def seconds(self) -> float:
        """The least time elapsed."""
        return min(self.elapsed)


def side_by_side(
    contestants: dict[Name, Callable[[], Any]], *, passes: int = 5, budget: float = 30.0
) -> dict[Name, Timing]:
    """Time the contestants in turn, pass after pass.

    On a shared machine a disturbance then hits all alike, and the least time is what the machine
    can do. A contestant who has used up `budget` seconds sits out the remaining passes.
    """
    times: dict[Name, Timing] = {name: Timing() for name in contestants}
    for _ in range(passes):
        gc.collect()
        for name, run in contestants.items():
            if sum(times[name].elapsed) <= budget:
                start, started = time.perf_counter(), time.process_time()
                run()
                times[name].processor.append(time.process_time() - started)
                times[name].elapsed.append(time.perf_counter() - start)
    return times


def peak_extra_memory(run: Callable[[], Any]) -> int | None:
    """By how many bytes the process grows at most during `run`, its result included.

    None where the system cannot tell (other than Linux, whose kernel keeps a resettable peak).
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)  # freed memory would hide what is allocated anew
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except (OSError, AttributeError):
        return None
    before = _kernel_bytes("VmRSS")
    run()
    return max(_kernel_bytes("VmHWM") - before, 0)


def _kernel_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


@dataclass
class Report:
    """One part's results: titled tables of rows, as Markdown and as JSON."""

    name: str
    machine: dict[str, Any] = field(default_factory=machine)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """The machine, every table and the notes."""
        about = ", ".join(f"{key} {value}" for key, value in self.machine.items())
        parts = [f"# {self.name}", *([about] if about else [])]
        for title, rows in self.tables.items():
            parts += [f"## {title}", table(rows)]
        return "\n\n".join([*parts, "\n".join(f"- {note}" for note in self.notes)]).strip() + "\n"

    def save(self, folder: Path = RESULTS) -> None:
        """Write `<name>.json` and `<name>.md`."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {"machine": self.machine, "tables": self.tables, "notes": self.notes}
        text = json.dumps(content, indent=1) + "\n"
        (folder / f"{self.name}.json").write_text(text, encoding="utf-8")
        (folder / f"{self.name}.md").write_text(self.markdown(), encoding="utf-8")


def refreshed(page: str, folder: Path = RESULTS) -> str:
    """A page on which each block `<!-- results/....md -->` to `<!-- end -->` is that file's tables
    and notes; of a part that was not measured, a line that says so."""

    def block(found: re.Match[str]) -> str:
        file = folder / f"{found[1]}.md"
        text = "Not measured yet."
        if file.exists():
            report = file.read_text(encoding="utf-8")
            tables = report[report.index("\n## ") :].strip()
            text = re.sub(r"^## (.*)$", r"**\1**", tables, flags=re.MULTILINE)
        return f"<!-- results/{found[1]}.md -->\n{text}\n<!-- end -->"

    return BLOCK.sub(block, page)


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as a Markdown table; columns in order of appearance, numbers to three digits."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[_cell(row.get(column)) for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)
