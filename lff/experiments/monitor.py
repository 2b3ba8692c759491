"""What becomes of a sweep's runs, and the bar that shows it."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lff.experiments.benchmarks import Experiment
from lff.experiments.forecast import Forecast, cost
from lff.experiments.progress import bar, watched

REFRESH, REFRESH_UNWATCHED = 1.0, 60.0  # seconds; a log file is not filled with bars


@dataclass
class Outcome:
    """What became of a sweep: which experiments have a record, and why others do not."""

    done: list[Experiment] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


class Monitor:
    """Told what happens to the runs; keeps the outcome, and shows one bar over all of them.

    The bar advances by the runs' expected cost, also while they are under way, so that the time
    left is fair.
    """

    def __init__(
        self,
        outcome: Outcome,
        waiting: Sequence[Experiment],
        *,
        at_once: int = 1,
        show: bool | None = None,
        on_end: Callable[[Experiment], None] = lambda e: None,
    ):
        self.outcome = outcome
        self.on_end = on_end
        self.runs = len(waiting) + len(outcome.done)
        self.forecast = Forecast(waiting, at_once)
        layout = "{desc} |{bar}| {percentage:3.0f}% [{elapsed}{postfix}]"
        self.bar = bar(total=sum(map(cost, waiting)), bar_format=layout, show=show)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep_moving, daemon=True)

    def __enter__(self) -> "Monitor":
        if not self.bar.disable:
            self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self.bar.close()

    def started(self, e: Experiment) -> None:
        """A run has begun."""
        with self._lock:
            self.forecast.started(e)
        self._show()

    def lost(self, e: Experiment) -> None:
        """A run's worker is gone, and it will begin again."""
        with self._lock:
            self.forecast.lost(e)
        self._show()

    def ended(self, e: Experiment, error: str, seconds: float) -> None:
        """A run has its record, or an error."""
        with self._lock:
            self.forecast.ended(e, None if error else seconds)
            if error:
                self.outcome.failed[e.id] = error
            else:
                self.outcome.done.append(e)
        self._show()
        self.on_end(e)

    def spread_over(self, count: int) -> None:
        """So many runs are possible at once from now on."""
        with self._lock:
            self.forecast.at_once = count

    def text(self) -> str:
        """How many runs are done, running and failed."""
        done, failed = len(self.outcome.done), len(self.outcome.failed)
        running = len(self.forecast.running)
        return f"{done}/{self.runs} runs done, {running} running, {failed} failed"

    def _keep_moving(self) -> None:
        pause = REFRESH if watched() else REFRESH_UNWATCHED
        while not self._closing.wait(pause):
            self._show()

    def _show(self) -> None:
        if self.bar.disable:
            return
        with self._lock:
            self.bar.n = min(max(self.bar.n, self.forecast.behind()), self.bar.total)
            left = self.bar.format_interval(self.forecast.left())
            self.bar.set_description_str(self.text(), refresh=False)
            self.bar.set_postfix_str(f"{left} left", refresh=False)
            self.bar.refresh()
