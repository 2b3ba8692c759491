"""The bounds of docs/guarantees.md: withstood up to the bound, broken just past it.

Attackers here send whatever they like, not only flipped labels' updates. A rule withstands them if
its aggregate stays near the honest updates however far away theirs are, and is broken if the
aggregate goes wherever they want.
"""

import itertools
import math
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from helpers import updates_of, updates_with_gradients
from hypothesis import given, settings

from lff.defenses import DEFENSES, FoolsGold, fedavg, lfighter

FAR = [1e3, 1e6, 1e9]
PEERS = range(1, 16)
properties = settings(max_examples=100, deadline=None, derandomize=True, database=None)


def aggregate(name, honest, attackers, told=None):
    """The aggregate of honest and attackers' rows, of which `told` attackers are known about."""
    rows = np.concatenate([honest, attackers]).astype(np.float32)
    updates = updates_of(rows, attacker_count=len(attackers) if told is None else told)
    return DEFENSES[name].create()(updates).aggregate.double().numpy()


def honest_rows(count, seed=0, width=3):
    return np.random.default_rng(seed).uniform(-1, 1, size=(count, width)).astype(np.float32)


def everywhere(name, honest, attackers, told=None):
    """How far the aggregate is moved by this many attackers at one far point, for each distance."""
    shape = (attackers, honest.shape[1])
    return [np.abs(aggregate(name, honest, np.full(shape, far), told)).min() for far in FAR]


def assert_broken(moved):
    """The aggregate follows the attackers: as they go 1,000 times further, so does it."""
    assert moved[0] > 10
    for near, far in itertools.pairwise(moved):
        assert far / near == pytest.approx(1000, rel=0.2)


@st.composite
def attacked(draw, bound):
    """Honest rows and as many attackers' rows, of any finite values, as `bound(n)` allows."""
    n = draw(st.integers(1, 15))
    f = bound(n)
    honest = honest_rows(n - f, seed=draw(st.integers(0, 10**6)))
    anything = st.floats(-1e9, 1e9) | st.sampled_from([-1e9, 1e9, -1.0, 0.0, 1.0])
    rows = [[draw(anything) for _ in range(3)] for _ in range(f)]
    return honest, np.array(rows).reshape(f, 3)


def fewer_than_half(n):
    return (n - 1) // 2


def below_siegels_bound(n):
    return n // 2 - 1 if n > 1 else 0


def test_every_defense_of_the_paper_is_in_the_table():
    text = (Path(__file__).parents[1] / "docs" / "guarantees.md").read_text()
    for name in DEFENSES:
        assert f"| `{name}` |" in text


# --- FedAvg: none ----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 5, 20])
def test_one_attacker_takes_fedavg_anywhere(n):
    """She sends n times the model she wants, less the sum of the honest updates."""
    honest = honest_rows(n - 1)
    wanted = np.array([7.0, -300, 5000])
    attacker = n * wanted - honest.astype(float).sum(axis=0)
    np.testing.assert_allclose(aggregate("fedavg", honest, [attacker]), wanted, rtol=1e-4)


def test_examples_are_taken_at_their_word():
    """A peer who claims all examples there are is FedAvg."""
    updates = updates_of(
        [[0.0, 0], [0, 0], [0, 0], [5, 5]], examples=torch.tensor([60.0, 60, 60, 1e9])
    )
    assert fedavg(updates).aggregate.tolist() == pytest.approx([5, 5], rel=1e-5)


# --- median: fewer than half -----------------------------------------------------------------


@properties
@given(attacked(fewer_than_half))
def test_the_median_stays_among_honest_values_below_half(rows):
    honest, attackers = rows
    got = aggregate("median", honest, attackers)
    assert (honest.min(axis=0) <= got).all()
    assert (got <= honest.max(axis=0)).all()


@pytest.mark.parametrize("n", PEERS)
def test_half_the_peers_break_the_median(n):
    f = math.ceil(n / 2)
    assert f == fewer_than_half(n) + 1
    assert_broken(everywhere("median", honest_rows(n - f), f))


