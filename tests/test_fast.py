"""What makes it quick gives what the plain form gives, to the tolerance each test states."""

import os
import signal
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from helpers import updates_of
from hypothesis import given, settings

import lff
from lff.defenses import DEFENSES
from lff.errors import InputError, TrainingError
from lff.experiments.build import build
from lff.fast import RULES, accelerate
from lff.fast import stacked as stacked_peers
from lff.fast.pool import Pool
from lff.fast.stacked import AGREEMENT, Stacked, disagreement
from lff.fast.submodels import FastLoop
from lff.models import OUTPUT_LAYER, FlatModel, build_model
from lff.training import Examples, LocalTraining, Loop, Peer

SIZES = (9, 4, 1, 6, 2)  # examples of each peer: full, small and single batches


# --- rules -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.integers(1, 45), st.integers(2, 60), st.integers(0, 20), st.integers(0, 10**6))
def test_a_fast_rule_decides_as_the_plain_one(name, m, d, attackers, seed):
    """Aggregates to 1e-5 of their size; who is dropped, exactly."""
    weights = np.random.default_rng(seed).normal(size=(m, d))
    updates = updates_of(weights, attacker_count=attackers)
    plain, fast = DEFENSES[name].create()(updates), RULES[name](updates)
    torch.testing.assert_close(fast.aggregate, plain.aggregate, rtol=1e-5, atol=1e-5)
    assert fast.dropped(updates.peers) == plain.dropped(updates.peers)
    if plain.scores is not None:
        torch.testing.assert_close(fast.scores, plain.scores, rtol=1e-9, atol=1e-9)


def test_experiments_run_the_fast_rules_and_notebooks_the_plain_ones():
    for name in DEFENSES:
        rule = build(lff.experiment("mnist-mild", defense=name, scale="smoke")).rule
        fast = getattr(rule, "func", rule) is RULES.get(name)
        assert fast == (name in RULES)
        assert rule.needs == DEFENSES[name].needs


# --- training --------------------------------------------------------------------------------


def a_round(name, **training):
    """A model with some peers of different sizes, and how they train."""
    generator = torch.Generator().manual_seed(1)
    total = sum(SIZES)
    if name == "bilstm":
        x, y = torch.randint(0, 30, (total, 12), generator=generator), torch.arange(total) % 2
    else:
        shape = {"cnn": (1, 28, 28), "resnet18": (3, 32, 32)}[name]
        x, y = torch.randn(total, *shape, generator=generator), torch.arange(total) % 10
    shares = zip(x.split(SIZES), y.split(SIZES), strict=True)
    peers = [Peer(k, Examples(*share)) for k, share in enumerate(shares)]
    local = LocalTraining(local_epochs=2, batch_size=4, **({"learning_rate": 0.05} | training))
    return plain_model(name), local, peers


def plain_model(name):
    return build_model(name, vocabulary=30, seed=2)


def fast_model(name):
    return FlatModel(accelerate(plain_model(name), "cpu"), OUTPUT_LAYER[name])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("cnn", {}),
        ("cnn", {"optimizer": "adam"}),
        ("bilstm", {"optimizer": "adam", "weight_decay": 0.0}),
        ("bilstm", {}),
        ("resnet18", {"learning_rate": 0.001}),
    ],
)
def test_the_fast_loop_trains_as_the_plain_one(name, settings):
    """To a relative 1e-3 of what training changed: sums are the same, in another order."""
    plain, training, peers = a_round(name, **settings)
    if name == "resnet18":  # BatchNorm over a few single pixels magnifies rounding
        peers = [peer for peer in peers if len(peer.examples.y) > 6]
    reference = Loop(FlatModel(plain, OUTPUT_LAYER[name]), training)
    weights = reference.model.vector.clone()
    wanted = reference.train(weights, peers, seed=4, round=1)
    fast = FastLoop(fast_model(name), training).train(weights, peers, seed=4, round=1)
    moved = (wanted - weights).norm(dim=1)
    assert (moved > 1e-2).all()
    assert ((fast - wanted).norm(dim=1) < 1e-3 * moved).all()


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.0}, {"weight_decay": 0.1}])
def test_stacked_peers_train_as_one_after_another(settings):
    """To a relative 1e-4: their sums are the same, in another order."""
    plain, training, peers = a_round("cnn", **settings)
    reference = Loop(FlatModel(plain, "fc2"), training)
    weights = reference.model.vector.clone()
    loop = reference.train(weights, peers, seed=4, round=1)
    stacked = Stacked(plain_model("cnn"), reference.model.layout, training)
    for _ in range(2):
        torch.testing.assert_close(
            stacked.train(weights, peers, seed=4, round=1), loop, rtol=1e-4, atol=1e-6
        )
    assert (loop - weights).abs().amax(dim=1).min() > 1e-3


