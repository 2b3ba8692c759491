"""Whether LFighter holds, and what it costs in peace: worked out by hand on made-up results."""

import pandas as pd
import pytest

from lff.study import holding
from lff.study.spread import Spread


def results(*rows) -> pd.DataFrame:
    columns = ["benchmark", "defense", "attackers", "seed", "src_acc", "asr", "all_acc"]
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(true_positive_rate=0.5, false_positive_rate=0.25)


def test_robust_is_judged_seed_by_seed_against_the_same_seed():
    """Seed 0 loses 5 points, seed 1 20; seed 2 has no run without attack, seed 3 never learned."""
    given = results(
        ("imdb", "fedavg", 0.0, 0, 0.9, 0.05, 0.9),
        ("imdb", "fedavg", 0.0, 1, 0.8, 0.05, 0.9),
        ("imdb", "fedavg", 0.0, 3, 0.1, 0.05, 0.9),
        ("imdb", "lfighter", 30.0, 0, 0.85, 0.10, 0.9),
        ("imdb", "lfighter", 30.0, 1, 0.60, 0.05, 0.9),
        ("imdb", "lfighter", 30.0, 2, 0.90, 0.05, 0.9),
        ("imdb", "lfighter", 30.0, 3, 0.10, 0.05, 0.9),
        ("imdb", "fedavg", 30.0, 1, 0.30, 0.65, 0.9),
    )
    row = holding.at_each_ratio(given).loc[("IMDB", 30)]
    assert row["robust in seeds"] == "1 of 2"
    assert row["Src-Acc (%)"].values == pytest.approx((85, 60, 90, 10))
    assert row["Src-Acc lost (points)"].values == pytest.approx((5, 20, 0))
    assert row["Src-Acc lost by FedAvg (points)"].values == pytest.approx((50,))
    flipped = given.assign(asr=given["asr"] + 0.2 * (given["attackers"] > 0))
    assert holding.at_each_ratio(flipped).loc[("IMDB", 30), "robust in seeds"] == "0 of 2"


def test_of_ten_classes_less_is_enough_to_have_learned():
    """40% is four times what guessing gives, 27% too little; of two classes both are worse."""
    given = results(
        ("cifar10-iid", "fedavg", 0.0, 0, 0.40, 0.05, 0.5),
        ("cifar10-iid", "fedavg", 0.0, 1, 0.27, 0.05, 0.5),
        ("cifar10-iid", "lfighter", 30.0, 0, 0.38, 0.05, 0.5),
        ("cifar10-iid", "lfighter", 30.0, 1, 0.38, 0.05, 0.5),
    )
    assert holding.at_each_ratio(given).loc[("CIFAR10-iid", 30), "robust in seeds"] == "1 of 1"


def test_peace_is_compared_with_the_same_seed():
    given = results(
        ("imdb", "fedavg", 0.0, 0, 0.9, 0, 0.8),
        ("imdb", "fedavg", 0.0, 1, 0.7, 0, 0.8),
        ("imdb", "lfighter", 0.0, 0, 0.8, 0, 0.9),
        ("imdb", "lfighter", 0.0, 1, 0.7, 0, 0.7),
        ("imdb", "lfighter", 0.0, 2, 0.7, 0, 0.7),
        ("imdb", "lfighter", 30.0, 0, 0.1, 0, 0.1),
    )
    row = holding.cost_of_peace(given).loc["IMDB"]
    assert row["Src-Acc lost (points)"].values == pytest.approx((10, 0))
    assert row["All-Acc lost (points)"].values == pytest.approx((-10, 10))
    assert row["honest peers dropped (%)"] == Spread((25.0, 25.0, 25.0))


def test_robust_seeds_stand_in_a_column_per_ratio():
    """Without a run of FedAvg in peace nothing can be said of MNIST-iid."""
    given = results(
        ("imdb", "fedavg", 0.0, 0, 0.9, 0.05, 0.9),
        ("imdb", "lfighter", 10.0, 0, 0.85, 0.10, 0.9),
        ("imdb", "lfighter", 50.0, 0, 0.60, 0.05, 0.9),
        ("mnist-iid", "lfighter", 10.0, 0, 0.9, 0.05, 0.9),
    )
    table = holding.robust_by_ratio(holding.at_each_ratio(given))
    assert list(table.columns) == ["robust at 10%", "robust at 50%"]
    assert list(table.loc["IMDB"]) == ["1 of 1", "0 of 1"]
    assert table.loc["MNIST-iid"].isna().all()


def test_without_a_run_there_are_tables_without_rows():
    table = holding.at_each_ratio(results())
    assert table.empty
    assert holding.robust_by_ratio(table).empty
    assert holding.cost_of_peace(results()).empty
