"""LabelAudit on gradients worked out from what the peers hold and how they label it."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from helpers import updates_of, updates_with_gradients
from hypothesis import given, settings

import lff
from lff.beyond.defenses.labelaudit import (
    MARGIN,
    RIDGE,
    LabelAudit,
    audit,
    cut_to_median,
    filter_two_classes,
    positive_shares,
    suspects,
)
from lff.defenses import DEFENSES
from lff.defenses.lfighter import filter_extreme
from lff.errors import InputError
from lff.experiments.build import build
from lff.experiments.records import Checkpoint, load_checkpoint

SOURCE, TARGET = 2, 1
LARGEST = float(np.finfo(np.float32).max)


def gradients_of(labels, p=None):
    """The output layer's gradients of peers who call `labels[k, c, l]` examples of class c by l.

    The sum of (p_i - y_i) h over a peer's examples, where every example of class c has the features
    h_c = (1, ..., 3 at place c, ..., 1), a 1 for the bias, and the model's probabilities p[c].
    """
    labels = torch.as_tensor(labels, dtype=torch.float64)
    classes = labels.shape[1]
    features = torch.ones(classes, classes) + 2 * torch.eye(classes)
    looks = torch.cat([features, torch.ones(classes, 1)], dim=1)
    p = torch.full((classes, classes), 1 / classes) if p is None else p
    pushes = labels.sum(dim=2)[:, :, None] * p.double() - labels
    return torch.einsum("kci,cf->kif", pushes, looks.double())


def flipped(held, attackers):
    """`labels` of peers with so many examples `held[k, c]`, of whom some flip."""
    labels = torch.diag_embed(torch.as_tensor(held, dtype=torch.float64))
    for k in attackers:
        labels[k, SOURCE, TARGET] += labels[k, SOURCE, SOURCE]
        labels[k, SOURCE, SOURCE] = 0
    return labels


def mild(m, classes=4, seed=0):
    """How many examples of each class each peer holds: of each class some."""
    return np.random.default_rng(seed).exponential(30, size=(m, classes)).round() + 1


def dropped(rule, gradients, rounds=2, **settings):
    """Who is dropped in the last of some equal rounds."""
    for t in range(rounds):
        updates = updates_with_gradients(gradients, round=t, **settings)
        decision = rule(updates)
    return decision.dropped(updates.peers)


def strong(held, attackers):
    """The attackers with more than a few source-class examples."""
    return [k for k in attackers if held[k, SOURCE] > held[:, SOURCE].mean() / 2]


@pytest.mark.parametrize("attackers", [8, 10])
@pytest.mark.parametrize("seed", range(3))
def test_flippers_are_dropped_and_nobody_else(attackers, seed):
    held = mild(20, seed=seed)
    found = dropped(LabelAudit(threshold=0.05), gradients_of(flipped(held, range(attackers))))
    assert set(strong(held, range(attackers))) <= set(found) <= set(range(attackers))


@pytest.mark.parametrize("attackers", [12, 14])
def test_no_majority_of_flippers_gets_an_honest_peer_dropped(attackers):
    found = dropped(LabelAudit(), gradients_of(flipped(mild(20), range(attackers))))
    assert set(found) <= set(range(attackers))
    assert len(found) > attackers / 2


def test_the_pair_is_the_source_and_the_target_class():
    rule = LabelAudit()
    updates = updates_with_gradients(gradients_of(flipped(mild(20), range(8))))
    rule(updates)
    assert rule(updates).saw["neurons"] == [SOURCE, TARGET]


def test_one_round_is_no_evidence():
    """A class must be evident in two rounds running."""
    gradients = gradients_of(flipped(mild(20), range(8)))
    assert dropped(LabelAudit(), gradients, rounds=1) == []


@pytest.mark.parametrize("seed", range(5))
def test_where_nobody_attacks_nobody_is_dropped(seed):
    noise = np.random.default_rng(seed).normal(size=(30, 4, 5))
    gradients = gradients_of(flipped(mild(30, seed=seed), [])) + torch.from_numpy(noise)
    assert dropped(LabelAudit(), gradients, rounds=3) == []


def test_a_peer_without_source_examples_is_not_accused():
    held = mild(20)
    held[15:, SOURCE] = 0
    found = dropped(LabelAudit(), gradients_of(flipped(held, range(8))))
    assert set(strong(held, range(8))) <= set(found) <= set(range(8))


def test_flippers_who_turn_the_sign_of_one_bias_are_dropped():
    """They pretend to call some examples the source class."""
    gradients = gradients_of(flipped(mild(20), range(8)))
    gradients[:8, SOURCE, -1] *= -1
    found = dropped(LabelAudit(), gradients)
    assert set(strong(mild(20), range(8))) <= set(found) <= set(range(8))


def test_a_flippers_strength_and_a_noisy_third_neuron_help_her_nothing():
    """Gradients a thousand times as long have no more say, and other neurons' none at all."""
    gradients = gradients_of(flipped(mild(20), range(8)))
    gradients[0] *= 1000
    gradients[1:8, 3] += 1e5 * torch.tensor([1.0, -1] * 4)[:7, None]
    assert dropped(LabelAudit(), gradients) == list(range(8))


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5])
def test_the_models_opinion_of_the_source_class_accuses_nobody(share):
    """A model that calls some or half of the source examples the target."""
    p = torch.full((4, 4), 0.05) + 0.8 * torch.eye(4)
    p[SOURCE, SOURCE], p[SOURCE, TARGET] = 0.9 * (1 - share), 0.9 * share
    held = mild(20)
    found = dropped(LabelAudit(), gradients_of(flipped(held, range(10)), p))
    assert set(strong(held, range(10))) <= set(found) <= set(range(10))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("alpha", [0, 0.3, 0.6, 0.9])
