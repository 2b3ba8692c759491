"""Small experiments: each changes one thing, and only what is recorded is told."""

import runpy
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import updates_with_gradients

import lff
from lff.defenses import registry
from lff.defenses.foolsgold import foolsgold_weights
from lff.defenses.geometry import cosines
from lff.federation import Federation
from lff.study import trials
from lff.study.filtering import ENDS


@pytest.mark.parametrize("scale", trials.CONDITIONS)
def test_a_condition_changes_one_thing_only(scale):
    """But for the number of rounds, which a smaller learning rate may need more of."""
    runs = trials.by_condition(scale)
    names = [set(map(str, changed)) for changed in trials.CONDITIONS[scale].values()]
    assert [len(changed - {"rounds"}) for changed in names] == [0] + [1] * (len(names) - 1)
    for condition, changed in zip(runs, names, strict=True):
        for e, usual in zip(runs[condition], runs[trials.AS_IT_IS], strict=True):
            ours, theirs = asdict(e), asdict(usual)
            assert {name for name in ours if ours[name] != theirs[name]} == changed


def test_what_the_study_runs_is_among_them():
    assert lff.experiment(
        "mnist-mild", defense="lfighter", attackers=40, scale="laptop"
    ) in trials.experiments("laptop")


def test_the_table_counts_the_recorded_seeds(monkeypatch):
    conditions = {trials.AS_IT_IS: {}, "shorter": {"rounds": 2}, "not run": {"rounds": 1}}
    monkeypatch.setattr(trials, "CONDITIONS", {"smoke": conditions})
    monkeypatch.setattr(trials, "SEEDS", {"smoke": range(3)})
    runs = trials.by_condition("smoke")
    recorded = [lff.run(e) for e in runs[trials.AS_IT_IS][:2] + runs["shorter"][:1]]
    table = trials.table().loc["smoke"]
    assert table.index.tolist() == [trials.AS_IT_IS, "shorter"]
    assert table["seeds"].tolist() == [2, 1]
    assert (table[list(ENDS)].sum(axis=1) == table["seeds"]).all()
    caught = [entry["caught"] for entry in recorded[2].history]
    dropped = sum(c["true_positives"] for c in caught) / sum(c["attackers"] for c in caught)
    assert table.loc["shorter", "attackers dropped (%)"].mean == pytest.approx(100 * dropped)


def test_without_a_record_there_is_nothing_to_tell():
    assert trials.table().empty


def test_a_variation_is_a_cell_of_the_grid_with_other_settings():
    grids = {
        (scale, e.benchmark, e.defense, e.attackers): e
        for scale in ("laptop", "paper")
        for e in lff.grid(scale=scale)
    }
    assert len(trials.variations()) == len(trials.VARIATIONS)
    for (cell, changed), e in zip(trials.VARIATIONS, trials.variations(), strict=True):
        ours, theirs = asdict(e), asdict(grids[e.scale, *cell])
        differing = {name for name in ours if ours[name] != theirs[name]}
        assert differing == set(changed) - {"scale"}
        assert e.scale == changed.get("scale", "laptop")


def test_variations_are_shown_below_their_cell(monkeypatch):
    def cell(benchmark, defense, attackers, **changed):
        return lff.experiment(
            benchmark, defense=defense, attackers=attackers, scale="smoke", **changed
        )

    shorter, absent = ("mnist-iid", "lfighter", 40), ("mnist-iid", "fedavg", 40)
    monkeypatch.setattr(trials, "_cell", cell)
    one, fewer = {"rounds": 1}, {"rounds": 1, "examples": 500}
    varied = ((shorter, one), (shorter, fewer), (shorter, {"rounds": 2}), (absent, one))
    monkeypatch.setattr(trials, "VARIATIONS", varied)
    assert trials.beside_grid().empty
    runs = [lff.run(cell(*shorter, **changed)) for changed in ({}, one, fewer)]
    lff.run(cell(*absent))
    table = trials.beside_grid()
    texts = [trials.AS_THE_GRID, "1 rounds", "1 rounds, 500 examples"]
    assert list(table.index) == [("MNIST-iid", 40, "LFighter", text) for text in texts]
    asr = [record.summary()["asr"] for record in runs]
    assert table["ASR (%)"].tolist() == pytest.approx([100 * value for value in asr])