# --- trimmed mean: as many as it was told, fewer than half -----------------------------------


@properties
@given(attacked(fewer_than_half))
def test_the_trimmed_mean_stays_among_honest_values_for_the_number_it_was_told(rows):
    honest, attackers = rows
    got = aggregate("trimmed_mean", honest, attackers)
    assert (honest.min(axis=0) - 1e-6 <= got).all()
    assert (got <= honest.max(axis=0) + 1e-6).all()


@pytest.mark.parametrize("n", [3, 4, 10, 11])
def test_one_attacker_more_than_told_breaks_the_trimmed_mean(n):
    for told in range(fewer_than_half(n)):
        honest = honest_rows(n - told - 1)
        assert_broken(everywhere("trimmed_mean", honest, told + 1, told))
    half = math.ceil(n / 2)
    assert_broken(everywhere("trimmed_mean", honest_rows(n - half), half))


# --- repeated median: fewer than floor(n/2) --------------------------------------------------


@properties
@given(attacked(below_siegels_bound))
def test_the_repeated_median_stays_near_honest_values_below_its_bound(rows):
    """The slope is at most the honest range R, so the value is at most R (n - 1) / 2 off."""
    honest, attackers = rows
    got = aggregate("repeated_median", honest, attackers)
    low, high = honest.min(axis=0), honest.max(axis=0)
    slack = (high - low) * (len(honest) + len(attackers) - 1) / 2 + 1e-3
    assert (low - slack <= got).all()
    assert (got <= high + slack).all()


@pytest.mark.parametrize("n", PEERS[1:])
def test_half_the_peers_rounded_down_break_the_repeated_median(n):
    """With three peers one is enough, who cannot break the median."""
    f = n // 2
    assert f == below_siegels_bound(n) + 1
    assert_broken(everywhere("repeated_median", honest_rows(n - f), f))


# --- multi-Krum: n > 2f + 2 ------------------------------------------------------------------


