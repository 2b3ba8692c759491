"""What happens round by round: gradient magnitudes, Src-Acc, and whom LFighter dropped."""

from collections.abc import Iterable
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from lff.experiments.experiment import Experiment
from lff.study import lockon, statistics
from lff.study.figures.style import (
    BLUE,
    GRAY,
    METHODS,
    RED,
    REFERENCE,
    RIGHT,
    WIDTH,
    WRONG,
    Look,
    journal,
    look,
    new_figure,
    not_run,
    round_axis,
)
from lff.study.frame import benchmark_label, benchmarks_in_order, defense_label, defenses_in_order

MISTAKES = {
    "attackers_kept": ("attackers kept", RED),
    "honest_dropped": ("honest peers dropped", BLUE),
    "unseen": ("attacked classes unseen", "0.1"),
}


def magnitudes(rounds: pd.DataFrame, caption: str) -> Figure:
    """Gradient magnitudes of relevant over those of non-relevant neurons, during training."""
    benchmarks = benchmarks_in_order(rounds["benchmark"])
    shown = rounds.assign(
        round=rounds["round"] + 1,
        ratio=rounds["relevant"] / rounds["non_relevant"],
        attackers=rounds["attackers"].map("{:g}% attackers".format),
    )
    order = [f"{ratio:g}% attackers" for ratio in sorted(rounds["attackers"].unique())]
    palette = dict(zip(order, sns.color_palette("flare", len(order)), strict=True))
    several = rounds["seed"].nunique() > 1
    with journal():
        note = "; lines: median of the seeds, bands: their range" if several else ""
        figure = new_figure(WIDTH, 2.5, caption + note)
        axes = figure.subplots(1, len(benchmarks), squeeze=False)[0]
        for ax, benchmark in zip(axes, benchmarks, strict=True):
            ax.axhline(1, color=GRAY, linewidth=0.8)
            sns.lineplot(
                shown[shown["benchmark"] == benchmark], x="round", y="ratio", hue="attackers",
                style="attackers", hue_order=order, style_order=order, palette=palette, ax=ax,
                estimator="median", errorbar=("pi", 100) if several else None,
                legend=ax is axes[0],
            )  # fmt: skip
            ax.set(title=benchmark_label(benchmark), ylabel="")
            ax.set_ylim(bottom=0)
            round_axis(ax)
        axes[0].set_ylabel("gradient magnitude,\nrelevant / non-relevant")
        axes[0].legend(title=None)
    return figure


def stability(rounds: pd.DataFrame, caption: str, asked: Iterable[Experiment] = ()) -> Figure:
    """Src-Acc during training, a row per benchmark and a panel per method.

    `rounds` are those of attacked runs, and of FedAvg without attack, the wide gray reference in
    every panel. Each seed is a thin line, their median a thick one. A panel without a run of a
    method that was `asked` for says so.
    """
    asked = [e for e in asked if e.attackers > 0]
    reference = rounds[(rounds["defense"] == "fedavg") & (rounds["attackers"] == 0)]
    attacked = rounds[rounds["attackers"] > 0]
    benchmarks = benchmarks_in_order([*attacked["benchmark"], *(e.benchmark for e in asked)])
    methods = defenses_in_order([*attacked["defense"], *(e.defense for e in asked)])
    wanted = {(e.benchmark, e.defense) for e in asked}
    several = rounds["seed"].nunique() > 1
    with journal():
        note = "; gray: FedAvg without attack" if len(reference) else ""
        note += "; thin lines: seeds, thick: their median" if several else ""
        size = WIDTH if len(methods) > 3 else 0.25 * WIDTH * len(methods) + 0.6
        figure = new_figure(size, 1.15 * len(benchmarks) + 0.9, caption + note)
        axes = figure.subplots(
            len(benchmarks), len(methods), squeeze=False, sharex="row", sharey=True
        )
        for row, benchmark in zip(axes, benchmarks, strict=True):
            for ax, method in zip(row, methods, strict=True):
                _curves(ax, reference[reference["benchmark"] == benchmark], **REFERENCE)
                here = attacked[
                    (attacked["benchmark"] == benchmark) & (attacked["defense"] == method)
                ]
                _curves(ax, here, color=look(method, methods)["color"], zorder=3)
                if here.empty and (benchmark, method) in wanted:
                    not_run(ax, 0.5, 0.5, transform=ax.transAxes, ha="center")
                ax.set_ylim(-3, 103)
                round_axis(ax)
                ax.set_xlabel("")
            row[0].set_ylabel(f"{benchmark_label(benchmark)}\nSrc-Acc (%)")
        for ax, method in zip(axes[0], methods, strict=True):
            ax.set_title(defense_label(method))
        for ax in axes[-1]:
            ax.set_xlabel("round")
    return figure


