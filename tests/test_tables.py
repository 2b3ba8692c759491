"""Tables of results, of rounds, and beside the paper: small cases worked by hand."""

import numpy as np
import pandas as pd
import pytest

import lff
from lff.defenses import get_defense
from lff.experiments.scales import PAPER_DEFENSES
from lff.study import evolution, paper, tables, versus
from lff.study.spread import Spread
from lff.study.versus import DASH


def results(*rows, **columns) -> pd.DataFrame:
    names = ["benchmark", "defense", "attackers", "seed"]
    table = pd.DataFrame(rows, columns=names).assign(
        src_acc=0.5, asr=0.25, cv=0.5, rounds=10, aggregation_seconds=1.0, seconds=20.0
    )
    return table.assign(**columns)


def test_first_places_are_shared_at_two_digits_and_never_given_for_nan():
    """First 0.111 and 0.114, which print the same; then lfighter alone; then nobody."""
    cells = [("imdb", d, r, 0) for r in (0.0, 10.0, 20.0) for d in ("fedavg", "lfighter")]
    given = results(*cells, cv=[0.111, 0.114, np.nan, 9.0, np.nan, np.nan])
    places = tables.first_places(given)["first in (%)"]
    assert places["FedAvg"] == Spread((50.0,))
    assert places["LFighter"] == Spread((100.0,))


def test_first_places_of_the_papers_own_table():
    """Its boldface: LFighter first in 30 of 36 columns, alone or shared."""
    places = tables.first_places(paper.cv().assign(seed=0))["first in (%)"]
    assert places["LFighter"].mean == pytest.approx(100 * 30 / 36)


def test_rows_and_columns_that_were_asked_for_are_there():
    asked = lff.grid(["imdb"], ["fedavg", "median"], [0], scale="smoke")
    table = tables.robustness(results(("mnist-iid", "lfighter", 30.0, 0)), "src_acc", asked)
    assert list(table.columns) == ["FedAvg", "Median", "LFighter"]
    assert set(table.index.get_level_values(0)) == {"MNIST-iid", "IMDB"}
    assert table.loc[("MNIST-iid", 30), "LFighter"] == Spread((50.0,))
    assert table.notna().sum(axis=None) == 1


def test_runtime_is_averaged_over_ratios_within_a_seed():
    cells = [("imdb", "median", r, s) for s in (0, 1) for r in (0.0, 30.0)]
    times = tables.runtime(results(*cells, aggregation_seconds=[1.0, 3.0, 5.0, 7.0]))
    (row,) = times.to_dict("records")
    assert row["per_round"] == Spread((0.2, 0.6))
    assert row["total"] == Spread((2.0, 6.0))
    assert row["share"].values == pytest.approx((10, 30))
    assert tables.runtime_share(times).loc["IMDB", "Median"] == row["share"]


def test_filled_counts_cells_and_runs():
    asked = lff.grid(["imdb", "mnist-iid"], ["fedavg"], [0, 30], [0, 1], scale="smoke")
    there = results(*[("imdb", "fedavg", 30.0, s) for s in (0, 1)], ("imdb", "fedavg", 25.0, 0))
    table = tables.filled(there, asked)
    assert table.loc["IMDB", "cells recorded"] == 1  # 25% is none of the paper's ratios
    assert table.loc["IMDB", ["runs asked for", "runs recorded", "seeds"]].tolist() == [4, 3, "0 1"]
    assert table.loc["MNIST-iid", ["cells recorded", "runs recorded"]].tolist() == [0, 0]


def test_holdings_are_over_the_peers_of_each_seed():
    rows = [("iid", s, k, c, n) for s, most in ((0, 4), (1, 8)) for k, c, n in
            ((0, "a", 1), (0, "b", 1), (1, "a", 0), (1, "b", most))]  # fmt: skip
    counts = pd.DataFrame(rows, columns=["distribution", "seed", "peer", "class", "examples"])
    held = tables.holdings(counts).loc["iid"]
    assert held["examples, min"] == Spread((2, 2))
    assert held["examples, max"] == Spread((4, 8))
    assert held["examples, median"] == Spread((3, 5))
    assert held["classes, min"] == Spread((1, 1))


def test_silhouettes_are_a_row_per_benchmark_and_spread_over_seeds():
    looks = []
    for benchmark, seed, score in (("imdb", 0, 0.2), ("imdb", 1, 0.4), ("mnist-iid", 0, None)):
        e = lff.experiment(benchmark, scale="smoke", seed=seed)
        looks.append((e, pd.DataFrame({"view": ["whole"] * 3, "silhouette": [score] * 3})))
    table = tables.silhouettes(tables.stacked(looks))
    assert list(table.index) == ["IMDB", "MNIST-iid"]
    assert table.loc["IMDB", "whole"].values == pytest.approx((0.2, 0.4))
    assert np.isnan(table.loc["MNIST-iid", "whole"])


