"""What a reader sees: texts of tables and captions."""

from dataclasses import asdict

import pandas as pd
import pytest
from frames import rounds_of, runs

import lff
from lff.study import text

NAN = float("nan")


def over(mean, low, high, seeds, index=("x",)) -> pd.DataFrame:
    columns = {"A": mean, "A low": low, "A high": high, "A seeds": seeds}
    return pd.DataFrame(columns, index=pd.Index(index))


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ((0.5, 0.5, 0.5, 1), "0.50"),
        ((0.3, 0.1, 0.6, 3), "0.30 [0.10, 0.60]"),
        ((NAN, NAN, NAN, 1), "NaN"),
        ((NAN, NAN, NAN, 2), "NaN"),
        ((NAN, 0.3, 0.3, 2), "NaN [0.30, 0.30]"),
        ((NAN, NAN, NAN, NAN), "--"),
        ((NAN, NAN, NAN, 0), "--"),
    ],
)
def test_one_seed_is_a_number_several_are_mean_and_range(cell, shown):
    assert text.to_text(over(*cell)).to_dict("list") == {"A": [shown]}


def test_intervals_are_explained_only_where_there_are_any():
    assert text.interval_note(over(1, 1, 1, 1)) == ""
    assert text.interval_note(over(1, 0, 2, 2)) == "mean [min, max] of the seeds"
    assert text.interval_note(over(NAN, 2, 2, 2)).endswith(
        "; NaN [min, max]: not defined in some seed"
    )
    assert text.interval_note(pd.DataFrame({"seeds": ["0 1"]})) == ""


def test_digits_are_given_for_all_columns_or_by_name():
    frame = pd.DataFrame({"A": [0.126], "B": [0.126], "n": [3], "t": ["x"], "m": [None]})
    assert text.to_text(frame, 1).iloc[0].tolist() == ["0.1", "0.1", "3", "x", "--"]
    assert text.to_text(frame, {"A": 0}).iloc[0].tolist() == ["0", "0.13", "3", "x", "--"]


def test_the_best_is_bold_as_printed_unless_nothing_is_worse():
    frame = pd.DataFrame(
        {"A": [0.111, 2.0, 5.0, NAN], "B": [0.114, NAN, 5.001, NAN], "C": [0.2, NAN, 5.0, NAN]},
        index=["shared", "alone", "all tie", "none"],
    )
    assert text.to_text(frame, best="min").to_numpy().tolist() == [
        ["**0.11**", "**0.11**", "0.20"],
        ["2.00", "--", "--"],
        ["5.00", "5.00", "5.00"],
        ["--", "--", "--"],
    ]
    assert text.to_text(frame, best="max").loc["shared"].tolist() == ["0.11", "0.11", "**0.20**"]
    ranges = over([0.3, 0.5], [0.1, 0.5], [0.6, 0.5], [2, 1], ["x", "y"]).assign(B=[0.2, 0.6])
    assert text.to_text(ranges, best="max").loc["x"].tolist() == ["**0.30 [0.10, 0.60]**", "0.20"]


def test_markdown_latex_and_the_notebooks_table_say_the_same():
    frame = pd.DataFrame({"A_1": [0.1, 2.0], "B|": [0.2, 1.0]})
    frame.index = pd.MultiIndex.from_tuples([("50% x", 1), ("y_1", 2)], names=["of (%)", "n"])
    cells = text.to_text(frame, 1, "min")
    assert text.markdown(cells).splitlines() == [
        r"| of (%) | n | A_1 | B\| |",
        "| --- | --- | --- | --- |",
        "| 50% x | 1 | **0.1** | 0.2 |",
        "| y_1 | 2 | 2.0 | **1.0** |",
    ]
    latex = text.latex(cells)
    assert r"of (\%) & n & A\_1 & B|" in latex
    assert r"50\% x & 1 & \textbf{0.1} & 0.2 \\" in latex
    shown = text.styled(cells, "Made up")
    html = shown.to_html()
    assert "Made up" in html
    assert "**" not in html
    assert html.count("font-weight: bold") == 1  # one rule, for both cells
    assert text.latex(text.to_text(pd.DataFrame({"A": [1.0]}, index=["x"]))).count("index") == 0


