"""What the paper reports: typed again by hand from its tables."""

import json
from importlib.resources import files

import pandas as pd
import pytest

from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.scales import ATTACKER_RATIOS, PAPER_DEFENSES
from lff.study import paper

REPORTED = json.loads(files("lff.study").joinpath("reported.json").read_text(encoding="utf-8"))


def value(table: pd.DataFrame, column: str, **cell):
    """The only value of a column in a cell."""
    for name, wanted in cell.items():
        table = table[table[name] == wanted]
    return table[column].item()


@pytest.mark.parametrize(
    ("benchmark", "attackers", "defense", "printed"),
    [
        ("mnist-iid", 50, "multi_krum", 0.29),
        ("mnist-iid", 10, "foolsgold", 7.31),
        ("mnist-mild", 0, "fedavg", 0.08),
        ("mnist-mild", 40, "foolsgold", 1.35),
        ("mnist-extreme", 20, "multi_krum", 14.14),
        ("mnist-extreme", 50, "lfighter", 0.37),
        ("imdb", 50, "repeated_median", 0.75),
        ("cifar10-iid", 50, "multi_krum", 6.33),
        ("cifar10-mild", 10, "trimmed_mean", 0.17),
        ("cifar10-mild", 50, "lfighter", 0.17),
    ],
)
def test_cv_as_printed(benchmark, attackers, defense, printed):
    cell = {"benchmark": benchmark, "attackers": attackers, "defense": defense}
    assert value(paper.cv(), "cv", **cell) == printed


def test_cv_is_the_whole_table():
    """Six benchmarks, six ratios, seven defenses; NaN where the paper prints it."""
    table = paper.cv()
    assert list(table.columns) == ["benchmark", "attackers", "defense", "cv"]
    assert len(table) == 6 * 6 * 7
    assert not table.duplicated(["benchmark", "attackers", "defense"]).any()
    assert set(table["benchmark"]) == set(BENCHMARKS)
    assert set(table["attackers"]) == set(ATTACKER_RATIOS)
    assert set(table["defense"]) == set(PAPER_DEFENSES)
    empty = table[table["cv"].isna()]
    assert set(empty[["benchmark", "attackers", "defense"]].itertuples(index=False, name=None)) == {
        ("mnist-extreme", 10, "foolsgold"),
        ("mnist-extreme", 30, "multi_krum"),
        ("mnist-extreme", 40, "multi_krum"),
        ("mnist-extreme", 50, "multi_krum"),
        ("imdb", 40, "multi_krum"),
        ("imdb", 50, "multi_krum"),
    }


def test_norm_angle_as_printed():
    rows = list(paper.norm_angle().itertuples(index=False, name=None))
    assert rows == [
        ("whole, with BatchNorm statistics", 351123, 351107, 0.41),
        ("output layer", 72.94, 100.23, 69.19),
        ("relevant neurons", 23.38, 64.43, 115),
        ("non-relevant neurons", 55.30, 65.95, 18),
    ]


def test_datasets_as_printed():
    assert list(paper.datasets().itertuples(index=False, name=None)) == [
        ("mnist", "image classification", 70000, "CNN", "~22K"),
        ("cifar10", "image classification", 60000, "ResNet18", "~11M"),
        ("imdb", "sentiment analysis", 50000, "BiLSTM", "~12M"),
    ]


def test_robustness_is_in_fractions():
    table = paper.robustness()
    assert list(table.columns) == [
        "benchmark",
        "defense",
        "attackers",
        "all_acc",
        "src_acc",
        "asr",
    ]
    assert len(table) == 3 * 6 * 6
    assert table[["all_acc", "src_acc", "asr"]].stack().between(0, 1).all()
    for benchmark in ("cifar10-mild", "mnist-extreme", "imdb"):
        for defense, metrics in REPORTED["robustness_read_off_figures"][benchmark].items():
            rows = table[(table["benchmark"] == benchmark) & (table["defense"] == defense)]
            assert list(rows["attackers"]) == list(ATTACKER_RATIOS)
            for metric, percents in metrics.items():
                assert list(100 * rows[metric]) == pytest.approx(percents)


def test_runtime_by_hand():
    table = paper.runtime()
    assert list(table.columns) == ["benchmark", "defense", "per_round", "total", "rounds"]
    assert len(table) == 4 * 7
    mean = (0.2856722 + 0.2759203 + 0.2685658) / 3
    cell = {"benchmark": "cifar10-iid", "defense": "foolsgold"}
    assert value(table, "per_round", **cell) == pytest.approx(mean)
    assert value(table, "total", **cell) == pytest.approx(100 * mean)
    assert value(table, "rounds", benchmark="imdb", defense="lfighter") == 50


def test_a_callers_changes_do_not_reach_the_next_caller():
    mine = paper.datasets()
    mine.loc[0, "model"] = "other"
    assert paper.datasets().loc[0, "model"] == "CNN"