def test_rounds_tell_relevant_from_other_neurons(tiny):
    e = lff.experiment("mnist-mild", attackers=30, **tiny)
    record = lff.run(e, progress=False)
    rounds = evolution.rounds([e, e.replace(seed=5)])  # the other was not run
    assert list(rounds["round"]) == [0, 1, 2]
    magnitudes = record.history[1]["magnitudes"]
    row = rounds.iloc[1]
    assert row["relevant"] == pytest.approx((magnitudes[7] + magnitudes[1]) / 2)
    rest = [m for i, m in enumerate(magnitudes) if i not in (1, 7)]
    assert row["non_relevant"] == pytest.approx(sum(rest) / 8)
    assert list(evolution.rounds([]).columns) == list(rounds.columns)


def curve(benchmark, defense, attackers, seed, values) -> list[dict]:
    return [
        {"benchmark": benchmark, "defense": defense, "attackers": attackers, "seed": seed,
         "curve": defense if attackers else "no attack", "round": t, "src_acc": value}
        for t, value in enumerate(values)
    ]  # fmt: skip


def test_the_distance_is_from_the_reference_of_the_same_seed():
    curves = pd.DataFrame(
        curve("imdb", "fedavg", 0, 0, [0.5, 0.9])
        + curve("imdb", "fedavg", 0, 1, [0.0, 0.0])
        + curve("imdb", "lfighter", 30, 0, [0.4, 1.0])
        + curve("imdb", "lfighter", 30, 1, [0.5, 0.3])
        + curve("imdb", "lfighter", 30, 2, [0.5, 0.3])  # no reference
        + curve("mnist-iid", "lfighter", 30, 0, [0.5, 0.3])
    )
    table = evolution.distance(curves)
    assert table.loc["IMDB", "LFighter"].values == pytest.approx((10, 40))
    assert np.isnan(table.loc["MNIST-iid", "LFighter"])


def test_curves_are_named_by_method_or_reference():
    runs = lff.grid(["imdb"], ["median"], [30], [0, 1], scale="smoke")
    runs += lff.grid(["imdb"], ["fedavg"], [0], [0, 1], scale="smoke")
    assert evolution.curve_names(runs) == {"imdb": ["median", "no attack"]}


def test_larger_magnitudes_are_a_percentage_of_rounds():
    rounds = pd.DataFrame(
        {"benchmark": "imdb", "attackers": 10.0, "seed": [0, 0, 0, 0, 1, 1],
         "relevant": [2, 2, 2, 1, 1, 1], "non_relevant": [1, 1, 1, 1, 2, 0]}
    )  # fmt: skip
    cell = evolution.larger_magnitudes(rounds).iloc[0, 0]
    assert cell == Spread((75.0, 50.0))


def test_the_headline_is_at_40_percent_or_where_more_methods_were_run():
    there = results(("imdb", "lfighter", 40.0, 0), ("imdb", "lfighter", 40.0, 1),
                    ("mnist-extreme", "multi_krum", 30.0, 0), src_acc=[0.5, 0.7, 0.1])  # fmt: skip
    table = versus.headline(there)
    assert len(table) == 6 * len(PAPER_DEFENSES)
    ours = table.loc[("IMDB", 40, "LFighter")]
    assert ours["Src-Acc (%), ours"].values == pytest.approx((50, 70))
    read_off = paper.robustness().set_index(["benchmark", "defense", "attackers"])
    assert ours["Src-Acc (%), paper"] == 100 * read_off.loc[("imdb", "lfighter", 40), "src_acc"]
    extreme = table.loc[("MNIST-Extreme", 30, "MKrum")]
    assert f"{extreme['CV, paper']:.2f}" == "NaN"  # the paper prints it
    assert extreme["CV, ours"] == Spread((0.5,))
    assert np.isnan(table.loc[("MNIST-iid", 40, "FedAvg"), "Src-Acc (%), paper"])  # not reported
    more = results(("imdb", "lfighter", 40.0, 0), ("imdb", "fedavg", 40.0, 0),
                   ("imdb", "fedavg", 30.0, 0), ("imdb", "median", 30.0, 0))  # fmt: skip
    assert ("IMDB", 40, "FedAvg") in versus.headline(more).index  # as many
    more = pd.concat([more, results(("imdb", "lfighter", 30.0, 0))])
    assert ("IMDB", 30, "FedAvg") in versus.headline(more).index


def test_at_a_glance_is_the_source_class_with_and_without_attack():
    there = results(("imdb", "fedavg", 0.0, 0), ("imdb", "fedavg", 50.0, 0),
                    ("imdb", "lfighter", 50.0, 0), ("imdb", "lfighter", 50.0, 1),
                    ("imdb", "lfighter", 40.0, 0), src_acc=[0.9, 0.1, 0.8, 0.6, 0.2])  # fmt: skip
    table = versus.at_a_glance(there)
    assert [cell.mean for cell in table.loc["IMDB"]] == pytest.approx([90, 10, 70])
    assert table.drop(index="IMDB").isna().all(axis=None)
    assert "LFighter, 40% attackers" in versus.at_a_glance(there, 40)


