"""On a GPU: nothing leaves it, numbers are the CPU's, and the stack must prove itself.

There is none here; `pretended_gpu` says what it refuses.
"""

import logging

import numpy as np
import pytest
import torch
from helpers import updates_of
from pretended_gpu import CUDA, PretendedGpu, pretended_gpu

import lff
from lff import fast
from lff.defenses import DEFENSES
from lff.experiments.records import checkpoint_path, path_of
from lff.fast import RULES, accelerate, choose_trainer
from lff.fast.stacked import Stacked
from lff.fast.submodels import FastLoop
from lff.metrics import evaluate, outputs_of
from lff.models import MODELS, OUTPUT_LAYER, FlatModel, build_model
from lff.training import Examples, LocalTraining, Loop, Peer

WORDS = 40


@pytest.fixture
def gpu():
    with pretended_gpu() as counts:
        yield counts


def examples(name, count):
    generator = torch.Generator().manual_seed(count)
    if name == "bilstm":
        x = torch.randint(0, WORDS, (count, 6), generator=generator)
    else:
        shape = {"cnn": (1, 28, 28), "resnet18": (3, 32, 32)}[name]
        x = torch.randn(count, *shape, generator=generator)
    return Examples(x, torch.arange(count) % 2)


def peers_of(name, counts, device="cpu"):
    held = [Examples(*(part.to(device) for part in examples(name, count))) for count in counts]
    return [Peer(k, own) for k, own in enumerate(held)]


def flat_model(name, device="cpu"):
    model = build_model(name, vocabulary=WORDS, width=8, seed=1)
    return FlatModel(accelerate(model, device), OUTPUT_LAYER[name], device)


# --- that the pretended GPU would notice ---------------------------------------------------------


def test_a_mix_of_devices_is_refused(gpu):
    there, here = torch.ones(3, device="cuda"), torch.ones(3)
    for mixed in (
        lambda: there + here,
        lambda: torch.cat([here, there]),
        lambda: torch.where(here > 0, there, 0.0),
        lambda: here[there > 0],
        lambda: here.add_(there),
    ):
        with pytest.raises(RuntimeError, match="same device"):
            mixed()
    for reading in (lambda: there.numpy(), lambda: np.asarray(there)):
        with pytest.raises(TypeError, match="can't convert cuda"):
            reading()
    assert (there + torch.tensor(1.0)).tolist() == [2, 2, 2]
    assert there.to("cpu").numpy().tolist() == [1, 1, 1]
    assert (here.to("cuda") + there).device == CUDA


# --- training, evaluation and rules --------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("trainer", [Loop, FastLoop])
def test_a_round_of_training_stays_on_the_device(name, optimizer, trainer, gpu):
    """Updates to a relative 1e-4 of what training changed on the CPU, where sums are the same."""
    decay = 0.0 if optimizer == "adam" else 5e-4
    training = LocalTraining(
        batch_size=3, learning_rate=1e-3, optimizer=optimizer, weight_decay=decay
    )
    updates = {}
    for device in ("cpu", "cuda"):
        flat = flat_model(name, device)
        weights = flat.vector.detach().clone()
        peers = peers_of(name, (4, 3), device)
        updates[device] = trainer(flat, training).train(weights, peers, seed=0, round=0)
    assert updates["cuda"].device == CUDA
    changed = (updates["cpu"] - flat_model(name).vector).norm()
    assert (updates["cuda"].cpu() - updates["cpu"]).norm() < 1e-4 * changed
    tensors = [*flat.module.parameters(), *flat.module.buffers()]
    assert all(tensor.device == CUDA for tensor in tensors)


@pytest.mark.parametrize("name", MODELS)
def test_the_loop_reads_nothing_back_in_its_steps(name, gpu):
    """However many steps: what it reads, it reads once for each peer."""
    found = []
    for epochs in (1, 3):
        flat, peers = flat_model(name, "cuda"), peers_of(name, (4,), "cuda")
        training = LocalTraining(local_epochs=epochs, batch_size=2, learning_rate=1e-3)
        PretendedGpu.counts.clear()
        FastLoop(flat, training).train(flat.vector.detach().clone(), peers, seed=0, round=0)
        reads = ("to the CPU", "_local_scalar_dense", "nonzero")
        found.append({read: PretendedGpu.counts[read] for read in reads})
    assert found[0] == found[1]