def test_a_contaminated_look_hides_flippers_but_accuses_nobody(seed, alpha):
    """Gradients that are sums over examples, looks that are exact but for the flippers' share
    `alpha` in that of the target class, and no ridge: no honest contrast is above 0, and none of
    a flipper is below where the look is exact."""
    gradients = gradients_of(flipped(mild(20, seed=seed), range(10)))
    looks = torch.cat([torch.ones(4, 4) + 2 * torch.eye(4), torch.ones(4, 1)], dim=1).double()
    looks[TARGET] = (1 - alpha) * looks[TARGET] + alpha * looks[SOURCE]
    apart = torch.linalg.solve(looks @ looks.T, looks)[SOURCE]
    x = (gradients[:, SOURCE] - gradients[:, TARGET]) @ apart
    assert (x[10:] <= 1e-9).all()
    assert alpha or (x[:10] > 0).all()


# --- the procedure against loops -------------------------------------------------------------


def audited(gradients):
    """Steps 1 to 5 as they are written, a pair, a peer and a number at a time."""
    g = np.asarray(gradients)
    m, classes, _ = g.shape
    cut = np.zeros_like(g)
    for c in range(classes):
        median = np.median([np.linalg.norm(g[k, c]) for k in range(m)])
        for k in range(m):
            cut[k, c] = g[k, c] * min(1, median / np.linalg.norm(g[k, c]))

    shared = sum(np.sign(cut[k, c][-1]) * cut[k, c] for k in range(m) for c in range(classes))

    def calls(k, c):
        return cut[k, c][-1] < 0 and cut[k, c] @ shared < 0

    def contrasts(s, t, without):
        looks = []
        for c in range(classes):
            up = [-cut[k, c] for k in range(m) if calls(k, c) and k not in without]
            total = np.sum(up, axis=0) if up else np.zeros(g.shape[2])
            looks.append(total / (np.linalg.norm(total) or 1))
        looks = np.array(looks)
        apart = np.linalg.inv(looks @ looks.T + RIDGE * np.eye(classes)) @ looks
        return [float((cut[k, s] - cut[k, t]) @ apart[s]) for k in range(m)]

    def suspected(x):
        positive = [v for v in x if v > 0]
        if not positive:
            return []
        mean = sum(v * v for v in positive) / sum(positive)
        return [k for k, v in enumerate(x) if v > MARGIN * mean]

    found = {}
    for s in range(classes):
        for t in range(classes):
            if s != t:
                x = contrasts(s, t, suspected(contrasts(s, t, [])))
                share = sum(v * v for v in x if v > 0) / sum(v * v for v in x)
                found[s, t] = share, suspected(x)
    pair = max(found, key=lambda pair: found[pair][0])
    return pair, *found[pair]


@pytest.mark.parametrize("seed", range(6))
def test_pair_evidence_and_suspects_are_those_of_the_loops(seed):
    rng = np.random.default_rng(seed)
    gradients = gradients_of(flipped(mild(12, seed=seed), range(seed)))
    gradients += torch.from_numpy(rng.normal(scale=20, size=gradients.shape))
    contrasts = audit(cut_to_median(gradients))
    shares = positive_shares(contrasts.clamp(min=0), (-contrasts).clamp(min=0))
    (s, t), share, bad = audited(gradients)
    assert divmod(int(shares.argmax()), 4) == (s, t)
    assert shares[s, t].item() == pytest.approx(share)
    assert suspects(contrasts[s, t]).nonzero().flatten().tolist() == bad


# --- memory ----------------------------------------------------------------------------------


def test_what_was_seen_once_is_remembered():
    """A peer who flips in the first rounds and is honest for one round is still dropped."""
    rule = LabelAudit()
    bad, good = (gradients_of(flipped(mild(20), range(n))) for n in (10, 0))
    dropped(rule, bad, rounds=8)
    found = dropped(rule, good, rounds=1)
    assert set(strong(mild(20), range(10))) <= set(found) <= set(range(10))


@pytest.mark.parametrize("good_rounds", [2, 6])
def test_a_good_record_protects_nobody_for_long(good_rounds):
    """Who flips after honest rounds is found in about as many; plain sums would need twice that."""
    rule = LabelAudit()
    bad, good = (gradients_of(flipped(mild(20), range(n))) for n in (10, 0))
    assert dropped(rule, good, rounds=good_rounds) == []
    found = dropped(rule, bad, rounds=good_rounds + 3)
    assert set(strong(mild(20), range(10))) <= set(found) <= set(range(10))


