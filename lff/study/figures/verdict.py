"""The paper's numbers against ours."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lff.experiments.benchmarks import BENCHMARKS
from lff.defenses import get_defense
from lff.study.figures.style import WIDTH, Look, caption, journal, look, new_figure
from lff.study.spread import several

_LABELS = {"src_acc": "Src-Acc", "asr": "ASR"}


def paper_vs_ours(table: pd.DataFrame, about: str) -> Figure:
    """Src-Acc and ASR as the paper reports them (x) and as we find them (y); equal on the diagonal.

    `table` has one row per benchmark, method and attacker ratio: `src_acc_paper`, `src_acc_ours`,
    `asr_paper`, `asr_ours` (see `lff.study.paper.compare`). Cells without a run are left out. Several
    seeds give means, with the range of the seeds as vertical lines.
    """
    benchmarks = list(dict.fromkeys(table["benchmark"]))
    methods = list(dict.fromkeys(table["defense"]))
    with journal():
        figure = new_figure(WIDTH, 2.45 * len(_LABELS) + 0.6)
        axes = figure.subplots(
            len(_LABELS), len(benchmarks), squeeze=False, sharex=True, sharey=True
        )
        for row, (metric, label) in zip(axes, _LABELS.items(), strict=True):
            for ax, benchmark in zip(row, benchmarks, strict=True):
                ax.plot([0, 100], [0, 100], color="0.75", linewidth=0.8, zorder=0)
                here = table[table["benchmark"] == benchmark]
                for method in methods:
                    _points(ax, here[here["defense"] == method], metric, look(method, methods))
                ax.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
                ax.set_title(f"{BENCHMARKS[benchmark].label}, {label}")
            row[0].set_ylabel("ours (%)")
        for ax in axes[-1]:
            ax.set_xlabel("paper (%)")
        handles = []
        for method in methods:
            symbol = look(method, methods).points()
            handles.append(Line2D([], [], label=get_defense(method).label, **symbol))
        figure.legend(
            handles=handles, loc="outside upper center", ncols=7, frameon=False, handlelength=1
        )
        number = int(table["src_acc_ours"].notna().sum())
        note = f"; {number} of {len(table)} cells that the paper shows"
        if several(table):
            note += "; points: mean, lines: range of the seeds"
        caption(figure, about + note)
    return figure


def _points(ax: Axes, cells: pd.DataFrame, metric: str, style: Look) -> None:
    cells = cells[cells[f"{metric}_ours"].notna()]
    if cells.empty:
        return
    x, ours = cells[f"{metric}_paper"] * 100, list(cells[f"{metric}_ours"])
    means = [100 * spread.mean for spread in ours]
    ax.plot(x, means, alpha=0.8, clip_on=False, **style.points())
    low, high = ([100 * getattr(spread, end) for spread in ours] for end in ("low", "high"))
    ax.vlines(x, low, high, color=style.color, alpha=0.5, linewidth=0.8)
