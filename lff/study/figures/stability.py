"""The source-class accuracy during training."""

import textwrap
from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lff.experiments.benchmarks import BENCHMARKS
from lff.defenses import get_defense
from lff.study.figures.style import (
    WIDTH,
    band_note,
    caption,
    journal,
    look,
    new_figure,
    round_axis,
)

REFERENCE = "no attack"


def stability(
    rounds: pd.DataFrame, about: str, asked: Mapping[str, Collection[str]] | None = None
) -> Figure:
    """Src-Acc during training, one panel per benchmark, one curve per method.

    `rounds` has one row per round of each run (`benchmark`, `curve`, `seed`, `round`, `src_acc`);
    the curve `no attack` is FedAvg without attackers, the reference. A panel names the curves
    that were `asked` for, by benchmark, and have no run.
    """
    asked = asked or {}
    benchmarks = list(dict.fromkeys([*asked, *rounds["benchmark"]]))
    with journal():
        alone = len(benchmarks) == 1
        figure = new_figure(0.6 * WIDTH if alone else WIDTH, 2.6)
        axes = figure.subplots(1, len(benchmarks), squeeze=False, sharey=True)[0]
        curves = sorted(dict.fromkeys(rounds["curve"]), key=lambda curve: curve != REFERENCE)
        for ax, benchmark in zip(axes, benchmarks, strict=True):
            here = rounds[rounds["benchmark"] == benchmark]
            for curve in curves:
                _stability_curve(ax, here[here["curve"] == curve], curve, curves)
            ax.set_title(BENCHMARKS[benchmark].label)
            round_axis(ax)
            gaps = [
                _curve_label(c) for c in asked.get(benchmark, ()) if c not in set(here["curve"])
            ]
            if gaps:
                note = f"not run: {', '.join(gaps)}" if len(here) else "not run"
                note = textwrap.fill(note, 36)
                ax.set_xlabel(f"{ax.get_xlabel()}\n{note}")
            ax.set_ylim(-2, 102)
        axes[0].set_ylabel("Src-Acc (%)")
        handles = [
            Line2D([], [], label=_curve_label(curve), **_curve_style(curve, curves))
            for curve in curves
        ]
        columns = 2 if alone else 4
        figure.legend(handles=handles, loc="outside upper center", ncols=columns, frameon=False)
        caption(figure, about + band_note(rounds))
    return figure


def _stability_curve(ax: Axes, runs: pd.DataFrame, curve: str, curves: list[str]) -> None:
    if runs.empty:
        return
    by_round = runs.groupby("round")["src_acc"]
    x = np.array(sorted(by_round.groups)) + 1
    style = _curve_style(curve, curves)
    step = max(1, len(x) // 8)
    every = (curves.index(curve) % step, step)  # curves that meet show their markers in turn
    ax.plot(x, by_round.mean() * 100, markevery=every, clip_on=False, **style)
    if runs["seed"].nunique() > 1:
        low, high = by_round.min() * 100, by_round.max() * 100
        ax.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


def _curve_label(curve: str) -> str:
    return "FedAvg (no attack)" if curve == REFERENCE else get_defense(curve).label


def _curve_style(curve: str, curves: list[str]) -> dict:
    if curve == REFERENCE:
        return {"color": "0.7", "linestyle": "-", "linewidth": 3.5, "marker": "", "zorder": 1}
    return look(curve, curves).line()
