"""Every table of the study, a few lines each on the frames of `lff.study.frame`.

A quantity over the seeds is four columns: `X`, its mean; `X low` and `X high`, its range; and
`X seeds`, how many there are. With few seeds a standard deviation says little; the range shows the
seed that went wrong. `lff.study.text` shows the four as one.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd

from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.build import dataset, make_model, make_peers
from lff.experiments.experiment import Experiment
from lff.experiments.scales import ATTACKER_RATIOS, PAPER_DEFENSES
from lff.metrics import lost
from lff.study import paper
from lff.study.frame import benchmark_label, benchmarks_in_order, defense_label, defenses_in_order
from lff.study.text import caption as caption
from lff.study.text import interval_note as interval_note
from lff.study.text import latex as latex
from lff.study.text import markdown as markdown
from lff.study.text import seeds_in_words as seeds_in_words
from lff.study.text import styled as styled
from lff.study.text import to_text as to_text

RATIO = "attackers (%)"
CELL = ["benchmark", "attackers"]
ROBUST = 0.10  # at most so much worse than FedAvg without attack, in Src-Acc and in ASR
UNSCALED = ("test_error", "cv")  # all else is shown in percent
ROBUST_IN, LOST_IN = "robust in seeds", "lost in seeds"
LOST_BY_FEDAVG = "Src-Acc lost by FedAvg (points)"


def over_seeds(
    frame: pd.DataFrame, by: Sequence[str], values: Sequence[str], *, known: bool = False
) -> pd.DataFrame:
    """Mean and range of each of `values` over the seeds, one row per value of `by`.

    Rows that share a seed are averaged first, so that a seed counts once. A mean is NaN if any
    value is: a CV is NaN where Src-Acc was zero in every round, and no mean of the other seeds may
    hide it. With `known`, for quantities that a seed may lack, NaN is left out.
    """
    by, values = list(by), list(values)
    key = list(dict.fromkeys([*by, "seed"]))
    numbers = frame[[*key, *values]].astype(dict.fromkeys(values, float))
    per_seed = numbers.groupby(key, sort=False)[values].mean(skipna=known)
    seeds = per_seed.groupby(level=by, sort=False)
    table = {}
    for name in values:
        table[name] = seeds[name].mean(skipna=known)
        table[f"{name} low"] = seeds[name].min()
        table[f"{name} high"] = seeds[name].max()
        table[f"{name} seeds"] = seeds[name].count() if known else seeds[name].size()
    return pd.DataFrame(table)


def unstacked(
    table: pd.DataFrame,
    value: str,
    level: str,
    order: Sequence[str],
    label: Callable[[str], str] = str,
) -> pd.DataFrame:
    """One quantity of `over_seeds`, with a column and its range for each name of an index level."""
    parts = ("", " low", " high", " seeds")
    wide = {part: table[value + part].unstack(level).reindex(columns=order) for part in parts}
    columns = {label(name) + part: wide[part][name] for name in order for part in parts}
    return pd.DataFrame(columns, index=wide[""].index)


def labelled(table: pd.DataFrame) -> pd.DataFrame:
    """Benchmarks and methods of the index under their labels, and ratios without decimals."""
    labels: dict[str, Callable[[Any], Any]] = {
        "benchmark": benchmark_label,
        "defense": defense_label,
        "attackers": _whole,
    }
    for name, label in labels.items():
        if name in table.index.names:
            level = name if table.index.nlevels > 1 else None
            table = table.rename(
                index={key: label(key) for key in table.index.unique(name)}, level=level
            )
    names = [RATIO if name == "attackers" else name for name in table.index.names]
    return table.rename_axis(index=names)


def with_gaps(table: pd.DataFrame, asked: Iterable[Experiment]) -> pd.DataFrame:
    """A labelled table by benchmark, or by benchmark and ratio, with a row for all that was
    `asked` for."""
    cells = _cells([(e.benchmark, e.attackers) for e in asked])
    rows: list = [(benchmark_label(b), _whole(r)) for b, r in cells]
    if table.index.nlevels == 1:
        rows = list(dict.fromkeys(label for label, _ in rows))
    return table.reindex([*rows, *(row for row in table.index if row not in rows)])


def datasets_and_models(experiments: Iterable[Experiment]) -> pd.DataFrame:
    """The paper's table of data sets and models, counted: what the files hold, what a run uses."""
    rows = []
    for e in experiments:
        benchmark = BENCHMARKS[e.benchmark]
        data = dataset(e)
        model = make_model(e, data)
        kind = benchmark.model if isinstance(benchmark.model, str) else type(model).__name__
        rows.append(
            {
                "data set": benchmark.dataset,
                "task": benchmark.task,
                "data": data.source,
                "training examples": len(data.train_y),
                "used in training": e.examples or len(data.train_y),
                "test examples": len(data.test_y),
                "used in tests": e.test_examples or len(data.test_y),
                "classes": len(data.classes),
                "model": kind + (f", {e.width} channels" if e.width else ""),
                "parameters": sum(p.numel() for p in model.parameters()),
            }
        )
    return pd.DataFrame(rows).set_index("data set")


