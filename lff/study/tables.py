"""Every table of the study, a few lines each on the frames of `lff.study.frame`.

A quantity over the seeds is four columns: `X`, its mean; `X low` and `X high`, its range; and
`X seeds`, how many there are. With few seeds a standard deviation says little; the range shows the
seed that went wrong. `lff.study.text` shows the four as one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import silhouette_score

from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.build import dataset, make_model, make_peers
from lff.experiments.experiment import Experiment
from lff.experiments.scales import ATTACKER_RATIOS, PAPER_DEFENSES
from lff.study import statistics
from lff.study.frame import (
    benchmark_label,
    benchmarks_in_order,
    defense_label,
    defenses_in_order,
    rank,
)
from lff.study.text import COMPANIONS

RATIO = "attackers (%)"
CELL = ["benchmark", "attackers"]
UNSCALED = ("test_error", "cv")  # all else is shown in percent


def over_seeds(
    frame: pd.DataFrame,
    by: Sequence[str],
    values: Sequence[str] | Mapping[str, pd.Series],
    *,
    known: bool = False,
) -> pd.DataFrame:
    """Mean and range of each of `values` over the seeds, one row per value of `by`.

    Values are columns of the frame, or new ones by name. Rows that share a seed are averaged first,
    so that a seed counts once. A mean is NaN if any value is: a CV is NaN where Src-Acc was zero in
    every round, and no mean of the other seeds may hide it. With `known`, for quantities that a
    seed may lack, NaN is left out.
    """
    if isinstance(values, Mapping):
        frame = frame.assign(**values)
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
    """One column of a table, and its range, for each name of an index level."""
    parts = [part for part in ("", *COMPANIONS) if value + part in table]
    wide = {part: table[value + part].unstack(level).reindex(columns=order) for part in parts}
    columns = {label(name) + part: wide[part][name] for name in order for part in parts}
    return pd.DataFrame(columns, index=wide[""].index)


def by_method(table: pd.DataFrame, value: str, asked: Iterable[Experiment] = ()) -> pd.DataFrame:
    """One column of a table, and its range, for each method: benchmarks (and ratios) x methods.

    What was `asked` for and not run is there, without a number.
    """
    asked = list(asked)
    methods = defenses_in_order([*table.index.unique("defense"), *(e.defense for e in asked)])
    wide = unstacked(table, value, "defense", methods, defense_label)
    return labelled(in_order(wide, asked))


def in_order(table: pd.DataFrame, asked: Iterable[Experiment] = ()) -> pd.DataFrame:
    """The rows of a table in the paper's order, with one for each cell that was `asked` for."""
    names = list(table.index.names)
    further = [[getattr(e, name) for name in names] for e in asked]
    rows = pd.concat([table.index.to_frame(), pd.DataFrame(further, columns=names)])
    rows = rows.drop_duplicates().sort_values(names, key=rank)
    return table.reindex(rows.set_index(names).index)


def labelled(table: pd.DataFrame) -> pd.DataFrame:
    """Benchmarks and methods of the index under their labels, and ratios without decimals."""
    labels: dict[str, Callable[[Any], Any]] = {
        "benchmark": benchmark_label,
        "defense": defense_label,
        "attackers": lambda ratio: int(ratio) if float(ratio).is_integer() else ratio,
    }
    for name in set(labels) & set(table.index.names):
        level = name if table.index.nlevels > 1 else None
        names = {key: labels[name](key) for key in table.index.unique(name)}
        table = table.rename(index=names, level=level)
    return table.rename_axis(index=[RATIO if n == "attackers" else n for n in table.index.names])


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
    columns = ["distribution", "seed", "peer", "attacker", "class", "source", "examples"]
    found = []
    for e in experiments:
        data = dataset(e)
        peers, attackers = make_peers(e, data)
        held = [peer.y.bincount(minlength=len(data.classes)).tolist() for peer in peers]
        wide = pd.DataFrame(held, columns=data.classes).rename_axis("peer")
        counts = wide.rename_axis(columns="class").stack().rename("examples").reset_index()
        found.append(
            counts.assign(
                distribution=benchmark_label(e.benchmark),
                seed=e.seed,
                attacker=counts["peer"].isin(attackers),
                source=counts["class"] == data.classes[e.source_class],
            )
        )
    return pd.concat(found, ignore_index=True)[columns]


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
    of_view = points.drop_duplicates(["id", "round", "view"])
    scores = over_seeds(of_view, ["benchmark", "view"], ["silhouette"], known=True)
    table = unstacked(scores, "silhouette", "view", list(points["view"].unique()))
    return labelled(in_order(table))


