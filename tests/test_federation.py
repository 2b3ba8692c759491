"""A federation from plain tensors: the rounds, and what an attacker may do in them."""

import functools

import pytest
import torch
from torch import nn

import lff
from lff.defenses import fedavg, lfighter, trimmed_mean
from lff.errors import InputError
from lff.training import honest_loss


def clouds(n, seed):
    """Three classes of points around the corners of a triangle."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    corners = torch.tensor([[3.0, 0.0], [-2.0, 3.0], [-2.0, -3.0]])
    return corners[y] + torch.randn(n, 2, generator=generator), y


def federation(model=None, **settings):
    """Eight peers with thirty points each."""
    torch.manual_seed(0)
    defaults = {
        "source_class": 0,
        "target_class": 1,
        "training": lff.LocalTraining(local_epochs=2, batch_size=10, learning_rate=0.05),
    }
    return lff.Federation(
        [clouds(30, seed) for seed in range(8)],
        clouds(90, 99),
        model or nn.Linear(2, 3),
        **(defaults | settings),
    )


def rounds(federation, count):
    return [federation.play_round() for _ in range(count)]


def linear():
    """A model whose output layer is itself named."""
    return nn.Sequential(nn.Linear(2, 3))


def test_a_federation_is_made_of_plain_tensors_and_learns():
    entries = rounds(federation(linear()), 5)
    assert entries[-1]["all_acc"] > 0.9
    assert [entry["round"] for entry in entries] == list(range(5))
    assert sum(map(sum, entries[0]["confusion"])) == 90


def test_one_round_of_fedavg_by_hand():
    """One step of full batches: each peer descends her mean gradient, the server averages."""
    training = lff.LocalTraining(
        local_epochs=1, batch_size=30, learning_rate=0.1, momentum=0.0, weight_decay=0.0
    )
    made = federation(linear(), training=training)
    module = linear()
    weights = made.global_weights.clone()
    nn.utils.vector_to_parameters(weights, module.parameters())
    steps = []
    for peer in made.peers:
        module.zero_grad()
        nn.functional.cross_entropy(module(peer.examples.x), peer.examples.y).backward()
        gradient = nn.utils.parameters_to_vector([p.grad for p in module.parameters()])
        steps.append(weights - 0.1 * gradient)
    made.play_round()
    torch.testing.assert_close(made.global_weights, torch.stack(steps).mean(dim=0))


def test_attackers_flip_labels_and_lfighter_drops_them():
    attacked = {"attackers": [1, 4, 6], "attack": lff.attacks.label_flipping}
    plain = rounds(federation(linear(), **attacked), 4)[-1]
    rule = functools.partial(lfighter, distribution="iid")
    made = federation(linear(), rule=rule, **attacked)
    defended = rounds(made, 4)[-1]
    assert defended["dropped"] == [1, 4, 6]
    assert defended["caught"] == {
        "true_positives": 3, "false_positives": 0, "attackers": 3, "honest": 5
    }  # fmt: skip
    assert defended["src_acc"] > plain["src_acc"]
    true = made.peers[1].examples.y
    poisoned = made.poisoned(made.peers[1], 0).examples.y
    assert torch.equal(poisoned, torch.where(true == 0, 1, true))


def test_a_rule_is_told_what_it_needs_and_nothing_else():
    seen = []

    def curious(updates):
        seen.append((updates.attacker_count, updates.attackers))
        return fedavg(updates)

    federation(linear(), rule=curious, attackers=[0]).play_round()
    assert seen == [(None, None)]
    entry = federation(linear(), rule=trimmed_mean, attackers=[0, 1]).play_round()
    assert entry["saw"] == {"trimmed": 2}


def test_poison_changes_features_and_labels_anew_each_round_and_never_the_truth():
    rounds_seen = []

    def shift(data, context):
        rounds_seen.append((context.peer, context.round, context.model.vector.clone()))
        data.x.add_(context.round)
        data.y.fill_(context.target_class)
        return data

    made = federation(linear(), attack=shift, attackers=[2])
    before = made.peers[2].examples.x.clone(), made.peers[2].examples.y.clone()
    start = made.global_weights.clone()
    rounds(made, 2)
    assert [(peer, t) for peer, t, _ in rounds_seen] == [(2, 0), (2, 1)]
    assert torch.equal(rounds_seen[0][2], start), "she has the global model before her"
    assert not torch.equal(rounds_seen[1][2], start)
    assert torch.equal(made.peers[2].examples.x, before[0])
    assert torch.equal(made.peers[2].examples.y, before[1])


def test_an_attackers_random_stream_is_hers_and_the_rounds():
    drawn = {}

    def draw(data, context):
        drawn[context.peer, context.round] = torch.rand(1, generator=context.generator).item()
        return data

    for _ in range(2):
        before = dict(drawn)
        rounds(federation(linear(), attack=draw, attackers=[2, 3]), 2)
        assert not before or drawn == before
    assert len(set(drawn.values())) == 4


class Stay:
    """An attacker with a loss of her own: stay where the global model is."""

    def loss(self, model, batch, context):
        offset = nn.utils.parameters_to_vector(model.parameters()) - context.global_weights
        return 0 * honest_loss(model, batch) + offset.square().sum()


def test_a_loss_of_ones_own_replaces_the_honest_one():
    training = lff.LocalTraining(learning_rate=0.05, weight_decay=0.0)
    made = federation(linear(), attack=Stay(), attackers=[5], training=training)
    updates = made.collect_updates()
    assert torch.equal(updates.weights[5], made.global_weights)
    assert not torch.equal(updates.weights[4], made.global_weights)


@pytest.mark.parametrize(
    ("knows", "rows"), [("own data", None), ("attackers' updates", 2), ("all updates", 8)]
)
def test_craft_gets_what_the_attacker_is_declared_to_know(knows, rows):
    known = []

    class Craft:
        def craft(self, update, context):
            known.append(None if context.updates is None else len(context.updates))
            return context.global_weights + 3 * (update - context.global_weights)

    attack = Craft()
    attack.knows = knows
    honest = federation(linear()).collect_updates()
    made = federation(linear(), attack=attack, attackers=[0, 7])
    crafted = made.collect_updates()
    assert known == [rows, rows]
    assert torch.equal(crafted.weights[1:7], honest.weights[1:7])
    moved = honest.weights[0] - made.global_weights
    torch.testing.assert_close(crafted.weights[0], made.global_weights + 3 * moved)


def test_a_trigger_is_measured_on_patched_test_examples():
    """The model says 1 for what lies far up: patched examples do, whatever they were."""

    class Patch:
        def poison(self, data, context):
            return data

        def trigger(self, x):
            x[:, 0], x[:, 1] = -2, 9
            return x

    made = federation(linear(), attack=Patch(), attackers=[0])
    entry = rounds(made, 4)[-1]
    assert entry["asr"] == 1
    assert sum(map(sum, entry["patched"])) == 90
    assert entry["src_acc"] > 0.9


def test_a_hook_sees_the_round_and_joins_its_entry():
    def norms(federation, entry):
        assert federation.updates.round == entry["round"]
        return {"largest": federation.updates.weights.norm(dim=1).max(), "nothing": None}

    entry = federation(linear(), hooks=[norms, lambda f, e: None]).play_round()
    assert entry["largest"] > 0
    assert entry["nothing"] is None


def test_a_federation_goes_on_from_its_state():
    one, other = (federation(linear(), rule=lff.defenses.FoolsGold()) for _ in range(2))
    rounds(one, 2)
    tensors, values = one.state()
    rounds(one, 2)
    other.load_state(tensors, values)
    rounds(other, 2)
    assert torch.equal(one.global_weights, other.global_weights)
    assert one.history == other.history


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source_class": 3}, "source_class must be between 0 and 2, not 3"),
        ({"attackers": [8]}, r"attackers \[8\] are none of the 8 peers"),
        ({"attack": 7}, "an attack is a function or has one of poison, loss, craft, trigger"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_round(settings, message):
    with pytest.raises(InputError, match=message):
        federation(linear(), **settings)


def test_an_attack_registers_with_what_it_knows():
    with pytest.raises(InputError, match="unknown knowledge 'all'"):
        lff.attack("all_knowing", knows="all")
    with pytest.raises(InputError, match="needs one of poison, loss, craft, trigger"):

        @lff.attack("idle")
        class Idle:
            pass


def test_a_server_may_learn_what_one_more_peer_with_clean_examples_would_send():
    """All examples in one batch: the step of a lone peer who holds them all, and no other."""
    training = lff.LocalTraining(batch_size=240, learning_rate=0.1)
    made = federation(linear(), training=training, attackers=[1, 2])
    x, y = (torch.cat(parts) for parts in zip(*(p.examples for p in made.peers), strict=True))
    lone = lff.Federation([(x, y)], made.test, linear(), source_class=0, target_class=1,
                          training=training)  # fmt: skip
    lone.global_weights = made.global_weights
    wanted = lone.collect_updates().weights[0]
    torch.testing.assert_close(made.root_update(240), wanted)
    torch.testing.assert_close(made.root_update(10**6), wanted)
    assert not torch.allclose(made.root_update(100), wanted, atol=1e-4)


def test_the_root_examples_are_the_same_in_every_round_and_have_their_true_labels():
    """Without momentum, one step of a full batch is the mean gradient of the same examples."""
    training = lff.LocalTraining(batch_size=30, learning_rate=0.1, momentum=0.0, weight_decay=0.0)
    held = []

    def rule(updates):
        held.append(updates.told("root_update")(20))
        return lff.Decision(updates.global_weights)  # the model stays as it is

    rule.needs = ("root_update",)
    for attackers in ([], [0, 1, 2, 3, 4, 5, 6, 7]):
        torch.manual_seed(1)
        rounds(federation(linear(), rule=rule, training=training, attackers=attackers), 2)
    for other in held[1:]:
        torch.testing.assert_close(other, held[0])


def test_attackers_know_each_other_and_whose_updates_they_see():
    seen = []

    class Craft:
        knows = "all updates"

        def craft(self, update, context):
            seen.append((context.peers, context.attackers, context.theirs.tolist()))
            assert torch.equal(context.honest, context.updates[~context.theirs])
            return update

    made = federation(linear(), attack=Craft(), attackers=[2, 5])
    made.play_round()
    theirs = [k in (2, 5) for k in range(8)]
    assert seen == [(8, (2, 5), theirs)] * 2
    with pytest.raises(InputError, match="must declare that it knows them"):
        _ = made.context(2, 0).honest


def test_to_whom_only_the_attackers_updates_are_known_these_stand_for_the_honest():
    class Craft:
        knows = "attackers' updates"

        def craft(self, update, context):
            assert context.theirs.all()
            assert torch.equal(context.honest, context.updates)
            return update

    federation(linear(), attack=Craft(), attackers=[2, 5]).play_round()


def test_who_was_not_selected_does_not_attack():
    seen = []

    def watch(data, context):
        seen.append((context.round, context.peers, context.attackers))
        return data

    made = federation(linear(), attack=watch, attackers=[0, 1, 2, 3], fraction=0.5)
    entries = rounds(made, 4)
    for t, peers, attackers in seen:
        assert peers == 4
        assert list(attackers) == [k for k in entries[t]["peers"] if k < 4]