def test_a_table_without_rows_is_still_a_table():
    empty = pd.DataFrame({"Src-Acc": pd.Series(dtype=float)}).rename_axis("benchmark")
    cells = text.to_text(empty, best="max")
    assert text.markdown(cells).splitlines()[0] == "| benchmark | Src-Acc |"
    assert "Src-Acc" in text.latex(cells)


def test_the_same_table_is_the_same_page_and_another_is_not():
    page, other = pd.DataFrame({"a": ["1"]}), pd.DataFrame({"a": ["2"]})
    assert text.styled(page).to_html() == text.styled(page.copy()).to_html()
    named = {text.styled(page).uuid, text.styled(page, "of mine").uuid, text.styled(other).uuid}
    assert len(named) == 3  # two tables of one page must not share their bold cells


def test_captions_name_scale_source_seeds_and_runs():
    one = runs(("mnist-iid", "fedavg", 0.0, 0), ("mnist-iid", "fedavg", 10.0, 0))
    assert text.caption(one, "quick") == "MNIST-iid, scale quick; data: made up; seed 0; 2 runs"
    rows = [(b, "fedavg", 0.0, s) for b in ("mnist-iid", "mine") for s in range(3)]
    both = runs(*rows, data_source=["A"] * 3 + ["B"] * 3, width=[0] * 5 + [16])
    assert text.caption(both, "quick") == (
        "Scale quick; data: A and B; ResNet18 of 16 channels; seeds 0 to 2; 6 runs"
    )
    assert "mine, scale quick" in text.caption(both[3:], "quick")
    assert text.seeds_in_words([2, 0, 2]) == "seeds 0, 2"
    rounds = rounds_of("imdb", "fedavg", 0.0, src_acc=[0.5, 0.6])
    assert text.caption(rounds, "quick").endswith("IMDB, scale quick; data: made up; seed 0; 1 run")


def test_a_caption_says_how_much_of_what_was_asked_for_is_there():
    asked = lff.grid(["imdb"], ["fedavg"], [0, 10, 30, 50], scale="smoke")
    there = runs(*[("imdb", "fedavg", e.attackers, 0) for e in asked[:3]])
    told = text.caption(there, "smoke", asked)
    assert told.endswith("; 3 of 4 runs (75%), the others not run")
    assert text.caption(there, "smoke", asked[:3]).endswith("; 3 runs")
    assert text.caption(there[:0], "smoke", asked) == "Scale smoke; none of 4 runs is recorded"
    assert text.caption(there[:0], "smoke") == "Scale smoke; no run is recorded"


def test_a_look_inside_a_round_is_described():
    e = lff.experiment("mnist-mild", attackers=40, scale="smoke")
    seen = pd.DataFrame(
        [{**asdict(e.replace(seed=seed)), "id": f"run{seed}", "round": 1} for seed in (0, 1)]
    ).assign(data_source="made up", view="whole")
    assert text.caption(seen, "smoke") == (
        "MNIST-Mild, scale smoke; data: made up; seeds 0, 1; 2 runs, 40% attackers, round 2 of 3"
    )


def test_what_is_left_of_the_class_is_said_in_words():
    """40% has two methods, 50% one; the median loses one of two seeds."""
    given = runs(
        *[("imdb", "fedavg", 0.0, s) for s in (0, 1)],
        *[("imdb", d, 40.0, s) for d in ("lfighter", "median") for s in (0, 1)],
        ("imdb", "median", 50.0, 0),
        src_acc=[0.9, 0.8, 0.9, 0.8, 0.7, 0.3, 0.0],
    )
    assert text.robustness_in_words(given, "imdb") == (
        "IMDB, 40% attackers, seeds 0, 1: of a Src-Acc of 85 without attack are left Median 50, "
        "LFighter 85. The class is lost: Median in 1 of 2."
    )
    saved = given[given["defense"] != "median"]
    assert text.robustness_in_words(saved, "imdb").endswith("Nobody loses the class.")
    young = given.assign(src_acc=given["src_acc"] / 2)
    assert "has a Src-Acc of 43 only" in text.robustness_in_words(young, "imdb")
    alone = given[given["attackers"] > 0]
    assert "was not run" in text.robustness_in_words(alone, "imdb")
    assert text.robustness_in_words(given, "mnist-iid") == (
        "MNIST-iid: no attacked run is recorded."
    )
