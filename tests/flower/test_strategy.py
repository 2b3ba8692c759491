"""Rounds of the strategy in this process, from messages made by hand."""

import io
import json
import logging
import random
import re
from inspect import isclass

import numpy as np
import pytest
import torch
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp.exception import InconsistentMessageReplies
from flwr.serverapp.strategy import FedAvg, FedMedian
from flwr.supercore.task_identity import TaskIdentity
from torch import nn

import lff
from lff.defenses import DEFENSES
from lff.errors import InputError
from lff.flower import LOWEST, DefendedFedAvg, find_output_layer, layout_of
from lff.models import CNN, BiLSTM, FlatModel, resnet18
from lff.registry import parse_options
from lff.updates import Updates

MIXINGS = ("nearest", "bucketing")
NODES = [3, 2**31, 2**62, 2**63 - 1, 2**63, 2**63 + 5, 2**64 - 2, 2**64 - 1]  # unsigned, 64 bits


class Nodes:
    """A grid on which these nodes are connected."""

    def __init__(self, nodes):
        self.nodes = nodes

    def get_node_ids(self):
        return self.nodes


class Net(nn.Module):
    """Parameters, statistics, an integer buffer; the output layer is not registered last."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.head = nn.Linear(5, 3)
        self.hidden = nn.Linear(2, 5, bias=False)
        self.norm = nn.BatchNorm1d(5)
        self.to(dtype)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.hidden(x))))


@pytest.fixture(autouse=True)
def own_task(monkeypatch):
    """What a ServerApp's process knows of itself."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def ask(strategy, arrays, nodes=NODES, server_round=1):
    """The messages that train these nodes, by node id."""
    messages = strategy.configure_train(server_round, arrays, ConfigRecord(), Nodes(nodes))
    return {message.metadata.dst_node_id: message for message in messages}


def answer(message, state, examples=10, **metrics):
    """A node's reply: her state (tensors, or a finished record) and her metrics."""
    arrays = state if isinstance(state, ArrayRecord) else ArrayRecord(dict(state))
    metrics = MetricRecord({"num-examples": examples, **metrics})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def a_round(strategy, arrays, states, nodes=NODES, server_round=1, **metrics):
    """What the strategy makes of these nodes' states, which arrive in any order."""
    asked = ask(strategy, arrays, nodes, server_round)
    pairs = zip(nodes, states, strict=True)
    replies = [answer(asked[node], state, **metrics) for node, state in pairs]
    random.Random(server_round).shuffle(replies)
    return strategy.aggregate_train(server_round, replies)


def all_nodes(defense, nodes=NODES, **settings):
    return DefendedFedAvg(
        defense, min_train_nodes=len(nodes), min_available_nodes=len(nodes), **settings
    )


def noisy(state, seed, scale=0.1):
    """This state after some training: floating-point entries moved, integers counted up."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: tensor + scale * torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
        if tensor.is_floating_point()
        else tensor + 7
        for name, tensor in state.items()
    }


def clouds(n, seed):
    """Three classes of points around the corners of a triangle."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    corners = torch.tensor([[3.0, 0.0], [-2.0, 3.0], [-2.0, -3.0]])
    return corners[y] + torch.randn(n, 2, generator=generator), y