def test_peers_are_known_by_their_ids_whoever_is_selected():
    gradients = gradients_of(flipped(mild(20), range(8)))
    rule = LabelAudit()
    dropped(rule, gradients)
    some = [1, 12, 3, 15, 9, 18, 0, 10]
    updates = updates_with_gradients(gradients[some], peers=tuple(some))
    assert sorted(rule(updates).dropped(some)) == [0, 1, 3]


def test_a_checkpoint_goes_on_as_if_nothing_had_happened():
    gradients = gradients_of(flipped(mild(20), range(8)))
    rule, resumed = LabelAudit(), LabelAudit()
    dropped(rule, gradients, rounds=1)
    resumed.load_state_dict({name: tensor.clone() for name, tensor in rule.state_dict().items()})
    updates = updates_with_gradients(gradients, round=1)
    assert resumed(updates).dropped(range(20)) == list(range(8))
    assert torch.equal(resumed(updates).aggregate, rule(updates).aggregate)
    for name, tensor in rule.state_dict().items():
        assert isinstance(tensor, torch.Tensor), name


def test_the_order_of_peers_changes_no_bit():
    gradients = gradients_of(flipped(mild(20), range(8)))
    order = np.random.default_rng(0).permutation(20).tolist()
    one, other = LabelAudit(), LabelAudit()
    for t in range(2):
        plain = one(updates_with_gradients(gradients, round=t))
        mixed = other(updates_with_gradients(gradients[order], peers=tuple(order), round=t))
    assert plain.saw == mixed.saw
    assert mixed.dropped(order) == [k for k in order if k < 8]


def test_a_resumed_run_is_the_same_run(tiny, tmp_path):
    settings = tiny | {"defense": "labelaudit", "attackers": 30, "fraction": 0.5}
    e = lff.experiment("mnist-mild", **settings)
    whole, parts, resumed = build(e), build(e), build(e)
    for _ in range(e.rounds):
        whole.play_round()
    parts.play_round()
    Checkpoint(*parts.state(), origin={}).save(e, tmp_path)
    kept = load_checkpoint(e, {}, tmp_path)
    resumed.load_state(kept.tensors, kept.values)
    for _ in range(e.rounds - 1):
        resumed.play_round()
    assert resumed.history == whole.history
    assert torch.equal(resumed.global_weights, whole.global_weights)


# --- one class per peer, two classes ---------------------------------------------------------


def test_peers_of_one_class_each_are_left_to_filter_extreme():
    held = np.zeros((20, 4))
    held[np.arange(20), np.arange(20) % 4] = 50
    gradients = gradients_of(flipped(held, []))
    gradients += 0.1 * torch.from_numpy(np.random.default_rng(0).normal(size=gradients.shape))
    gradients[7] *= 30  # in no cluster
    assert filter_extreme(gradients)[0].nonzero().flatten().tolist() == [7]
    assert dropped(LabelAudit(), gradients, rounds=1) == [7]


def test_two_classes_need_two_clear_clusters():
    """One output neuron: flippers, who call everything negative, push it far to one side."""
    rng = np.random.default_rng(0)
    honest = rng.normal(size=(12, 1, 6))
    assert dropped(LabelAudit(), honest) == []
    flippers = rng.normal(scale=0.2, size=(8, 1, 6)) + 5
    assert dropped(LabelAudit(), np.concatenate([honest, flippers])) == list(range(12, 20))


def test_two_classes_of_equal_peers_are_no_clusters():
    bad, silhouette = filter_two_classes(torch.ones(5, 3).double(), seed=0)
    assert not bad.any()
    assert silhouette == 0


# --- hostile and degenerate rounds -----------------------------------------------------------


@pytest.mark.parametrize("classes", [1, 2, 3, 10])
@pytest.mark.parametrize("m", [1, 2, 3, 7])
@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(values=st.lists(st.sampled_from([0.0, 1.0, -1e-30, 1e30, LARGEST, -LARGEST]), max_size=12))
def test_any_finite_updates_make_a_finite_model(m, classes, values):
    weights = np.random.default_rng(m).normal(size=(m, classes * 3)).astype(np.float32)
    weights.flat[: len(values)] = values[: weights.size]
    rule = LabelAudit()
    for t in range(3):
        updates = updates_of(weights, classes=classes, round=t, learning_rate=1e-3)
        decision = rule(updates)
        assert decision.aggregate.isfinite().all()
        assert len(decision.dropped(updates.peers)) < m


def test_peers_who_send_nothing_new_are_dropped_by_nobody():
    assert dropped(LabelAudit(), torch.zeros(5, 4, 3)) == []


@pytest.mark.parametrize("threshold", [0, 1, -0.5, float("nan")])
def test_a_threshold_that_is_no_share_is_refused(threshold):
    with pytest.raises(InputError, match=f"threshold must be between 0 and 1, not {threshold}"):
        DEFENSES["labelaudit"].create(threshold=threshold)
