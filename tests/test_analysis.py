"""The updates of one round: magnitudes, angles and components against NumPy."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score

import lff
from lff.analysis import compare, compare_updates, principal_components, views


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
    federation = lff.build(lff.experiment("mnist-iid", **tiny))
    updates = federation.collect_updates()
    rows = compare_updates(updates, 7, 1)
    parts = rows["relevant neurons"].good ** 2 + rows["non-relevant neurons"].good ** 2
    assert parts == pytest.approx(rows["output layer"].good ** 2)
    whole = (federation.global_weights - updates.weights[0]).norm() / updates.learning_rate
    assert rows["whole"].good == pytest.approx(whole.item())  # no BatchNorm: all are parameters
    seen = views(updates, 7, 1)
    layer = updates.output_layer
    assert seen["relevant neurons"].norm() == pytest.approx(layer[:, [7, 1]].norm())


def test_a_model_of_one_output_neuron_has_no_other():
    federation = lff.build(lff.experiment("imdb", scale="smoke", rounds=1, examples=200, peers=4))
    updates = federation.collect_updates()
    rows = compare_updates(updates, 1, 0)
    assert "non-relevant neurons" not in rows
    assert rows["relevant neurons"] == rows["output layer"]
    seen = views(updates, 1, 0)
    assert torch.equal(seen["relevant neurons"], seen["output layer"])
