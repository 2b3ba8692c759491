"""Figures: what is drawn is what was given, and a reader can tell what it is."""

import logging
from itertools import product

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from frames import rounds_of, runs
from matplotlib import pyplot
from matplotlib.text import Text

import lff
from lff.experiments.scales import PAPER_DEFENSES
from lff.study import comparison, figures, paper
from lff.study.figures import updates
from lff.study.figures.results import CASES as odd_cases
from lff.study.figures.style import FATE, METHODS, OTHERS, RIGHT, THEIRS, WHO, WRONG, look

CAPTION = "Scale smoke; data: made up"
STRANGER = "zeno"  # a defense that is not registered


def some_runs(ratios=(0.0, 30.0, 50.0), seeds=(0, 1), benchmarks=("mnist-iid", "mine")):
    cells = list(product(benchmarks, (*PAPER_DEFENSES, STRANGER), ratios, seeds))
    rng = np.random.default_rng(0)
    random = {
        name: rng.uniform(0.1, 0.9, len(cells))
        for name in ("test_error", "all_acc", "src_acc", "asr", "aggregation_seconds")
    }
    return runs(*cells, **random)


def some_rounds():
    parts = [
        rounds_of(b, d, r, s, src_acc=list(np.linspace(0, 0.9, 6)), dropped=[(1, 0)] * 6,
                  saw={"distribution": "mild", "neurons": [7, 3]})
        for b, d, r, s in product(("mnist-iid", "cifar10-mild"), ("fedavg", "lfighter", STRANGER),
                                  (0.0, 10.0, 30.0), (0, 1))
    ]  # fmt: skip
    return pd.concat(parts)


def some_points(views=("whole", "output layer", "relevant neurons")):
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        [{"view": v, "pc1": rng.normal(), "pc2": rng.normal(), "bad": k < 6, "class_held": k % 10,
          "explained1": 0.5, "explained2": 0.25, "silhouette": -0.125, "source_class": 7,
          "target_class": 1}
         for v in views for k in range(40)]
    )  # fmt: skip


def some_counts():
    return pd.DataFrame(
        [{"distribution": d, "peer": k, "class": str(c), "examples": 10 * k + c, "source": c == 7,
          "attacker": k == 2}
         for d in ("MNIST-iid", "MNIST-Mild") for k in range(4) for c in range(10)]
    )  # fmt: skip


def some_comparison():
    given = some_runs(benchmarks=("imdb", "mnist-extreme"))
    return comparison.compare(
        given, paper.robustness(), ["benchmark", "defense", "attackers"], ["src_acc", "asr"]
    )


def some_foolsgold(cases=(paper.ODD_ATTACKS, paper.EQUAL)):
    """Ten peers, of whom the last has half of all weight where she is odd."""
    odd = {paper.ODD_ATTACKS: 9.0, paper.EQUAL: 1.0}
    similarities = {"attacker-honest": 0.5, "honest-honest": 0.25}
    return pd.concat(
        [
            rounds_of("mnist-iid", "foolsgold", 40.0, seed, src_acc=[0.1, 0.8]).assign(
                case=case, id=f"{case}{seed}", weights_by_peer=[[1.0] * 8 + [0, odd[case]]] * 2,
                noted=[{"similarities": similarities}] * 2,
            )
            for case in cases for seed in (0, 1)
        ]
    )  # fmt: skip


def draw_seeds(*further):
    """LFighter loses seed 0, dropping honest peers, and saves seed 1, dropping all attackers."""
    rounds = pd.concat(
        [
            *[rounds_of("mnist-mild", "fedavg", 0.0, s, src_acc=[0.5, 0.9]) for s in (0, 1)],
            rounds_of(seed=0, src_acc=[0.5, 0.0], dropped=[(0, 0), (0, 3)]),
            rounds_of(seed=1, src_acc=[0.5, 0.9], dropped=[(0, 0), (4, 0)]),
            *further,
        ]
    )
    last = rounds[rounds["round"] == 1]
    return figures.saved_and_lost(rounds, CAPTION, runs=last)


