"""Mixing before a rule, an option of every rule: by hand, by brute force, and as byzfl does it."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from helpers import updates_of
from hypothesis import given, settings

import lff
from lff.defenses import DEFENSES, defense
from lff.defenses.mixing import buckets, mixed, nearest
from lff.errors import InputError
from lff.fast import RULES as FAST

properties = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def line(*points, **settings):
    """Peers at these points of a line."""
    return updates_of([[point, 0.0] for point in points], **settings)


def means(updates, mixture):
    return mixed(updates, mixture).weights[:, 0].tolist()


def rows_of(m, d=6, seed=0):
    return np.random.default_rng(seed).normal(size=(m, d)).astype(np.float32)


# --- nearest neighbors -----------------------------------------------------------------------


def test_each_update_becomes_the_mean_of_its_nearest_with_itself():
    """Of four updates one attacks: the nearest three."""
    updates = line(0, 1, 3, 10, attacker_count=1)
    assert means(updates, nearest(updates)) == pytest.approx([4 / 3, 4 / 3, 4 / 3, 14 / 3])


def test_of_equal_distances_the_lower_id_is_nearer_and_oneself_is_nearest():
    updates = line(0, 5, -5, attacker_count=1, peers=(4, 9, 2))
    assert means(updates, nearest(updates)) == pytest.approx([-2.5, 2.5, -2.5])
    equal = updates_of(np.ones((4, 2)), attacker_count=2)
    assert (nearest(equal).parts.diagonal() > 0).all()


def test_nobody_is_told_of_more_attackers_than_peers():
    updates = line(0, 1, attacker_count=5)
    assert means(updates, nearest(updates)) == [0, 1]


@properties
@given(st.integers(1, 12), st.integers(0, 12), st.integers(0, 10**6))
def test_nearest_neighbors_are_their_brute_force_twin(m, told, seed):
    rows = rows_of(m, seed=seed)
    updates = updates_of(rows, attacker_count=told)
    twin = []
    for row in rows.astype(float):
        order = sorted(range(m), key=lambda k, row=row: ((rows[k] - row) ** 2).sum())
        twin.append(rows[order[: max(m - told, 1)]].mean(axis=0))
    got = mixed(updates, nearest(updates)).weights
    torch.testing.assert_close(got, torch.tensor(np.array(twin)), rtol=1e-5, atol=1e-5)


# --- buckets ---------------------------------------------------------------------------------


@properties
@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 10**6))
def test_every_peer_is_in_one_bucket_and_only_the_last_is_smaller(m, size, seed):
    parts = buckets(updates_of(rows_of(m), seed=seed), size).parts
    sizes = (parts > 0).sum(dim=1).tolist()
    assert sizes[:-1] == [size] * (len(sizes) - 1)
    assert sum(sizes) == m
    assert ((parts > 0).sum(dim=0) == 1).all()
    torch.testing.assert_close(parts.sum(dim=1), torch.ones(len(parts)))


def test_buckets_are_drawn_anew_in_each_round_and_the_same_for_the_same_seed():
    drawn = [
        buckets(updates_of(rows_of(20), seed=seed, round=t), 2).parts
        for seed, t in ((0, 0), (0, 0), (0, 1), (1, 0))
    ]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[3])


def test_any_two_peers_meet_as_often():
    """Over 2,000 rounds of ten peers in twos: 1 in 9, within five sigma."""
    met = torch.zeros(10, 10)
    for t in range(2000):
        together = (buckets(updates_of(rows_of(10), round=t), 2).parts > 0).float()
        met += together.T @ together
    off = met[~torch.eye(10, dtype=torch.bool)]
    assert (off - 2000 / 9).abs().max() < 5 * (2000 * (1 / 9) * (8 / 9)) ** 0.5


# --- as byzfl does it ------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "told"), [(5, 0), (5, 2), (20, 4), (21, 10)])
def test_nearest_neighbors_are_byzfls(byzfl, m, told):
    updates = updates_of(rows_of(m, seed=m), attacker_count=told)
    theirs = byzfl.NNM(told)(updates.weights)
    torch.testing.assert_close(mixed(updates, nearest(updates)).weights, theirs)


@pytest.mark.parametrize(("m", "size"), [(6, 2), (7, 2), (10, 3), (4, 9), (5, 1)])
def test_buckets_are_byzfls_of_the_same_order(byzfl, monkeypatch, m, size):
    updates = updates_of(rows_of(m, seed=m))
    mixture = buckets(updates, size)
    order = [k for row in mixture.parts for k in row.nonzero().flatten().tolist()]

    class Drawn:
        permutation = staticmethod(lambda vectors: vectors[order])

    from byzfl.aggregators import preaggregators

    monkeypatch.setattr(preaggregators, "random_tool", lambda vectors: Drawn)
    theirs = byzfl.Bucketing(size)(updates.weights)
    torch.testing.assert_close(mixed(updates, mixture).weights, theirs)


# --- before a rule ---------------------------------------------------------------------------

MIXINGS = [
    {"mixing": "nearest"},
    {"mixing": "bucketing"},
    {"mixing": "bucketing", "bucket_size": 3},
]


@pytest.mark.parametrize("options", MIXINGS)
@pytest.mark.parametrize("name", ["fedavg", "multi_krum", "foolsgold", "lfighter", "oracle"])
def test_shares_are_the_peers_and_give_the_aggregate(name, options):
    updates = updates_of(
        rows_of(11, d=12, seed=3), classes=3, attacker_count=2, attackers=(4, 7),
        examples=torch.arange(1.0, 12),
    )  # fmt: skip
    decision = DEFENSES[name].create(**options)(updates)
    assert decision.weights.shape == (11,)
    assert decision.weights.sum().item() == pytest.approx(1, abs=1e-5)
    torch.testing.assert_close(
        decision.weights @ updates.weights, decision.aggregate, rtol=1e-4, atol=1e-5
    )
    if decision.scores is not None:
        assert decision.scores.shape == (11,)


def test_a_median_of_buckets_by_hand():
    """Buckets of all peers are the mean; of one each, the median itself."""
    updates = line(0, 1, 2, 97)
    assert DEFENSES["median"].create(mixing="bucketing", bucket_size=4)(updates).aggregate[0] == 25
    assert DEFENSES["median"].create(mixing="bucketing", bucket_size=1)(updates).aggregate[0] == 1.5


def test_a_mean_of_nearest_neighbors_leaves_less_to_one_far_attacker():
    """She is in her own mixture alone, of which she is a third: 1/4 * 1/3 of 12 instead of 1/4."""
    updates = line(0, 0, 0, 12, attacker_count=1)
    decision = DEFENSES["fedavg"].create(mixing="nearest")(updates)
    assert decision.aggregate[0].item() == pytest.approx(1)
    assert decision.weights[3].item() == pytest.approx(1 / 12)


def test_scores_are_those_of_the_mixtures_that_a_peer_is_part_of():
    class Told:
        needs = ()

        def __call__(self, updates):
            shares = torch.full((len(updates),), 1 / len(updates))
            return lff.Decision(updates.weights.mean(dim=0), shares, torch.tensor([3.0, 7.0]))

    from lff.defenses.rule import Mixed

    updates = line(1, 2, 3, 4)
    decision = Mixed("told", Told(), mixing="bucketing")(updates)
    pairs = buckets(updates, 2).parts > 0
    assert decision.scores[pairs[0]].tolist() == [3, 3]
    assert decision.scores[pairs[1]].tolist() == [7, 7]


def test_nearest_neighbors_must_be_told_how_many_attack_and_buckets_nothing():
    assert DEFENSES["median"].create(mixing="nearest").needs == ("attacker_count",)
    assert DEFENSES["median"].create(mixing="bucketing").needs == ()
    assert DEFENSES["trimmed_mean"].create(mixing="nearest").needs == ("attacker_count",)
    assert DEFENSES["oracle"].create(mixing="nearest").needs == ("attackers", "attacker_count")


def test_no_mixing_is_the_rule_itself_and_its_own_options_stay_its_own():
    assert DEFENSES["median"].create(mixing="none") is DEFENSES["median"].create()
    assert DEFENSES["lfighter"].options().keys() == {"distribution", "density"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mixing": "neares"}, "'neares'; choose from: none, nearest, bucketing.*'nearest'"),
        ({"mixin": "nearest"}, "Did you mean 'mixing'"),
        ({"mixing": "nearest", "bucket_size": 2}, "is an option of mixing='bucketing'"),
        ({"bucket_size": 2}, "is an option of mixing='bucketing'"),
        ({"mixing": "bucketing", "bucket_size": 0}, "bucket_size must be 1 or more, not 0"),
        ({"mixing": "bucketing", "bucket_size": 2.5}, "must be of type int, not 2.5"),
    ],
)
def test_what_mixing_cannot_be_is_said_before_any_work(options, message):
    text = ",".join(f"{name}={value}" for name, value in options.items())
    with pytest.raises(InputError, match=message):
        lff.experiment("mnist-iid", defense="median", defense_options=text, scale="smoke")


def test_no_defense_can_take_the_name_of_the_option():
    with pytest.raises(InputError, match="'mine' cannot have the option mixing"):

        @defense("mine")
        def mine(updates, *, mixing=1): ...


def test_memory_is_the_rules():
    rounds = [updates_of(rows_of(6, seed=t), attacker_count=2, round=t) for t in range(3)]
    one, two = (DEFENSES["foolsgold"].create(mixing="nearest") for _ in range(2))
    for updates in rounds[:2]:
        one(updates)
    two.load_state_dict(one.state_dict())
    assert torch.equal(one(rounds[2]).aggregate, two(rounds[2]).aggregate)
    assert DEFENSES["median"].create(mixing="nearest").state_dict() == {}


def test_a_run_mixes_before_the_fast_form_and_says_what_was_told(tiny):
    e = lff.experiment(
        "mnist-mild", defense="median", defense_options="mixing=nearest", attackers=30, **tiny
    )
    assert lff.build(e).rule.rule is FAST["median"]
    record = lff.run(e, progress=False)
    assert record.told == ["attacker_count"]
    plain = lff.run("mnist-mild", defense="median", attackers=30, progress=False, **tiny)
    assert plain.told == []
    assert plain.model != record.model


def test_updates_that_are_not_finite_are_refused_by_their_peers_names():
    updates = line(0, float("nan"), 2, peers=(3, 5, 8), attacker_count=1)
    with pytest.raises(InputError, match=r"'median' got .* from peers \[5\]"):
        DEFENSES["median"].create(mixing="nearest")(updates)
