"""The engines: the same updates, however the peers of a round are trained."""

import os
import signal

import helpers  # noqa: F401  one thread
import pytest
import torch

import lff
from lff.errors import InputError, TrainingError
from lff.experiments.runs import experiment
from lff.fast.engines import Loop, Stacked, Workers
from lff.federation import Federation
from lff.models import OUTPUT_LAYER, FlatModel, build
from lff.training import LocalTraining, Peer

SIZES = (9, 4, 1, 6, 2)  # examples of each peer: full, small and single batches


def a_round(name, **training):
    """A model with some peers of different sizes, and how they train."""
    generator = torch.Generator().manual_seed(1)
    total = sum(SIZES)
    if name == "bilstm":
        x, y = torch.randint(0, 30, (total, 12), generator=generator), torch.arange(total) % 2
    else:
        shape = {"cnn": (1, 28, 28), "resnet18": (3, 32, 32)}[name]
        x, y = torch.randn(total, *shape, generator=generator), torch.arange(total) % 10
    starts = torch.tensor((0, *SIZES)).cumsum(0).tolist()
    peers = [
        Peer(k, torch.arange(starts[k], starts[k] + size), y[starts[k] : starts[k] + size])
        for k, size in enumerate(SIZES)
    ]
    model = {"name": name, "vocabulary": 30, "seed": 2}
    local = LocalTraining(local_epochs=2, batch_size=4, **({"learning_rate": 0.05} | training))
    return model, FlatModel(build(**model), OUTPUT_LAYER[name]), x, local, peers


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.0}, {"weight_decay": 0.1}])
def test_stacked_peers_train_as_one_after_another(settings):
    """To a relative 1e-4: their sums are the same, in another order."""
    model, flat, x, training, peers = a_round("cnn", **settings)
    weights = flat.vector.clone()
    loop = Loop(flat, x, training).train(weights, peers, seed=4, round=1)
    stacked = Stacked(build(**model), flat.layout, x, training)
    for _ in range(2):
        torch.testing.assert_close(
            stacked.train(weights, peers, seed=4, round=1), loop, rtol=1e-4, atol=1e-6
        )
    assert (loop - weights).abs().amax(dim=1).min() > 1e-3


@pytest.mark.parametrize("name", ["cnn", "bilstm", "resnet18"])
def test_workers_give_the_same_bits_in_the_same_order(name):
    optimizer = {"optimizer": "adam", "weight_decay": 0.0} if name == "bilstm" else {}
    model, flat, x, training, peers = a_round(name, **optimizer)
    weights = flat.vector.clone()
    workers = Workers(2, model, OUTPUT_LAYER[name], x, training)
    try:
        for t in (0, 1):
            loop = Loop(flat, x, training).train(weights, peers, seed=4, round=t)
            assert torch.equal(workers.train(weights, peers, seed=4, round=t), loop)
        assert torch.equal(workers.train(weights, peers[3:4], seed=4, round=1), loop[3:4])
    finally:
        processes = list(workers.processes.values())
        workers.close()
    assert not any(process.is_alive() for process in processes)


def test_a_killed_worker_is_reported():
    model, flat, x, training, peers = a_round("cnn")
    workers = Workers(2, model, "fc2", x, training)
    try:
        workers.train(flat.vector.clone(), peers, seed=0, round=0)
        os.kill(next(iter(workers.processes.values())).pid, signal.SIGKILL)
        with pytest.raises(TrainingError, match="worker ended with exit code -9"):
            workers.train(flat.vector.clone(), peers, seed=0, round=1)
    finally:
        workers.close()


def test_a_run_is_the_same_with_workers(tmp_path):
    settings = {"defense": "lfighter", "attackers": 30, "scale": "smoke", "peers": 6, "rounds": 2}
    alone = lff.run("mnist-mild", folder=tmp_path / "alone", **settings)
    together = lff.run("mnist-mild", folder=tmp_path / "together", workers=2, **settings)
    assert alone.history == together.history


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
        Federation(experiment(benchmark, scale="smoke"), **chosen)
