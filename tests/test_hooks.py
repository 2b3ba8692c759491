"""Hooks of our own: what they note of a round."""

import pytest
import torch

import lff
from lff.errors import InputError


def test_similarities_are_means_over_pairs_of_peers():
    e = lff.experiment(
        "mnist-iid",
        scale="smoke",
        defense="foolsgold",
        attackers=30,
        rounds=2,
        hooks=["similarities"],
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


def test_similarities_are_foolsgold_s():
    e = lff.experiment("mnist-iid", scale="smoke", defense="fedavg", hooks=["similarities"])
    with pytest.raises(InputError, match="choose defense 'foolsgold'"):
        lff.build(e).play_round()