def silhouettes_of_classes(points: pd.DataFrame) -> pd.DataFrame:
    """How the updates of MNIST-Extreme cluster, where each peer holds one class.

    As further views beside those of `points`: the good updates by the `classes` that their peers
    hold; the bad ones against those of the target class, and of the source class.
    """
    rows = []
    relevant = points[points["view"] == "relevant neurons"]
    for _, own in relevant[relevant["distribution"] == "extreme"].groupby(["id", "round"]):
        good = own[~own["bad"]]
        groups = {"classes": (good, good["class_held"])}
        for name, column in (("target", "target_class"), ("source", "source_class")):
            both = own[own["bad"] | (own["class_held"] == own[column])]
            groups[f"bad and {name}"] = both, both["bad"]
        for view, (some, labels) in groups.items():
            apart = 1 < labels.nunique() < len(some)
            score = silhouette_score(some[["pc1", "pc2"]], labels) if apart else float("nan")
            rows.append({**own.iloc[0], "view": view, "silhouette": float(score)})
    return pd.DataFrame(rows, columns=points.columns)


def summary(runs: pd.DataFrame) -> pd.DataFrame:
    """What became of a few runs, in percent: a row per method."""
    percent = {
        "All-Acc": 100 * runs["all_acc"],
        "Src-Acc": 100 * runs["src_acc"],
        "ASR": 100 * runs["asr"],
        "attackers dropped": 100 * runs["true_positive_rate"],
        "honest peers dropped": 100 * runs["false_positive_rate"],
    }
    return labelled(over_seeds(runs, ["defense"], percent, known=True))


def robustness(runs: pd.DataFrame, metric: str, asked: Iterable[Experiment] = ()) -> pd.DataFrame:
    """One metric: a row per benchmark and ratio, a column per method.

    In percent, but for TE and the CV, whose table this is as well. What was `asked` for and not
    run is there, without a number.
    """
    percent = {metric: runs[metric] * (1 if metric in UNSCALED else 100)}
    return by_method(over_seeds(runs, [*CELL, "defense"], percent), metric, asked)


def first_places(runs: pd.DataFrame) -> pd.DataFrame:
    """In which percentage of the cases each method has the smallest CV, as printed.

    A case is a benchmark, ratio and seed; methods that print the same two digits share the place.
    """
    cases = runs.groupby(["seed", *CELL, "defense"])["cv"].mean(skipna=False).unstack("defense")
    printed = cases.dropna(how="all").round(2)
    first = 100.0 * printed.eq(printed.min(axis=1), axis=0)
    tidy = first.stack().rename("first in (%)").reset_index()
    return labelled(in_order(over_seeds(tidy, ["defense"], ["first in (%)"])))


def runtime(runs: pd.DataFrame, asked: Iterable[Experiment] = ()) -> pd.DataFrame:
    """Seconds of aggregation `per_round` and in `total`, and its `share` of the run in percent.

    A row per benchmark and method, mean over the ratios; what was `asked` for and not run is there
    without numbers.
    """
    seconds = runs["aggregation_seconds"]
    times = {"total": seconds, "share": 100 * seconds / runs["seconds"]}
    times = {"per_round": seconds / runs["rounds"]} | times
    return in_order(over_seeds(runs, ["benchmark", "defense"], times), asked).reset_index()


def with_seconds_per_round(runs: pd.DataFrame) -> pd.DataFrame:
    """A frame of runs with the seconds of one aggregation as `per_round`."""
    return runs.assign(per_round=runs["aggregation_seconds"] / runs["rounds"])


def runtime_share(runs: pd.DataFrame, asked: Iterable[Experiment] = ()) -> pd.DataFrame:
    """The percentage of a run's time that goes into aggregation: benchmarks x methods."""
    return by_method(runtime(runs, asked).set_index(["benchmark", "defense"]), "share")


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
    larger = 100.0 * (rounds["relevant"] > rounds["non_relevant"])
    name = "rounds with larger relevant gradients (%)"
    return labelled(over_seeds(rounds, CELL, {name: larger}))


def curve_distance(rounds: pd.DataFrame) -> pd.DataFrame:
    """The mean distance of Src-Acc from FedAvg's without attack of the same seed, in points."""
    both = statistics.beside_unattacked(rounds, ["src_acc"], per=["benchmark", "seed", "round"])
    attacked = both[both["attackers"] > 0]
    points = 100 * (attacked["src_acc"] - attacked["unattacked_src_acc"]).abs()
    means = over_seeds(attacked, ["benchmark", "defense"], {"points": points}, known=True)
    return by_method(means, "points")


