"""Figures and tables: what is drawn is what was given, and a reader can tell what it is."""

from itertools import product

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from lff import figures, tables
from lff.figures.style import METHODS, look
from lff.paths import figures_dir
from lff.products import about, save_figure, save_table, series
from lff.scales import PAPER_DEFENSES

ABOUT = "Scale smoke; data: made up"


def results(ratios=(0, 30, 50), seeds=(0,), benchmarks=("mnist-iid",)) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = []
    for b, d, r, s in product(benchmarks, PAPER_DEFENSES, ratios, seeds):
        src = rng.uniform(0, 0.9)
        rows.append({
            "id": f"{b}{d}{r}{s}", "benchmark": b, "defense": d, "attackers": float(r), "seed": s,
            "test_error": rng.uniform(0, 3), "all_acc": rng.uniform(), "src_acc": src,
            "asr": (1 - src) / 2, "cv": rng.uniform(), "aggregation_seconds": rng.uniform(0.1, 9),
            "rounds": 10, "data_source": "made up",
        })  # fmt: skip
    return pd.DataFrame(rows)


def rounds() -> pd.DataFrame:
    rows = [
        {"benchmark": b, "curve": c, "defense": c, "attackers": a, "seed": s, "round": t,
         "src_acc": t / 5, "relevant": 2.0 + t, "non_relevant": 1.0}
        for c, b in product(("no attack", *PAPER_DEFENSES), ("mnist-iid", "cifar10-mild"))
        for a, s, t in product((10.0, 30.0), (0, 1), range(5))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def points(views=("whole", "output layer", "relevant neurons")) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        [{"view": v, "pc1": rng.normal(), "pc2": rng.normal(), "bad": k < 6, "class_held": k % 10,
          "explained1": 0.5, "explained2": 0.25, "silhouette": 0.125}
         for v in views for k in range(20)]
    )  # fmt: skip


def shares() -> pd.DataFrame:
    return pd.DataFrame(
        [{"distribution": d, "peer": k, "class": str(c), "examples": c + 1}
         for d in ("iid", "mild") for k in range(4) for c in range(10)]
    )  # fmt: skip


def versus() -> pd.DataFrame:
    table = results(benchmarks=("imdb", "mnist-extreme"))
    for metric in ("src_acc", "asr"):
        table[f"{metric}_paper"] = table[metric]
        table[f"{metric}_ours"] = table[metric] / 2
    return table


FIGURES = {
    "robustness": lambda: figures.robustness(results(), ABOUT),
    "robustness with seeds": lambda: figures.robustness(results(seeds=(0, 1, 2)), ABOUT),
    "stability": lambda: figures.stability(rounds(), ABOUT),
    "magnitudes": lambda: figures.magnitudes(rounds(), ABOUT),
    "components": lambda: figures.components(points(), ABOUT),
    "components_extreme": lambda: figures.components_extreme(
        points(["relevant neurons"]), {c: str(c) for c in range(10)}, ABOUT
    ),
    "class_shares": lambda: figures.class_shares(shares(), ABOUT),
    "runtime": lambda: figures.runtime(
        tables.runtime(results(benchmarks=("mnist-iid", "imdb"))), ABOUT
    ),
    "paper_vs_ours": lambda: figures.paper_vs_ours(versus(), ABOUT),
}


def test_every_figure_function_is_tested():
    assert {name.split(" ")[0] for name in FIGURES} == set(figures.__all__)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_says_what_it_shows(name):
    figure = FIGURES[name]()
    figure.draw_without_rendering()
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert figure.get_supxlabel().startswith(ABOUT)
    assert all(ax.get_title() for ax in shown)
    assert any(ax.get_xlabel() for ax in shown) or name == "runtime"
    assert any(ax.get_ylabel() for ax in shown)
    for legend in figure.legends:
        area = legend.get_window_extent()
        assert area.x0 >= 0
        assert area.x1 <= figure.bbox.x1
        for ax in shown:
            assert not area.overlaps(ax.get_window_extent()), "the legend hides data"


@pytest.mark.parametrize("name", FIGURES)
def test_drawing_leaves_the_users_matplotlib_settings_alone(name):
    before = dict(mpl.rcParams)
    FIGURES[name]()
    assert dict(mpl.rcParams) == before


def test_robustness_draws_the_given_numbers():
    table = results()
    figure = figures.robustness(table, ABOUT)
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["FedAvg", "Median", "TMean", "MKrum", "FGold", "LFighter"]
    panel = figure.axes[titles.index("MKrum")]
    given = table[table["defense"] == "multi_krum"].sort_values("attackers")
    src, asr, error = (line.get_ydata()[[0, 3, 5]] for line in panel.lines)
    assert src == pytest.approx(given["src_acc"] * 100)
    assert asr == pytest.approx(given["asr"] * 100)
    assert error == pytest.approx(given["test_error"] * 10)
    heights = [bar.get_height() for bar in panel.patches]
    assert [heights[i] for i in (0, 3, 5)] == pytest.approx(list(given["all_acc"] * 100))