def some_cells():
    """Two attacks and a row without, two rules: one cell was not run, one attack is set aside."""
    rows = [("", "no attack", False), ("labels", "Flip", False), ("updates", "Push", True)]
    cells = [
        {
            "family": family,
            "attack": attack,
            "rule": rule,
            "lost": i / 4,
            "text": f"{i}",
            "aside": a,
        }
        for i, ((family, attack, a), rule) in enumerate(product(rows, ("Median", "LFighter")))
    ]
    return pd.DataFrame(cells).assign(lost=lambda c: c["lost"].where(c["text"] != "3"))


def draw_attacks():
    return figures.attack_map(some_cells(), CAPTION, "lost", ["white", "black"], (0, 1))


DRAWN = {
    "attack_map": draw_attacks,
    "class_shares": lambda: figures.class_shares(some_counts(), CAPTION),
    "components": lambda: figures.components(some_points(), CAPTION),
    "components_extreme": lambda: figures.components_extreme(
        some_points(["relevant neurons"]), CAPTION
    ),
    "dropped_by_round": lambda: figures.dropped_by_round(some_rounds(), CAPTION),
    "magnitudes": lambda: figures.magnitudes(some_rounds(), CAPTION),
    "odd_peer": lambda: figures.odd_peer(some_foolsgold(), CAPTION),
    "paper_against_ours": lambda: figures.paper_against_ours(some_comparison(), CAPTION),
    "profiles": lambda: figures.profiles(some_runs(benchmarks=("mnist-iid",)), CAPTION),
    "robustness": lambda: figures.robustness(some_runs(benchmarks=("mine",)), CAPTION),
    "runtime": lambda: figures.runtime(some_runs(), CAPTION),
    "saved_and_lost": draw_seeds,
    "stability": lambda: figures.stability(some_rounds(), CAPTION),
}


def visible(figure):
    return [ax for ax in figure.axes if ax.get_visible()]


def test_every_figure_function_is_tested():
    assert set(DRAWN) == set(figures.__all__) - {"PANEL_ORDER", "journal"}


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_says_what_it_shows_and_leaves_the_users_settings_alone(name, caplog):
    before, open_figures = dict(mpl.rcParams), pyplot.get_fignums()
    with caplog.at_level(logging.WARNING):
        figure = DRAWN[name]()
        picture, told = figure._repr_png_()
    assert dict(mpl.rcParams) == before
    assert pyplot.get_fignums() == open_figures
    assert not caplog.records
    assert picture.startswith(b"\x89PNG")
    assert told["alt"].startswith(CAPTION)
    texts = " ".join(text.get_text() for text in figure.findobj(Text))
    assert any(ax.get_xlabel() for ax in figure.axes)
    assert any(ax.get_ylabel() for ax in figure.axes) or name == "runtime"  # methods are named
    if name in ("robustness", "runtime", "stability"):
        assert "LFighter" in texts
        assert STRANGER in texts


@pytest.mark.parametrize("dpi", [72, 200])
def test_a_long_caption_stays_within_the_figure(dpi):
    figure = figures.runtime(some_runs(), "; ".join(["a fact about the runs"] * 20))
    figure.set_dpi(dpi)
    figure.draw_without_rendering()
    (caption,) = (text for text in figure.texts if "a fact" in text.get_text())
    box, page = caption.get_window_extent(), figure.bbox
    assert box.x0 >= page.x0
    assert box.x1 <= page.x1


def caption_of(figure):
    return " ".join(figure.get_supxlabel().split())


def panel_of(figure, title):
    return next(ax for ax in figure.axes if ax.get_title() == title)


def lines_of(ax, label):
    """The dots and the line of a quantity."""
    return [line for line in ax.lines if line.get_label() == label]


def test_robustness_draws_every_seed_and_a_line_through_their_median():
    given = some_runs(seeds=(0, 1, 2), benchmarks=("mnist-iid",))
    panel = panel_of(figures.robustness(given, CAPTION), "MKrum")
    mine = given[given["defense"] == "multi_krum"]
    for label, metric in (("Src-Acc", "src_acc"), ("ASR", "asr"), ("All-Acc", "all_acc")):
        dots, line = lines_of(panel, label)
        assert sorted(dots.get_ydata()) == pytest.approx(sorted(100 * mine[metric]))
        medians = 100 * mine.groupby("attackers")[metric].median()
        assert line.get_ydata() == pytest.approx(medians.to_numpy())
    unattacked = given[(given["defense"] == "fedavg") & (given["attackers"] == 0)]["src_acc"]
    assert panel.lines[0].get_ydata() == pytest.approx([100 * unattacked.median()] * 2)


