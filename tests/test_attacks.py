"""Label flipping, who attacks, and attacks of one's own."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lff.attacks import ATTACKS, choose_attackers, label_flipping, number_of_attackers
from lff.errors import InputError
from lff.training import Examples


def context(source_class, target_class):
    """What label flipping looks at."""
    return SimpleNamespace(source_class=source_class, target_class=target_class)


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("labels", "poisoned"),
    [
        ([7, 1, 7, 0, 9, 1], [1, 1, 1, 0, 9, 1]),
        ([7], [1]),
        ([0, 1, 2], [0, 1, 2]),
        ([], []),
    ],
)
def test_flipping_changes_the_source_class_and_nothing_else(labels, poisoned):
    x, y = torch.randn(len(labels), 2), torch.tensor(labels, dtype=torch.long)
    before = x.clone(), y.clone()
    flipped = label_flipping(Examples(x, y), context(7, 1))
    assert flipped.y.tolist() == poisoned
    assert flipped.y.dtype == y.dtype
    assert torch.equal(flipped.x, x)
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])


def test_flipping_goes_one_way():
    data = Examples(torch.zeros(2, 1), torch.tensor([5, 3]))
    assert label_flipping(data, context(5, 3)).y.tolist() == [3, 3]
    assert label_flipping(data, context(3, 5)).y.tolist() == [5, 5]


@pytest.mark.parametrize(
    ("ratio", "among", "count"),
    [
        (0.0, 100, 0),
        (0.1, 100, 10),
        (0.3, 100, 30),  # 0.3 * 100 is not 30 in binary
        (0.5, 20, 10),
        (0.29, 100, 29),  # 28.999999999999996
        (0.4, 10, 4),
        (0.4, 2, 0),  # rounded down
        (0.5, 7, 3),  # never more than half
        (0.5, 11, 5),
        (1.0, 10, 10),
    ],
)
def test_the_ratio_is_never_exceeded(ratio, among, count):
    got = number_of_attackers(ratio, among)
    assert got == count
    assert isinstance(got, int)


def test_attackers_hold_the_source_class_and_are_drawn_once():
    holds = [np.array([k % 3, 9]) for k in range(30)]
    drawn = set()
    for seed in range(40):
        chosen = choose_attackers(holds, 2, 4, rng(seed))
        assert len(set(chosen)) == 4
        assert chosen == sorted(chosen)
        assert all(type(k) is int and k % 3 == 2 for k in chosen)
        drawn.update(chosen)
    assert drawn == set(range(2, 30, 3)), "every holder can be drawn"


def test_the_generator_alone_decides_who_attacks():
    holds = [np.array([7])] * 50
    once, again, other = (choose_attackers(holds, 7, 10, rng(s)) for s in (1, 1, 2))
    assert once == again != other


def test_the_attackers_of_a_smaller_ratio_are_among_those_of_a_larger_one():
    holds = [np.array([7])] * 30
    for seed in range(5):
        growing = [choose_attackers(holds, 7, count, rng(seed)) for count in range(31)]
        for fewer, more in itertools.pairwise(growing):
            assert len(set(more) - set(fewer)) == 1
            assert set(fewer) < set(more)
        added = [min(set(b) - set(a)) for a, b in itertools.pairwise(growing)]
        assert added != sorted(added), "the order is random"


def test_every_holder_is_as_likely_to_attack():
    holds = [np.array([7])] * 10
    chosen = [k for seed in range(2000) for k in choose_attackers(holds, 7, 3, rng(seed))]
    counts = np.bincount(chosen, minlength=10)
    assert np.abs(counts - 600).max() < 5 * np.sqrt(2000 * 0.3 * 0.7)  # five sigma


def test_all_holders_or_nobody_can_attack():
    holds = [np.array([0]), np.array([7, 0]), np.array([7])]
    assert choose_attackers(holds, 7, 2, rng()) == [1, 2]
    assert choose_attackers(holds, 7, 0, rng()) == []
    assert choose_attackers(holds, 5, 0, rng()) == []


def test_too_few_holders_are_an_error_that_says_how_few():
    holds = [np.array([0]), np.array([7]), np.array([7]), np.array([1])]
    with pytest.raises(InputError, match=r"3 attackers .* only 2 of 4 peers .*source class 7"):
        choose_attackers(holds, 7, 3, rng())


def test_an_unknown_attack_is_an_error_with_the_nearest_name():
    with pytest.raises(InputError, match=r"'label_fliping'.*Did you mean 'label_flipping'"):
        ATTACKS["label_fliping"]
    assert ATTACKS["label_flipping"].factory is label_flipping
