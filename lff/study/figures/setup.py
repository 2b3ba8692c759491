"""How the examples fall to the peers."""

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lff.study.figures.style import WIDTH, caption, journal, new_figure


def class_shares(table: pd.DataFrame, about: str) -> Figure:
    """The number of examples of each class that each peer holds, one panel per distribution.

    `table` has a row per `distribution`, `peer` and `class`, with the number of `examples`.
    """
    names = list(dict.fromkeys(table["distribution"]))
    classes = list(dict.fromkeys(table["class"]))
    colors = colormaps["cividis"](np.linspace(0, 1, len(classes)))
    with journal():
        figure = new_figure(WIDTH, 2.5)
        axes = figure.subplots(1, len(names), squeeze=False)[0]
        for ax, name in zip(axes, names, strict=True):
            held = table[table["distribution"] == name]
            counts = held.pivot(index="peer", columns="class", values="examples")[classes]
            bottom = np.zeros(len(counts))
            for c, color in zip(classes, colors, strict=True):
                ax.bar(counts.index, counts[c], bottom=bottom, width=1, color=color, label=c)
                bottom += counts[c].to_numpy()
            ax.set_title(name)
            ax.set_xlabel("peer")
            ax.set_xlim(-0.5, len(counts) - 0.5)
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes[0].set_ylabel("examples")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, title="class", loc="outside right upper", frameon=False, fontsize=7
        )
        caption(figure, about)
    return figure