def test_a_test_error_has_a_panel_of_its_own_that_holds_a_diverged_one():
    given = some_runs(benchmarks=("mnist-iid",))
    given.loc[given["defense"] == "median", "test_error"] = 1e18
    figure = figures.robustness(given, CAPTION)
    figure.draw_without_rendering()
    below = figure.axes[figure.axes.index(panel_of(figure, "Median")) + 3]
    assert set(below.lines[0].get_ydata()) == {1e18}
    assert panel_of(figure, "Median").get_ylim() == (-3, 103)


def test_the_oracle_is_a_ceiling_and_no_method():
    rows = [("imdb", d, r, 0) for d in ("lfighter", "oracle") for r in (0.0, 30.0)]
    figure = figures.robustness(runs(*rows, src_acc=[0.9, 0.1, 0.9, 0.8]), CAPTION)
    assert [ax.get_title() for ax in visible(figure) if ax.get_title()] == ["LFighter"]
    (ceiling,) = lines_of(figure.axes[0], "Src-Acc of the oracle")
    assert ceiling.get_ydata() == pytest.approx([90, 80])


def test_a_ratio_that_was_not_run_is_a_gap_and_says_so():
    given = runs(
        *[("imdb", "fedavg", r, 0) for r in (0.0, 10.0, 20.0)], ("imdb", "median", 10.0, 0)
    )
    figure = figures.robustness(given, CAPTION, ["median", "lfighter"])
    median, lfighter = panel_of(figure, "Median"), panel_of(figure, "LFighter")
    line = lines_of(median, "Src-Acc")[1]
    assert np.isnan(line.get_ydata()).tolist() == [True, False, True]
    assert [t.get_position()[0] for t in median.texts if t.get_text() == "not run"] == [0, 20]
    assert [t.get_text() for t in lfighter.texts] == ["not run"]  # once for the whole panel


def test_the_papers_methods_without_a_panel_are_named():
    given = runs(("imdb", "median", 0.0, 0), ("imdb", "lfighter", 0.0, 0))
    asked = figures.robustness(given, CAPTION, ["median", "lfighter"])
    assert "not asked for: FedAvg, TMean, MKrum, FGold; RMedian has no panel" in caption_of(asked)
    everything = figures.robustness(some_runs(benchmarks=("mine",)), CAPTION)
    assert caption_of(everything).endswith("TE: test error")


def test_the_marks_sizes_of_ratios_are_told():
    figure = figures.paper_against_ours(some_comparison(), CAPTION)
    sizes = figure.legends[1]
    assert [text.get_text() for text in sizes.get_texts()] == ["no attackers", "20%", "50%"]
    areas = [handle.get_sizes()[0] for handle in sizes.legend_handles]
    assert areas == sorted(set(areas))


def test_methods_look_the_same_everywhere_and_different_from_each_other():
    assert set(METHODS) == set(PAPER_DEFENSES)
    assert len({style["color"] for style in METHODS.values()}) == len(METHODS)
    assert len({style["marker"] for style in METHODS.values()}) == len(METHODS)
    assert look("lfighter", ["zeno", "lfighter"]) == METHODS["lfighter"]
    assert look("a", ["a", "b"]) != look("b", ["a", "b"])


