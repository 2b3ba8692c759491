"""Tables of runs and of rounds: small cases worked by hand."""

import numpy as np
import pandas as pd
import pytest
from frames import rounds_of, runs

import lff
from lff.study import paper, tables
from lff.study.frame import observations

NAN = float("nan")


def part(table, row, column):
    """Mean, smallest and largest value, and number of seeds."""
    return [table.loc[row, column + name] for name in ("", " low", " high", " seeds")]


def values(*rows) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["benchmark", "attackers", "seed", "x", "y"])


def test_a_seed_counts_once():
    """Seed 0 has three rows and seed 1 one: means 2 and 6, and not 3 over all rows."""
    given = values(("a", 0, 0, 1, 5), ("a", 0, 0, 2, 5), ("a", 0, 0, 3, 5), ("a", 0, 1, 6, 7))
    table = tables.over_seeds(given, ["benchmark", "attackers"], ["x", "y"])
    assert part(table, ("a", 0), "x") == [4, 2, 6, 2]
    assert part(table, ("a", 0), "y") == [6, 5, 7, 2]


def test_rows_keep_their_order():
    given = values(("b", 1, 0, 1, 1), ("a", 0, 0, 1, 1), ("b", 0, 0, 1, 1))
    assert list(tables.over_seeds(given, ["benchmark"], ["x"]).index) == ["b", "a"]


def test_no_mean_hides_a_value_that_is_not_a_number():
    given = values(("a", 0, 0, NAN, NAN), ("a", 0, 1, 2, NAN))
    table = tables.over_seeds(given, ["benchmark"], ["x", "y"])
    assert part(table, "a", "x") == pytest.approx([NAN, 2, 2, 2], nan_ok=True)
    assert part(table, "a", "y") == pytest.approx([NAN, NAN, NAN, 2], nan_ok=True)
    known = tables.over_seeds(given, ["benchmark"], ["x", "y"], known=True)
    assert part(known, "a", "x") == [2, 2, 2, 1]
    assert known.loc["a", "y seeds"] == 0
    assert tables.over_seeds(values(), ["benchmark"], ["x"]).empty


def test_the_right_number_is_in_the_right_cell():
    cells = [
        (b, d, r, 0)
        for b in ("imdb", "cifar10-iid", "mine")
        for d in ("median", "zeno", "fedavg")
        for r in (30.0, 0.0)
    ]
    given = runs(*cells, cv=np.arange(18) / 10)
    table = tables.robustness(given, "cv")
    assert list(tables.to_text(table).columns) == ["FedAvg", "Median", "zeno"]
    assert list(table.index) == [(b, r) for b in ("CIFAR10-iid", "IMDB", "mine") for r in (0, 30)]
    by_hand = given.set_index(["benchmark", "attackers", "defense"])["cv"]
    for benchmark, label in (("imdb", "IMDB"), ("cifar10-iid", "CIFAR10-iid"), ("mine", "mine")):
        for ratio in (0, 30):
            assert table.loc[(label, ratio), "zeno"] == by_hand[benchmark, ratio, "zeno"]


def test_what_was_asked_for_is_there_and_nothing_else():
    asked = lff.grid(["imdb"], ["fedavg", "median"], [0], scale="smoke")
    table = tables.robustness(runs(("mnist-iid", "lfighter", 25.0, 0)), "src_acc", asked)
    shown = tables.to_text(table)
    assert list(shown.columns) == ["FedAvg", "Median", "LFighter"]
    assert list(shown.index) == [("MNIST-iid", 25), ("IMDB", 0)]
    assert shown.loc[("MNIST-iid", 25)].tolist() == ["--", "--", "50.00"]
    assert shown.loc[("IMDB", 0)].tolist() == ["--"] * 3


def test_a_test_error_is_not_in_percent():
    table = tables.robustness(runs(("imdb", "fedavg", 0.0, 0)), "test_error")
    assert table["FedAvg"].item() == 1


def test_first_places_are_shared_at_two_digits_and_never_given_for_nan():
    """First 0.111 and 0.114, which print the same; then lfighter alone; then nobody."""
    cells = [("imdb", d, r, 0) for r in (0.0, 10.0, 20.0) for d in ("fedavg", "lfighter")]
    places = tables.first_places(runs(*cells, cv=[0.111, 0.114, NAN, 9.0, NAN, NAN]))
    assert places["first in (%)"].to_dict() == {"FedAvg": 50, "LFighter": 100}


