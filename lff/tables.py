"""One function per table of the study; each returns a DataFrame, one row as the paper has it."""

from collections.abc import Iterable

import pandas as pd

from lff.benchmarks import BENCHMARKS, Experiment
from lff.data import load
from lff.defenses import get_defense
from lff.federation import Federation
from lff.models import build
from lff.products import series
from lff.records import find
from lff.scales import ATTACKER_RATIOS


def datasets_and_models(experiments: Iterable[Experiment]) -> pd.DataFrame:
    """Table "Data sets and models": examples and parameters, counted."""
    rows = []
    for e in experiments:
        benchmark = BENCHMARKS[e.benchmark]
        data = load(benchmark.dataset, data=e.data, vocabulary=e.vocabulary)
        model = build(benchmark.model, classes=len(data.classes), vocabulary=data.vocabulary)
        rows.append(
            {
                "data set": benchmark.dataset,
                "data": data.source,
                "training examples": len(data.train_y),
                "test examples": len(data.test_y),
                "classes": len(data.classes),
                "model": benchmark.model,
                "parameters": sum(p.numel() for p in model.parameters()),
            }
        )
    return pd.DataFrame(rows).set_index("data set")


def class_counts(experiments: Iterable[Experiment]) -> pd.DataFrame:
    """How many examples of each class each peer holds: one row per distribution, peer and class."""
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
                        "peer": peer.id,
                        "class": name,
                        "examples": count,
                    }
                )
    return pd.DataFrame(rows)


def robustness(results: pd.DataFrame, metric: str) -> pd.DataFrame:
    """One metric in percent: a row per benchmark and ratio, a column per method."""
    return _by_method(results, metric, factor=1 if metric == "test_error" else 100, digits=1)


def cv(results: pd.DataFrame) -> pd.DataFrame:
    """Table "CV of the source-class accuracy": rows per benchmark and ratio, columns per method."""
    return _by_method(results, "cv", factor=1, digits=2)


def _by_method(results: pd.DataFrame, value: str, *, factor: float, digits: int) -> pd.DataFrame:
    """The number of one seed, mean and range of several; cells that were not run are missing."""
    cells = results.groupby(["benchmark", "attackers", "defense"])[value]
    shown = cells.apply(lambda values: series(values * factor, digits)).unstack("defense")
    order = [b for b in BENCHMARKS if b in set(results["benchmark"])]
    ratios = sorted({*ATTACKER_RATIOS, *results["attackers"]})
    rows = pd.MultiIndex.from_product([order, ratios], names=["benchmark", "attackers"])
    columns = list(dict.fromkeys(results["defense"]))
    table = shown.reindex(index=rows, columns=columns)
    table = table.rename(index={b: BENCHMARKS[b].label for b in order}, level="benchmark")
    return table.rename(columns={d: get_defense(d).label for d in columns})


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
                    "id": record.id,
                    "benchmark": e.benchmark,
                    "defense": e.defense,
                    "attackers": e.attackers,
                    "seed": e.seed,
                    "round": entry["round"],
                    "src_acc": entry["src_acc"],
                    "asr": entry["asr"],
                    "relevant": magnitudes[relevant].mean(),
                    "non_relevant": magnitudes[~relevant].mean(),
                    "data_source": record.provenance["data"]["source"],
                }
            )
    return pd.DataFrame(rows)


def runtime(results: pd.DataFrame) -> pd.DataFrame:
    """Seconds of aggregation per round and over all rounds, mean over the runs of each method."""
    timed = results.assign(per_round=results["aggregation_seconds"] / results["rounds"])
    means = timed.groupby(["benchmark", "defense"])[["per_round", "aggregation_seconds"]].mean()
    order = [(b, d) for b in BENCHMARKS for d in dict.fromkeys(results["defense"])]
    means = means.reindex([key for key in order if key in means.index])
    return means.rename(columns={"aggregation_seconds": "total"}).reset_index()


def sight(experiments: Iterable[Experiment]) -> pd.DataFrame:
    """How often LFighter sees what is there, over the rounds of attacked runs.

    Per benchmark and ratio: the percentage of rounds in which its two neurons are the source and
    target class, and in which it found the right kind of distribution.
    """
    rows = []
    for e in experiments:
        record = find(e)
        for entry in record.history if record else []:
            saw = entry["saw"]
            truth = {e.source_class, e.target_class}
            named = set(saw["neurons"]) == truth if len(saw.get("neurons", [])) > 1 else None
            extreme = e.distribution == "extreme"
            rows.append(
                {
                    "benchmark": BENCHMARKS[e.benchmark].label,
                    "attackers": e.attackers,
                    "neurons right (%)": None if named is None else 100.0 * named,
                    "distribution right (%)": 100.0
                    * ((saw["distribution"] == "extreme") == extreme),
                }
            )
    columns = ["neurons right (%)", "distribution right (%)"]
    table = pd.DataFrame(rows).astype(dict.fromkeys(columns, float))
    return table.groupby(["benchmark", "attackers"], sort=False)[columns].mean()


def cost_of_peace(results: pd.DataFrame) -> pd.DataFrame:
    """What LFighter costs when nobody attacks, against FedAvg, in percentage points."""
    calm = results[results["attackers"] == 0]
    by = calm.groupby(["defense", "benchmark"])[
        ["all_acc", "src_acc", "false_positive_rate"]
    ].mean()
    fedavg, lfighter = by.loc["fedavg"] * 100, by.loc["lfighter"] * 100
    table = pd.DataFrame(
        {
            "honest peers dropped": lfighter["false_positive_rate"],
            "All-Acc lost": fedavg["all_acc"] - lfighter["all_acc"],
            "Src-Acc lost": fedavg["src_acc"] - lfighter["src_acc"],
        }
    )
    order = [name for name in BENCHMARKS if name in table.index]
    return table.loc[order].rename(index={name: BENCHMARKS[name].label for name in order})