def test_stability_has_a_panel_per_method_with_the_reference_in_each():
    given = pd.concat(
        [
            rounds_of("imdb", "fedavg", 0.0, 0, src_acc=[0.1, 0.9]),
            *[
                rounds_of("imdb", "lfighter", 30.0, s, src_acc=[0.2 + s / 10, 0.4])
                for s in range(3)
            ],
        ]
    )
    asked = lff.grid(["imdb"], ["median", "lfighter"], [30], scale="smoke")
    figure = figures.stability(given, CAPTION, asked)
    median, lfighter = figure.axes
    assert [ax.get_title() for ax in figure.axes] == ["Median", "LFighter"]
    assert [text.get_text() for text in median.texts] == ["not run"]
    assert not lfighter.texts
    for ax in figure.axes:
        assert ax.lines[0].get_ydata() == pytest.approx([10, 90])
    curves = [line.get_ydata().tolist() for line in lfighter.lines[1:]]
    assert curves == [pytest.approx(c) for c in ([20, 40], [30, 40], [40, 40], [30, 40])]
    assert lfighter.lines[1].get_xdata().tolist() == [1, 2]


def test_magnitudes_are_drawn_as_the_ratio_the_claim_is_about():
    given = pd.concat([rounds_of("mnist-iid", "fedavg", 10.0, s, src_acc=[0, 0]) for s in (0, 1)])
    given = given.assign(relevant=[2.0, 4.0, 4.0, 8.0], non_relevant=2.0)
    panel = figures.magnitudes(given, CAPTION).axes[0]
    curve = next(
        line for line in panel.lines if len(line.get_xdata()) == 2 and line.get_xdata()[0] == 1
    )
    assert curve.get_ydata() == pytest.approx([1.5, 3])


def test_runtime_draws_one_quantity_with_its_range_and_gaps():
    cells = [("imdb", "median", r, s) for s in (0, 1) for r in (0.0, 30.0)]
    given = runs(*cells, aggregation_seconds=[1.0, 3.0, 5.0, 7.0])
    asked = lff.grid(["imdb"], ["fedavg", "median"], [0], scale="smoke")
    (panel,) = figures.runtime(given, CAPTION, asked).axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["FedAvg", "Median"]
    dots = np.concatenate([dots.get_offsets() for dots in panel.collections[:-1]])
    assert sorted(dots.ravel().tolist()) == pytest.approx([1, 1, 2, 6])
    (span,) = [
        line for line in panel.collections[-1].get_segments() if len(line) and line[0, 1] == 1
    ]
    assert span[:, 0] == pytest.approx([2, 6])
    assert panel.get_xscale() == "log"
    (text,) = panel.texts
    assert (text.get_text(), text.get_position()[1]) == ("not run", 0)


def test_runtime_of_four_benchmarks_has_labels_below_the_last_of_each_column():
    given = some_runs(benchmarks=("mnist-iid", "mnist-mild", "imdb", "mine"))
    figure = figures.runtime(given, CAPTION)
    titles = [ax.get_title() for ax in visible(figure)]
    assert titles == ["MNIST-iid", "MNIST-Mild", "IMDB", "mine"]
    labelled = [ax.xaxis.get_tick_params()["labelbottom"] for ax in visible(figure)]
    assert labelled == [False, True, True, True]


def test_components_have_equal_axes_and_count_what_lies_far_outside():
    points = some_points(["whole"])
    points.loc[3, "pc1"] = 1000.0
    (panel,) = figures.components(points, CAPTION).axes
    assert panel.get_aspect() == 1
    assert np.ptp(panel.get_xlim()) == pytest.approx(np.ptp(panel.get_ylim()))
    assert np.ptp(panel.get_xlim()) < 20
    assert [text.get_text() for text in panel.texts] == ["1 far outside"]
    assert "silhouette \N{MINUS SIGN}0.12" in panel.get_title()


def test_extreme_tells_source_target_and_attackers_from_the_rest():
    points = some_points(["relevant neurons"])
    figure = figures.components_extreme(points, CAPTION)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [
        "honest, other classes", "honest, class 1 (target)", "honest, class 7 (source)",
        "attackers, class 7",
    ]  # fmt: skip
    numbers = [len(dots.get_offsets()) for dots in figure.axes[0].collections[:4]]
    assert numbers == [27, 3, 4, 6]  # four peers of each class, attackers of classes 0 to 5


