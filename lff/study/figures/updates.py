"""What peers hold, and the principal components of their updates."""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lff.study.figures.style import BLUE, GRAY, RED, SKY, WIDTH, journal, new_figure

UPDATES = {False: ("good update", "o", BLUE), True: ("bad update", "o", RED)}


def class_shares(counts: pd.DataFrame, caption: str) -> Figure:
    """How many examples of each class each peer holds, one panel per distribution.

    `counts` is `lff.study.tables.class_counts` of one seed. Peers are sorted by how many examples
    of the source class they hold; attackers are marked above. One scale of colors, of square roots,
    serves all panels.
    """
    names = list(counts["distribution"].unique())
    with journal():
        note = "; peers sorted by their examples of the source class (bold)"
        attack = counts[counts["attacker"]].groupby("distribution", sort=False)["peer"].nunique()
        told = ", ".join(f"{number} in {name}" for name, number in attack.items())
        marked = f"; triangles: the attackers, {told}" if told else ""
        figure = new_figure(WIDTH, 1.35 * len(names) + 0.5, caption + note + marked)
        axes = figure.subplots(len(names), squeeze=False)[:, 0]
        colors = PowerNorm(0.5, vmin=0, vmax=counts["examples"].max())
        for ax, name in zip(axes, names, strict=True):
            here = counts[counts["distribution"] == name]
            held = here.pivot(index="class", columns="peer", values="examples")
            source = here.loc[here["source"], "class"].iloc[0]
            classes = list(here["class"].unique())
            by = pd.DataFrame({"source": -held.loc[source], "most": held.idxmax()})
            peers = by.sort_values(["source", "most"], kind="stable").index
            table = held.loc[classes, peers]
            sns.heatmap(
                table, ax=ax, cmap="Greys", norm=colors, cbar=False, xticklabels=False,
                yticklabels=True, rasterized=True,
            )  # fmt: skip
            attackers = set(here.loc[here["attacker"], "peer"])
            places = [i + 0.5 for i, peer in enumerate(peers) if peer in attackers]
            ax.plot(places, [-0.45] * len(places), "v", color=RED, markersize=3, clip_on=False)
            ax.set(xlabel="", ylabel="class")
            ax.set_title(name, pad=9 if places else None)
            ax.tick_params(axis="y", length=0, labelsize=5.5, rotation=0)
            ax.get_yticklabels()[classes.index(source)].set_fontweight("bold")
        axes[-1].set_xlabel("peers")
        bar = figure.colorbar(axes[0].collections[0], ax=list(axes), aspect=25, shrink=0.7)
        bar.set_label("examples (square-root scale)")
    return figure


def components(points: pd.DataFrame, caption: str) -> Figure:
    """The first two principal components of a round's gradients, one panel per view.

    `points` has one row per update and view: `view`, `pc1`, `pc2`, `bad`, and the view's
    `explained1`, `explained2` and `silhouette`. Both axes have the same scale. Points far from all
    others are left outside and counted.
    """
    names = list(points["view"].unique())
    with journal():
        figure = new_figure(WIDTH, 3.0, caption)
        axes = figure.subplots(1, len(names), squeeze=False)[0]
        for ax, name in zip(axes, names, strict=True):
            view = points[points["view"] == name]
            for bad, (_, marker, color) in UPDATES.items():
                _scatter(ax, view[view["bad"] == bad], color, marker)
            xy = view[["pc1", "pc2"]].to_numpy()
            distance = np.abs(xy - np.median(xy, axis=0)).max(axis=1)
            far = distance > 3 * np.quantile(distance, 0.95)
            _frame(ax, view, xy[~far])
            if far.any():
                text = f"{far.sum()} far outside"
                ax.text(0.98, 0.98, text, transform=ax.transAxes, ha="right", va="top", fontsize=6)
            ax.set_title(f"{name[0].upper()}{name[1:]}\n{_silhouette(view)}")
        handles = [
            Line2D([], [], linestyle="", marker=marker, color=color, label=label)
            for label, marker, color in UPDATES.values()
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=2, handlelength=1)
    return figure


def components_extreme(points: pd.DataFrame, caption: str) -> Figure:
    """The relevant neurons' gradients where each peer holds one class; all, and the densest part.

    `points` has one row per update: `pc1`, `pc2`, `bad`, `class_held`, and the experiment's
    `source_class` and `target_class`.
    """
    source, target = points["source_class"].iloc[0], points["target_class"].iloc[0]
    held, good = points["class_held"], ~points["bad"]
    groups = {
        "honest, other classes": (points[good & ~held.isin([source, target])], GRAY, "o"),
        f"honest, class {target} (target)": (points[good & (held == target)], SKY, "s"),
        f"honest, class {source} (source)": (points[good & (held == source)], BLUE, "D"),
        f"attackers, class {source}": (points[points["bad"]], RED, "D"),
    }
    with journal():
        figure = new_figure(WIDTH, 3.2, caption)
        whole, close = figure.subplots(1, 2)
        for ax in (whole, close):
            for label, (group, color, marker) in groups.items():
                _scatter(ax, group, color, marker, label)
        others = groups["honest, other classes"][0][["pc1", "pc2"]].to_numpy()
        _frame(whole, points, points[["pc1", "pc2"]].to_numpy())
        center, reach = _frame(close, points, others if len(others) else np.zeros((1, 2)))
        whole.indicate_inset((*(center - reach), 2 * reach, 2 * reach))
        whole.set_title(f"Relevant neurons\n{_silhouette(points)}")
        close.set_title("The other classes\nfrom close by")
        handles, labels = whole.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4, handlelength=1)
    return figure


def _scatter(ax: Axes, points: pd.DataFrame, color: str, marker: str, label: str = "") -> None:
    look = {"s": 16, "color": color, "marker": marker, "alpha": 0.75, "linewidth": 0}
    sns.scatterplot(points, x="pc1", y="pc2", ax=ax, label=label or None, legend=False, **look)


def _frame(ax: Axes, view: pd.DataFrame, shown: np.ndarray) -> tuple[np.ndarray, float]:
    """A square around the shown points, both axes to the same scale: its center and half side."""
    low, high = shown.min(axis=0), shown.max(axis=0)
    center, reach = (low + high) / 2, 0.54 * max((high - low).max(), 1e-9)
    ax.set(xlim=(center[0] - reach, center[0] + reach), ylim=(center[1] - reach, center[1] + reach))
    ax.set_aspect("equal")
    row = view.iloc[0]
    ax.set_xlabel(f"PC 1 ({row['explained1']:.0%} of variance)")
    ax.set_ylabel(f"PC 2 ({row['explained2']:.0%})")
    ax.ticklabel_format(scilimits=(-2, 3), useMathText=True)
    return center, reach


def _silhouette(view: pd.DataFrame) -> str:
    return f"silhouette {view['silhouette'].iloc[0]:.2f}".replace("-", "\N{MINUS SIGN}")
