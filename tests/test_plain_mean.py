"""What notebook 12 says in prose of the committed records of scale `small`."""

from pathlib import Path

import pytest

from lff.study import frame, notebook

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def gaps():
    """All-Acc less FedAvg's, with Dirichlet(0.1): a row per attack and seed, a column per rule."""
    path = ROOT / "notebooks" / "12_plain_mean.ipynb"
    listed = notebook.listed_runs(path, {"scale": "small"})
    asked = [e for e in listed if e.alpha == 0.1 and not e.defense_options]
    runs = frame.runs(frame.rounds(asked, folder=ROOT / "results"))
    runs["attack"] = runs["attack"].where(runs["attackers"] > 0, "none")
    wide = runs.pivot(index=["attack", "seed"], columns="defense", values="all_acc")
    assert sorted(wide.loc["none"].index) == [0, 1, 2]
    return wide.sub(wide["fedavg"], axis=0).drop(columns="fedavg")


def test_heterogeneity_alone_costs_every_robust_rule(gaps):
    assert (gaps.loc["none"].dropna(axis=1) < 0).all(axis=None)
    assert gaps.loc["none"].mean().idxmin() == "median"


def test_static_flips_leave_three_rules_behind_the_mean(gaps):
    always = (gaps.loc["inverse_labels"].dropna(axis=1) < 0).all()
    assert set(always.index[always]) - {"repeated_median"} == {
        "median", "trimmed_mean", "multi_krum"
    }  # fmt: skip


def test_dynamic_flips_leave_two_rules_ahead_of_it(gaps):
    always = (gaps.loc["dynamic_labels"].dropna(axis=1) > 0).all()
    assert set(always.index[always]) == {"foolsgold", "lfighter"}


def test_label_flipping_costs_all_but_lfighter(gaps):
    always = (gaps.loc["label_flipping"].dropna(axis=1) < 0).all()
    assert set(always.index[~always]) == {"lfighter"}