def class_counts(experiments: Iterable[Experiment]) -> pd.DataFrame:
    """How many examples of each class each peer holds, one number per row."""
    rows = []
    for e in experiments:
        data = dataset(e)
        peers, attackers = make_peers(e, data)
        for peer, examples in enumerate(peers):
            counts = examples.y.bincount(minlength=len(data.classes)).tolist()
            for c, (name, count) in enumerate(zip(data.classes, counts, strict=True)):
                rows.append(
                    {
                        "distribution": benchmark_label(e.benchmark),
                        "seed": e.seed,
                        "peer": peer,
                        "attacker": peer in attackers,
                        "class": name,
                        "source": c == e.source_class,
                        "examples": count,
                    }
                )
    return pd.DataFrame(rows)


def examples_per_peer(counts: pd.DataFrame) -> pd.DataFrame:
    """The fewest, median and most examples and classes that a peer holds, per distribution."""
    peers = counts.groupby(["distribution", "seed", "peer"], sort=False)["examples"]
    held = peers.agg(examples="sum", classes=lambda c: (c > 0).sum())
    by = held.groupby(["distribution", "seed"], sort=False).agg(["min", "median", "max"])
    by.columns = [f"{what}, {which}" for what, which in by.columns]
    return over_seeds(by.reset_index(), ["distribution"], list(by.columns))


def norm_angle(updates: pd.DataFrame) -> pd.DataFrame:
    """Table "norm_angle": magnitudes and angle of good and bad updates (one of each per seed)."""
    named = updates.rename(columns={"angle": "angle (degrees)"})
    return over_seeds(named, ["gradients"], ["good", "bad", "angle (degrees)"])


def silhouettes(points: pd.DataFrame) -> pd.DataFrame:
    """How well good and bad updates separate: a row per benchmark, a column per view."""
    scores = over_seeds(points, ["benchmark", "view"], ["silhouette"], known=True)
    table = unstacked(scores, "silhouette", "view", list(points["view"].unique()))
    return labelled(table.loc[benchmarks_in_order(points["benchmark"])])


def summary(runs: pd.DataFrame) -> pd.DataFrame:
    """What became of a few runs, in percent: a row per method."""
    percent = {
        "All-Acc": 100 * runs["all_acc"],
        "Src-Acc": 100 * runs["src_acc"],
        "ASR": 100 * runs["asr"],
        "attackers dropped": 100 * runs["true_positive_rate"],
        "honest peers dropped": 100 * runs["false_positive_rate"],
    }
    return labelled(over_seeds(runs.assign(**percent), ["defense"], list(percent), known=True))


def robustness(runs: pd.DataFrame, metric: str, asked: Iterable[Experiment] = ()) -> pd.DataFrame:
    """One metric: a row per benchmark and ratio, a column per method.

    In percent, but for TE and the CV, whose table this is as well. What was `asked` for and not
    run is there, without a number.
    """
    asked = list(asked)
    percent = runs.assign(**{metric: runs[metric] * (1 if metric in UNSCALED else 100)})
    methods = defenses_in_order([*runs["defense"], *(e.defense for e in asked)])
    means = over_seeds(percent, [*CELL, "defense"], [metric])
    cells = _cells(
        [*means.index.droplevel("defense"), *((e.benchmark, e.attackers) for e in asked)]
    )
    table = unstacked(means, metric, "defense", methods, defense_label)
    return labelled(table.reindex(pd.MultiIndex.from_tuples(cells, names=CELL)))


def first_places(runs: pd.DataFrame) -> pd.DataFrame:
    """In which percentage of the cases each method has the smallest CV, as printed.

    A case is a benchmark and ratio; methods that print the same two digits share the place.
    """
    by = ["seed", *CELL, "defense"]
    cases = runs.groupby(by)["cv"].mean(skipna=False).unstack("defense").round(2)
    first = cases.eq(cases.min(axis=1), axis=0)[cases.notna().any(axis=1)]
    shares = (100 * first.groupby("seed").mean()).stack().rename("first in (%)").reset_index()
    table = over_seeds(shares, ["defense"], ["first in (%)"])
    return labelled(table.reindex(defenses_in_order(table.index)))