@pytest.mark.parametrize("name", MODELS)
def test_evaluation_stays_on_the_device(name, gpu):
    x, y = examples(name, 7)
    model, flat = flat_model(name, "cuda"), flat_model(name)
    outputs = outputs_of(model.module, x.to("cuda"), batch_size=3)
    assert outputs.device == CUDA
    found = evaluate(outputs, y.to("cuda"), 0, 1)
    wanted = evaluate(outputs_of(flat.module, x), y, 0, 1)
    assert found.confusion.tolist() == wanted.confusion.tolist()
    assert found.test_error == pytest.approx(wanted.test_error, rel=1e-5)


@pytest.mark.parametrize("name", DEFENSES)
@pytest.mark.parametrize("m", [1, 2, 20, 40])
def test_rules_stay_on_the_device_and_decide_as_on_the_cpu(name, m, gpu):
    """Aggregates to 1e-5; who is dropped, exactly."""
    weights = torch.randn(m, 24, generator=torch.Generator().manual_seed(m))
    settings = {"classes": 4, "attacker_count": m // 4, "attackers": (1,)}
    here = updates_of(weights, **settings)
    parts = {n: getattr(here, n).to("cuda") for n in ("weights", "global_weights", "examples")}
    there = updates_of(weights, **settings, **{n: parts[n] for n in parts if n != "weights"})
    object.__setattr__(there, "weights", parts["weights"])
    forms = [DEFENSES[name].create, *([lambda: RULES[name]] if name in RULES else [])]
    for create in forms:
        rules = {"cpu": create(), "cuda": create()}
        for _ in range(2):  # a rule with memory goes on from it
            decision, wanted = rules["cuda"](there), rules["cpu"](here)
        assert decision.aggregate.device == CUDA
        torch.testing.assert_close(decision.aggregate.cpu(), wanted.aggregate, rtol=0, atol=1e-5)
        assert decision.dropped(there.peers) == wanted.dropped(here.peers)
        for tensor in (decision.weights, decision.scores):
            assert tensor is None or tensor.device == CUDA
        if name == "foolsgold":
            assert all(t.device == CUDA for t in rules["cuda"].state_dict().values())


# --- the stack -----------------------------------------------------------------------------------


VIEWS = {"view", "_unsafe_view", "slice", "select", "transpose", "t", "permute", "expand"}
VIEWS |= {"unsqueeze", "squeeze", "unbind", "detach", "split_with_sizes", "as_strided"}


def stack_on_gpu(counts, epochs=1, batch_size=4):
    training = LocalTraining(local_epochs=epochs, batch_size=batch_size, learning_rate=0.05)
    model = build_model("cnn", seed=1).to("cuda")
    flat = FlatModel(build_model("cnn", seed=1), "fc2", "cuda")
    stacked = Stacked(model, flat.layout, training)
    weights, peers = flat.vector.detach().clone(), peers_of("cnn", counts, "cuda")
    PretendedGpu.counts.clear()
    stacked.train(weights, peers, seed=0, round=0)
    return dict(PretendedGpu.counts)


def test_operations_of_a_step_do_not_grow_with_the_peers(gpu):
    """What a round dispatches to the GPU depends on the steps alone: at most 185 operations that
    compute in each, beside views, which a GPU does not see."""
    two, eight, longer = stack_on_gpu([8, 6]), stack_on_gpu([8, 6] * 4), stack_on_gpu([16, 6])
    grown = {name: (two.get(name, 0), eight[name]) for name in eight if eight[name] != two[name]}
    assert grown == {}
    computing = {n: (longer[n] - two[n]) / 2 for n in longer if n not in VIEWS}
    assert 0 < sum(computing.values()) <= 185


def test_a_round_of_the_stack_goes_over_once_and_reads_nothing_back(gpu):
    """The plan (rows, shares), the keys of dropout, and where the updates belong."""
    for counts in ([8, 6], [40, 6, 3], [8] * 20):
        found = stack_on_gpu(counts, epochs=3)
        assert found["to the GPU"] == 3
        assert "to the CPU" not in found
        assert "_local_scalar_dense" not in found
        assert "nonzero" not in found


def test_the_stack_has_the_same_shapes_in_every_step(gpu, monkeypatch):
    shapes = set()
    outputs = Stacked._outputs

    def noted(self, weights, x, *factors):
        shapes.add((weights.shape, x.shape, *(f.shape for f in factors)))
        return outputs(self, weights, x, *factors)

    monkeypatch.setattr(Stacked, "_outputs", noted)
    stack_on_gpu([11, 5, 2])
    assert len(shapes) == 1


# --- whole runs, and which engine -----------------------------------------------------------------

SMALL = {"scale": "smoke", "peers": 4, "rounds": 2, "examples": 64, "attackers": 40}


@pytest.mark.parametrize(("chosen", "engine"), [("auto", "stacked"), ("loop", "loop")])
def test_a_run_on_a_gpu_is_the_run_on_the_cpu(chosen, engine, tmp_path, gpu):
    """Test error to a relative 1e-4; whom LFighter drops, exactly. The record names the engine."""
    settings = {"defense": "lfighter", **SMALL}
    there = lff.run("mnist-mild", device="cuda", engine=chosen, folder=tmp_path / "1", **settings)
    here = lff.run("mnist-mild", device="cpu", folder=tmp_path / "2", **settings)
    assert there.provenance["engine"] == engine
    assert there.provenance["device"] == "pretended GPU"
    assert here.provenance["engine"] == "loop"
    for found, wanted in zip(there.history, here.history, strict=True):
        assert found["dropped"] == wanted["dropped"]
        assert found["test_error"] == pytest.approx(wanted["test_error"], rel=1e-4)


def choose(device, engine="auto", name="cnn", optimizer="sgd"):
    plain = build_model(name, vocabulary=WORDS, width=8).to(device)
    training = LocalTraining(batch_size=4, optimizer=optimizer)
    peers = peers_of(name, (5, 2), device)
    flat = flat_model(name, device)
    return choose_trainer(engine, 1, model=flat, plain=plain, training=training, peers=peers).name


def test_auto_chooses_by_model_and_device(gpu):
    assert choose("cuda") == "stacked"
    assert choose("cuda", name="resnet18") == "loop"
    assert choose("cuda", name="bilstm") == "loop"
    assert choose("cuda", "loop") == "loop"
    assert choose("cuda", optimizer="adam") == "loop"
    assert choose("cpu") == "loop"


@pytest.mark.parametrize("engine", ["auto", "stacked"])
@pytest.mark.parametrize("found", [0.01, float("nan")])
def test_a_stack_that_disagrees_is_not_taken(engine, found, gpu, monkeypatch, caplog):
    monkeypatch.setattr(fast, "disagreement", lambda *_: found)
    with caplog.at_level(logging.WARNING, logger="lff"):
        assert choose("cuda", engine) == "loop"
    (told,) = caplog.messages
    assert "engine 'loop' is taken" in told
    assert f"{found:.1e} of a step away" in told


def test_a_stack_that_fails_is_not_taken(gpu, monkeypatch, caplog):
    def fail(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Stacked, "train", fail)
    assert choose("cuda") == "loop"
    assert "the stack failed: CUDA out of memory" in caplog.text


def test_a_checkpoint_of_one_engine_is_not_gone_on_from_by_another(
    tmp_path, gpu, caplog, monkeypatch
):
    class Enough(Exception):
        pass

    def stop():
        raise Enough

    settings = {"folder": tmp_path, "device": "cuda", **SMALL}
    monkeypatch.setenv("LFF_CHECKPOINT_SECONDS", "0")
    with pytest.raises(Enough):
        lff.run("mnist-iid", engine="stacked", on_round=stop, **settings)
    e = lff.experiment("mnist-iid", **SMALL)
    assert checkpoint_path(path_of(e, tmp_path)).exists()
    record = lff.run("mnist-iid", engine="loop", **settings)
    assert "written with other engine" in caplog.text
    assert record.provenance["engine"] == "loop"


def test_a_gpu_computes_exactly_and_in_a_fixed_order_and_leaves_the_users_settings():
    settings = torch.backends.cudnn
    before = (settings.deterministic, settings.allow_tf32, settings.enabled, settings.benchmark)
    with lff.training.one_thread("cuda"):
        assert settings.deterministic
        assert settings.enabled
        assert not settings.allow_tf32
    after = (settings.deterministic, settings.allow_tf32, settings.enabled, settings.benchmark)
    assert after == before
