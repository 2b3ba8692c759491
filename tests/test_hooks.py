"""Hooks of our own: what they note of a round."""

import numpy as np
import pytest
import torch

import lff
from lff.analysis import principal_components
from lff.errors import InputError
from lff.experiments.records import find
from lff.study import frame


def test_views_are_the_components_of_the_rounds_updates(tiny):
    e = lff.experiment("mnist-mild", attackers=30, hooks=["views"], **tiny)
    federation = lff.build(e)
    entries = []
    for t in range(3):
        entries.append(federation.play_round())
        if t == 1:
            updates = federation.updates
    assert ["views" in entry for entry in entries] == [True, True, False]  # rounds 1 and 2 of 3
    bad = np.isin(updates.peers, federation.attackers)
    found = principal_components(updates.output_layer.flatten(1), bad)
    noted = entries[1]["views"]["output layer"]
    assert np.array(noted["points"]) == pytest.approx(found.points, rel=1e-2, abs=1e-3)
    assert noted["silhouette"] == pytest.approx(found.silhouette, rel=1e-2)
    most = [int(p.examples.y.bincount().argmax()) for p in federation.peers]
    assert entries[1]["views"]["held"] == most


def test_views_become_one_row_per_update_view_and_round(tiny):
    e = lff.experiment("mnist-mild", attackers=30, hooks=["views"], **tiny)
    record = lff.run(e, progress=False)
    seen = frame.views(frame.rounds([e]))
    assert len(seen) == 10 * 3 * 2  # peers, views, rounds
    assert set(seen["round"]) == {0, 1}
    assert set(seen.loc[seen["bad"], "peer"]) == set(record.attackers)
    row = seen[(seen["view"] == "whole") & (seen["round"] == 1) & (seen["peer"] == 4)].iloc[0]
    noted = record.history[1]["views"]["whole"]
    assert [row["pc1"], row["pc2"]] == noted["points"][4]
    assert row["silhouette"] == noted["silhouette"]
    plain = lff.experiment("mnist-mild", attackers=30, **tiny)
    lff.run(plain, progress=False)
    assert frame.views(frame.rounds([plain])).empty
    assert frame.good_and_bad(frame.rounds([plain])).empty


def test_a_good_and_a_bad_update_differ_in_labels_only(tiny):
    """The flip turns the relevant neurons and hardly the others."""
    e = lff.experiment("mnist-iid", hooks=["good_and_bad"], **tiny)
    lff.run(e, progress=False)
    table = frame.good_and_bad(frame.rounds([e]))
    angles = table[table["round"] == 0].set_index("gradients")["angle"]
    assert angles["relevant neurons"] > 10 * max(angles["non-relevant neurons"], 0.1)
    assert list(angles.index[:2]) == ["whole, with BatchNorm statistics", "whole"]
    # Looking changes nothing: the run is that of the same experiment without the hook.
    plain = lff.experiment("mnist-iid", **tiny)
    assert lff.run(plain, progress=False).model == find(e).model


def test_an_attack_may_flip_in_place(tiny):
    @lff.attack("in_place")
    def in_place(data, context):
        data.y[data.y == context.source_class] = context.target_class
        return data

    runs = [
        lff.run("mnist-iid", attack=attack, hooks=["good_and_bad"], progress=False, **tiny)
        for attack in ("label_flipping", "in_place")
    ]
    assert runs[0].history[0]["good_and_bad"] == runs[1].history[0]["good_and_bad"]


def test_nobody_with_both_classes_has_no_good_and_bad_update(tiny):
    federation = lff.build(lff.experiment("mnist-extreme", hooks=["good_and_bad"], **tiny))
    with pytest.raises(InputError, match=r"no peer holds both classes \[1, 7\]"):
        federation.play_round()


def test_similarities_are_means_over_pairs_of_peers(tiny):
    e = lff.experiment(
        "mnist-iid", defense="foolsgold", attackers=30, hooks=["similarities"], **tiny
    )
    federation = lff.build(e)
    federation.play_round()
    found = federation.play_round()["similarities"]
    memory = federation.rule.history
    last = len(federation.peers) - 1
    attackers = [k for k in federation.attackers if k != last]
    honest = [k for k in memory if k not in (*federation.attackers, last)]

    def mean(pairs):
        cosines = [torch.cosine_similarity(memory[a], memory[b], dim=0) for a, b in pairs]
        return pytest.approx(float(torch.stack(cosines).mean()), abs=1e-5)

    assert found["attacker-attacker"] == mean((a, b) for a in attackers for b in attackers if a < b)
    assert found["attacker-honest"] == mean((a, b) for a in attackers for b in honest)
    assert found["honest-last"] == mean((a, last) for a in honest)
    assert "last-last" not in found


def test_similarities_are_foolsgold_s(tiny):
    e = lff.experiment("mnist-iid", defense="fedavg", hooks=["similarities"], **tiny)
    with pytest.raises(InputError, match="choose defense 'foolsgold'"):
        lff.build(e).play_round()
