"""What changes during training: tables of rounds, and what is read off their curves."""

from collections.abc import Iterable

import pandas as pd

from lff.experiments.benchmarks import Experiment
from lff.study.figures.stability import REFERENCE
from lff.experiments.records import find
from lff.study.spread import over_seeds
from lff.study.tables import RUN, labelled, methods_of, run_columns


def rounds(experiments: Iterable[Experiment]) -> pd.DataFrame:
    """One row per round of every recorded experiment, with the mean gradient magnitude of relevant
    (source and target class) and non-relevant output neurons."""
    rows = []
    for e in experiments:
        record = find(e)
        for entry in record.history if record else []:
            magnitudes = pd.Series(entry["magnitudes"])
            relevant = magnitudes.index.isin([e.source_class, e.target_class])
            rows.append(
                {
                    **run_columns(e),
                    "round": entry["round"],
                    "src_acc": entry["src_acc"],
                    "asr": entry["asr"],
                    "relevant": magnitudes[relevant].mean(),
                    "non_relevant": magnitudes[~relevant].mean(),
                }
            )
    columns = ["id", *RUN, "round", "src_acc", "asr", "relevant", "non_relevant"]
    return pd.DataFrame(rows, columns=columns)


def larger_magnitudes(rounds: pd.DataFrame) -> pd.DataFrame:
    """In which percentage of the rounds the relevant neurons' gradients are the larger ones."""
    percent = 100.0 * (rounds["relevant"] > rounds["non_relevant"])
    table = rounds.assign(**{"rounds with larger relevant gradients (%)": percent})
    return labelled(over_seeds(table, ["benchmark", "attackers"], [table.columns[-1]]))


def curves(experiments: Iterable[Experiment]) -> pd.DataFrame:
    """The rounds, with the curve of the figure of Src-Acc that each belongs to."""
    table = rounds(experiments)
    return table.assign(curve=table["defense"].where(table["attackers"] > 0, REFERENCE))


def curve_names(experiments: Iterable[Experiment]) -> dict[str, list[str]]:
    """The curves of each benchmark in that figure, run or not."""
    names: dict[str, list[str]] = {}
    for e in experiments:
        curve = e.defense if e.attackers > 0 else REFERENCE
        names.setdefault(e.benchmark, []).append(curve)
    return {benchmark: list(dict.fromkeys(curves)) for benchmark, curves in names.items()}


def distance(curves: pd.DataFrame) -> pd.DataFrame:
    """The mean distance of Src-Acc from FedAvg's without attack of the same seed, in points."""
    by = ["benchmark", "seed", "round"]
    reference = curves[curves["curve"] == REFERENCE].set_index(by)["src_acc"]
    attacked = curves[curves["curve"] != REFERENCE].join(reference.rename("without"), on=by)
    attacked = attacked.assign(points=100 * (attacked["src_acc"] - attacked["without"]).abs())
    known = attacked.dropna(subset="points")
    table = over_seeds(known, ["benchmark", "defense"], ["points"])["points"].unstack("defense")
    rows = pd.Index(dict.fromkeys(curves["benchmark"]), name="benchmark")
    return labelled(table.reindex(index=rows, columns=methods_of(attacked)))