def runtime(runs: pd.DataFrame, asked: Iterable[Experiment] = ()) -> pd.DataFrame:
    """Seconds of aggregation `per_round` and in `total`, and its `share` of the run in percent.

    A row per benchmark and method, mean over the ratios; what was `asked` for and not run is there
    without numbers.
    """
    timed = with_seconds_per_round(runs).assign(
        total=runs["aggregation_seconds"], share=100 * runs["aggregation_seconds"] / runs["seconds"]
    )
    table = over_seeds(timed, ["benchmark", "defense"], ["per_round", "total", "share"])
    wanted = {(e.benchmark, e.defense) for e in asked} | set(table.index)
    methods = defenses_in_order(d for _, d in wanted)
    order = [(b, d) for b in benchmarks_in_order(b for b, _ in wanted) for d in methods]
    rows = pd.MultiIndex.from_tuples(
        [cell for cell in order if cell in wanted], names=table.index.names
    )
    return table.reindex(rows).reset_index()


def with_seconds_per_round(runs: pd.DataFrame) -> pd.DataFrame:
    """A frame of runs with the seconds of one aggregation as `per_round`."""
    return runs.assign(per_round=runs["aggregation_seconds"] / runs["rounds"])


def runtime_share(runs: pd.DataFrame, asked: Iterable[Experiment] = ()) -> pd.DataFrame:
    """The percentage of a run's time that goes into aggregation: benchmarks x methods."""
    times = runtime(runs, asked).set_index(["benchmark", "defense"])
    methods = defenses_in_order(times.index.unique("defense"))
    table = unstacked(times, "share", "defense", methods, defense_label)
    return labelled(table.reindex(benchmarks_in_order(table.index)).rename_axis("benchmark"))


def filled(runs: pd.DataFrame, asked: Iterable[Experiment]) -> pd.DataFrame:
    """How much of the paper's grid has a record: cells of its 42 per benchmark, and runs."""
    wanted = pd.Series([e.benchmark for e in asked], dtype=object).value_counts()
    of_paper = runs["defense"].isin(PAPER_DEFENSES) & runs["attackers"].isin(ATTACKER_RATIOS)
    cells = runs[of_paper].drop_duplicates([*CELL, "defense"])["benchmark"].value_counts()
    here = runs.groupby("benchmark")["seed"]
    rows = pd.Index(benchmarks_in_order(wanted.index), name="benchmark")
    table = pd.DataFrame(
        {
            "cells of the paper's grid": len(PAPER_DEFENSES) * len(ATTACKER_RATIOS),
            "cells recorded": cells.reindex(rows, fill_value=0),
            "runs asked for": wanted.reindex(rows),
            "runs recorded": here.size().reindex(rows, fill_value=0),
            "seeds": here.agg(listed).reindex(rows),
        },
        index=rows,
    )
    return labelled(table)


def larger_magnitudes(rounds: pd.DataFrame) -> pd.DataFrame:
    """In which percentage of the rounds the relevant neurons' gradients are the larger ones."""
    name = "rounds with larger relevant gradients (%)"
    larger = rounds.assign(**{name: 100.0 * (rounds["relevant"] > rounds["non_relevant"])})
    return labelled(over_seeds(larger, CELL, [name]))


def curve_distance(rounds: pd.DataFrame) -> pd.DataFrame:
    """The mean distance of Src-Acc from FedAvg's without attack of the same seed, in points."""
    both = beside_unattacked(rounds, ["src_acc"], per=["benchmark", "seed", "round"])
    attacked = both[both["attackers"] > 0]
    distance = (attacked["src_acc"] - attacked["unattacked_src_acc"]).abs()
    attacked = attacked.assign(points=100 * distance)
    means = over_seeds(attacked.dropna(subset="points"), ["benchmark", "defense"], ["points"])
    methods = defenses_in_order(attacked["defense"])
    table = unstacked(means, "points", "defense", methods, defense_label)
    rows = pd.Index(benchmarks_in_order(rounds["benchmark"]), name="benchmark")
    return labelled(table.reindex(rows))