def lost(runs: pd.DataFrame, asked: Iterable[Experiment] = ()) -> pd.DataFrame:
    """In how many seeds each method lost the source class, a row per benchmark and ratio.

    *Lost*: less than half is left of the Src-Acc of FedAvg without attack, with the same seed. Only
    seeds in which that one has learned the class count. The 95% interval is Clopper and Pearson's.
    """
    judged = statistics.against_unattacked(runs).dropna(subset="lost")
    counts = judged[judged["attackers"] > 0].groupby([*CELL, "defense"])["lost"]
    texts = counts.sum().combine(counts.size(), _chance).to_frame("lost")
    return by_method(texts, "lost", [e for e in asked if e.attackers])


def _chance(count: float, seeds: float) -> str:
    low, high = statistics.clopper_pearson(int(count), int(seeds))
    return f"{int(count)} of {int(seeds)} ({100 * low:.0f} to {100 * high:.0f}%)"


def paired(runs: pd.DataFrame, method: str = "lfighter") -> pd.DataFrame:
    """A method against each other one, seed by seed, where half of its seeds have both.

    Two seeds are the least. Fewer than half may have been chosen by how the method fared in them.
    Peers and attackers of a seed are the same for all methods. The difference of Src-Acc has a 95%
    interval by bootstrap; how often only one of the two lost the class, McNemar's exact p.
    """
    rows = {}
    judged = statistics.against_unattacked(runs)
    for cell, own in judged[judged["attackers"] > 0].groupby(CELL, sort=False):
        by_seed = {name: group.set_index("seed") for name, group in own.groupby("defense")}
        mine = by_seed.pop(method, None)
        for name in defenses_in_order(by_seed) if mine is not None else ():
            other, generator = by_seed[name], np.random.default_rng(0)
            found = statistics.paired_difference(mine["src_acc"], other["src_acc"], generator)
            if found.pairs < max(2, len(mine) / 2):
                continue
            alone = statistics.mcnemar(mine["lost"], other["lost"])
            rows[*cell, name] = {
                "seeds": found.pairs,
                "Src-Acc ahead (points)": 100 * found.mean,
                "from": 100 * found.interval.low,
                "to": 100 * found.interval.high,
                f"lost by {defense_label(method)} alone": alone.only_one,
                "lost by the other alone": alone.only_other,
                "p": alone.p,
            }
    index = pd.MultiIndex.from_tuples(list(rows), names=[*CELL, "against"])
    table = pd.DataFrame(list(rows.values()), index=index)
    return labelled(table.rename(index=defense_label, level="against"))


def detectors(rounds: pd.DataFrame) -> pd.DataFrame:
    """How well each rule that drops or scores peers tells attackers from honest ones, in percent.

    Precision: how many of those it dropped attack. Recall: how many of the attackers it dropped.
    AUC: the chance that an attacker has a worse score than an honest peer, whatever the threshold,
    for rules that give scores. Means over the rounds that have an answer.
    """
    names = ["precision (%)", "recall (%)", "AUC (%)"]
    attacked = rounds[rounds["attackers"] > 0]
    found = [
        statistics.detector(row.peer_ids, row.attacker_ids, row.dropped, row.scores_by_peer)
        for row in attacked.itertuples()
    ]
    numbers = 100 * pd.DataFrame(found, index=attacked.index, columns=names, dtype=float)
    table = over_seeds(attacked.join(numbers), [*CELL, "defense"], names, known=True)
    speaks = table[["precision (%)", "AUC (%)"]].notna().any(axis=1)
    return labelled(table[speaks])


def cost_without_attack(runs: pd.DataFrame, asked: Iterable[Experiment] = ()) -> pd.DataFrame:
    """What LFighter costs when nobody attacks, against FedAvg with the same seed, in points."""
    both = statistics.beside_unattacked(runs, ["all_acc", "src_acc"])
    ours = both[(both["attackers"] == 0) & (both["defense"] == "lfighter")]
    cost = {
        "honest peers dropped (%)": 100 * ours["false_positive_rate"],
        "All-Acc lost (points)": 100 * (ours["unattacked_all_acc"] - ours["all_acc"]),
        "Src-Acc lost (points)": 100 * (ours["unattacked_src_acc"] - ours["src_acc"]),
    }
    return labelled(in_order(over_seeds(ours, ["benchmark"], cost, known=True), asked))


def listed(seeds: Iterable[int]) -> str:
    """Seeds as a text: "0 1 4"."""
    return " ".join(map(str, sorted(set(seeds))))