def test_bands_are_the_range_of_the_seeds():
    table = results(ratios=(0, 10, 20, 30, 40, 50), seeds=(0, 1, 2))
    panel = figures.robustness(table, ABOUT).axes[0]
    given = table[(table["defense"] == "fedavg") & (table["attackers"] == 30)]["src_acc"] * 100
    edge = panel.collections[0].get_paths()[0].vertices
    at_30 = edge[edge[:, 0] == 30][:, 1]
    assert (at_30.min(), at_30.max()) == pytest.approx((given.min(), given.max()))


def test_a_diverged_test_error_does_not_stretch_the_figure():
    table = results()
    table.loc[table["defense"] == "median", "test_error"] = 1e18
    figure = figures.robustness(table, ABOUT)
    figure.draw_without_rendering()
    assert all(ax.get_ylim() == (0, 100) for ax in figure.axes)


def test_methods_look_the_same_everywhere_and_different_from_each_other():
    assert set(METHODS) == set(PAPER_DEFENSES)
    assert len({style.color for style in METHODS.values()}) == len(METHODS)
    assert len({style.marker for style in METHODS.values()}) == len(METHODS)
    assert look("mine").color not in {METHODS["lfighter"].color, METHODS["fedavg"].color}
    assert look("b", ["a", "b"]) != look("a", ["a", "b"])


def test_a_figure_is_saved_with_the_numbers_behind_it():
    table = results()
    save_figure(figures.robustness(table, ABOUT), "name", table, "smoke")
    folder = figures_dir() / "smoke"
    assert {path.name for path in folder.iterdir()} == {"name.png", "name.pdf", "name.csv"}
    assert (folder / "name.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "name.pdf").read_bytes().startswith(b"%PDF")
    read = pd.read_csv(folder / "name.csv")
    assert read["src_acc"].tolist() == pytest.approx(table["src_acc"].tolist())


def test_captions_name_scale_source_seeds_and_runs():
    assert about(results(), "quick") == "Scale quick; data: made up; seed 0; 21 runs"
    three = about(results(seeds=(0, 1, 2)), "quick")
    assert "3 seeds" in three
    assert "63 runs" in three


def test_tables_hold_the_right_number_in_the_right_cell():
    given = results(benchmarks=("imdb", "mnist-mild", "cifar10-iid"))
    given.loc[(given["benchmark"] == "imdb") & (given["defense"] == "median"), "cv"] = np.nan
    table = tables.cv(given)
    assert list(table.columns) == [
        "FedAvg",
        "Median",
        "RMedian",
        "TMean",
        "MKrum",
        "FGold",
        "LFighter",
    ]
    assert table.shape == (18, 7)
    by_hand = given.set_index(["benchmark", "attackers", "defense"])["cv"]
    for benchmark, label in (("mnist-mild", "MNIST-Mild"), ("cifar10-iid", "CIFAR10-iid")):
        for ratio in (0, 30, 50):
            assert (
                table.loc[(label, ratio), "MKrum"]
                == f"{by_hand[benchmark, ratio, 'multi_krum']:.2f}"
            )
        assert pd.isna(table.loc[(label, 20), "MKrum"])  # not run
    assert table.loc[("IMDB", 30), "Median"] == "NaN"  # run, Src-Acc zero in every round


def test_a_table_is_saved_in_three_forms_with_the_best_in_bold():
    table = pd.DataFrame({"A_1": [0.111, 2.0], "B": [0.114, np.nan]}, index=["x", "y"])
    save_table(table, "name", "smoke", best="min")
    folder = figures_dir() / "smoke"
    assert (folder / "name.md").read_text().splitlines() == [
        "|  | A_1 | B |",
        "| --- | --- | --- |",
        "| x | **0.11** | **0.11** |",
        "| y | **2.00** | -- |",
    ]
    latex = (folder / "name.tex").read_text()
    assert r"x & \textbf{0.11} & \textbf{0.11} \\" in latex
    assert r"A\_1" in latex
    assert pd.read_csv(folder / "name.csv", index_col=0)["A_1"].tolist() == [0.111, 2.0]


def test_several_seeds_are_shown_as_mean_and_range():
    assert series([0.1, 0.2, 0.6]) == "0.30 [0.10, 0.60]"
    assert series([0.5]) == "0.50"
    assert series([float("nan")]) == "NaN"
    assert series([float("nan"), 0.3, float("nan")]) == "NaN in 2 of 3"


def test_a_ratio_that_was_not_run_is_a_gap_in_the_figure():
    panel = figures.robustness(results(ratios=(0, 40)), ABOUT).axes[0]
    drawn = panel.lines[0].get_ydata()
    assert np.isnan(drawn).tolist() == [False, True, True, True, False, True]


def test_an_unusual_ratio_has_a_row_of_its_own():
    table = tables.cv(results(ratios=(25,)))
    assert table.loc[("MNIST-iid", 25)].notna().all()
