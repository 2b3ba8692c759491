"""Nothing leaves the device: all on `meta`, which holds no numbers and mixes with no other."""

import helpers  # noqa: F401  one thread
import pytest
import torch

from lff.defenses import DEFENSES
from lff.fast import RULES as FAST
from lff.fast import accelerate
from lff.metrics import loss_function, outputs_of
from lff.models import MODELS, OUTPUT_LAYER, FlatModel, Layout, build_model
from lff.training import Examples, LocalTraining, Loop, Peer
from lff.updates import Updates

META = torch.device("meta")
RULES = ["fedavg", "median", "trimmed_mean", "repeated_median", "multi_krum", "foolsgold"]
WORDS = 40


def meta_model(name):
    return FlatModel(
        accelerate(build_model(name, vocabulary=WORDS), META), OUTPUT_LAYER[name], META
    )


def meta_examples(name, count):
    if name == "bilstm":
        return torch.zeros(count, 6, dtype=torch.long, device=META)
    shape = {"cnn": (1, 28, 28), "resnet18": (3, 32, 32)}[name]
    return torch.empty(count, *shape, device=META)


def test_meta_refuses_other_devices():
    """Else these tests would show nothing."""
    with pytest.raises(RuntimeError):
        torch.ones(3, device=META) + torch.ones(3)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_round_of_training_stays_on_the_device(name, optimizer):
    model = meta_model(name)
    weights = torch.empty_like(model.vector)
    peers = [
        Peer(k, Examples(meta_examples(name, 5), torch.zeros(5, dtype=torch.long, device=META)))
        for k in range(2)
    ]
    training = LocalTraining(local_epochs=2, batch_size=2, learning_rate=0.01, optimizer=optimizer)
    updates = Loop(model, training).train(weights, peers, seed=0, round=0)
    assert updates.device == META
    assert updates.shape == (2, model.layout.size)
    assert model.parameters.grad.device == META
    tensors = [*model.module.parameters(), *model.module.buffers()]
    assert {tensor.device for tensor in tensors} == {META}


@pytest.mark.parametrize("name", MODELS)
def test_evaluation_stays_on_the_device(name):
    outputs = outputs_of(meta_model(name).module, meta_examples(name, 7), batch_size=3)
    assert outputs.shape == ((7,) if name == "bilstm" else (7, 10))
    labels = torch.zeros(7, dtype=torch.long, device=META)
    assert loss_function(outputs, labels).device == META


@pytest.fixture(params=[1, 2, 20, 40])
def updates(request):
    layout = Layout.of(build_model("cnn"), "fc2")
    m = request.param
    return Updates(
        weights=torch.empty(m, layout.size, device=META),
        global_weights=torch.empty(layout.size, device=META),
        layout=layout,
        learning_rate=0.1,
        examples=torch.ones(m, device=META),
        peers=tuple(range(m)),
        attacker_count=m // 4,
        attackers=(1,),
    )


def test_views_stay_on_the_device(updates):
    assert updates.gradients.device == META
    assert updates.output_layer.shape == (len(updates), 10, 51)
    assert updates.relevant(7, 1).shape == (len(updates), 102)
    assert updates.relevant(7, 1).device == META
    assert updates.select([0]).weights.device == META


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("form", ["plain", "fast"])
def test_rules_stay_on_the_device(name, form, updates):
    rule = DEFENSES[name].create() if form == "plain" else FAST.get(name, DEFENSES[name].create())
    for _ in range(2):  # a rule with memory goes on from it
        decision = rule(updates)
    assert decision.aggregate.device == META
    assert decision.aggregate.shape == updates.global_weights.shape
    assert decision.aggregate.dtype == torch.float32
    if decision.weights is not None:
        assert decision.weights.device == META
        assert decision.weights.shape == (len(updates),)
    tensors = [value for value in decision.saw.values() if isinstance(value, torch.Tensor)]
    assert all(tensor.device == META for tensor in tensors)
    if name == "foolsgold":
        assert {tensor.device for tensor in rule.state_dict().values()} == {META}
