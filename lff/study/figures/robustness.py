"""Robustness against the attack, in the form of the paper's figures: one panel per method."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from pandas.api.typing import SeriesGroupBy

from lff.defenses import get_defense
from lff.study.figures.style import METRICS, WIDTH, band_note, caption, journal, new_figure, not_run
from lff.experiments.scales import ATTACKER_RATIOS

NUMBER = {"fontsize": 5.5, "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.5}}
_BESIDE = {"src_acc": -0.7, "asr": 0.7, "test_error": 0, "all_acc": 2}  # ranges side by side
TOP = 100  # of the axis
PANEL_ORDER = ("fedavg", "median", "trimmed_mean", "multi_krum", "foolsgold", "lfighter")


def robustness(table: pd.DataFrame, about: str, methods: Sequence[str] | None = None) -> Figure:
    """All-Acc, Src-Acc, ASR and TE against the attacker ratio, one panel per method.

    `table` has one row per run of one benchmark (see `lff.results`). Several seeds give means
    with the range of the seeds as bands; a ratio without a run, or a method that is asked for in
    `methods` and has none, is left empty and says so.
    """
    methods = methods or [m for m in PANEL_ORDER if (table["defense"] == m).any()]
    with journal():
        columns = min(3, len(methods))
        rows = -(-len(methods) // columns)
        figure = new_figure(WIDTH, 1.75 * rows + 0.75)
        axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        for ax, method in zip(axes.flat, methods, strict=False):
            _robustness_panel(ax, table[table["defense"] == method])
            ax.set_title(get_defense(method).label)
        for ax in axes.flat[len(methods) :]:
            ax.set_visible(False)
        for ax in axes[:, 0]:
            ax.set_ylabel(f"percent; {METRICS['test_error'][0]}")
        for column in range(columns):
            last = max(r for r in range(rows) if r * columns + column < len(methods))
            axes[last, column].set_xlabel("attacker ratio (%)")
            axes[last, column].tick_params(labelbottom=True)
        _robustness_legend(figure)
        caption(figure, about + band_note(table))
    return figure


def _robustness_panel(ax: Axes, runs: pd.DataFrame) -> None:
    by_ratio = runs.groupby("attackers")
    ratios = np.array(sorted({*ATTACKER_RATIOS, *by_ratio.groups}), dtype=float)
    bars = (by_ratio["all_acc"].mean() * 100).reindex(ratios)
    ax.bar(ratios, bars, width=6, color="0.93", edgecolor="0.45", hatch="////", linewidth=0.5)
    for metric, (_, style) in METRICS.items():
        scaled = by_ratio[metric]
        factor = 10 if metric == "test_error" else 100
        values = (scaled.mean() * factor).reindex(ratios)  # a ratio that was not run is a gap
        beyond = values[values > TOP]  # a diverged model's test error leaves the panel
        ax.plot(ratios, values, clip_on=len(beyond) > 0, zorder=3, **style.line())
        for ratio, value in beyond.items():
            text = f"\N{UPWARDS ARROW} {value:.3g}"
            ax.annotate(text, (ratio, TOP), (5, -1), textcoords="offset points", va="top", **NUMBER)
        if runs["seed"].nunique() > 1:
            low, high = (bound.reindex(ratios) * factor for bound in _ends(scaled))
            ax.fill_between(ratios, low, high, color=style.color, alpha=0.2, linewidth=0)
            ax.vlines(ratios + _BESIDE[metric], low, high, color=style.color, alpha=0.5)
    if runs["seed"].nunique() > 1:
        low, high = (bound.reindex(ratios) * 100 for bound in _ends(by_ratio["all_acc"]))
        ax.vlines(ratios + _BESIDE["all_acc"], low, high, color="0.45")
    for ratio in bars.index[bars.isna()]:
        not_run(ax, ratio)
    ax.set_xticks(ATTACKER_RATIOS)
    ax.set_xlim(-5, 55)
    ax.set_ylim(0, TOP)


def _ends(values: SeriesGroupBy) -> tuple[pd.Series, pd.Series]:
    return values.min(), values.max()


def _robustness_legend(figure: Figure) -> None:
    handles = [Patch(facecolor="0.93", edgecolor="0.45", hatch="////", label="All-Acc")]
    handles += [Line2D([], [], label=label, **style.line()) for label, style in METRICS.values()]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False)