def test_first_places_of_the_papers_own_table():
    """Its boldface: LFighter first in 30 of 36 columns, alone or shared."""
    places = tables.first_places(paper.cv().assign(seed=0))["first in (%)"]
    assert places["LFighter"] == pytest.approx(100 * 30 / 36)


def test_runtime_is_averaged_over_ratios_within_a_seed():
    cells = [("imdb", "median", r, s) for s in (0, 1) for r in (0.0, 30.0)]
    given = runs(*cells, aggregation_seconds=[1.0, 3.0, 5.0, 7.0])
    asked = lff.grid(["imdb"], ["fedavg"], [0], scale="smoke")
    times = tables.runtime(given, asked).set_index("defense")
    assert list(times.index) == ["fedavg", "median"]
    assert part(times, "median", "per_round") == pytest.approx([0.4, 0.2, 0.6, 2])
    assert part(times, "median", "total") == pytest.approx([4, 2, 6, 2])
    assert part(times, "median", "share") == pytest.approx([20, 10, 30, 2])
    shown = tables.to_text(tables.runtime_share(given, asked), 0)
    assert shown.loc["IMDB"].tolist() == ["--", "20 [10, 30]"]


def test_filled_counts_cells_and_runs():
    asked = lff.grid(["imdb", "mnist-iid"], ["fedavg"], [0, 30], [0, 1], scale="smoke")
    there = runs(*[("imdb", "fedavg", 30.0, s) for s in (0, 1)], ("imdb", "fedavg", 25.0, 0))
    table = tables.filled(there, asked)
    assert table.loc["IMDB", "cells recorded"] == 1  # 25% is none of the paper's ratios
    assert table.loc["IMDB", ["runs asked for", "runs recorded", "seeds"]].tolist() == [4, 3, "0 1"]
    assert table.loc["MNIST-iid", ["cells recorded", "runs recorded"]].tolist() == [0, 0]
    assert (table["cells of the paper's grid"] == 42).all()


def test_peers_are_counted_seed_by_seed():
    rows = [("iid", s, k, c, n) for s, most in ((0, 4), (1, 8)) for k, c, n in
            ((0, "a", 1), (0, "b", 1), (1, "a", 0), (1, "b", most))]  # fmt: skip
    counts = pd.DataFrame(rows, columns=["distribution", "seed", "peer", "class", "examples"])
    shown = tables.to_text(tables.examples_per_peer(counts), 0).loc["iid"]
    assert shown["examples, min"] == "2 [2, 2]"
    assert shown["examples, max"] == "6 [4, 8]"
    assert shown["examples, median"] == "4 [3, 5]"
    assert shown["classes, min"] == "1 [1, 1]"


def test_class_counts_are_those_of_the_record(tiny):
    e = lff.experiment("mnist-mild", attackers=30, **tiny)
    record = lff.run(e, progress=False)
    counts = tables.class_counts([e])
    wide = counts.pivot(index="peer", columns="class", values="examples")
    assert wide.to_numpy().tolist() == record.class_counts
    assert sorted(counts.loc[counts["attacker"], "peer"].unique()) == sorted(record.attackers)
    assert set(counts.loc[counts["source"], "class"]) == {"7"}


def test_data_sets_and_models_are_counted():
    e = lff.experiment("mnist-iid", scale="smoke")
    row = tables.datasets_and_models([e]).loc["mnist"]
    assert row["task"] == "image classification"
    assert (row["training examples"], row["used in training"], row["used in tests"]) == (
        4000,
        1000,
        500,
    )
    weights = (5 * 5 * 10 + 10) + (5 * 5 * 10 * 20 + 20) + (320 * 50 + 50) + (50 * 10 + 10)
    assert row["parameters"] == weights


def test_silhouettes_are_a_row_per_benchmark():
    looks = []
    for benchmark, seed, score in (("imdb", 0, 0.2), ("imdb", 1, 0.4), ("mnist-iid", 0, None)):
        e = lff.experiment(benchmark, scale="smoke", seed=seed)
        table = pd.DataFrame({"view": ["whole"] * 3, "silhouette": [score] * 3})
        table.attrs = {"data_source": "made up", "round": 0}
        looks.append((e, table))
    table = tables.silhouettes(observations(looks))
    assert list(table.index) == ["MNIST-iid", "IMDB"]
    assert part(table, "IMDB", "whole") == pytest.approx([0.3, 0.2, 0.4, 2])
    assert tables.to_text(table).loc["MNIST-iid", "whole"] == "--"