def saved(runs: pd.DataFrame) -> pd.DataFrame:
    """Does LFighter save the source class at each ratio, and in how many seeds?

    All is judged against FedAvg without attack of the same seed. *Robust*: Src-Acc and ASR are at
    most ten points worse. *Lost*: less than half of Src-Acc is left. Nothing is said of a seed
    whose unattacked model has not learned the source class, or is not recorded. What FedAvg loses
    under the attack says how much there was to defend.
    """
    both = beside_unattacked(runs, ["src_acc", "asr"])
    attacked = both[both["attackers"] > 0]
    points = 100 * (attacked["unattacked_src_acc"] - attacked["src_acc"])
    worse = attacked["asr"] - attacked["unattacked_asr"]
    attacked = attacked.assign(
        **{
            "Src-Acc (%)": 100 * attacked["src_acc"],
            "ASR (%)": 100 * attacked["asr"],
            "Src-Acc lost (points)": points,
            LOST_BY_FEDAVG: points,
            "robust": (points <= 100 * ROBUST) & (worse <= ROBUST),
        }
    )
    ours = attacked[attacked["defense"] == "lfighter"]
    theirs = attacked[attacked["defense"] == "fedavg"]
    columns = ["Src-Acc (%)", "ASR (%)", "Src-Acc lost (points)"]
    table = over_seeds(ours, CELL, columns, known=True)
    table = table.join(over_seeds(theirs, CELL, [LOST_BY_FEDAVG], known=True))
    outcomes = zip(ours["benchmark"], ours["src_acc"], ours["unattacked_src_acc"], strict=True)
    judged = ours.assign(lost=[_lost(*outcome) for outcome in outcomes]).dropna(subset="lost")
    for name, column in ((ROBUST_IN, "robust"), (LOST_IN, "lost")):
        counts = judged.groupby(CELL)[column].agg(["sum", "count"]).reindex(table.index)
        table[name] = counts["sum"].map("{:.0f}".format) + counts["count"].map(" of {:.0f}".format)
        table[name] = table[name].where(counts["count"] > 0)
    return labelled(table)


def robust_by_ratio(table: pd.DataFrame) -> pd.DataFrame:
    """In how many seeds LFighter is robust, a column per ratio, of a table of `saved`."""
    counts = table[ROBUST_IN].unstack(RATIO)
    return counts.rename(columns=lambda ratio: f"robust at {ratio}%").rename_axis(columns=None)


def cost_without_attack(runs: pd.DataFrame) -> pd.DataFrame:
    """What LFighter costs when nobody attacks, against FedAvg with the same seed, in points."""
    both = beside_unattacked(runs, ["all_acc", "src_acc"])
    ours = both[(both["attackers"] == 0) & (both["defense"] == "lfighter")]
    cost = {
        "honest peers dropped (%)": 100 * ours["false_positive_rate"],
        "All-Acc lost (points)": 100 * (ours["unattacked_all_acc"] - ours["all_acc"]),
        "Src-Acc lost (points)": 100 * (ours["unattacked_src_acc"] - ours["src_acc"]),
    }
    return labelled(over_seeds(ours.assign(**cost), ["benchmark"], list(cost), known=True))


def glance(runs: pd.DataFrame, ratio: float = 50) -> pd.DataFrame:
    """Src-Acc in percent: what there is to lose (FedAvg without attack), and what FedAvg and
    LFighter keep of it at one attacker ratio."""
    cells = {
        ("fedavg", 0.0): "FedAvg, no attack",
        ("fedavg", float(ratio)): f"FedAvg, {ratio:g}% attackers",
        ("lfighter", float(ratio)): f"LFighter, {ratio:g}% attackers",
    }
    which = [cells.get(cell) for cell in zip(runs["defense"], runs["attackers"], strict=True)]
    shown = runs.assign(src_acc=100 * runs["src_acc"], cell=which).dropna(subset="cell")
    means = over_seeds(shown, ["benchmark", "cell"], ["src_acc"])
    table = unstacked(means, "src_acc", "cell", list(cells.values()))
    rows = pd.Index(benchmarks_in_order([*BENCHMARKS, *runs["benchmark"]]), name="benchmark")
    return labelled(table.reindex(rows))


def listed(seeds: Iterable[int]) -> str:
    """Seeds as a text: "0 1 4"."""
    return " ".join(map(str, sorted(set(seeds))))


def beside_unattacked(
    frame: pd.DataFrame, metrics: Sequence[str], per: Sequence[str] = ("benchmark", "seed")
) -> pd.DataFrame:
    """Runs (or rounds) with the metrics of FedAvg without attack of the same seed beside theirs."""
    reference = frame[(frame["defense"] == "fedavg") & (frame["attackers"] == 0)]
    reference = reference.drop_duplicates(per).set_index(list(per))[list(metrics)]
    return frame.join(reference.add_prefix("unattacked_"), on=list(per))


def _lost(benchmark: str, src_acc: float, unattacked: float) -> float:
    """Whether a run lost the source class (1 or 0); NaN where nothing can be said."""
    known = benchmark in BENCHMARKS
    answer = lost(src_acc, unattacked, BENCHMARKS[benchmark].classes) if known else None
    return float("nan") if answer is None else float(answer)


def _cells(cells: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Each benchmark and ratio once, in order."""
    there = set(cells)
    order = benchmarks_in_order(benchmark for benchmark, _ in there)
    return sorted(there, key=lambda cell: (order.index(cell[0]), cell[1]))


def _whole(ratio: float) -> float:
    return int(ratio) if float(ratio).is_integer() else ratio
