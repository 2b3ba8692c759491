"""Whom LFighter dropped, round by round, and which classes it took for the attacked ones."""

from collections.abc import Collection

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from lff.experiments.benchmarks import BENCHMARKS
from lff.errors import InputError
from lff.study.figures.style import WIDTH, caption, journal, new_figure

_COLUMNS = {
    "attackers_dropped": "attackers dropped",
    "honest_dropped": "honest peers dropped",
    "named": "attacked classes named",
}

Row = tuple[str, float, int]  # benchmark, attacker ratio, seed


def filtering(rounds: pd.DataFrame, about: str, asked: Collection[Row] = ()) -> Figure:
    """Every attacked run as one line of rounds, dark where much was dropped or named.

    `rounds` has one row per round (see `lff.study.filtering.filtered_rounds`). Lines of one benchmark
    are sorted by attacker ratio and seed; a run that was `asked` for and is missing, and what
    cannot be (nothing to name), is hatched.
    """
    rounds = rounds[rounds["attackers"] > 0].assign(named=rounds["named"] / 2)
    keys = list(zip(rounds["benchmark"], rounds["attackers"], rounds["seed"], strict=True))
    rows = sorted({*keys, *((b, float(r), s) for b, r, s in asked if r > 0)})
    benchmarks = [b for b in BENCHMARKS if any(row[0] == b for row in rows)]
    lines = {b: [row for row in rows if row[0] == b] for b in benchmarks}
    if not benchmarks:
        return _nothing(f"{about}; no attacked run of LFighter was asked for")
    heights = [max(0.35, 0.085 * len(lines[b])) for b in benchmarks]
    with journal():
        figure = new_figure(WIDTH, sum(heights) + 0.42 * len(benchmarks) + 0.7)
        axes = figure.subplots(
            len(benchmarks), len(_COLUMNS), squeeze=False, height_ratios=heights, sharex="row"
        )
        for panels, benchmark in zip(axes, benchmarks, strict=True):
            here = rounds[rounds["benchmark"] == benchmark]
            for ax, column in zip(panels, _COLUMNS, strict=True):
                image = _panel(ax, here, lines[benchmark], column)
                ax.tick_params(labelleft=ax is panels[0])
            panels[0].set_ylabel(BENCHMARKS[benchmark].label, rotation=0, ha="right", va="center")
        for ax, title in zip(axes[0], _COLUMNS.values(), strict=True):
            ax.set_title(title)
        for ax in axes[-1]:
            ax.set_xlabel("round")
        figure.colorbar(image, ax=axes, label="percent", shrink=min(1, 1.6 / len(benchmarks)))
        caption(
            figure,
            f"{about}; one line per attacker ratio and seed; hatched: not run, or nothing to name",
        )
    return figure


def _nothing(why: str) -> Figure:
    with journal():
        figure = new_figure(WIDTH, 0.5)
        caption(figure, why)
    return figure


def _panel(ax: Axes, here: pd.DataFrame, lines: list[Row], column: str) -> AxesImage:
    last = int(here["round"].max()) + 1 if len(here) else 1
    wide = here.pivot(index=["benchmark", "attackers", "seed"], columns="round", values=column)
    cells = wide.reindex(index=pd.MultiIndex.from_tuples(lines), columns=range(last))
    ax.patch.set(hatch="////", facecolor="white", edgecolor="0.75")
    image = ax.imshow(
        np.ma.masked_invalid(100 * cells.to_numpy(dtype=float)),
        aspect="auto",
        interpolation="none",
        cmap="Blues",
        vmin=0,
        vmax=100,
        extent=(0.5, last + 0.5, len(lines) - 0.5, -0.5),
    )
    ratios = [ratio for _, ratio, _ in lines]
    firsts = [i for i, ratio in enumerate(ratios) if i == 0 or ratios[i - 1] != ratio]
    for first in firsts[1:]:
        ax.axhline(first - 0.5, color="black", linewidth=0.4)
    ends = [*firsts[1:], len(lines)]
    centers = [(first + end - 1) / 2 for first, end in zip(firsts, ends, strict=True)]
    ax.set_yticks(centers, [f"{ratios[first]:g}%" for first in firsts])
    ax.tick_params(axis="y", length=0)
    if len(here):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    else:
        ax.set_xticks([])
    for side in ("top", "right"):
        ax.spines[side].set_visible(True)
    return image
