"""One bar over many runs: how many are done, running and failed, and the time left."""

import heapq
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

from tqdm.auto import tqdm

from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.experiment import PAPER_WIDTH, Experiment

REFRESH, REFRESH_UNWATCHED = 1.0, 60.0  # seconds; a log file is not filled with bars
PRIOR = 30.0  # expected seconds that must have ended before their pace counts as much as the model
OVERDUE = 0.1  # of the time it took so far: what a run that should have ended is still given

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
    model, data = _model(e), BENCHMARKS[e.benchmark].dataset
    examples = e.examples or _EXAMPLES[e.data].get(data, 10_000)
    narrower = (e.width or PAPER_WIDTH) / PAPER_WIDTH
    training = e.local_epochs * e.fraction * examples / 1000 * _COST[model]
    pairs = (e.fraction * e.peers) ** 2 if e.defense == "repeated_median" else 0
    medians = pairs * _PARAMETERS[model] * 1e-8
    return _START + e.rounds * (training * narrower**_NARROWER + medians * narrower**2)


class Progress:
    """Is told what happens to the runs, and shows one bar over all of them.

    The bar advances by the runs' expected seconds, also while they are under way. The expected
    seconds are corrected by the pace so far: what ended runs took over what was expected of them,
    of those with the same model first. `at_once` runs are expected at a time, in the order of
    `waiting`.
    """

    def __init__(
        self,
        waiting: Sequence[Experiment],
        *,
        done: int = 0,
        at_once: int = 1,
        show: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.waiting = dict.fromkeys(waiting)
        self.running: dict[Experiment, float] = {}  # with the time of their start
        self.done, self.failed, self.runs = done, 0, done + len(waiting)
        self.at_once, self.clock = at_once, clock
        self._ended: list[tuple[str, float, float]] = []  # model, expected and measured seconds
        self._ended_cost = 0.0
        layout = "{desc} |{bar}| {percentage:3.0f}% [{elapsed}{postfix}]"
        self.bar = bar(total=sum(map(cost, waiting)), bar_format=layout, show=show)
        self._lock = threading.RLock()  # runs are told to begin by another thread
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep_moving, daemon=True)

    def __enter__(self) -> "Progress":
        self.show()
        if not self.bar.disable:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self.bar.close()

    def started(self, e: Experiment) -> None:
        """A run has begun, or begun again because its worker was lost."""
        with self._lock:
            if e in self.waiting or e in self.running:
                self.waiting.pop(e, None)
                self.running[e] = self.clock()
        self.show()

    def ended(self, e: Experiment, seconds: float | None) -> None:
        """A run is recorded and took so many seconds, or it failed (None)."""
        with self._lock:
            self.waiting.pop(e, None)
            self.running.pop(e, None)
            self._ended_cost += cost(e)
            if seconds is None:
                self.failed += 1
            else:
                self.done += 1
                self._ended.append((_model(e), cost(e), seconds))
        self.show()

    def text(self) -> str:
        """How many runs are done, running and failed."""
        running = f"{len(self.running)} running, {self.failed} failed"
        return f"{self.done}/{self.runs} runs done, {running}"

    def pace(self, e: Experiment) -> float:
        """Seconds that a run like this one takes for each that the cost model expects."""
        alike = [ended for ended in self._ended if ended[0] == _model(e)]
        return _paced(alike, _paced(self._ended, 1.0))

    def left(self) -> float:
        """The seconds until the last run ends."""
        with self._lock:
            now = self.clock()
            ends = [self._rest(e, now - start) for e, start in self.running.items()]
            ends += [0.0] * (max(1, self.at_once) - len(ends))
            heapq.heapify(ends)
            for e in self.waiting:  # each begins where a run ends first
                heapq.heapreplace(ends, ends[0] + self.pace(e) * cost(e))
            return max(ends)

    def behind(self) -> float:
        """The expected seconds of what is done, with a share of each run under way."""
        with self._lock:
            now = self.clock()
            elapsed = {e: now - start for e, start in self.running.items()}
            shares = (cost(e) * t / (t + self._rest(e, t)) for e, t in elapsed.items() if t > 0)
            return self._ended_cost + sum(shares)

    def show(self) -> None:
        """Draw the bar as things stand."""
        if self.bar.disable:
            return
        with self._lock:
            self.bar.n = min(max(self.bar.n, self.behind()), self.bar.total)
            left = self.bar.format_interval(self.left())
            self.bar.set_description_str(self.text(), refresh=False)
            self.bar.set_postfix_str(f"{left} left", refresh=False)
            self.bar.refresh()

    def _rest(self, e: Experiment, elapsed: float) -> float:
        """The seconds a run still takes that began so long ago."""
        return max(self.pace(e) * cost(e) - elapsed, OVERDUE * elapsed)

    def _keep_moving(self) -> None:
        pause = REFRESH if watched() else REFRESH_UNWATCHED
        while not self._closing.wait(pause):
            self.show()


def _paced(ended: Iterable[tuple[str, float, float]], before: float) -> float:
    """The pace of runs that ended, starting from one that was known before."""
    expected = measured = 0.0
    for _, its_expected, its_measured in ended:
        expected, measured = expected + its_expected, measured + its_measured
    return (PRIOR * before + measured) / (PRIOR + expected)


def _model(e: Experiment) -> str:
    model = BENCHMARKS[e.benchmark].model
    return model if isinstance(model, str) else "own"