@pytest.mark.parametrize(
    ("defense", "options"),
    [*((name, "") for name in DEFENSES), *(("median", f"mixing={how}") for how in MIXINGS)],
)
@pytest.mark.parametrize("model", ["linear", "batchnorm"])
def test_rounds_are_those_of_lff_itself(defense, options, model):
    """Every defense, over rounds of real training: the same decisions, so the same next rounds.

    Also of those that draw random numbers, remember earlier rounds, or must be told something.
    """
    torch.manual_seed(0)
    net = Net() if model == "batchnorm" else nn.Sequential(nn.Linear(2, 3))
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    flat = FlatModel(net, "head" if model == "batchnorm" else "0")
    federation = lff.Federation(
        [clouds(30, seed) for seed in range(len(NODES))],
        clouds(90, 99),
        flat,
        source_class=0,
        target_class=1,
        training=lff.LocalTraining(local_epochs=2, batch_size=10, learning_rate=0.05),
        rule=DEFENSES[defense].create(**parse_options(options)),
        attackers=[0, 3, 6],
        seed=5,
    )
    attackers = [NODES[k] for k in federation.attackers]
    arrays, learned = ArrayRecord(state), flat.layout.views
    train_on_clean, learned_of_clean = federation.root_update, []

    def noted(examples):
        learned_of_clean.append((examples, train_on_clean(examples)))
        return learned_of_clean[-1][1]

    def root_update(sent, examples):
        assert sent == arrays
        asked, vector = learned_of_clean[-1]
        assert examples == asked
        return ArrayRecord(state | learned(vector))

    federation.root_update = noted
    strategy = all_nodes(
        defense,
        defense_options=options,
        attacker_ratio=3 / 8,
        attackers=attackers,
        root_update=root_update,
        learning_rate=0.05,
        seed=5,
    )
    for server_round in (1, 2, 3):
        entry = federation.play_round()
        states = [state | learned(row) for row in federation.updates.weights]
        arrays, metrics = a_round(strategy, arrays, states, server_round=server_round, examples=30)
        for name, view in learned(federation.global_weights).items():
            torch.testing.assert_close(torch.from_numpy(arrays[name].numpy()), view)
        assert metrics["defense-dropped"] == [NODES[k] for k in entry["dropped"]]
        if defense == "oracle" or (defense == "lfighter" and server_round == 1):
            assert metrics["defense-dropped"] == attackers


@pytest.mark.parametrize("defense", DEFENSES)
def test_only_centered_clipping_must_know_the_learning_rate(defense):
    state = Net().state_dict()
    aggregates = []
    for learning_rate in (1.0, 2.0**-10):  # a power of two: rounding is the same
        strategy = all_nodes(
            defense,
            attacker_ratio=0.25,
            attackers=NODES[:2],
            root_update=lambda sent, examples: ArrayRecord(noisy(state, 99)),
            learning_rate=learning_rate,
        )
        states = [noisy(state, k) for k in range(len(NODES))]
        aggregates.append(a_round(strategy, ArrayRecord(state), states)[0])
    assert (aggregates[0] == aggregates[1]) == (defense != "centered_clipping")


def test_fedavg_is_flowers_own():
    state = Net().state_dict()
    states = [noisy(state, seed) for seed in range(8)]
    plain = FedAvg(min_train_nodes=8, min_available_nodes=8)
    asked = ask(plain, ArrayRecord(state))
    replies = [
        answer(asked[node], each, examples=seed, loss=float(seed), past=[1.0, float(seed)])
        for seed, (node, each) in enumerate(zip(NODES, states, strict=True))
    ]
    theirs, their_metrics = plain.aggregate_train(1, replies)
    ours = all_nodes("fedavg")
    ask(ours, ArrayRecord(state))
    arrays, metrics = ours.aggregate_train(1, replies)
    for name, tensor in state.items():
        if tensor.is_floating_point():
            np.testing.assert_allclose(arrays[name].numpy(), theirs[name].numpy(), atol=1e-6)
    assert metrics["loss"] == pytest.approx(their_metrics["loss"])
    assert metrics["past"] == pytest.approx(their_metrics["past"])
    assert metrics["defense-weights"] == pytest.approx([k / 28 for k in range(8)], abs=1e-5)