def test_class_shares_are_sorted_by_the_source_class_with_the_attackers_marked():
    panel = figures.class_shares(some_counts(), CAPTION).axes[0]
    cells = panel.collections[0].get_array().reshape(10, 4)
    assert cells[7].tolist() == [37, 27, 17, 7]  # peers 3, 2, 1, 0
    assert panel.lines[0].get_xdata().tolist() == [1.5]  # peer 2 attacks
    assert panel.get_yticklabels()[7].get_fontweight() == "bold"


def test_class_shares_have_one_scale_and_say_how_many_attack():
    counts = some_counts()
    counts.loc[counts["distribution"] == "MNIST-Mild", "examples"] *= 4
    figure = figures.class_shares(counts, CAPTION)
    assert {ax.collections[0].get_clim() for ax in figure.axes[:2]} == {(0, 156)}
    assert len(figure.axes) == 3  # two panels and one color bar
    assert caption_of(figure).endswith("1 in MNIST-iid, 1 in MNIST-Mild")


def test_a_color_says_who_and_no_method_has_one_of_them():
    assert not set(WHO.values()) & {style["color"] for style in (*METHODS.values(), *OTHERS)}
    assert not {*FATE.values()} & {style["marker"] for style in METHODS.values()} - {"o"}
    looks = {bad: color for bad, (_, _, color) in updates.UPDATES.items()}
    assert looks == {False: WHO["honest peer"], True: WHO["attacker"]}
    assert odd_cases[paper.ODD_ATTACKS] == WHO["attacker"]
    assert odd_cases[paper.ODD_HONEST] == WHO["honest peer"]


def test_every_attacked_run_is_a_line_of_rounds_and_dark_where_it_is_wrong():
    """MNIST-iid catches all attackers from the third round on; IMDB has no class to see."""
    named = {"distribution": "mild", "neurons": [7, 3]}
    rows = [(0, 0), (0, 0), (4, 1), (4, 1)]
    given = pd.concat(
        [
            *[
                rounds_of("mnist-iid", attackers=40.0, seed=s, dropped=rows, saw=named)
                for s in (0, 1)
            ],
            rounds_of("mnist-iid", attackers=0.0, dropped=[(0, 0)] * 4),
            rounds_of("imdb", dropped=rows, classes=1),
        ]
    )
    asked = lff.grid(["mnist-iid"], ["lfighter"], [0, 50], scale="smoke")
    figure = figures.dropped_by_round(given, CAPTION, asked)
    attackers, honest, unseen, _, _, imdb_unseen = figure.axes[:6]
    assert attackers.get_title() == "attackers kept"
    cells = attackers.collections[0].get_array().reshape(3, 4)
    assert cells[0].tolist() == [100, 100, 0, 0]
    assert np.ma.getmaskarray(cells[2]).all()  # 50% was not run
    shown = honest.collections[0].get_array().reshape(3, 4)
    assert shown[1].tolist() == pytest.approx([0, 0, 100 / 6, 100 / 6])
    assert unseen.collections[0].get_array().reshape(3, 4)[0].tolist() == [50] * 4  # one of two
    assert np.ma.getmaskarray(imdb_unseen.collections[0].get_array()).all()
    assert caption_of(figure).endswith("hatched: not run or no class to see")
    worst = [ax.collections[0].cmap(1.0) for ax in (attackers, honest)]
    assert worst == [mpl.colors.to_rgba(WHO[who]) for who in ("attacker", "honest peer")]
    assert all(ax.collections[0].cmap(0.0) == (1, 1, 1, 1) for ax in figure.axes[:6])
    labels = [label.get_text() for label in attackers.get_yticklabels()]
    assert labels == ["40%, seed 0", "40%, seed 1", "50%, seed 0"]
    assert min(label.get_fontsize() for label in attackers.get_yticklabels()) >= 6
    all_seen = figures.dropped_by_round(given[given["benchmark"] == "mnist-iid"], CAPTION)
    assert "hatched" not in caption_of(all_seen)
    only_asked = figures.dropped_by_round(given[:0], CAPTION, asked)
    assert len(only_asked.axes) == 6  # three panels, each with its color bar
    assert caption_of(only_asked).endswith("hatched: not run")
    nothing = figures.dropped_by_round(given[:0], CAPTION)
    assert not nothing.axes
    assert "no attacked run of LFighter" in caption_of(nothing)