def _curves(ax: Axes, rounds: pd.DataFrame, **line: Any) -> None:
    """Src-Acc of each seed, thin, and their median."""
    shown = rounds.assign(round=rounds["round"] + 1, percent=100 * rounds["src_acc"])
    both = {"data": shown, "x": "round", "y": "percent", "ax": ax, "legend": False}
    if shown["id"].nunique() > 1:
        thin = line | {"linewidth": 0.6, "alpha": 0.6}
        sns.lineplot(**both, estimator=None, units="id", **thin)
    if len(shown):
        sns.lineplot(**both, estimator="median", errorbar=None, **line)
    ax.set(ylabel="")


def dropped_by_round(
    rounds: pd.DataFrame, caption: str, asked: Iterable[Experiment] = ()
) -> Figure:
    """Every attacked run of LFighter as one line of rounds; what is wrong is dark.

    Wrong are attackers who are kept, honest peers who are dropped, and those of source and target
    class that are not among the two neurons it looked at. Lines of one benchmark are sorted by
    attacker ratio and seed. A run that was `asked` for and is missing is hatched, and so is what
    cannot be (no class to see).
    """
    seen = lockon.filtered(rounds[rounds["attackers"] > 0])
    seen["attackers_kept"] = 1 - seen["attackers_dropped"]
    seen["unseen"] = 1 - seen["named"] / 2
    key = ["benchmark", "attackers", "seed", "id"]
    runs = {*seen[key].itertuples(index=False, name=None)}
    runs |= {
        (e.benchmark, e.attackers, e.seed, e.id)
        for e in asked
        if e.attackers and e.defense == lockon.LFIGHTER
    }
    benchmarks = benchmarks_in_order(run[0] for run in runs)
    lines = {b: sorted(run for run in runs if run[0] == b) for b in benchmarks}
    heights = [max(0.3, 0.115 * len(lines[b])) for b in benchmarks]
    gaps = ["not run"] * (len(runs) > seen["id"].nunique())
    gaps += ["no class to see"] * bool(seen["unseen"].isna().any())
    with journal():
        if not benchmarks:
            return new_figure(WIDTH, 0.5, f"{caption}; no attacked run of LFighter was asked for")
        note = "; a line is a run, dark is wrong; unseen: not among the two neurons that LFighter "
        note += "looked at"
        note += f"; hatched: {' or '.join(gaps)}" if gaps else ""
        figure = new_figure(WIDTH, sum(heights) + 0.45 * len(benchmarks) + 1.1, caption + note)
        axes = figure.subplots(len(benchmarks), 3, squeeze=False, height_ratios=heights)
        for row, benchmark in zip(axes, benchmarks, strict=True):
            here = seen[seen["benchmark"] == benchmark]
            shown = range(int(here["round"].max()) + 1 if len(here) else 1)
            for ax, (column, (_, color)) in zip(row, MISTAKES.items(), strict=True):
                wide = 100 * here.pivot(index=key, columns="round", values=column)
                wide = wide.reindex(pd.MultiIndex.from_tuples(lines[benchmark]), columns=shown)
                _map_of_rounds(ax, wide, color, labels=ax is row[0])
            row[0].set_ylabel(benchmark_label(benchmark), rotation=0, ha="right", va="center")
        for ax, (title, _) in zip(axes[0], MISTAKES.values(), strict=True):
            ax.set_title(title)
        for column, ax in zip(axes.T, axes[-1], strict=True):
            ax.set_xlabel("round")
            bar = figure.colorbar(ax.collections[0], ax=list(column), location="bottom", shrink=0.6)
            bar.set_label("percent")
    return figure


