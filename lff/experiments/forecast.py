"""How long runs take: a cost model, and a forecast that learns from the runs that ended."""

import heapq
import time
from collections.abc import Callable, Sequence

from lff.experiments.benchmarks import BENCHMARKS, PAPER_WIDTH, Experiment

# Measured seconds per thousand training examples on one core, to order runs and foresee their end.
_COST = {"cnn": 0.11, "resnet18": 5.0, "bilstm": 3.5}
_EXAMPLES = {
    "real": {"mnist": 60_000, "cifar10": 50_000, "imdb": 40_000},
    "embedded": {"mnist": 4_000, "cifar10": 4_000, "imdb": 20_000},
}
_PARAMETERS = {"cnn": 2.2e4, "resnet18": 1.1e7, "bilstm": 1e6}
_NARROWER = 1.5  # a ResNet18 of half the width takes 1/2 to this power of the time
_START = 2.0  # seconds before the first round, and for evaluation

PRIOR = 30.0  # expected seconds that must have ended before their pace counts as much as the model
OVERDUE = 0.1  # of the time it took so far: what a run that should have ended is still given


def cost(e: Experiment) -> float:
    """About how many seconds a run takes on one core."""
    benchmark = BENCHMARKS[e.benchmark]
    examples = e.examples or _EXAMPLES[e.data][benchmark.dataset]
    narrower = (e.width or PAPER_WIDTH) / PAPER_WIDTH
    training = e.local_epochs * e.fraction * examples / 1000 * _COST[benchmark.model]
    pairs = (e.fraction * e.peers) ** 2 if e.defense == "repeated_median" else 0
    medians = pairs * _PARAMETERS[benchmark.model] * 1e-8
    return _START + e.rounds * (training * narrower**_NARROWER + medians * narrower**2)


class Forecast:
    """What is left of a sweep, `at_once` runs at a time, in the order of `waiting`.

    The pace is what ended runs took over what was expected of them: of those with the same model,
    starting from that of all runs, which starts from the cost model's word.
    """

    def __init__(
        self,
        waiting: Sequence[Experiment],
        at_once: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.waiting = list(waiting)
        self.at_once = at_once
        self.clock = clock
        self.running: dict[Experiment, float] = {}
        self.ended_cost = 0.0
        self._measured: list[tuple[str, float, float]] = []  # model, expected, measured

    def started(self, e: Experiment) -> None:
        """A run has begun."""
        self.waiting.remove(e)
        self.running[e] = self.clock()

    def lost(self, e: Experiment) -> None:
        """A run must begin again: its worker is gone."""
        del self.running[e]
        self.waiting.insert(0, e)

    def ended(self, e: Experiment, seconds: float | None) -> None:
        """A run is over; it took `seconds`, None if that says nothing about others."""
        del self.running[e]
        self.ended_cost += cost(e)
        if seconds is not None:
            self._measured.append((_model(e), cost(e), seconds))

    def pace(self, e: Experiment) -> float:
        """Seconds that a run like this one takes for each that the cost model expects."""
        pace = 1.0
        alike = [entry for entry in self._measured if entry[0] == _model(e)]
        for ended in (self._measured, alike):
            expected, measured = (sum(entry[i] for entry in ended) for i in (1, 2))
            pace = (PRIOR * pace + measured) / (PRIOR + expected)
        return pace

    def left(self) -> float:
        """The seconds until the last run ends."""
        now = self.clock()
        ends = [self._rest(e, now - start) for e, start in self.running.items()]
        ends += [0.0] * (max(1, self.at_once) - len(ends))
        heapq.heapify(ends)
        for e in self.waiting:  # each begins where a run ends first
            heapq.heapreplace(ends, ends[0] + self.pace(e) * cost(e))
        return max(ends)

    def behind(self) -> float:
        """The expected seconds of what is done, with a share of each run under way."""
        now = self.clock()
        elapsed = {e: now - start for e, start in self.running.items()}
        shares = (cost(e) * t / (t + self._rest(e, t)) for e, t in elapsed.items() if t > 0)
        return self.ended_cost + sum(shares)

    def _rest(self, e: Experiment, elapsed: float) -> float:
        """The seconds a run still takes that began so long ago."""
        return max(self.pace(e) * cost(e) - elapsed, OVERDUE * elapsed)


def _model(e: Experiment) -> str:
    return BENCHMARKS[e.benchmark].model