def test_ranges_of_seeds_are_drawn_beside_the_papers_numbers():
    table = some_comparison()
    figure = figures.paper_against_ours(table, CAPTION)
    panel = next(ax for ax in figure.axes if ax.get_title().startswith("IMDB, Src-Acc"))
    here = table[(table["benchmark"] == "imdb") & table["src_acc_ours"].notna()]
    cell = here[here["defense"] == "fedavg"].iloc[0]
    ends = panel.collections[0].get_segments()[0]
    assert ends[:, 0] == pytest.approx([100 * cell["src_acc_paper"]] * 2)
    assert ends[:, 1] == pytest.approx(
        [100 * cell["src_acc_ours low"], 100 * cell["src_acc_ours high"]]
    )
    middle = 100 * (here["src_acc_ours"] - here["src_acc_paper"]).median()
    told = f"median difference {middle:+.0f}".replace("-", "\N{MINUS SIGN}")
    assert panel.get_title().endswith(told)
    assert "36 of 108 cells" in caption_of(figure)
    assert not any(ax.get_title().startswith("CIFAR10") for ax in figure.axes)  # none was run
    table[[name for name in table if "ours" in name]] = np.nan
    assert "none of 108 cells" in caption_of(figures.paper_against_ours(table, CAPTION))


def test_a_profile_is_of_the_cells_that_all_methods_share():
    """The median keeps 90 of 90 and 45 of 90: all of one run, half of the other."""
    given = runs(
        *[("mnist-iid", "fedavg", 0.0, s) for s in (0, 1)],
        *[("mnist-iid", d, 30.0, s) for d in ("fedavg", "median") for s in (0, 1)],
        ("mnist-iid", "fedavg", 50.0, 0),
        src_acc=[0.9, 0.9, 0.0, 0.0, 0.9, 0.45, 0.9],
    )
    figure = figures.profiles(given, CAPTION)
    assert caption_of(figure).endswith("4 attacked runs of 1 cell")  # 50% has FedAvg alone
    (median,) = (line for line in figure.axes[0].lines if line.get_label() == "Median")
    share = dict(zip(median.get_xdata(), median.get_ydata(), strict=True))
    assert (share[0], share[50], share[100]) == (100, 100, 50)
    assert share[50.5] == 50
    nothing = figures.profiles(given[:0], CAPTION)
    assert not nothing.axes[0].get_legend()


def test_the_band_of_one_cell_does_not_reach_the_top_where_a_run_was_lost():
    rows = [("mnist-iid", "fedavg", 0.0, s) for s in range(10)]
    rows += [("mnist-iid", "median", 30.0, s) for s in range(10)]
    figure = figures.profiles(runs(*rows, src_acc=[0.9] * 19 + [0.0]), CAPTION)
    assert caption_of(figure).endswith("Clopper and Pearson at each point")
    (band,) = figure.axes[0].collections
    edges = band.get_paths()[0].vertices
    at_half = edges[np.isclose(edges[:, 0], 50)][:, 1]
    assert sorted(set(at_half.round(1))) == [55.5, 99.7]  # of 9 in 10
    rows += [("imdb", "fedavg", 0.0, s) for s in range(3)]
    rows += [("imdb", "median", 30.0, s) for s in range(3)]
    two = figures.profiles(runs(*rows, src_acc=0.9), CAPTION)
    assert caption_of(two).endswith("bootstrap within the cells")


def test_the_odd_peer_is_drawn_case_by_case():
    figure = figures.odd_peer(some_foolsgold(), CAPTION)
    src_acc, weighing, weight = figure.axes[:3]
    assert "odd peer" in weight.get_ylabel()
    for case, share in ((paper.ODD_ATTACKS, 100 * 9 / 17), (paper.EQUAL, 100 / 9)):
        own = [line for line in weight.lines if line.get_color() == odd_cases[case]]
        shares = [list(line.get_ydata()) for line in own if len(line.get_ydata())]
        assert shares == [pytest.approx([share] * 2)] * 2
    assert [ax.get_ylim() for ax in (src_acc, weighing, weight)] == [(-3, 103)] * 3
    seeds = [line for line in src_acc.lines if line.get_linestyle() == "-"]
    assert len(seeds) == 4  # two of each case, none of them a mean
    assert "7 peers with any weight are the 6 honest peers and the odd attacker" in caption_of(
        figure
    )
    texts = " ".join(text.get_text() for text in figure.findobj(Text))
    assert "last" not in texts
    assert [ax.get_title() for ax in figure.axes if ax.get_title()] == [
        paper.ODD_ATTACKS, paper.EQUAL,
    ]  # fmt: skip


