"""The time of one aggregation, per method and benchmark."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lff.experiments.benchmarks import BENCHMARKS
from lff.defenses import get_defense
from lff.study.figures.style import WIDTH, caption, journal, look, new_figure, not_run
from lff.experiments.scales import PAPER_DEFENSES
from lff.study.spread import Spread, several

_PATTERNS = ("", "////", "....", r"\\\\", "xxxx", "----", "++++")
_HATCHES = dict(zip(PAPER_DEFENSES, _PATTERNS, strict=True))


def runtime(table: pd.DataFrame, about: str) -> Figure:
    """Aggregation seconds per round (bars) and over all rounds (numbers), one panel per benchmark.

    `table` has one row per benchmark and method (see `lff.study.tables.runtime`). Several seeds give
    means with the range of the seeds as error bars.
    """
    benchmarks = list(dict.fromkeys(table["benchmark"]))
    methods = list(dict.fromkeys(table["defense"]))
    with journal():
        columns = min(3, len(benchmarks))
        rows = -(-len(benchmarks) // columns)
        figure = new_figure(WIDTH, 2.1 * rows + 0.5)
        axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for ax, benchmark in zip(axes.flat, benchmarks, strict=False):
            here = table[table["benchmark"] == benchmark].set_index("defense")
            _panel(ax, here.reindex(methods))
            ax.set_title(BENCHMARKS[benchmark].label)
        for ax in axes.flat[len(benchmarks) :]:
            ax.set_visible(False)
        for ax in axes[:, 0]:
            ax.set_ylabel("seconds per round")
        times = [spread for spread in table["per_round"] if isinstance(spread, Spread)]
        if times:
            low, high = min(s.low for s in times), max(s.high for s in times)
            axes[0, 0].set_ylim(low / 2, high * 4)
        note = "; numbers: seconds over all rounds"
        if several(table):
            note += "; bars: mean, lines: range of the seeds"
        caption(figure, about + note)
    return figure


def _panel(ax: Axes, here: pd.DataFrame) -> None:
    names = list(here.index)
    ax.set_yscale("log")
    for i, (name, row) in enumerate(here.iterrows()):
        if not isinstance(row["per_round"], Spread):
            not_run(ax, i)
            continue
        seconds, total = row["per_round"], row["total"].mean
        color, hatch = look(name, names).color, _HATCHES.get(name, "oo")
        ax.bar(i, seconds.mean, color=color, hatch=hatch, edgecolor="black", linewidth=0.5)
        if len(seconds.values) > 1:
            ax.vlines(i, seconds.low, seconds.high, color="0.5", linewidth=2)
        ax.text(i, seconds.high * 1.15, _short(total), ha="center", fontsize=5.5)
    labels = [get_defense(name).label for name in names]
    ax.set_xticks(np.arange(len(names)), labels, rotation=60, ha="right", rotation_mode="anchor")
    ax.set_xlim(-0.7, len(names) - 0.3)


def _short(seconds: float) -> str:
    """Seconds in at most five letters: 12, 1.2, 0.12, 1e-3."""
    if seconds >= 0.01:
        return f"{seconds:.2g}" if seconds < 100 else f"{seconds:.0f}"
    return f"{seconds:.0e}".replace("e-0", "e-")