def saved_and_lost(rounds: pd.DataFrame, caption: str, runs: pd.DataFrame) -> Figure:
    """LFighter in every seed of one benchmark and ratio: Src-Acc, and whom it dropped.

    `rounds` are those of its attacked runs, and of FedAvg in the same seeds, without attack (wide
    and gray) and under the same attack (dashed); `runs` say which seeds lost the source class.
    Those are strong, and below the line on the right, where a cell is muted if a larger share of
    the attackers was dropped than of the honest peers, and strong if it was the other way round.
    """
    ours = (rounds["defense"] == lockon.LFIGHTER) & (rounds["attackers"] > 0)
    fedavg, calm = rounds["defense"] == "fedavg", rounds["attackers"] == 0
    judged = statistics.against_unattacked(runs[runs["id"].isin(rounds["id"])])
    lost = judged[judged["defense"] == lockon.LFIGHTER].set_index("seed")["lost"].fillna(False)
    order, gone = sorted(lost.index, key=lambda seed: (lost[seed], seed)), lost.index[lost]
    thin: Look = {"color": RIGHT, "linewidth": 1.1}
    thick: Look = {"color": WRONG, "linewidth": 1.8, "zorder": 4}
    dashed: Look = {"color": METHODS["fedavg"]["color"], "linestyle": "--", "linewidth": 1.1}
    kinds = {
        "LFighter, class saved": (ours & ~rounds["seed"].isin(gone), thin),
        "LFighter, class lost": (ours & rounds["seed"].isin(gone), thick),
        "FedAvg, same attack": (fedavg & ~calm, dashed),
        "FedAvg, no attack": (fedavg & calm, REFERENCE | {"linewidth": 2}),
    }
    seeds = rounds[fedavg].groupby("attackers")["seed"].nunique().to_dict()
    note = f"; {rounds[ours]['attackers'].iloc[0]:g}% attackers; a line is a seed: "
    note += f"{len(lost)} of LFighter, of FedAvg {seeds.pop(0, 0)} without "
    note += f"attack and {sum(seeds.values()) or 'none recorded'} under the same attack"
    with journal():
        figure = new_figure(WIDTH, max(3.0, 0.12 * len(order) + 1.3), caption + note)
        curves, strips = figure.subplots(1, 2, width_ratios=[1, 1.25])
        for name, (those, line) in kinds.items():
            for number, (_, own) in enumerate(rounds[those].groupby("seed")):
                label = "" if number else name
                curves.plot(own["round"] + 1, 100 * own["src_acc"], label=label, **line)
        figure.legend(loc="outside upper center", ncols=4)
        curves.set(ylabel="Src-Acc (%)", ylim=(-3, 103))
        curves.set_title(f"class lost in {len(gone)} of {len(lost)} seeds")
        round_axis(curves)
        _strips(strips, rounds[ours], order, len(gone))
    return figure


def _strips(ax: Axes, ours: pd.DataFrame, order: list[int], lost: int) -> None:
    """Seeds x rounds: of the attackers a larger share was dropped, or of the honest peers.

    The last seeds of the `order` are those that `lost` the class.
    """
    seen = lockon.filtered(ours)
    seen = seen.assign(right=100 * (seen["attackers_dropped"] - seen["honest_dropped"]))
    wide = seen.pivot(index="seed", columns="round", values="right").loc[order]
    wide.columns = wide.columns + 1
    colors = LinearSegmentedColormap.from_list("", [WRONG, "w", RIGHT])
    label = {"label": "% of attackers dropped\nminus % of honest peers"}
    sns.heatmap(
        wide, cmap=colors, vmin=-100, vmax=100, ax=ax, cbar_kws=label, yticklabels=True,
        rasterized=True,
    )  # fmt: skip
    title = "whom LFighter dropped"
    ax.set(xlabel="round", ylabel="seed", title=title + "; lost seeds at the bottom" * bool(lost))
    ax.tick_params(length=0, labelsize=6.5, rotation=0)
    ax.axhline(len(order) - lost, color="black", linewidth=1)
    for name in ax.get_yticklabels()[len(order) - lost :]:
        name.set(color=WRONG, fontweight="bold")


def _map_of_rounds(ax: Axes, wide: pd.DataFrame, color: str, *, labels: bool) -> None:
    """Runs x rounds; each row named by its ratio and seed, with a line between ratios."""
    names = [f"{ratio:g}%, seed {seed}" for _, ratio, seed, _ in wide.index] if labels else False
    ax.patch.set(hatch="////", facecolor="white", edgecolor="0.75")
    every = max(1, -(-wide.shape[1] // 8))
    ticks = [str(t + 1) if t % every == 0 else "" for t in wide.columns]
    sns.heatmap(
        wide, mask=wide.isna().to_numpy(), cmap=LinearSegmentedColormap.from_list("", ["w", color]),
        vmin=0, vmax=100, cbar=False, ax=ax, xticklabels=ticks, yticklabels=names, rasterized=True,
    )  # fmt: skip
    ratios = wide.index.get_level_values(1)
    for i in range(1, len(ratios)):
        if ratios[i] != ratios[i - 1]:
            ax.axhline(i, color="black", linewidth=0.4)
    ax.tick_params(axis="x", length=0, labelsize=6, rotation=0)
    ax.tick_params(axis="y", length=0, labelsize=6, rotation=0)
    ax.set(xlabel="", ylabel="")
    for spine in ax.spines.values():
        spine.set(visible=True, linewidth=0.5)
