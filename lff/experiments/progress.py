"""How long runs take, and one bar over many of them."""

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from tqdm.auto import tqdm

from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.experiment import PAPER_WIDTH, Experiment

REFRESH, REFRESH_UNWATCHED = 1.0, 60.0  # seconds; a log file is not filled with bars
PRIOR = 30.0  # expected seconds that must have ended before their pace counts as much as the model

# Measured seconds per thousand training examples on one core, to order runs and foresee their end.
# A user's own model is taken for one of a million parameters.
_COST = {"cnn": 0.11, "resnet18": 5.0, "bilstm": 3.5, "own": 1.0}
_EXAMPLES = {
    "real": {"mnist": 60_000, "cifar10": 50_000, "imdb": 40_000},
    "embedded": {"mnist": 4_000, "cifar10": 4_000, "imdb": 20_000},
}
_PARAMETERS = {"cnn": 2.2e4, "resnet18": 1.1e7, "bilstm": 1e6, "own": 1e6}
_NARROWER = 1.5  # a ResNet18 of half the width takes 1/2 to this power of the time
_START = 2.0  # seconds before the first round, and for evaluation


def watched() -> bool:
    """Whether a person sees a bar: at a terminal or in JupyterLab, but not in a batch run.

    The Jupyter server names its session to the kernels it starts; papermill and nbval do not.
    """
    return sys.stderr.isatty() or "JPY_SESSION_NAME" in os.environ


def bar(*, show: bool | None = None, **settings: Any) -> tqdm:
    """A progress bar, shown always, never, or (None) if somebody is watching."""
    return tqdm(disable=not (watched() if show is None else show), **settings)


def cost(e: Experiment) -> float:
    """About how many seconds a run takes on one core."""
    known = BENCHMARKS[e.benchmark]
    model = known.model if isinstance(known.model, str) else "own"
    examples = e.examples or _EXAMPLES[e.data].get(known.dataset, 10_000)
    narrower = (e.width or PAPER_WIDTH) / PAPER_WIDTH
    training = e.local_epochs * e.fraction * examples / 1000 * _COST[model]
    pairs = (e.fraction * e.peers) ** 2 if e.defense == "repeated_median" else 0
    medians = pairs * _PARAMETERS[model] * 1e-8
    return _START + e.rounds * (training * narrower**_NARROWER + medians * narrower**2)


class Progress:
    """One bar over many runs: how many are done, running and failed, and the time left.

    It advances by the expected seconds of each run that ends; the time left is foreseen from the
    start, and corrected by the pace of what has ended.
    """

    def __init__(
        self,
        waiting: Sequence[Experiment],
        *,
        done: int = 0,
        at_once: int = 1,
        show: bool | None = None,
    ):
        self.seconds = {e: cost(e) / at_once for e in waiting}
        self.done, self.running, self.failed = done, 0, 0
        self.runs = done + len(waiting)
        layout = "{desc} |{bar}| {percentage:3.0f}% [{elapsed}{postfix}]"
        self.bar = bar(total=sum(self.seconds.values()), bar_format=layout, show=show)
        self.start = time.monotonic()
        self.end = self.start + self.bar.total
        self.shown = -REFRESH_UNWATCHED

    def ended(self, e: Experiment, error: str) -> None:
        """A run is recorded, or it failed."""
        self.done, self.failed = self.done + (not error), self.failed + bool(error)
        self.bar.n = min(self.bar.n + self.seconds[e], self.bar.total)
        now = time.monotonic()
        pace = (now - self.start + PRIOR) / (self.bar.n + PRIOR)
        self.end = now + (self.bar.total - self.bar.n) * pace
        self.show(at_once=True)

    def left(self) -> float:
        """The seconds until the last run ends."""
        return max(self.end - time.monotonic(), 0.0)

    def show(self, *, at_once: bool = False) -> None:
        """Draw the bar as things stand, if it was not drawn just now."""
        pause = REFRESH if watched() else REFRESH_UNWATCHED
        if self.bar.disable or not (at_once or time.monotonic() - self.shown >= pause):
            return
        self.shown = time.monotonic()
        states = f"{self.running} running, {self.failed} failed"
        self.bar.set_description_str(f"{self.done}/{self.runs} runs done, {states}", refresh=False)
        self.bar.set_postfix_str(f"{self.bar.format_interval(self.left())} left", refresh=False)
        self.bar.refresh()