def test_a_map_of_attacks_has_a_cell_for_each_in_the_order_given():
    (ax,) = draw_attacks().axes
    assert [label.get_text() for label in ax.get_xticklabels()] == ["Median", "LFighter"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["no attack", "Flip", "Push"]
    values = ax.collections[0].get_array().reshape(3, 2)
    assert values.mask.tolist() == [[False, False], [False, True], [False, False]]  # not run
    assert values.compressed().tolist() == [0, 0.25, 0.5, 1, 1.25]
    numbers, families = ["0", "1", "2", "4", "5"], ["", "labels", "updates"]
    assert [text.get_text() for text in ax.texts] == [*numbers, *families]
    styles = [label.get_fontstyle() for label in ax.get_yticklabels()]
    assert styles == ["normal", "normal", "italic"]  # the attack that is set aside


def test_the_authors_program_is_drawn_also_where_no_run_of_ours_is():
    figure = figures.odd_peer(some_foolsgold([paper.ODD_ATTACKS]), CAPTION)
    pluses = [line for line in figure.axes[0].lines if line.get_marker() == THEIRS]
    drawn = {line.get_color(): list(line.get_ydata()) for line in pluses}
    released = paper.released_foolsgold()
    assert drawn == {odd_cases[case]: released[case]["src_acc"] for case in released}
    assert max(drawn[odd_cases[paper.EQUAL]]) == 77
    (legend, *_) = (sub.legends[0] for sub in figure.subfigs)
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["odd peer attacks", *(f"the authors' program, {case}" for case in released)]


def test_colors_of_pairs_do_not_depend_on_the_case():
    panels = figures.odd_peer(some_foolsgold(), CAPTION).axes[3:]
    colors = [[line.get_color() for line in panel.lines] for panel in panels]
    assert colors == [[WHO["honest peer"]] * 2 + ["0.4"] * 2] * 2


def test_lost_seeds_are_strong_and_stand_below_the_saved():
    attacked = [rounds_of("mnist-mild", "fedavg", 40.0, 0, src_acc=[0.5, 0.3])]
    figure = draw_seeds(*attacked)
    curves, strips = figure.axes[:2]
    assert curves.get_title() == "class lost in 1 of 2 seeds"
    cells = strips.collections[0].get_array().reshape(2, 2)
    assert cells.tolist() == [[0, 100], [0, -50]]  # 4 of 4 attackers; 3 of 6 honest peers
    assert [label.get_text() for label in strips.get_yticklabels()] == ["1", "0"]
    assert [label.get_color() == WRONG for label in strips.get_yticklabels()] == [False, True]
    assert strips.lines[0].get_ydata() == [1, 1]  # the line between saved and lost
    drawn = {line.get_label(): line for line in curves.lines if line.get_label()[0] != "_"}
    assert list(drawn) == [
        "LFighter, class saved", "LFighter, class lost", "FedAvg, same attack", "FedAvg, no attack",
    ]  # fmt: skip
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(drawn)
    assert drawn["LFighter, class lost"].get_ydata() == pytest.approx([50, 0])
    assert drawn["LFighter, class lost"].get_color() == WRONG
    assert drawn["LFighter, class saved"].get_color() == RIGHT
    assert drawn["FedAvg, same attack"].get_ydata() == pytest.approx([50, 30])
    told = "2 of LFighter, of FedAvg 2 without attack and 1 under the same attack"
    assert told in caption_of(figure)


def test_an_attack_without_a_run_of_fedavg_is_not_in_the_legend():
    figure = draw_seeds()
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "FedAvg, same attack" not in labels
    assert "none recorded under the same attack" in caption_of(figure)
