"""Tables of runs and of rounds: small cases worked by hand."""

import numpy as np
import pandas as pd
import pytest
from frames import rounds_of, runs

import lff
from lff.study import paper, tables, text

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
    assert list(text.to_text(table).columns) == ["FedAvg", "Median", "zeno"]
    assert list(table.index) == [(b, r) for b in ("CIFAR10-iid", "IMDB", "mine") for r in (0, 30)]
    by_hand = given.set_index(["benchmark", "attackers", "defense"])["cv"]
    for benchmark, label in (("imdb", "IMDB"), ("cifar10-iid", "CIFAR10-iid"), ("mine", "mine")):
        for ratio in (0, 30):
            assert table.loc[(label, ratio), "zeno"] == by_hand[benchmark, ratio, "zeno"]


def test_what_was_asked_for_is_there_and_nothing_else():
    asked = lff.grid(["imdb"], ["fedavg", "median"], [0], scale="smoke")
    table = tables.robustness(runs(("mnist-iid", "lfighter", 25.0, 0)), "src_acc", asked)
    shown = text.to_text(table)
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
    shown = text.to_text(tables.runtime_share(given, asked), 0)
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
    shown = text.to_text(tables.examples_per_peer(counts), 0).loc["iid"]
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
    rows = []
    for benchmark, seed, score in (("imdb", 0, 0.2), ("imdb", 1, 0.4), ("mnist-iid", 0, NAN)):
        name = f"{benchmark}{seed}"
        rows += [(name, benchmark, seed, 0, "whole", score)] * 3  # one row per update
    columns = ["id", "benchmark", "seed", "round", "view", "silhouette"]
    table = tables.silhouettes(pd.DataFrame(rows, columns=columns))
    assert list(table.index) == ["MNIST-iid", "IMDB"]
    assert part(table, "IMDB", "whole") == pytest.approx([0.3, 0.2, 0.4, 2])
    assert text.to_text(table).loc["MNIST-iid", "whole"] == "--"


def test_a_good_and_a_bad_update_are_compared_over_the_seeds():
    rows = [(0, "whole", 3.0, 4.0, 60.0), (1, "whole", 5.0, 4.0, 90.0)]
    given = pd.DataFrame(rows, columns=["seed", "gradients", "good", "bad", "angle"])
    shown = text.to_text(tables.norm_angle(given), 0)
    assert shown.loc["whole"].tolist() == ["4 [3, 5]", "4 [4, 4]", "75 [60, 90]"]


def test_the_summary_is_in_percent():
    given = runs(
        ("imdb", "median", 30.0, 0), ("imdb", "zeno", 30.0, 0), true_positive_rate=[NAN, 0.5]
    )
    table = text.to_text(tables.summary(given), 0)
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


def test_lost_is_counted_over_seeds_against_the_same_seed():
    """Seed 4 keeps 30 of 80; seed 2 has no run without attack, and seed 3 never learned."""
    given = runs(
        *[("imdb", "fedavg", 0.0, s) for s in (0, 1, 3, 4)],
        *[("imdb", "lfighter", 30.0, s) for s in range(5)],
        ("imdb", "fedavg", 30.0, 1),
        src_acc=[0.9, 0.8, 0.1, 0.8, 0.85, 0.60, 0.90, 0.10, 0.30, 0.10],
    )
    asked = lff.grid(["imdb"], ["median"], [0, 30, 50], scale="smoke")
    table = tables.lost(given, asked)
    assert list(table.columns) == ["FedAvg", "Median", "LFighter"]
    assert table.loc[("IMDB", 30), "LFighter"] == "1 of 3 (1 to 91%)"
    assert table.loc[("IMDB", 30), "FedAvg"] == "1 of 1 (3 to 100%)"
    assert table["Median"].isna().all()  # asked for, not run
    assert table.loc[("IMDB", 50)].isna().all()


def test_of_ten_classes_less_is_enough_to_have_learned():
    """41% is four times what guessing gives, 27% too little; of two classes both are worse."""
    given = runs(
        *[("cifar10-iid", "fedavg", 0.0, s) for s in (0, 1)],
        *[("cifar10-iid", "lfighter", 30.0, s) for s in (0, 1)],
        src_acc=[0.41, 0.27, 0.38, 0.38],
    )
    assert tables.lost(given).loc[("CIFAR10-iid", 30), "LFighter"].startswith("0 of 1")