def test_late_lfighter_is_fedavg_first_and_then_lfighter(monkeypatch):
    """Until the fourth round nobody is dropped; then it decides as LFighter does."""
    monkeypatch.setattr(registry, "_defenses", dict(registry._defenses))
    script = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "late_lfighter.py"))
    usual = {"attackers": 40, "scale": "smoke"}
    late = lff.run("mnist-mild", defense="late_lfighter", rounds=5, **usual)
    fedavg = lff.run("mnist-mild", defense="fedavg", rounds=5, **usual)
    assert [h["dropped"] for h in late.history[:3]] == [[], [], []]
    assert late.series("all_acc")[:3] == fedavg.series("all_acc")[:3]
    assert all(h["dropped"] and h["saw"]["clusters"] for h in late.history[3:])
    resumed = script["LateLFighter"]()
    resumed.load_state_dict({"seen": 7})
    assert resumed.state_dict()["seen"] == 7


def test_lfighter_in_company_drops_nobody_alone(monkeypatch):
    """As LFighter until it drops one peer; then her and those whom it drops without her."""
    monkeypatch.setattr(registry, "_defenses", dict(registry._defenses))
    runpy.run_path(str(Path(__file__).parents[1] / "docs" / "lfighter_in_company.py"))
    usual = {"attackers": 40, "scale": "smoke"}
    ours, theirs = (
        [h["dropped"] for h in lff.run("mnist-mild", defense=name, **usual).history]
        for name in ("lfighter_in_company", "lfighter")
    )
    alone = [len(dropped) for dropped in theirs].index(1)
    assert ours[:alone] == theirs[:alone]
    assert set(theirs[alone]) < set(ours[alone])


@pytest.fixture
def released(monkeypatch):
    monkeypatch.setattr(registry, "_defenses", dict(registry._defenses))
    return runpy.run_path(str(Path(__file__).parents[1] / "docs" / "as_released.py"))


@pytest.mark.parametrize(
    ("cluster", "of_2022", "of_2024"),
    [
        ([[1, 0], [1, 1]], 1 - 0.5**0.5, 1),  # both alike: subtracted, the identity makes it 1
        ([[1, 0], [-1, 0]], 2, 2),
        ([[1, 0], [0, 1], [-1, 0]], 1 + (1 + 0 + 1) / 3, 1 + (1 + 0 + 1) / 3),
        ([[3, 4]], 0, 1),
    ],
)
def test_the_released_dissimilarity_by_hand(cluster, of_2022, of_2024, released):
    for identity, truth in ((False, of_2022), (True, of_2024)):
        found = released["dissimilarity"](torch.tensor(cluster, dtype=torch.float64), identity)
        assert found == pytest.approx(truth)


def test_the_released_filter_drops_the_smaller_denser_cluster(released):
    """Six honest peers move neurons 0 and 1 in many directions, four attackers in one."""
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(10, 3, 5))
    gradients[:, 2] /= 100
    gradients[6:, :2] = 5 + rng.normal(size=(4, 2, 5)) / 100
    for identity in (False, True):
        decision = released["released_lfighter"](
            updates_with_gradients(gradients), identity=identity
        )
        assert sorted(decision.saw["neurons"]) == [0, 1]
        assert decision.weights.tolist() == pytest.approx([1 / 6] * 6 + [0] * 4)


def test_the_released_foolsgold_sums_the_gradients_of_batches(released, tiny, monkeypatch):
    """Without momentum and weight decay they are the update over the learning rate."""
    e = lff.experiment("mnist-iid", momentum=0.0, weight_decay=0.0, **tiny)
    monkeypatch.setattr("lff.training.make_optimizer", released["summing"])
    updates = Federation(e).collect_updates()
    sums = torch.stack(list(released["SUMS"]))
    assert torch.allclose(sums, updates.gradients, atol=1e-4)
    rule = released["ReleasedFoolsGold"]()
    weights = rule(updates).saw["weights"]
    layer = updates.output_layer[:, :, :-1].flatten(1)
    assert torch.allclose(weights, foolsgold_weights(cosines(layer)), atol=1e-3)
    resumed = released["ReleasedFoolsGold"]()
    resumed.load_state_dict(rule.state_dict())
    assert torch.equal(resumed.history, rule.history)


def test_whom_the_first_round_drops_is_counted():
    """Three attackers agree in the weights' gradients, but biases pull one of them elsewhere."""
    script = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "first_round.py"))
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(9, 2, 5))
    gradients[:3] = 8 + rng.normal(size=(3, 2, 5)) / 100
    gradients[:, :, -1] = 0
    gradients[2, :, -1] = 1000
    updates = updates_with_gradients(gradients)
    attackers = torch.arange(9) < 3
    assert script["dropped"](updates, attackers, [0, 1], biases=False) == {(3, 0)}
    assert script["dropped"](updates, attackers, [0, 1], biases=True) == {(1, 0)}
