"""The time of one aggregation, per method and benchmark."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lff.benchmarks import BENCHMARKS
from lff.defenses import get_defense
from lff.figures.style import WIDTH, caption, journal, look, new_figure
from lff.scales import PAPER_DEFENSES

_PATTERNS = ("", "////", "....", r"\\\\", "xxxx", "----", "++++")
_HATCHES = dict(zip(PAPER_DEFENSES, _PATTERNS, strict=True))


def runtime(table: pd.DataFrame, about: str) -> Figure:
    """Aggregation seconds per round (bars) and over all rounds (numbers), one panel per benchmark.

    `table` has one row per benchmark and method: `benchmark`, `defense`, `per_round`, `total`.
    """
    benchmarks = list(dict.fromkeys(table["benchmark"]))
    with journal():
        columns = min(3, len(benchmarks))
        rows = -(-len(benchmarks) // columns)
        figure = new_figure(WIDTH, 2.1 * rows + 0.5)
        axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for ax, benchmark in zip(axes.flat, benchmarks, strict=False):
            here = table[table["benchmark"] == benchmark]
            names = list(here["defense"])
            for i, (name, row) in enumerate(zip(names, here.itertuples(), strict=True)):
                ax.bar(
                    i,
                    row.per_round,
                    color=look(name, names).color,
                    hatch=_HATCHES.get(name, "oo"),
                    edgecolor="white",
                    linewidth=0,
                )
                ax.text(i, row.per_round * 1.15, f"{row.total:.2g}", ha="center", fontsize=6)
            ax.set_yscale("log")
            ax.set_xticks(np.arange(len(names)), [get_defense(n).label for n in names], rotation=60)
            ax.set_title(BENCHMARKS[benchmark].label)
        for ax in axes.flat[len(benchmarks) :]:
            ax.set_visible(False)
        for ax in axes[:, 0]:
            ax.set_ylabel("seconds per round")
        low, high = table["per_round"].min(), table["per_round"].max()
        axes[0, 0].set_ylim(low / 2, high * 3)
        caption(figure, about + "; numbers: seconds over all rounds")
    return figure
