"""Looks inside a round: magnitudes, angles and components against NumPy, and remembered."""

import json

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score

import lff
from lff.analysis import compare, compare_updates, principal_components, views
from lff.attacks import _attacks
from lff.errors import InputError, RecordError
from lff.federation import Federation
from lff.study import observations


def test_magnitudes_and_angle_by_hand():
    found = compare(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 2.0]))
    assert (found.good, found.bad) == (5, 2)
    assert found.angle == pytest.approx(np.degrees(np.arccos(8 / 10)))


@pytest.mark.parametrize("shape", [(12, 5), (6, 300)])
def test_components_are_those_of_a_textbook_pca(shape):
    rng = np.random.default_rng(3)
    points = rng.normal(size=shape) * np.linspace(3, 1, shape[1])
    bad = np.arange(shape[0]) < 3
    found = principal_components(torch.from_numpy(points), bad)
    pca = PCA(2)
    expected = pca.fit_transform(points)
    assert np.abs(found.points) == pytest.approx(np.abs(expected), rel=1e-4, abs=1e-6)
    assert found.explained == pytest.approx(tuple(pca.explained_variance_ratio_), rel=1e-5)
    assert found.silhouette == pytest.approx(silhouette_score(expected, bad), rel=1e-4)


def test_one_group_has_no_silhouette():
    found = principal_components(torch.randn(5, 3), np.zeros(5, dtype=bool))
    assert np.isnan(found.silhouette)


def test_the_rows_of_a_comparison_split_the_output_layer(tiny):
    """Relevant and non-relevant neurons together are the output layer, by Pythagoras."""
    federation = Federation(lff.experiment("mnist-iid", **tiny))
    updates = federation.collect_updates()
    rows = compare_updates(updates, 7, 1)
    parts = rows["relevant neurons"].good ** 2 + rows["non-relevant neurons"].good ** 2
    assert parts == pytest.approx(rows["output layer"].good ** 2)
    whole = (federation.global_weights - updates.weights[0]).norm() / updates.learning_rate
    assert rows["whole"].good == pytest.approx(whole.item())  # no BatchNorm: all are parameters
    seen = views(updates, 7, 1)
    layer = updates.output_layer
    assert seen["relevant neurons"].norm() == pytest.approx(layer[:, [7, 1]].norm())


def test_components_are_of_the_round_after_those_played(tiny):
    e = lff.experiment("mnist-mild", attackers=30, **tiny)
    table = observations.components(e, device="cpu")
    federation = Federation(e)
    federation.play_round()  # the middle of three rounds
    updates = federation.collect_updates()
    assert table.attrs == {"data_source": federation.data.source, "round": 1}
    bad = np.isin(updates.peers, federation.attackers)
    found = principal_components(updates.output_layer.flatten(1), bad)
    rows = table[table["view"] == "output layer"]
    assert rows[["pc1", "pc2"]].to_numpy() == pytest.approx(found.points)
    assert rows["bad"].sum() == len(federation.attackers) == 3
    assert (rows["silhouette"] == found.silhouette).all()


def test_a_good_and_a_bad_update_differ_in_labels_only(tiny):
    """A flip that changes no label (nobody holds the class) would give the same update twice; one
    that does turns the relevant neurons and hardly the others."""
    e = lff.experiment("mnist-iid", **tiny)
    table = observations.good_and_bad(e, 0, device="cpu").set_index("gradients")
    angles = table["angle"]
    assert angles["relevant neurons"] > 10 * max(angles["non-relevant neurons"], 0.1)
    assert list(table.index[:2]) == ["whole, with BatchNorm statistics", "whole"]


def test_an_attack_may_flip_in_place(tiny, monkeypatch):
    monkeypatch.setattr("lff.attacks._attacks", dict(_attacks))

    @lff.attack("in_place")
    def in_place(labels, source_class, target_class):
        labels[labels == source_class] = target_class
        return labels

    for_good = observations.good_and_bad(lff.experiment("mnist-iid", **tiny), 0, device="cpu")
    e = lff.experiment("mnist-iid", attack="in_place", **tiny)
    assert observations.good_and_bad(e, 0, device="cpu").equals(for_good)


def test_a_model_of_one_output_neuron_has_no_other():
    federation = Federation(lff.experiment("imdb", scale="smoke", rounds=1, examples=200, peers=4))
    updates = federation.collect_updates()
    rows = compare_updates(updates, 1, 0)
    assert "non-relevant neurons" not in rows
    assert rows["relevant neurons"] == rows["output layer"]
    seen = views(updates, 1, 0)
    assert torch.equal(seen["relevant neurons"], seen["output layer"])


def test_what_cannot_be_looked_at_is_refused(tiny):
    extreme = lff.experiment("mnist-extreme", **tiny)
    with pytest.raises(InputError, match=r"no peer of .* holds both classes 7 and 1"):
        observations.good_and_bad(extreme, 0, device="cpu")
    with pytest.raises(InputError, match="round must be a whole number of at least 0, not -1"):
        observations.components(extreme, -1, device="cpu")


def test_an_observation_is_made_once_and_checked(tiny, monkeypatch):
    e = lff.experiment("mnist-iid", attackers=30, **tiny)
    assert not observations.remembered("components", e)
    first = observations.components(e, device="cpu")
    assert observations.remembered("components", e)
    monkeypatch.setattr(observations, "Federation", None)  # nothing is played again
    again = observations.components(e, device="cpu")
    assert again.equals(first)
    path = observations._path_of("components", e, 1, None)
    content = json.loads(path.read_text())
    content["rows"][0]["pc1"] += 1
    path.write_text(json.dumps(content))
    with pytest.raises(RecordError, match="was changed; remove it"):
        observations.components(e, device="cpu")
