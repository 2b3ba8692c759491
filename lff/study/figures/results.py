"""What became of the runs: robustness, running time, and the paper's numbers against ours."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from lff.experiments.experiment import Experiment
from lff.experiments.scales import PAPER_DEFENSES
from lff.study import paper, statistics
from lff.study.figures import style
from lff.study.figures.style import (
    REFERENCE,
    WIDTH,
    Look,
    journal,
    new_figure,
    not_run,
    round_axis,
)
from lff.study.frame import benchmark_label, benchmarks_in_order, defense_label, defenses_in_order

PANEL_ORDER = ("fedavg", "median", "trimmed_mean", "multi_krum", "foolsgold", "lfighter")
RATES: dict[str, Look] = {
    "all_acc": {"label": "All-Acc", "color": style.GRAY, "marker": "s", "linestyle": ":"},
    "src_acc": {"label": "Src-Acc", "color": style.BLUE, "marker": "o", "linestyle": "-"},
    "asr": {"label": "ASR", "color": style.RED, "marker": "v", "linestyle": "--"},
}
TE: Look = {"color": style.BLACK, "marker": "^", "linestyle": "-"}
ORACLE: Look = {"label": "Src-Acc of the oracle", "color": style.GREEN, "linestyle": ":"}

# The odd peer's cases, colored by who she is, and pairs of peers.
CASES = {
    paper.ODD_ATTACKS: style.RED,
    paper.ODD_HONEST: style.BLUE,
    paper.ODD_IN_PEACE: style.SKY,
    paper.EQUAL: style.BLACK,
    paper.EQUAL_IN_PEACE: style.GRAY,
}
PAIRS: dict[str, Look] = {
    "attacker-attacker": {"label": "two attackers", "color": style.RED},
    "honest-honest": {"label": "two honest peers", "color": style.BLUE},
    "attacker-honest": {"label": "attacker and honest peer", "color": "0.4", "linestyle": "--"},
    "attacker-last": {"label": "attacker and odd peer", "color": style.RED, "linestyle": ":"},
    "honest-last": {"label": "honest and odd peer", "color": style.BLUE, "linestyle": ":"},
}


def robustness(runs: pd.DataFrame, caption: str, methods: Sequence[str] | None = None) -> Figure:
    """All-Acc, Src-Acc and ASR against the attacker ratio, one panel per method, TE below it.

    `runs` are those of one benchmark. A dot is a seed, lines go through the medians. Src-Acc of
    FedAvg without attack is the wide gray line; that of the oracle, which drops exactly the
    attackers, is dotted, where it was run. A ratio that other methods were run at, or a method
    of `methods` without a run, is left empty and says so; the caption names the paper's methods
    that have no panel.
    """
    there, absent = set(runs["defense"]), "not asked for"
    if methods is None:
        absent = "not run"
        others = defenses_in_order(there - {*PANEL_ORDER, "oracle"})
        methods = [*(m for m in PANEL_ORDER if m in there), *others]
    ratios = np.array(sorted(runs["attackers"].unique()), dtype=float)
    lowest, highest = runs["test_error"].min(), runs["test_error"].max()
    subs = [1.0] if highest > 20 * lowest else [1.0, 2.0, 5.0]
    subs = subs if highest > 4 * lowest else [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0]
    columns = min(3, len(methods))
    rows = -(-len(methods) // columns)
    with journal():
        note = "; marks: seeds, lines: their median" if runs["seed"].nunique() > 1 else ""
        note += "; All-Acc stands left of its ratio and ASR right of it; TE: test error"
        without = [m for m in PAPER_DEFENSES if m not in methods]
        told = [defense_label(m) for m in without if m in PANEL_ORDER]
        note += f"; {absent}: {', '.join(told)}" if told else ""
        note += "; RMedian has no panel, as in the paper" if "repeated_median" in without else ""
        figure = new_figure(WIDTH, 2.35 * rows + 0.85, caption + note)
        grid = figure.subplots(
            2 * rows, columns, squeeze=False, sharex=True, sharey="row", height_ratios=[3, 1] * rows
        )
        for ax in grid[-2:, (len(methods) - 1) % columns + 1 :].flat:
            ax.set_visible(False)
        for i, method in enumerate(methods):
            rates, error = grid[2 * (i // columns) :, i % columns][:2]
            _rates_panel(rates, runs, method, ratios)
            _median_and_seeds(error, runs[runs["defense"] == method], "test_error", ratios, TE)
            error.set(yscale="log", ylim=(lowest / 1.2, highest * 1.2))
            error.yaxis.set_major_locator(LogLocator(subs=subs, numticks=4))
            error.yaxis.set_major_formatter("{x:g}")
            error.yaxis.set_minor_locator(NullLocator())
            error.set_xticks(ratios)
            if i + columns >= len(methods):
                error.set_xlabel("attacker ratio (%)")
                error.tick_params(labelbottom=True)
            if i % columns == 0:
                rates.set_ylabel("percent")
                error.set_ylabel("TE\n(log scale)")
        shown = [*RATES.values(), {"label": "Src-Acc of FedAvg without attack", **REFERENCE}]
        shown += [ORACLE] if "oracle" in there else []
        handles = [Line2D([], [], markersize=4, **look) for look in shown]
        figure.legend(handles=handles, loc="outside upper center", ncols=5)
    return figure


def _rates_panel(ax: Axes, runs: pd.DataFrame, method: str, ratios: np.ndarray) -> None:
    percent = runs.assign(**{metric: 100 * runs[metric] for metric in RATES})
    here = percent[percent["defense"] == method]
    reference = percent[(percent["defense"] == "fedavg") & (percent["attackers"] == 0)]
    if len(reference):
        ax.axhline(reference["src_acc"].median(), **REFERENCE)
    oracle = percent[percent["defense"] == "oracle"].groupby("attackers")["src_acc"].median()
    ax.plot(ratios, oracle.reindex(ratios), **ORACLE)
    for shift, (metric, look) in zip((-1.2, 0, 1.2), RATES.items(), strict=True):
        _median_and_seeds(ax, here, metric, ratios, look, shift)
    missing = sorted(set(ratios) - set(here["attackers"]))
    if here.empty:
        not_run(ax, 0.5, 0.4, transform=ax.transAxes, ha="center")
        missing = []
    for ratio in missing:
        place: Look = {"ha": "center", "va": "bottom", "rotation": 90}
        not_run(ax, ratio, 0.04, transform=ax.get_xaxis_transform(), **place)
    ax.set(title=defense_label(method), ylim=(-3, 103), xlim=(-4, ratios.max(initial=0) + 4))


def _median_and_seeds(
    ax: Axes,
    runs: pd.DataFrame,
    metric: str,
    ratios: np.ndarray,
    look: Look,
    shift: float = 0,
) -> None:
    """A dot per seed, beside those of other metrics, and a line with gaps through the medians."""
    if runs.empty:
        return  # an empty line that is not clipped would count as a point of the layout
    medians = runs.groupby("attackers")[metric].median().reindex(ratios)
    dots = look | {"linestyle": "", "markersize": 3, "alpha": 0.5, "clip_on": False}
    ax.plot(runs["attackers"] + shift, runs[metric], **dots)
    ax.plot(ratios + shift, medians, **look | {"marker": "", "zorder": 3})


def profiles(runs: pd.DataFrame, caption: str) -> Figure:
    """The share of attacked runs that kept at least so much of the source class, by method.

    What is kept is Src-Acc relative to FedAvg's without attack with the same seed, at most all of
    it (`lff.study.statistics.performance_profile`). Methods are compared on the same cells: those
    benchmarks and ratios at which most methods were run. A band is a 95% interval, where each cell
    has three seeds or more, and the caption names its kind.
    """
    cells = ["benchmark", "attackers"]
    kept = statistics.against_unattacked(runs).dropna(subset="kept")
    kept = kept[kept["attackers"] > 0]
    compared = kept.groupby(cells)["defense"].transform("nunique")
    kept = kept[compared == compared.max()]
    methods = defenses_in_order(kept["defense"])
    taus = np.linspace(0, 1, 201).tolist()
    curves = {
        method: statistics.performance_profile(own, taus, np.random.default_rng(0))
        for method in methods
        for own in [kept[kept["defense"] == method]]
    }
    banded = any(curve["low"].notna().any() for curve in curves.values())
    with journal():
        number = kept.groupby(cells).ngroups
        counted = f"{len(kept)} attacked runs of {number} cell{'s' * (number != 1)}"
        kind = "bootstrap within the cells" if number > 1 else "Clopper and Pearson at each point"
        note = f"; profiles over {counted}"
        note += f"; bands: 95% intervals, {kind}" if banded else ""
        figure = new_figure(0.72 * WIDTH, 3.1, caption + note)
        ax = figure.subplots()
        ax.axvline(50, color=style.GRAY, linewidth=0.8, linestyle=":")
        ax.text(49, 3, "\N{LEFTWARDS ARROW} lost", ha="right", fontsize=7, color="0.35")
        for method, curve in curves.items():
            look = ORACLE if method == "oracle" else style.look(method, methods)
            color, line = look["color"], look.get("linestyle", "-")
            x, share = 100 * curve["tau"], 100 * curve["share"]
            ax.plot(x, share, color=color, linestyle=line, label=defense_label(method))
            ax.fill_between(
                x, 100 * curve["low"], 100 * curve["high"], color=color, alpha=0.15, linewidth=0
            )
        ax.set(xlim=(0, 100.5), ylim=(0, 103), ylabel="runs that keep at least that (%)")
        ax.set_xlabel("Src-Acc, relative to FedAvg without attack (%)")
        if methods:
            figure.legend(loc="outside right upper")
    return figure


def attack_map(
    cells: pd.DataFrame,
    caption: str,
    value: str,
    colors: Sequence[str],
    limits: tuple[float, float],
) -> Figure:
    """A number for each attack (row) and rule (column), in the order in which they come.

    `cells` have the `attack`, its `family`, the `rule`, the `value` that is colored from the first
    of the `colors` to the last between the `limits`, and the `text` that is written. An attack that
    is set `aside` has its name in italics. A cell without a value was not run and stays gray.
    """
    order = {name: list(dict.fromkeys(cells[name])) for name in ("attack", "rule")}
    at = cells.set_index(["attack", "rule"])
    values, texts = (
        at[name].unstack("rule").reindex(order["attack"])[order["rule"]] for name in (value, "text")
    )
    of_attack = cells.drop_duplicates("attack")
    families = of_attack["family"].tolist()
    with journal():
        figure = new_figure(WIDTH, 0.19 * len(values) + 1.5, f"{caption}; gray: not run")
        ax = figure.subplots()
        ax.set_facecolor("0.88")
        sns.heatmap(
            values, annot=texts, fmt="", cmap=sns.blend_palette(list(colors), as_cmap=True),
            vmin=limits[0], vmax=limits[1], cbar=False, linewidths=0.5, ax=ax,
            annot_kws={"fontsize": 6.5},
        )  # fmt: skip
        for family in dict.fromkeys(families):
            first, number = families.index(family), families.count(family)
            ax.axhline(first, color="k", linewidth=0.7, clip_on=False)
            ax.text(len(order["rule"]) + 0.15, first + number / 2, family, va="center", fontsize=7)
        ax.set_xlabel("rule", loc="left")
        ax.set_ylabel("attack")
        ax.tick_params(length=0)
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("top")
        ax.set_xticks(ax.get_xticks(), order["rule"], rotation=60, ha="left", va="bottom")
        ax.tick_params(axis="x", pad=-1)
        ax.set_yticks(ax.get_yticks(), order["attack"], rotation=0)
        for label, aside in zip(ax.get_yticklabels(), of_attack["aside"], strict=True):
            label.set_fontstyle("italic" if aside else "normal")
    return figure


def odd_peer(rounds: pd.DataFrame, caption: str) -> Figure:
    """FoolsGold on MNIST-iid: what one odd peer does to it, round by round.

    `rounds` are those of runs with the hook `similarities`, and their `case`: who the odd peer is.
    Above: Src-Acc, the peers that have any weight, and the odd peer's share of it. Pluses are the
    authors' own program (`lff.study.paper`), also where no run of ours is recorded. Below, in the
    same cases: the mean cosine of what FoolsGold remembers of two peers. A line is a seed.
    """
    weights = [np.array(w, dtype=float) for w in rounds["weights_by_peer"]]
    shown = rounds.assign(
        src_acc=100 * rounds["src_acc"],
        weighing=[(w > 0).sum() for w in weights],
        odd=[100 * w[-1] / w.sum() for w in weights],
    )
    cases = [case for case in CASES if case in set(rounds["case"])]
    released = paper.released_foolsgold()
    ratios = ", ".join(f"{ratio:g}%" for ratio in sorted({*rounds["attackers"]} - {0}))
    note = (f"; {ratios} attackers" if ratios else "") + "; a line is a seed"
    if paper.ODD_ATTACKS in cases:
        honest = rounds[rounds["case"] == paper.ODD_ATTACKS]["present_honest"].iloc[0]
        note += f"; {honest + 1:.0f} peers with any weight are the {honest:.0f} honest peers and "
        note += "the odd attacker"
    if any(case in cases for case in (paper.EQUAL, paper.EQUAL_IN_PEACE)):
        note += "; in equal shares the 'odd peer' is the one in her place, who is not odd"
    with journal():
        figure = new_figure(WIDTH, 5.0, caption + note)
        top, bottom = np.asarray(figure.subfigures(2, 1, height_ratios=[1.15, 1]))
        above = {"src_acc": "Src-Acc (%)", "weighing": "peers with any weight"}
        above["odd"] = "odd peer's weight (% of all)"
        for ax, (column, label) in zip(top.subplots(1, 3), above.items(), strict=True):
            for case in cases:
                _seeds(ax, shown[shown["case"] == case], column, color=CASES[case])
            for case, theirs in released.items():
                numbers = theirs.get(column, [])
                ax.plot(range(1, len(numbers) + 1), numbers, style.THEIRS, color=CASES[case], ms=5)
            ax.set(ylabel=label, ylim=(-3, 103))
            round_axis(ax)
        handles = [Line2D([], [], color=CASES[case], label=case) for case in cases]
        for case in released:
            label = f"the authors' program, {case}"
            mark: Look = {"marker": style.THEIRS, "linestyle": "", "markersize": 5, "label": label}
            handles.append(Line2D([], [], color=CASES[case], **mark))
        top.legend(handles=handles, loc="outside upper center", ncols=3)
        panels = bottom.subplots(1, len(cases), sharey=True, squeeze=False)[0]
        for ax, case in zip(panels, cases, strict=True):
            here = shown[shown["case"] == case]
            found = pd.DataFrame([noted["similarities"] for noted in here["noted"]], here.index)
            for pair, look in PAIRS.items():
                if pair in found:
                    _seeds(ax, here.assign(cosine=found[pair]), "cosine", **look)
            ax.set_title(case.replace(", ", ",\n"), fontsize=7, color=CASES[case])
            round_axis(ax)
        panels[0].set_ylabel("mean cosine")
        noted = {pair for noted in shown["noted"] for pair in noted["similarities"]}
        drawn = [Line2D([], [], **PAIRS[pair]) for pair in PAIRS if pair in noted]
        bottom.legend(handles=drawn, loc="outside upper center", ncols=3)
    return figure


def _seeds(ax: Axes, rounds: pd.DataFrame, column: str, **look: Any) -> None:
    """One thin line per run."""
    for _, own in rounds.groupby("id"):
        ax.plot(own["round"] + 1, own[column], linewidth=1, alpha=0.8, **look)


def runtime(runs: pd.DataFrame, caption: str, asked: Iterable[Experiment] = ()) -> Figure:
    """Seconds of aggregation over all rounds of a run, one panel per benchmark.

    A dot is a seed, the mean over its attacker ratios; the gray line is their range. What was
    `asked` for and not run says so.
    """
    wanted = {*zip(runs["benchmark"], runs["defense"], strict=True)}
    wanted |= {(e.benchmark, e.defense) for e in asked}
    benchmarks = benchmarks_in_order(benchmark for benchmark, _ in wanted)
    methods = defenses_in_order(method for _, method in wanted)
    key = ["benchmark", "defense", "seed"]
    seconds = runs.groupby(key, as_index=False)["aggregation_seconds"].mean()
    palette = {method: style.look(method, methods)["color"] for method in methods}
    columns = min(3, len(benchmarks))
    rows = -(-len(benchmarks) // columns)
    with journal():
        note = "; a dot is a seed, the mean over its attacker ratios; bars: from the quickest seed "
        note += "to the slowest; the runs shared their machine with others"
        figure = new_figure(WIDTH, (0.16 * len(methods) + 0.6) * rows + 0.5, caption + note)
        axes = style.panels(figure, len(benchmarks), columns)
        for ax, benchmark in zip(axes, benchmarks, strict=True):
            here = seconds[seconds["benchmark"] == benchmark]
            ax.set_xscale("log")
            sns.stripplot(
                here, x="aggregation_seconds", y="defense", hue="defense", order=methods, ax=ax,
                palette=palette, hue_order=methods, legend=False, jitter=False, size=4, alpha=0.7,
            )  # fmt: skip
            ends = here.groupby("defense")["aggregation_seconds"].agg(["min", "max"])
            ends = ends.reindex(methods)
            ax.hlines(range(len(methods)), ends["min"], ends["max"], color=style.GRAY, zorder=0)
            missing = [
                m for m in methods if (benchmark, m) in wanted and m not in set(here["defense"])
            ]
            if here.empty:
                not_run(ax, 0.5, 0.5, transform=ax.transAxes, ha="center")
                missing = []
            for method in missing:
                row = methods.index(method)
                not_run(ax, 0.02, row, transform=ax.get_yaxis_transform(), va="center")
            ax.set_yticks(range(len(methods)), [defense_label(method) for method in methods])
            ax.set(title=benchmark_label(benchmark), ylabel="")
            ax.set_xlabel("aggregation, seconds\nover all rounds")
            ax.grid(axis="x", color="0.92", linewidth=0.6)
            ax.set_axisbelow(True)
    return figure


def paper_against_ours(table: pd.DataFrame, caption: str) -> Figure:
    """Src-Acc and ASR as the paper reports them (x) and as we find them (y); equal on the diagonal.

    `table` is `lff.study.comparison.compare` of both, as fractions. The larger a mark, the larger
    the attacker ratio; lines are the range of the seeds. Cells without a run are left out, and
    benchmarks without any.
    """
    rates = {"src_acc": "Src-Acc", "asr": "ASR"}
    benchmarks = benchmarks_in_order(table[table["src_acc_ours"].notna()]["benchmark"])
    methods = defenses_in_order(table["defense"])
    number = int(table["src_acc_ours"].notna().sum())
    note = f"; {number} of {len(table)} cells that the paper shows; lines: range of the seeds"
    if not benchmarks:
        return new_figure(WIDTH, 0.5, f"{caption}; none of {len(table)} cells was run")
    with journal():
        figure = new_figure(WIDTH, 2.7 * len(rates) + 0.6, caption + note)
        axes = figure.subplots(len(rates), len(benchmarks), squeeze=False, sharex=True, sharey=True)
        for row, (metric, label) in zip(axes, rates.items(), strict=True):
            for ax, benchmark in zip(row, benchmarks, strict=True):
                here = table[(table["benchmark"] == benchmark) & table[f"{metric}_ours"].notna()]
                ax.plot([0, 100], [0, 100], color="0.75", linewidth=0.8, zorder=0)
                for method in methods:
                    look = style.look(method, methods)
                    _points(ax, here[here["defense"] == method], metric, look)
                difference = 100 * (here[f"{metric}_ours"] - here[f"{metric}_paper"]).median()
                text = f"median difference {difference:+.0f}".replace("-", "\N{MINUS SIGN}")
                ax.set(xlim=(-2, 102), ylim=(-2, 102), aspect="equal")
                ax.set_title(f"{benchmark_label(benchmark)}, {label}\n{text}")
            row[0].set_ylabel("ours (%)")
        for ax in axes[-1]:
            ax.set_xlabel("paper (%)")
        handles = [
            Line2D([], [], linestyle="", label=defense_label(m), **style.look(m, methods))
            for m in methods
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=7, handlelength=1)
        sizes = {"no attackers": 0, "20%": 20, "50%": 50}
        marks = [axes[0, 0].scatter([], [], s=_size(r), color=style.GRAY) for r in sizes.values()]
        figure.legend(marks, [*sizes], loc="outside lower right", ncols=3, handlelength=1)
    return figure


def _points(ax: Axes, cells: pd.DataFrame, metric: str, look: Look) -> None:
    x = 100 * cells[f"{metric}_paper"]
    mean, low, high = (100 * cells[f"{metric}_ours{part}"] for part in ("", " low", " high"))
    ax.vlines(x, low, high, color=look["color"], alpha=0.5, linewidth=0.8)
    ax.scatter(x, mean, s=_size(cells["attackers"]), alpha=0.7, linewidths=0, clip_on=False, **look)


def _size(ratio: Any) -> Any:
    """The area of a mark: the larger, the more attackers."""
    return 6 + 0.8 * ratio
