"""One function per table of the study; each returns a DataFrame, one row as the paper has it.

A quantity of a run is a `Spread` over the seeds. What was not run is missing.
"""

from collections.abc import Iterable, Sequence

import pandas as pd

from lff.experiments.benchmarks import BENCHMARKS, Experiment
from lff.data import load
from lff.defenses import get_defense
from lff.federation import Federation
from lff.models import build
from lff.experiments.scales import ATTACKER_RATIOS, PAPER_DEFENSES
from lff.study.spread import over_known_seeds, over_seeds

RATIO = "attackers (%)"


def datasets_and_models(experiments: Iterable[Experiment]) -> pd.DataFrame:
    """Table "Data sets and models": examples and parameters, counted."""
    rows = []
    for e in experiments:
        benchmark = BENCHMARKS[e.benchmark]
        data = load(benchmark.dataset, data=e.data, vocabulary=e.vocabulary)
        sizes = {"vocabulary": data.vocabulary, "width": e.width}
        model = build(benchmark.model, classes=len(data.classes), **sizes)
        rows.append(
            {
                "data set": benchmark.dataset,
                "data": data.source,
                "training examples": len(data.train_y),
                "test examples": len(data.test_y),
                "classes": len(data.classes),
                "model": benchmark.model + (f", {e.width} channels" if e.width else ""),
                "parameters": sum(p.numel() for p in model.parameters()),
            }
        )
    return pd.DataFrame(rows).set_index("data set")


def class_counts(experiments: Iterable[Experiment]) -> pd.DataFrame:
    """How many examples of each class each peer holds, one number per row."""
    rows = []
    for e in experiments:
        federation = Federation(e)
        truth = federation.data.train_y
        for peer in federation.peers:
            counts = truth[peer.examples].bincount(minlength=federation.classes)
            for name, count in zip(federation.data.classes, counts.tolist(), strict=True):
                rows.append(
                    {
                        "distribution": BENCHMARKS[e.benchmark].label,
                        "seed": e.seed,
                        "peer": peer.id,
                        "class": name,
                        "examples": count,
                    }
                )
    return pd.DataFrame(rows)


def holdings(counts: pd.DataFrame) -> pd.DataFrame:
    """The fewest, median and most examples and classes that a peer holds, per distribution."""
    peers = counts.groupby(["distribution", "seed", "peer"], sort=False)["examples"]
    held = peers.agg(examples="sum", classes=lambda c: (c > 0).sum())
    by = held.groupby(["distribution", "seed"], sort=False).agg(["min", "median", "max"])
    by.columns = [f"{what}, {which}" for what, which in by.columns]
    return over_seeds(by.reset_index(), ["distribution"], list(by.columns))


def norm_angle(updates: pd.DataFrame) -> pd.DataFrame:
    """Table "norm_angle": magnitudes and angle of good and bad updates (one of each per seed)."""
    return over_seeds(updates, ["gradients"], ["good", "bad", "angle"])


def silhouettes(points: pd.DataFrame) -> pd.DataFrame:
    """How well good and bad updates separate: a row per benchmark, a column per view."""
    points = points.astype({"silhouette": float})
    scores = over_known_seeds(points, ["benchmark", "view"], ["silhouette"])["silhouette"]
    benchmarks, views = (list(dict.fromkeys(points[name])) for name in ("benchmark", "view"))
    return labelled(scores.unstack("view").loc[benchmarks, views])


def summary(results: pd.DataFrame) -> pd.DataFrame:
    """What became of a few runs, in percent: a row per method."""
    columns = {
        "All-Acc": "all_acc",
        "Src-Acc": "src_acc",
        "ASR": "asr",
        "attackers dropped": "true_positive_rate",
        "honest peers dropped": "false_positive_rate",
    }
    percent = results.assign(**{label: 100 * results[name] for label, name in columns.items()})
    return labelled(over_known_seeds(percent, ["defense"], list(columns)))


def robustness(
    results: pd.DataFrame, metric: str, asked: Sequence[Experiment] = ()
) -> pd.DataFrame:
    """One metric in percent: a row per benchmark and ratio, a column per method.

    Benchmarks and methods that were `asked` for and not run are there, without numbers.
    """
    factor = 1 if metric == "test_error" else 100
    return _by_method(results.assign(**{metric: results[metric] * factor}), metric, asked)


def cv(results: pd.DataFrame, asked: Sequence[Experiment] = ()) -> pd.DataFrame:
    """Table "CV of the source-class accuracy": rows per benchmark and ratio, columns per method."""
    return _by_method(results, "cv", asked)


def _by_method(results: pd.DataFrame, value: str, asked: Sequence[Experiment]) -> pd.DataFrame:
    by = ["benchmark", "attackers", "defense"]
    shown = over_seeds(results, by, [value])[value].unstack("defense")
    ratios = sorted({*ATTACKER_RATIOS, *results["attackers"]})
    wanted = {*results["benchmark"], *(e.benchmark for e in asked)}
    rows = pd.MultiIndex.from_product(
        [[b for b in BENCHMARKS if b in wanted], ratios], names=by[:2]
    )
    columns = _in_order([*results["defense"], *(e.defense for e in asked)])
    return labelled(shown.reindex(index=rows, columns=columns))


