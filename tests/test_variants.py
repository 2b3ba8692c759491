"""Variants of defenses stand beside the originals of the same settings and seed."""

import math
import runpy
from pathlib import Path

import pytest

import lff
from lff.defenses import registry
from lff.experiments.scales import PAPER_DEFENSES
from lff.study import variants

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def reluctant(monkeypatch):
    """A variant of the median that is the mean of all, with its records known."""
    monkeypatch.setattr(registry, "_defenses", dict(registry._defenses))

    @lff.defense("reluctant", label="Reluctant")
    def reluctant(updates: lff.Updates) -> lff.Decision:
        return lff.Decision(aggregate=updates.weights.mean(dim=0))

    monkeypatch.setattr(variants, "VARIANTS", {"reluctant": ("median", "Median, reluctant")})
    return "reluctant"


def test_a_variant_stands_beside_the_original_of_its_seed(reluctant):
    settings = {"attackers": 40, "scale": "smoke"}
    original = lff.run("mnist-iid", defense="median", seed=1, **settings).summary()
    theirs = [lff.run("mnist-iid", defense=reluctant, seed=s, **settings).summary() for s in (1, 0)]
    table = variants.beside_originals()
    assert [*table.index.get_level_values("seed")] == [0, 1]
    row = table.loc[("Median, reluctant", "MNIST-iid", 40, "smoke", 1)]
    assert row["Src-Acc (%)"] == pytest.approx(100 * theirs[0]["src_acc"])
    assert row["the original's Src-Acc (%)"] == pytest.approx(100 * original["src_acc"])
    assert math.isnan(table["the original's Src-Acc (%)"].iloc[0])  # of seed 0, which was not run


def test_other_settings_are_named(reluctant):
    lff.run("mnist-iid", defense=reluctant, attackers=40, scale="smoke", rounds=1)
    names = variants.beside_originals().index.get_level_values("settings")
    assert [*names] == ["smoke, 1 rounds"]


def test_without_a_record_there_is_a_table_without_rows():
    assert variants.beside_originals().empty


def test_every_variant_is_in_the_script_that_is_named(monkeypatch):
    for name, (original, text) in variants.VARIANTS.items():
        monkeypatch.setattr(registry, "_defenses", dict(registry._defenses))
        runpy.run_path(str(DOCS / text.split("(")[1].rstrip(")")))
        assert name in registry._defenses
        assert original in PAPER_DEFENSES


def test_lfighter_told_what_it_sees_itself_decides_the_same(monkeypatch):
    """Told other classes, it looks at other gradients."""
    monkeypatch.setattr(registry, "_defenses", dict(registry._defenses))
    runpy.run_path(str(DOCS / "lfighter_told.py"))
    usual = {"attackers": 40, "scale": "smoke", "rounds": 1}
    theirs = lff.run("mnist-mild", defense="lfighter", **usual).history[0]
    source, target = theirs["saw"]["neurons"]

    def told(source, target):
        options = {"source": source, "target": target}
        record = lff.run("mnist-mild", defense="lfighter_told", defense_options=options, **usual)
        return record.history[0]

    ours = told(source, target)
    assert ours["dropped"] == theirs["dropped"]
    assert ours["saw"]["cluster_scores"] == theirs["saw"]["cluster_scores"]
    others = [c for c in range(10) if c not in (source, target)]
    assert told(*others[:2])["saw"]["cluster_scores"] != theirs["saw"]["cluster_scores"]