def test_what_one_peer_sends_is_the_same_in_any_stack(monkeypatch):
    """Also beside a peer whose examples are not finite, and in stacks of two."""
    plain, training, peers = a_round("cnn")
    weights = fast_model("cnn").vector.clone()
    stack = Stacked(plain, fast_model("cnn").layout, training)
    alone = torch.cat([stack.train(weights, [peer], seed=4, round=1) for peer in peers])
    monkeypatch.setattr(stacked_peers, "AT_ONCE", 2)
    torch.testing.assert_close(
        stack.train(weights, peers, seed=4, round=1), alone, rtol=1e-4, atol=1e-6
    )
    monkeypatch.undo()
    x, y = peers[0].examples
    hostile = [Peer(0, Examples(x * torch.nan, y)), *peers[1:]]
    together = stack.train(weights, hostile, seed=4, round=1)
    torch.testing.assert_close(together[1:], alone[1:], rtol=1e-4, atol=1e-6)
    assert together[0].isnan().any()


@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_a_step_of_the_stack_agrees_with_the_loop_and_a_wrong_one_does_not(batch_size, monkeypatch):
    plain, training, peers = a_round("cnn", learning_rate=0.001)
    training = replace(training, batch_size=batch_size)
    assert disagreement(plain, "fc2", training, peers) < AGREEMENT / 3
    assert disagreement(plain, "fc2", training, peers[:1]) < AGREEMENT / 3
    exact = stacked_peers.conv_pool
    rounded = lambda x, w, b: exact(x, (w * 1024).round() / 1024, b)  # noqa: E731  ten bits
    monkeypatch.setattr(stacked_peers, "conv_pool", rounded)
    assert disagreement(plain, "fc2", training, peers) > AGREEMENT


def test_a_pool_gives_the_same_bits_in_the_same_order_until_a_process_is_killed():
    """Of ResNet18, whose classes are torchvision's; the CNN's pool is that of the run below."""
    plain, training, peers = a_round("resnet18")
    loop = FastLoop(fast_model("resnet18"), training)
    weights = loop.model.vector.clone()
    pool = Pool(2, plain, OUTPUT_LAYER["resnet18"], training)
    try:
        for t in (0, 1):
            wanted = loop.train(weights, peers, seed=4, round=t)
            assert torch.equal(pool.train(weights, peers, seed=4, round=t), wanted)
        x, y = peers[3].examples
        poisoned = [Peer(3, Examples(x, y.flip(0)))]
        wanted = loop.train(weights, poisoned, seed=4, round=1)
        assert torch.equal(pool.train(weights, poisoned, seed=4, round=1), wanted)
        started = list(pool.pool._processes.values())
        os.kill(started[0].pid, signal.SIGKILL)
        with pytest.raises(TrainingError, match="a training worker is gone"):
            pool.train(weights, peers, seed=0, round=1)
    finally:
        pool.close()
    assert not any(process.is_alive() for process in started)


def test_a_run_is_the_same_with_workers(tmp_path):
    settings = {"defense": "lfighter", "attackers": 30, "scale": "smoke", "peers": 6, "rounds": 2}
    alone = lff.run("mnist-mild", folder=tmp_path / "alone", **settings)
    together = lff.run("mnist-mild", folder=tmp_path / "together", workers=2, **settings)
    assert alone.history == together.history
    assert alone.model == together.model


def test_a_run_is_nearly_the_same_stacked(tmp_path):
    settings = {"attackers": 30, "scale": "smoke", "peers": 6, "rounds": 1}
    loop = lff.run("mnist-mild", folder=tmp_path / "loop", **settings)
    stacked = lff.run("mnist-mild", folder=tmp_path / "stacked", engine="stacked", **settings)
    assert stacked.history[-1]["test_error"] == pytest.approx(
        loop.history[-1]["test_error"], rel=1e-3
    )


@pytest.mark.parametrize(
    ("benchmark", "chosen", "message"),
    [
        ("mnist-iid", {"engine": "fast"}, "'fast'; choose from: auto, loop, stacked"),
        ("imdb", {"engine": "stacked"}, "'stacked' is for the CNN with SGD"),
        ("mnist-iid", {"workers": 0}, "workers must be a whole number of at least 1, not 0"),
        ("mnist-iid", {"workers": True}, "not True"),
        ("mnist-iid", {"engine": "stacked", "workers": 2}, "choose 1 worker"),
    ],
)
def test_engines_that_do_not_fit_are_refused(benchmark, chosen, message):
    with pytest.raises(InputError, match=message):
        build(lff.experiment(benchmark, scale="smoke"), **chosen)