def krums_bound(n):
    return max((n - 3) // 2, 0)


@properties
@given(attacked(krums_bound), st.booleans())
def test_multi_krum_keeps_updates_near_honest_ones_only(rows, collude):
    """A kept attacker has an honest update among her n - f - 2 nearest, since f - 1 < n - f - 2.

    Honest scores are at most (n - f - 2) D^2, D being the honest updates' diameter, so hers is
    too: she is within sqrt(n - f - 2) D of an honest update.
    """
    honest, attackers = rows
    if collude:
        attackers = attackers[:1].repeat(len(attackers), axis=0)
    n, f = len(honest) + len(attackers), len(attackers)
    got = aggregate("multi_krum", honest, attackers)
    diameter = max(np.linalg.norm(a - b) for a in honest for b in honest)
    reach = (math.sqrt(max(n - f - 2, 1)) + 1) * diameter + 1e-3
    assert np.linalg.norm(got - honest, axis=1).min() <= reach


@pytest.mark.parametrize("n", [3, 4, 9, 20, 21])
def test_multi_krum_withstands_attackers_at_one_point_at_its_bound(n):
    f = krums_bound(n)
    honest = honest_rows(n - f)
    for far in FAR:
        assert np.abs(aggregate("multi_krum", honest, np.full((f, 3), far))).max() <= 1


@pytest.mark.parametrize("f", [2, 3, 5, 10])
def test_attackers_at_one_point_break_multi_krum_when_n_is_2f_plus_1(f):
    """They are each other's n - f - 2 = f - 1 nearest, at distance 0."""
    assert_broken(everywhere("multi_krum", honest_rows(f + 1), f))


def test_three_attackers_more_than_told_break_multi_krum():
    """n - told - 2 are kept, and only n - told - 3 are honest."""
    honest, told = honest_rows(12), 2
    apart = np.arange(1, 6)[:, None] * np.ones(3)
    assert_broken([np.abs(aggregate("multi_krum", honest, far * apart, told)).min() for far in FAR])


# --- FoolsGold: none -------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 5, 20])
def test_one_attacker_unlike_the_others_takes_foolsgold_anywhere(n):
    """Honest peers who learn the same look like sybils to it, and she does not."""
    honest = np.array([[1.0, 2, 3]]).repeat(n - 1, axis=0)
    attacker = np.array([[900.0, -450, 0]])
    np.testing.assert_allclose(aggregate("foolsgold", honest, attacker), attacker[0])


@pytest.mark.parametrize("sybils", [2, 5, 50])
def test_any_number_of_equal_attackers_is_withstood_by_foolsgold(sybils):
    """What it is made for: honest peers all unlike, and attackers who send the same."""
    honest = 3 * np.eye(4, 6) - 1e-3
    attackers = np.array([[0.0, 0, 0, 0, 40, 40]]).repeat(sybils, axis=0)
    np.testing.assert_allclose(
        aggregate("foolsgold", honest, attackers), honest.mean(axis=0), atol=1e-5
    )


def test_foolsgold_remembers_but_a_first_round_is_enough_to_break_it():
    rule = FoolsGold()
    rows = np.concatenate([np.ones((4, 3)), [[1e6, -1e6, 0]]])
    assert rule(updates_of(rows)).aggregate.abs().max() >= 1e6


# --- LFighter: none in general; label flippers while they are the smaller cluster ------------


def two_directions(count, sign):
    """Gradients of two output neurons at `sign` 10, in two directions by turns.

    Any two or more of them have the same inverse density, so that sizes alone decide.
    """
    gradients = np.zeros((count, 2, 2))
    gradients[:, 0, 0] = 10 * sign
    gradients[:, 1, 0] = np.where(np.arange(count) % 2, 1, -1)
    return gradients


@pytest.mark.parametrize("n", [5, 8, 9, 20])
def test_lfighter_drops_flippers_as_long_as_they_are_the_smaller_cluster(n):
    for f in range(2, n - 1):
        updates = updates_with_gradients(
            np.concatenate([two_directions(n - f, 1), two_directions(f, -1)])
        )
        dropped = lfighter(updates).dropped(updates.peers)
        if 2 * f < n:
            assert dropped == list(range(n - f, n))
        elif 2 * f == n:
            assert dropped == [], "nothing tells the halves apart"
        else:
            assert dropped == list(range(n - f)), "the honest are the smaller cluster"


def one_class_each(counts):
    """Groups of peers for one output neuron each, near each other and far from other groups."""
    groups = []
    for g, (neuron, count) in enumerate(counts):
        gradients = 0.01 * np.random.default_rng(g).normal(size=(count, 4, 7))
        gradients[:, neuron, g] -= 10
        groups.append(gradients)
    return updates_with_gradients(np.concatenate(groups))


@pytest.mark.parametrize("attackers", range(2, 9))
def test_extreme_attackers_are_dropped_while_fewer_than_the_target_class(attackers):
    """The attackers' neuron is the target class's, of which there are five honest peers."""
    updates = one_class_each([(1, 5), (attackers % 2 + 2, 6), (1, attackers)])
    dropped = lfighter(updates, distribution="extreme").dropped(updates.peers)
    flippers = list(range(11, 11 + attackers))
    wanted = flippers if attackers < 5 else [] if attackers == 5 else list(range(5))
    assert dropped == wanted


def test_two_attackers_who_do_not_train_take_lfighter_anywhere():
    """At opposite sides, one of them shares the honest cluster: flipped labels cannot do that."""
    moved = []
    for far in FAR:
        opposite = np.zeros((2, 2, 2))
        opposite[:, 0, 0] = -far, far
        updates = updates_with_gradients(np.concatenate([two_directions(9, 1), opposite]))
        moved.append(lfighter(updates).aggregate.abs().max().item())
    assert_broken(moved)