def test_methods_are_paired_by_seed():
    """Ahead by 10, 20 and 60 points in the seeds that both have; the median alone loses seed 2."""
    given = runs(
        *[("imdb", "fedavg", 0.0, s) for s in range(3)],
        *[("imdb", "lfighter", 40.0, s) for s in range(4)],
        *[("imdb", "median", 40.0, s) for s in range(3)],
        ("imdb", "foolsgold", 40.0, 0),
        src_acc=[0.9] * 3 + [0.9, 0.8, 0.8, 0.1] + [0.8, 0.6, 0.2] + [0.5],
    )
    table = tables.paired(given)
    assert list(table.index) == [("IMDB", 40, "Median")]  # FoolsGold has one seed
    row = table.iloc[0]
    assert (row["seeds"], row["Src-Acc ahead (points)"]) == (3, pytest.approx(30))
    assert row["from"] == pytest.approx(10)  # of three pairs the resamples reach both ends
    assert row["to"] == pytest.approx(60)
    assert (row["lost by LFighter alone"], row["lost by the other alone"], row["p"]) == (0, 1, 1)
    assert tables.paired(given, "median").iloc[0]["Src-Acc ahead (points)"] == pytest.approx(-30)


def test_seeds_that_may_have_been_chosen_are_not_paired():
    """The median was run in two of LFighter's five seeds; of four seeds two are half."""
    given = runs(
        *[("imdb", "fedavg", 0.0, s) for s in range(5)],
        *[("imdb", "lfighter", 40.0, s) for s in range(5)],
        *[("imdb", "median", 40.0, s) for s in range(2)],
        src_acc=[0.9] * 5 + [0.0, 0.0, 0.9, 0.9, 0.9] + [0.5] * 2,
    )
    assert tables.paired(given).empty
    assert len(tables.paired(given[given["seed"] < 4])) == 1


def test_detectors_are_means_over_the_rounds_that_have_an_answer():
    """Peers 0 to 3 attack: first two of them and one honest peer are dropped, then nobody."""
    given = rounds_of(dropped=[(2, 1), (0, 0)]).assign(
        peer_ids=[list(range(10))] * 2, attacker_ids=[[0, 1, 2, 3]] * 2,
        dropped=[[0, 1, 9], []], scores_by_peer=[None, [4.0] * 4 + [1.0] * 6],
    )  # fmt: skip
    table = tables.detectors(pd.concat([given, given.assign(attackers=0.0, id="calm")]))
    assert list(table.index) == [("MNIST-Mild", 40, "LFighter")]
    row = table.iloc[0]
    assert row["precision (%)"] == pytest.approx(200 / 3)
    assert row["recall (%)"] == 25
    assert row["AUC (%)"] == 100


def test_classes_of_extreme_are_views_of_their_own():
    """Good updates of class c lie at (c, 0), the bad ones at the target's place: classes are
    perfect clusters, the bad among those of the target, and apart from those of the source."""
    one = {"view": "relevant neurons", "distribution": "extreme", "id": "x", "round": 3,
           "source_class": 7, "target_class": 1}  # fmt: skip
    spread = [(c, False, c, 0.001 * k) for c in range(10) for k in range(3)]
    spread += [(7, True, 1, 0.001 * k) for k in range(3)]
    points = pd.DataFrame(
        [{**one, "class_held": c, "bad": bad, "pc1": float(x), "pc2": y, "silhouette": 0.0}
         for c, bad, x, y in spread]
    )  # fmt: skip
    found = tables.silhouettes_of_classes(points).set_index("view")["silhouette"]
    assert found["classes"] > 0.99
    assert found["bad and target"] < 0
    assert found["bad and source"] > 0.99


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


def test_rows_without_a_run_are_shown_as_gaps():
    asked = lff.grid(["imdb", "mnist-iid"], ["lfighter"], [30, 10], scale="smoke")
    cells = pd.DataFrame({"benchmark": ["mnist-mild", "mnist-iid"], "attackers": [25.0, 30.0]})
    table = cells.assign(x=[2.0, 1.0]).set_index(["benchmark", "attackers"])
    assert tables.in_order(table, asked)["x"].fillna(0).to_dict() == {
        ("mnist-iid", 10): 0, ("mnist-iid", 30): 1, ("mnist-mild", 25): 2, ("imdb", 10): 0,
        ("imdb", 30): 0,
    }  # fmt: skip
    alone = tables.in_order(table.droplevel("attackers"), asked)
    assert list(alone.index) == ["mnist-iid", "mnist-mild", "imdb"]


def test_without_a_run_there_are_tables_without_rows():
    nothing, none = runs(), rounds_of(src_acc=[0.5])[:0]
    for table in (
        tables.summary(nothing),
        tables.robustness(nothing, "cv"),
        tables.runtime(nothing),
        tables.filled(nothing, []),
        tables.lost(nothing),
        tables.paired(nothing),
        tables.cost_without_attack(nothing),
        tables.larger_magnitudes(none),
        tables.curve_distance(none),
        tables.detectors(none),
    ):
        assert table.empty