def test_each_run_stands_beside_the_papers_seeds_apart():
    there = results(("imdb", "lfighter", 30.0, 0), ("imdb", "lfighter", 30.0, 1),
                    ("mnist-mild", "fedavg", 40.0, 0), src_acc=[0.5, 0.7, 0.1])  # fmt: skip
    table = versus.each_run(there)
    ours, theirs = table["Src-Acc (%), ours"], table["Src-Acc (%), paper"]
    imdb, mild = ("IMDB", 30, "LFighter"), ("MNIST-Mild", 40, "FedAvg")
    assert list(table.index) == [(*imdb, 0), (*imdb, 1), (*mild, 0)]
    assert [cell.mean for cell in ours] == pytest.approx([50, 70, 10])
    assert theirs.iloc[0] == theirs.iloc[1] > 80
    assert np.isnan(theirs.iloc[2])
    assert table["CV, paper"].iloc[2] == Spread((0.27,))
    nothing = versus.each_run(there.iloc[:0])
    assert nothing.empty
    assert list(nothing.columns) == list(table.columns)


def test_the_headline_by_method_has_the_papers_number_and_ours_in_a_cell():
    both = [
        ("imdb", name, 40.0, seed) for seed in (0, 1) for name in ("lfighter", "fedavg", "median")
    ]
    there = results(*both, ("mnist-mild", "median", 40.0, 3),
                    src_acc=[0.5, 0.1, 0.2, 0.72, 0.1, 0.3, 0.904],
                    cv=[0.2, np.nan, 0.3, 0.31, np.nan, np.nan, 0.4])  # fmt: skip
    table = versus.by_method(versus.headline(there)).sort_index()
    assert len(table) == 6 * 3
    assert list(table.columns) == [get_defense(d).label for d in PAPER_DEFENSES]
    assert table.index.names == ["benchmark", "attackers (%)", "seeds", "paper / ours"]
    of_imdb = table.loc[("IMDB", 40, "0 1")]
    assert of_imdb.loc["Src-Acc (%)", "LFighter"] == "86 / 50 to 72"
    assert of_imdb.loc["Src-Acc (%)", "FedAvg"] == "13 / 10"
    assert of_imdb.loc["CV", "LFighter"] == "0.09 / 0.20 to 0.31"
    assert of_imdb.loc["CV", "FedAvg"] == "0.35 / NaN"
    assert of_imdb.loc["CV", "Median"] == "0.27 / NaN in 1 of 2"
    assert of_imdb.loc["CV", "MKrum"] == f"NaN / {DASH}"
    assert table.loc[("MNIST-Mild", 40, "3", "Src-Acc (%)"), "Median"] == f"{DASH} / 90"
    assert table.loc[("MNIST-iid", 40, DASH, "ASR (%)"), "FedAvg"] == f"{DASH} / {DASH}"


def test_the_headline_compares_methods_in_the_seeds_of_most_of_them():
    there = results(("imdb", "lfighter", 40.0, 0), ("imdb", "lfighter", 40.0, 1),
                    ("imdb", "fedavg", 40.0, 1), ("imdb", "lfighter", 30.0, 0),
                    ("mnist-iid", "lfighter", 40.0, 0), ("mnist-iid", "lfighter", 40.0, 2),
                    src_acc=[0.5, 0.7, 0.1, 0.9, 0.8, 0.6])  # fmt: skip
    table = versus.headline(there)
    ours = table["Src-Acc (%), ours"]
    assert ours["IMDB", 40, "LFighter"].values == pytest.approx((70,))
    assert ours["IMDB", 40, "FedAvg"].values == pytest.approx((10,))
    assert ours["MNIST-iid", 40, "LFighter"].values == pytest.approx((80, 60))
    seeds = table["seeds"].groupby("benchmark", sort=False).unique().explode()
    assert seeds.to_dict() == dict.fromkeys(seeds.index, DASH) | {"IMDB": "1", "MNIST-iid": "0 2"}


def test_the_papers_numbers_stand_beside_ours():
    on = ["benchmark", "attackers", "defense"]
    there = results(("imdb", "median", 10.0, 0), ("imdb", "median", 10.0, 1), cv=[0.2, 0.4])
    table = versus.beside_paper(there, paper.cv(), on, ["cv"])
    row = table.loc[("IMDB", 10, "Median")]
    assert row["CV, paper"] == Spread((0.11,))
    assert row["CV, ours"] == Spread((0.2, 0.4))
    assert row["CV, difference"] == pytest.approx(0.19)
    assert table["CV, ours"].notna().sum() == 1


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