def test_a_good_and_a_bad_update_are_compared_over_the_seeds():
    rows = [(0, "whole", 3.0, 4.0, 60.0), (1, "whole", 5.0, 4.0, 90.0)]
    given = pd.DataFrame(rows, columns=["seed", "gradients", "good", "bad", "angle"])
    shown = tables.to_text(tables.norm_angle(given), 0)
    assert shown.loc["whole"].tolist() == ["4 [3, 5]", "4 [4, 4]", "75 [60, 90]"]


def test_the_summary_is_in_percent():
    given = runs(
        ("imdb", "median", 30.0, 0), ("imdb", "zeno", 30.0, 0), true_positive_rate=[NAN, 0.5]
    )
    table = tables.to_text(tables.summary(given), 0)
    assert table.loc["Median"].tolist() == ["90", "50", "25", "--", "25"]
    assert table.loc["zeno", "attackers dropped"] == "50"


def test_the_distance_is_from_the_reference_of_the_same_seed():
    given = pd.concat(
        [
            rounds_of("imdb", "fedavg", 0.0, 0, src_acc=[0.5, 0.9]),
            rounds_of("imdb", "fedavg", 0.0, 1, src_acc=[0.0, 0.0]),
            rounds_of("imdb", "lfighter", 0.0, 1, src_acc=[1.0, 1.0]),  # not the reference
            rounds_of("imdb", "lfighter", 30.0, 0, src_acc=[0.4, 1.0]),
            rounds_of("imdb", "lfighter", 30.0, 1, src_acc=[0.5, 0.3]),
            rounds_of("imdb", "lfighter", 30.0, 2, src_acc=[0.5, 0.3]),  # has none
            rounds_of("mnist-iid", "lfighter", 30.0, 0, src_acc=[0.5, 0.3]),
        ]
    )
    table = tables.curve_distance(given)
    assert part(table, "IMDB", "LFighter") == pytest.approx([25, 10, 40, 2])
    assert np.isnan(table.loc["MNIST-iid", "LFighter"])


def test_larger_magnitudes_are_a_percentage_of_rounds():
    given = pd.DataFrame(
        {"benchmark": "imdb", "attackers": 10.0, "seed": [0, 0, 0, 0, 1, 1],
         "relevant": [2, 2, 2, 1, 1, 1], "non_relevant": [1, 1, 1, 1, 2, 0]}
    )  # fmt: skip
    table = tables.larger_magnitudes(given)
    assert part(table, ("IMDB", 10), table.columns[0]) == [62.5, 50, 75, 2]


def test_robust_and_lost_are_judged_seed_by_seed_against_the_same_seed():
    """Seed 0 loses 5 points, seed 1 20, seed 4 70 of 80; seed 2 has no run without attack, and
    seed 3 never learned."""
    given = runs(
        *[("imdb", "fedavg", 0.0, s) for s in (0, 1, 3, 4)],
        *[("imdb", "lfighter", 30.0, s) for s in range(5)],
        ("imdb", "fedavg", 30.0, 1),
        src_acc=[0.9, 0.8, 0.1, 0.8, 0.85, 0.60, 0.90, 0.10, 0.10, 0.30],
        asr=[0.05] * 4 + [0.10, 0.05, 0.05, 0.05, 0.05, 0.65],
    )
    table = tables.saved(given)
    row = table.loc[("IMDB", 30)]
    assert (row["robust in seeds"], row["lost in seeds"]) == ("1 of 3", "1 of 3")
    assert part(table, ("IMDB", 30), "Src-Acc (%)") == pytest.approx([51, 10, 90, 5])
    assert part(table, ("IMDB", 30), "Src-Acc lost (points)") == pytest.approx([23.75, 0, 70, 4])
    assert part(table, ("IMDB", 30), "Src-Acc lost by FedAvg (points)") == pytest.approx(
        [50, 50, 50, 1]
    )
    flipped = given.assign(asr=given["asr"] + 0.2 * (given["attackers"] > 0))
    assert tables.saved(flipped).loc[("IMDB", 30), "robust in seeds"] == "0 of 3"


