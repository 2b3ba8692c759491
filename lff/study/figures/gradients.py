"""What the attack does to gradients: magnitudes during training, and principal components."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lff.experiments.benchmarks import BENCHMARKS
from lff.study.figures.style import (
    BAD,
    GOOD,
    WIDTH,
    band_note,
    caption,
    journal,
    new_figure,
    round_axis,
)


def magnitudes(rounds: pd.DataFrame, about: str) -> Figure:
    """Gradient magnitudes of relevant and non-relevant neurons during training.

    `rounds` has one row per round: `benchmark`, `attackers`, `round`, `relevant`, `non_relevant`.
    """
    benchmarks = list(dict.fromkeys(rounds["benchmark"]))
    ratios = sorted(rounds["attackers"].unique())
    kinds = {"relevant": ("relevant neurons", BAD), "non_relevant": ("non-relevant", GOOD)}
    with journal():
        figure = new_figure(WIDTH, 2.5)
        axes = figure.subplots(1, len(benchmarks), squeeze=False)[0]
        handles = {}
        for ax, benchmark in zip(axes, benchmarks, strict=True):
            for ratio in ratios:
                dashes = "-" if ratio == ratios[-1] else "--"
                here = rounds[(rounds["benchmark"] == benchmark) & (rounds["attackers"] == ratio)]
                for kind, (name, style) in kinds.items():
                    mean = here.groupby("round")[kind].mean()
                    look = style.line() | {"linestyle": dashes}
                    every = max(1, len(mean) // 8)
                    (line,) = ax.plot(mean.index + 1, mean, markevery=every, **look)
                    handles[f"{name}, {ratio:g}% attackers"] = line
                    if here["seed"].nunique() > 1:
                        by_round = here.groupby("round")[kind]
                        band = {"color": style.color, "alpha": 0.15, "linewidth": 0}
                        ax.fill_between(mean.index + 1, by_round.min(), by_round.max(), **band)
            ax.set_title(BENCHMARKS[benchmark].label)
            round_axis(ax)
            ax.set_ylim(0, ax.get_ylim()[1] * 1.03)
        axes[0].set_ylabel("mean gradient magnitude\nof a neuron")
        figure.legend(
            handles.values(), handles.keys(), loc="outside upper center", ncols=2, frameon=False
        )
        caption(figure, about + band_note(rounds))
    return figure


def components(table: pd.DataFrame, about: str) -> Figure:
    """The first two principal components of a round's gradients, one panel per view.

    `table` has one row per update and view: `view`, `pc1`, `pc2`, `bad`, and the view's
    `explained1`, `explained2` and `silhouette`.
    """
    names = list(dict.fromkeys(table["view"]))
    with journal():
        figure = new_figure(WIDTH, 2.7)
        axes = figure.subplots(1, len(names), squeeze=False)[0]
        for ax, name in zip(axes, names, strict=True):
            _components_panel(ax, table[table["view"] == name])
            score = table.loc[table["view"] == name, "silhouette"].iloc[0]
            ax.set_title(f"{name[0].upper()}{name[1:]}\n{_silhouette(score)}")
        _good_bad_legend(figure)
        caption(figure, about)
    return figure


def components_extreme(table: pd.DataFrame, classes: Mapping[int, str], about: str) -> Figure:
    """The relevant neurons' gradients where each peer holds one class; bad updates circled.

    `table` has one row per update: `pc1`, `pc2`, `bad` and `class_held`.
    """
    shapes = "osD^v<>PX*"
    with journal():
        figure = new_figure(WIDTH * 0.62, 3.1)
        ax = figure.subplots()
        shades = np.linspace(0.05, 0.75, len(classes))
        for (c, name), shape, shade in zip(classes.items(), shapes, shades, strict=False):
            held = table[(table["class_held"] == c) & ~table["bad"]]
            ax.scatter(
                held["pc1"],
                held["pc2"],
                s=16,
                marker=shape,
                color=str(shade),
                label=f"class {name}",
            )
        bad = table[table["bad"]]
        ax.scatter(bad["pc1"], bad["pc2"], s=16, marker="X", color=BAD.color, label="bad update")
        ax.scatter(bad["pc1"], bad["pc2"], s=90, facecolors="none", edgecolors=BAD.color)
        _component_labels(ax, table)
        ax.set_title(f"Relevant neurons\n{_silhouette(table['silhouette'].iloc[0])}")
        figure.legend(loc="outside right upper", frameon=False, handlelength=1)
        caption(figure, about)
    return figure


def _components_panel(ax: Axes, table: pd.DataFrame) -> None:
    for bad, style in ((False, GOOD), (True, BAD)):
        points = table[table["bad"] == bad]
        ax.scatter(
            points["pc1"],
            points["pc2"],
            s=16,
            marker=style.marker,
            color=style.color,
            alpha=0.75,
            linewidths=0,
        )
    _component_labels(ax, table)


def _silhouette(score: float) -> str:
    return f"silhouette {score:.2f}".replace("-", "\N{MINUS SIGN}")


def _component_labels(ax: Axes, table: pd.DataFrame) -> None:
    row = table.iloc[0]
    ax.set_xlabel(f"PC 1 ({row['explained1']:.0%} of variance)")
    ax.set_ylabel(f"PC 2 ({row['explained2']:.0%})")
    ax.ticklabel_format(scilimits=(-2, 3), useMathText=True)


def _good_bad_legend(figure: Figure) -> None:
    handles = [
        Line2D([], [], linestyle="", marker=style.marker, color=style.color, label=label)
        for style, label in ((GOOD, "good update"), (BAD, "bad update"))
    ]
    place = {"loc": "outside upper center", "ncols": 2, "frameon": False, "handlelength": 1}
    figure.legend(handles=handles, **place)