def first_places(results: pd.DataFrame) -> pd.DataFrame:
    """In which percentage of the cases each method has the smallest CV, as printed.

    A case is a benchmark and ratio; methods that print the same two digits share the place.
    """
    methods = methods_of(results)
    by = ["seed", "benchmark", "attackers"]
    numbers = results.pivot(index=by, columns="defense", values="cv")[methods].round(2)
    first = numbers.eq(numbers.min(axis=1), axis=0)[numbers.notna().any(axis=1)]
    shares = 100 * first.groupby("seed").mean().rename_axis(columns="defense")
    long = shares.stack().rename("first in (%)").reset_index()
    return labelled(over_seeds(long, ["defense"], ["first in (%)"]))


RUN = ("benchmark", "defense", "attackers", "seed")


def run_columns(e: Experiment) -> dict[str, object]:
    """The columns that name a run."""
    return {"id": e.id, **{name: getattr(e, name) for name in RUN}}


def stacked(tables: Iterable[tuple[Experiment, pd.DataFrame]]) -> pd.DataFrame:
    """Observations of several experiments as one table, with the columns that name the runs."""
    parts = [table.assign(**run_columns(e)) for e, table in tables]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def runtime(results: pd.DataFrame, asked: Iterable[Experiment] = ()) -> pd.DataFrame:
    """Seconds of aggregation per round and over all rounds, mean over the ratios of each method.

    Methods that were `asked` for and not run are there without numbers.
    """
    timed = with_seconds_per_round(results).assign(
        total=results["aggregation_seconds"],
        share=100 * results["aggregation_seconds"] / results["seconds"],
    )
    table = over_seeds(timed, ["benchmark", "defense"], ["per_round", "total", "share"])
    wanted = {(e.benchmark, e.defense) for e in asked} | set(table.index)
    methods = _in_order(d for _, d in wanted)
    order = [(b, d) for b in BENCHMARKS for d in methods if (b, d) in wanted]
    return table.reindex(pd.MultiIndex.from_tuples(order, names=table.index.names)).reset_index()


def with_seconds_per_round(results: pd.DataFrame) -> pd.DataFrame:
    """A table of runs with the seconds of one aggregation as `per_round`."""
    return results.assign(per_round=results["aggregation_seconds"] / results["rounds"])


def runtime_share(times: pd.DataFrame) -> pd.DataFrame:
    """The percentage of a run's time that goes into aggregation: benchmarks x methods."""
    table = times.pivot(index="benchmark", columns="defense", values="share")
    methods = list(dict.fromkeys(times["defense"]))
    return labelled(table.loc[list(dict.fromkeys(times["benchmark"])), methods])


def filled(results: pd.DataFrame, asked: Sequence[Experiment]) -> pd.DataFrame:
    """How much of the paper's grid has a record: cells of its 42 per benchmark, and runs."""
    rows = []
    for benchmark in dict.fromkeys(e.benchmark for e in asked):
        here = results[results["benchmark"] == benchmark]
        of_paper = here["defense"].isin(PAPER_DEFENSES) & here["attackers"].isin(ATTACKER_RATIOS)
        rows.append(
            {
                "benchmark": benchmark,
                "cells of the paper's grid": len(PAPER_DEFENSES) * len(ATTACKER_RATIOS),
                "cells recorded": len(here[of_paper].groupby(["defense", "attackers"])),
                "runs asked for": sum(e.benchmark == benchmark for e in asked),
                "runs recorded": len(here),
                "seeds": " ".join(str(seed) for seed in sorted(set(here["seed"]))) or None,
            }
        )
    return labelled(pd.DataFrame(rows).set_index("benchmark"))


def with_gaps(table: pd.DataFrame, asked: Iterable[Experiment]) -> pd.DataFrame:
    """A table by benchmark, or by benchmark and ratio, with a row for all that was `asked` for."""
    ratios = table.index.nlevels > 1
    cells = {(e.benchmark, e.attackers if ratios else 0) for e in asked}
    ordered = sorted(cells, key=lambda cell: (list(BENCHMARKS).index(cell[0]), cell[1]))
    rows = [(BENCHMARKS[b].label, _whole(r)) if ratios else BENCHMARKS[b].label for b, r in ordered]
    return table.reindex([*rows, *(row for row in table.index if row not in rows)])


def methods_of(results: pd.DataFrame) -> list[str]:
    """The methods of a table, in order."""
    return _in_order(results["defense"])


def _in_order(methods: Iterable[str]) -> list[str]:
    """Each method once, the paper's in its order, then others."""
    there = dict.fromkeys(methods)
    return [d for d in dict.fromkeys([*PAPER_DEFENSES, *there]) if d in there]


def labelled(table: pd.DataFrame) -> pd.DataFrame:
    """Benchmarks and methods under the names that figures use, and ratios without decimals."""
    names = {name: b.label for name, b in BENCHMARKS.items()}
    if "benchmark" in table.index.names:
        table = table.rename(index=names, level="benchmark" if table.index.nlevels > 1 else None)
    for axis in ("index", "columns"):
        labels = getattr(table, axis)
        if "defense" in labels.names:
            methods = {d: get_defense(d).label for d in labels.unique("defense")}
            level = "defense" if labels.nlevels > 1 else None
            table = table.rename(**{axis: methods}, level=level)
    if "attackers" in table.index.names:
        table = table.rename(index=_whole, level="attackers")
    names = [RATIO if name == "attackers" else name for name in table.index.names]
    table.index = table.index.set_names(names)
    return table.rename_axis(columns=None)


def _whole(ratio: float) -> float:
    return int(ratio) if float(ratio).is_integer() else ratio