def test_median_is_flowers_own():
    state = Net().state_dict()
    del state["norm.num_batches_tracked"]
    states = [noisy(state, seed) for seed in range(8)]
    plain = FedMedian(min_train_nodes=8, min_available_nodes=8)
    theirs, _ = a_round(plain, ArrayRecord(state), states)
    ours, _ = a_round(all_nodes("median"), ArrayRecord(state), states)
    for name in state:
        np.testing.assert_allclose(ours[name].numpy(), theirs[name].numpy(), atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_arrays_keep_names_order_shapes_types_and_what_is_no_float(dtype):
    state = Net(dtype).state_dict()
    state["norm.num_batches_tracked"] += 5
    states = [noisy(state, seed) for seed in range(8)]
    arrays, _ = a_round(all_nodes("fedavg"), ArrayRecord(state), states)
    assert list(arrays) == list(state)
    model = Net(dtype)
    model.load_state_dict(arrays.to_torch_state_dict())
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == state[name].dtype
        mean = torch.stack([each[name].double() for each in states]).mean(dim=0)
        expected = mean if tensor.is_floating_point() else torch.tensor(5.0)
        torch.testing.assert_close(tensor.double(), expected.double(), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("defense", [n for n, d in DEFENSES.items() if isclass(d.factory)])
def test_rules_remember_nodes_who_come_and_go(defense):
    """A memory belongs to node ids: it is that of the rule itself, told who was there."""
    state = Net().state_dict()
    flat, rule = FlatModel(Net(), "head"), DEFENSES[defense].create()
    strategy = DefendedFedAvg(defense, min_train_nodes=4, min_available_nodes=4)
    arrays = ArrayRecord(state)
    for server_round, present in enumerate(([0, 1, 2, 3], [7, 2, 1, 5], [3, 0, 7, 2]), start=1):
        before = state | arrays.to_torch_state_dict()
        states = [noisy(before, 100 * server_round + k) for k in present]
        nodes = [NODES[k] for k in present]
        arrays, _ = a_round(strategy, arrays, states, nodes, server_round)
        updates = Updates(
            weights=torch.stack([vector(flat.layout, each) for each in states]),
            global_weights=vector(flat.layout, before),
            layout=flat.layout,
            learning_rate=1.0,
            examples=torch.full((4,), 10.0),
            peers=tuple(present),
        )
        decision = rule(updates)
        new = vector(flat.layout, arrays.to_torch_state_dict())
        torch.testing.assert_close(new, decision.aggregate)
    memory = {
        re.sub(r"\d+$", lambda found: str(NODES[int(found[0])] + LOWEST), name): tensor
        for name, tensor in rule.state_dict().items()
    }
    torch.testing.assert_close(strategy.rule.state_dict(), memory)


def vector(layout, state):
    """A state as lff's flat vector."""
    return torch.cat([state[name].flatten() for name in layout.names])


def test_a_node_cannot_pass_for_another():
    """Whatever ids she writes into her metrics, she is who the SuperLink says."""
    state = Net().state_dict()
    strategy = all_nodes("oracle", attackers=[NODES[4]])
    asked = ask(strategy, ArrayRecord(state))
    claims = {"node-id": NODES[0], "src_node_id": NODES[0], "partition-id": 0}
    replies = [answer(asked[node], noisy(state, k), **claims) for k, node in enumerate(NODES)]
    _, metrics = strategy.aggregate_train(1, replies)
    assert metrics["defense-dropped"] == [NODES[4]]


def unreadable(data):
    """An array of the right words and wrong bytes."""
    good = ArrayRecord(dict(Net().state_dict()))
    good["head.bias"] = Array("float32", (3,), "numpy.ndarray", data)
    return good


def archive():
    stream = io.BytesIO()
    np.savez(stream, np.zeros(3))
    return stream.getvalue()


def without(name):
    return {key: tensor for key, tensor in Net().state_dict().items() if key != name}


BAD = {
    "error": lambda m: Message(Error(2, "out of memory"), reply_to=m),
    "nothing": lambda m: Message(RecordDict({}), reply_to=m),
    "two records": lambda m: Message(
        RecordDict(
            {
                "a": ArrayRecord(dict(Net().state_dict())),
                "b": ArrayRecord(),
                "metrics": MetricRecord({"num-examples": 1}),
            }
        ),
        reply_to=m,
    ),
    "missing array": lambda m: answer(m, without("head.weight")),
    "other shape": lambda m: answer(m, Net().state_dict() | {"head.bias": torch.zeros(3, 1)}),
    "integers": lambda m: answer(m, Net().state_dict() | {"head.bias": torch.zeros(3).long()}),
    "NaN": lambda m: answer(m, Net().state_dict() | {"head.bias": torch.tensor([0, torch.nan, 0])}),
    "infinity": lambda m: answer(m, Net().state_dict() | {"head.bias": torch.ones(3) / 0}),
    "beyond float32": lambda m: answer(
        m, Net().state_dict() | {"head.bias": torch.full((3,), 1e300, dtype=torch.float64)}
    ),
    "garbage": lambda m: answer(m, unreadable(b"garbage")),
    "an archive": lambda m: answer(m, unreadable(archive())),
    "negative examples": lambda m: answer(m, Net().state_dict(), examples=-1),
    "NaN examples": lambda m: answer(m, Net().state_dict(), examples=float("nan")),
    "infinite examples": lambda m: answer(m, Net().state_dict(), examples=float("inf")),
    "too many examples": lambda m: answer(m, Net().state_dict(), examples=1e39),
    "list of examples": lambda m: answer(m, Net().state_dict(), examples=[1, 2]),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_reply_that_cannot_be_used_is_left_out(bad, caplog):
    """The round is that of the others, and it does not end the run, as Flower's FedAvg would."""
    state = Net().state_dict()
    states = {node: noisy(state, k) for k, node in enumerate(NODES)}
    strategy = all_nodes("fedavg")
    asked = ask(strategy, ArrayRecord(state))
    replies = [answer(asked[node], states[node]) for node in NODES[:-1]]
    with caplog.at_level(logging.WARNING, "flwr"):
        arrays, metrics = strategy.aggregate_train(1, [BAD[bad](asked[NODES[-1]]), *replies])
    alone = all_nodes("fedavg")
    ask(alone, ArrayRecord(state))
    assert arrays == alone.aggregate_train(1, replies)[0]
    assert metrics["defense-excluded"] == list(strategy.history[0]["excluded"]) == NODES[-1:]
    assert metrics["defense-peers"] == NODES[:-1]
    ask(strategy, ArrayRecord(state), server_round=2)
    assert strategy.aggregate_train(2, [BAD[bad](asked[node]) for node in NODES]) == (None, None)
    assert strategy.aggregate_train(2, []) == (None, None)


def test_flowers_own_fedavg_ends_the_run_at_such_a_reply():
    plain = FedAvg(min_train_nodes=2, min_available_nodes=2)
    asked = list(ask(plain, ArrayRecord(dict(Net().state_dict())), NODES[:2]).values())
    replies = [answer(asked[0], Net().state_dict()), BAD["missing array"](asked[1])]
    with pytest.raises(InconsistentMessageReplies):
        plain.aggregate_train(1, replies)


def test_an_evaluation_that_cannot_be_used_is_left_out():
    strategy = all_nodes("fedavg", min_evaluate_nodes=8)
    arrays = ArrayRecord(dict(Net().state_dict()))
    asked = strategy.configure_evaluate(1, arrays, ConfigRecord(), Nodes(NODES))

    def said(message, name="metrics", **metrics):
        return Message(RecordDict({name: MetricRecord(metrics)}), reply_to=message)

    counted = [{"num-examples": 1, "accuracy": 0.2}, {"num-examples": 3, "accuracy": 0.6}]
    bad = [
        {"num-examples": float("nan"), "accuracy": 0.0},
        {"accuracy": 0.0},
        {"num-examples": 1, "accuracy": [0.0]},
        {"num-examples": 1, "accuracy": 0.0, "more": 1},
        {"num-examples": 1, "accuracy": 0.0, "name": "other"},
    ]
    bad = [said(message, **metrics) for message, metrics in zip(asked[2:], bad, strict=False)]
    bad.append(Message(Error(2, "out of memory"), reply_to=asked[7]))
    good = [said(message, **metrics) for message, metrics in zip(asked, counted, strict=False)]
    metrics = strategy.aggregate_evaluate(1, [*good, *bad])
    assert metrics == {"accuracy": pytest.approx(0.5)}
    assert strategy.aggregate_evaluate(1, bad[-1:]) is None
    assert strategy.aggregate_evaluate(1, []) is None


def test_metrics_are_of_the_peers_kept_whose_metrics_are_alike():
    state = Net().state_dict()
    strategy = all_nodes("oracle", attackers=[NODES[0]])
    asked = ask(strategy, ArrayRecord(state))
    said = [{"loss": 100.0}, {"loss": [3.0]}, {"other": 1}, *({"loss": float(k)} for k in range(5))]
    replies = [
        answer(asked[node], noisy(state, k), **metrics)
        for k, (node, metrics) in enumerate(zip(NODES, said, strict=True))
    ]
    _, metrics = strategy.aggregate_train(1, replies)
    assert metrics["loss"] == pytest.approx(2.0)
    assert metrics["defense-dropped"] == NODES[:1]
    assert metrics["defense-weights"] == pytest.approx([0] + [1 / 7] * 7, abs=1e-5)


def test_without_any_examples_all_weigh_the_same():
    state = Net().state_dict()
    states = [noisy(state, k) for k in range(8)]
    _, metrics = a_round(all_nodes("fedavg"), ArrayRecord(state), states, examples=0, loss=1.0)
    assert metrics["defense-weights"] == [0.125] * 8
    assert "loss" not in metrics


def test_examples_need_not_count():
    state = Net().state_dict()
    strategy = all_nodes("fedavg", count_examples=False)
    asked = ask(strategy, ArrayRecord(state))
    replies = [answer(asked[n], noisy(state, k), 10**k) for k, n in enumerate(NODES)]
    _, metrics = strategy.aggregate_train(1, replies)
    assert metrics["defense-weights"] == [0.125] * 8


def test_what_the_rule_saw_travels_and_is_logged(caplog):
    state = Net().state_dict()
    strategy = all_nodes("lfighter")
    states = [noisy(state, k) for k in range(8)]
    with caplog.at_level(logging.INFO, "flwr"):
        _, metrics = a_round(strategy, ArrayRecord(state), states, loss=1.0)
    (entry,) = strategy.history
    assert json.loads(json.dumps(entry))["saw"] == entry["saw"]
    assert entry["saw"]["distribution"] in ("mild", "extreme")  # a text: no metric
    assert metrics["defense-clusters"] == entry["saw"]["clusters"]
    assert metrics["defense-dropped"] == entry["dropped"]
    assert MetricRecord.inflate(metrics.deflate()) == metrics
    assert f"lfighter dropped {len(entry['dropped'])} of 8 peers" in caplog.text
    assert "takes head for the output layer" in caplog.text


def test_a_defense_of_ones_own_works_by_name():
    @lff.defense("first")
    def first(updates, *, row: int = 0):
        weights = torch.zeros(len(updates))
        weights[row] = 1
        return lff.Decision(aggregate=updates.weights[row], weights=weights)

    state = Net().state_dict()
    strategy = all_nodes("first", defense_options="row=5")
    states = [noisy(state, k) for k in range(8)]
    arrays, metrics = a_round(strategy, ArrayRecord(state), states)
    np.testing.assert_array_equal(arrays["head.bias"].numpy(), states[5]["head.bias"].numpy())
    assert metrics["defense-dropped"] == [node for node in NODES if node != NODES[5]]


MODELS = {
    "cnn": (lambda: CNN(), "fc2"),
    "bilstm": (lambda: BiLSTM(20, embedding=4, hidden=3), "output"),
    "resnet18": (lambda: resnet18(10, 16), "fc"),
    "batchnorm": (Net, "head"),
}


@pytest.mark.parametrize("model", MODELS)
def test_the_flat_vector_is_that_of_lff(model):
    """Built from arrays alone, without the model: the same columns, the same output layer."""
    make, output_layer = MODELS[model]
    module = make()
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    theirs = FlatModel(module, output_layer)
    layout, keys = layout_of(ArrayRecord(state))
    assert tuple(keys) == theirs.layout.names
    assert layout == theirs.layout
    strategy = DefendedFedAvg()
    strategy.layout, strategy.keys = layout, keys
    vector = strategy.flatten(ArrayRecord(state), torch.empty(layout.size))
    assert torch.equal(vector, theirs.vector)


@pytest.mark.parametrize(
    ("shapes", "named", "found"),
    [
        ({"weight": (3, 2), "bias": (3,)}, "", "weight"),
        ({"0": (5, 2), "1": (5,), "2": (3, 5), "3": (3,)}, "", "2"),
        ({"0": (5, 2), "1": (5,), "2": (3, 5), "3": (3,)}, "0", "0"),
        ({"a.weight": (5, 2), "a.bias": (5,), "b.weight": (3, 5)}, "", "a.weight"),
        ({"a.weight": (5, 2), "a.bias": (5,), "b.weight": (3, 5), "b.bias": (3,)}, "a", "a.weight"),
        ({"c.weight": (3, 1, 5, 5), "c.bias": (3,), "d.weight": (2, 3), "d.bias": (2,)}, "",
         "d.weight"),
    ],
)  # fmt: skip
def test_the_output_layer_is_found(shapes, named, found):
    assert find_output_layer(shapes, named)[0] == found


@pytest.mark.parametrize(
    ("shapes", "named", "message"),
    [
        (
            {"a.weight": (3, 2), "norm.weight": (3,), "norm.bias": (3,)},
            "",
            "no array is the weight",
        ),
        ({}, "", "no array"),
        ({"fc1.weight": (3, 2), "fc1.bias": (3,)}, "fc", "'fc'.*Did you mean 'fc1'"),
        ({"0": (4, 4), "1": (4,), "2": (4, 3), "3": (3,)}, "", "Keras has weights transposed"),
    ],
)
def test_no_output_layer_is_a_clear_error_before_anybody_trains(shapes, named, message):
    arrays = ArrayRecord({name: Array(np.zeros(shape)) for name, shape in shapes.items()})
    with pytest.raises(InputError, match=message):
        ask(DefendedFedAvg(output_layer=named), arrays, nodes=[])


def test_the_output_layer_of_a_list_of_arrays_is_looked_at():
    weight, bias = np.arange(6.0).reshape(3, 2), np.array([7.0, 8.0, 9.0])
    record = ArrayRecord([np.ones((2, 4)), np.ones(2), weight, bias])
    layout, keys = layout_of(record)
    strategy = DefendedFedAvg()
    strategy.layout, strategy.keys = layout, keys
    flat = strategy.flatten(record, torch.empty(layout.size))
    expected = torch.tensor([[0, 1, 7], [2, 3, 8], [4, 5, 9.0]])
    assert torch.equal(layout.output_layer_of(flat[None])[0], expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"defense": "lfigther"}, "Did you mean 'lfighter'"),
        ({"defense": "multi_krum"}, "attacker_count: give attacker_ratio="),
        ({"defense": "oracle"}, "attackers: give attackers="),
        ({"defense": "fltrust"}, "root_update: give root_update="),
        ({"defense_options": "mixing=nearest"}, "attacker_count: give attacker_ratio="),
        ({"defense_options": "distribution=declared"}, "no way to declare"),
        ({"attacker_ratio": 40}, "between 0 and 1, not 40"),
        ({"defense_options": "density=cosin"}, "Did you mean 'cosine'"),
        ({"defense_options": {"dens": 1}}, "unknown option"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        DefendedFedAvg(**settings)


def test_a_round_must_begin_with_the_global_model():
    with pytest.raises(InputError, match="configure_train first"):
        DefendedFedAvg().aggregate_train(1, [])


def test_fedavgs_own_options_stay():
    strategy = DefendedFedAvg(fraction_train=0.5, min_train_nodes=2, weighted_by_key="n")
    asked = ask(strategy, ArrayRecord(Net().state_dict()))
    assert len(asked) == 4
    assert strategy.weighted_by_key == "n"
    with pytest.raises(TypeError, match="fraction_trained"):
        DefendedFedAvg(fraction_trained=0.5)