def test_of_ten_classes_less_is_enough_to_have_learned():
    """41% is four times what guessing gives, 27% too little; of two classes both are worse."""
    given = runs(
        *[("cifar10-iid", "fedavg", 0.0, s) for s in (0, 1)],
        *[("cifar10-iid", "lfighter", 30.0, s) for s in (0, 1)],
        src_acc=[0.41, 0.27, 0.38, 0.38],
    )
    assert tables.saved(given).loc[("CIFAR10-iid", 30), "robust in seeds"] == "1 of 1"


def test_robust_seeds_stand_in_a_column_per_ratio():
    """Without a run of FedAvg without attack nothing can be said of MNIST-iid."""
    given = runs(
        ("imdb", "fedavg", 0.0, 0), ("imdb", "lfighter", 10.0, 0), ("imdb", "lfighter", 50.0, 0),
        ("mnist-iid", "lfighter", 10.0, 0), src_acc=[0.9, 0.85, 0.60, 0.9],
    )  # fmt: skip
    table = tables.robust_by_ratio(tables.saved(given))
    assert list(table.columns) == ["robust at 10%", "robust at 50%"]
    assert list(table.loc["IMDB"]) == ["1 of 1", "0 of 1"]
    assert table.loc["MNIST-iid"].isna().all()


def test_the_cost_without_attack_is_against_the_same_seed():
    given = runs(
        *[("imdb", "fedavg", 0.0, s) for s in (0, 1)],
        *[("imdb", "lfighter", 0.0, s) for s in (0, 1, 2)],
        ("imdb", "lfighter", 30.0, 0),
        src_acc=[0.9, 0.7, 0.8, 0.7, 0.7, 0.1],
        all_acc=[0.8, 0.8, 0.9, 0.7, 0.7, 0.1],
    )
    table = tables.cost_without_attack(given)
    assert part(table, "IMDB", "Src-Acc lost (points)") == pytest.approx([5, 0, 10, 2], abs=1e-9)
    assert part(table, "IMDB", "All-Acc lost (points)") == pytest.approx([0, -10, 10, 2], abs=1e-9)
    assert part(table, "IMDB", "honest peers dropped (%)") == [25, 25, 25, 3]


def test_a_glance_is_the_source_class_with_and_without_attack():
    there = runs(("imdb", "fedavg", 0.0, 0), ("imdb", "fedavg", 50.0, 0),
                 ("imdb", "lfighter", 50.0, 0), ("imdb", "lfighter", 50.0, 1),
                 ("imdb", "lfighter", 40.0, 0), src_acc=[0.9, 0.1, 0.8, 0.6, 0.2])  # fmt: skip
    shown = tables.to_text(tables.glance(there), 0)
    assert shown.loc["IMDB"].tolist() == ["90", "10", "70 [60, 80]"]
    assert (shown.drop(index="IMDB") == "--").all(axis=None)
    assert "LFighter, 40% attackers" in tables.glance(there, 40)


def test_rows_without_a_run_are_shown_as_gaps():
    asked = lff.grid(["imdb", "mnist-iid"], ["lfighter"], [30, 10], scale="smoke")
    cells = pd.MultiIndex.from_tuples([("MNIST-iid", 30), ("MNIST-Mild", 25)])
    table = tables.with_gaps(pd.DataFrame({"x": [1.0, 2.0]}, index=cells), asked)
    assert list(table.index) == [
        ("MNIST-iid", 10), ("MNIST-iid", 30), ("IMDB", 10), ("IMDB", 30), ("MNIST-Mild", 25),
    ]  # fmt: skip
    assert table["x"].fillna(0).tolist() == [0, 1, 0, 0, 2]
    alone = tables.with_gaps(pd.DataFrame({"x": [1.0]}, index=["IMDB"]), asked)
    assert list(alone.index) == ["MNIST-iid", "IMDB"]


def test_without_a_run_there_are_tables_without_rows():
    nothing, none = runs(), rounds_of(src_acc=[0.5])[:0]
    for table in (
        tables.summary(nothing),
        tables.robustness(nothing, "cv"),
        tables.runtime(nothing),
        tables.filled(nothing, []),
        tables.saved(nothing),
        tables.robust_by_ratio(tables.saved(nothing)),
        tables.cost_without_attack(nothing),
        tables.larger_magnitudes(none),
        tables.curve_distance(none),
    ):
        assert table.empty
    assert tables.to_text(tables.glance(nothing)).eq("--").all(axis=None)
