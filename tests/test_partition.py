"""How examples fall to peers: counts, disjointness, class shares, and what is refused."""

import numpy as np
import pytest

from lff.errors import InputError
from lff.partition import DISTRIBUTIONS, partition

CLASSES = 10


def rng(seed=0):
    return np.random.default_rng(seed)


def balanced(per_class, classes=CLASSES):
    return np.repeat(np.arange(classes), per_class)


def class_counts(labels, shares, classes=CLASSES):
    """Examples of each class with each peer, `[peers, classes]`."""
    return np.array([np.bincount(labels[share], minlength=classes) for share in shares])


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("peers", [10, 20])
def test_no_example_goes_to_two_peers_and_nobody_has_none(distribution, peers):
    labels = rng(1).permutation(balanced(37))
    shares = partition(labels, peers, distribution, rng())
    given = np.concatenate(shares)
    assert len(shares) == peers
    assert min(map(len, shares)) >= 1
    assert len(np.unique(given)) == len(given)
    assert np.isin(given, np.arange(len(labels))).all()


@pytest.mark.parametrize("distribution", ["iid", "mild"])
@pytest.mark.parametrize("peers", [1, 3, 16])
def test_iid_and_mild_give_away_every_example(distribution, peers):
    labels = rng(1).permutation(balanced(13))
    shares = partition(labels, peers, distribution, rng())
    assert sorted(np.concatenate(shares)) == list(range(len(labels)))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_generator_alone_decides(distribution):
    labels = balanced(20)
    once, again, other = (partition(labels, 20, distribution, rng(s)) for s in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(once, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(once, other, strict=True))


@pytest.mark.parametrize(("examples", "peers"), [(100, 10), (103, 10), (7, 7), (9, 1)])
def test_iid_shares_are_equal_up_to_one_example(examples, peers):
    sizes = [len(s) for s in partition(np.zeros(examples, int), peers, "iid", rng())]
    assert sum(sizes) == examples
    assert max(sizes) - min(sizes) <= 1


def test_iid_peers_hold_every_class_in_the_same_proportion():
    """Labels sorted on purpose; the counts are hypergeometric: mean 20, deviation 4.2."""
    labels = balanced(400)
    counts = np.array(
        [class_counts(labels, partition(labels, 20, "iid", rng(seed))) for seed in range(30)]
    )
    deviation = np.sqrt(200 * 0.1 * 0.9 * (4000 - 200) / (4000 - 1))
    assert np.abs(counts - 20).max() < 6 * deviation
    assert counts.std() == pytest.approx(deviation, rel=0.05)
    assert np.abs(counts.mean(axis=0) - 20).max() < 5 * deviation / np.sqrt(30)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 10.0])
def test_mild_shares_follow_the_dirichlet_distribution(alpha):
    """Mean 1/K and variance (K - 1) / (K^2 (K alpha + 1)); classes are drawn independently."""
    peers, per_class, draws = 5, 2000, 400
    labels = balanced(per_class, classes=2)
    shares = np.array(
        [
            class_counts(labels, partition(labels, peers, "mild", rng(seed), alpha=alpha), 2)
            for seed in range(draws)
        ]
    )
    shares = shares / per_class
    variance = (peers - 1) / (peers**2 * (peers * alpha + 1))
    error = np.sqrt(variance / (2 * draws))
    assert shares.mean(axis=(0, 2)) == pytest.approx(np.full(peers, 1 / peers), abs=4 * error)
    assert shares.var(axis=(0, 2)) == pytest.approx(np.full(peers, variance), rel=0.25)
    assert shares.var() == pytest.approx(variance, rel=0.1)
    of_both = np.corrcoef(shares[:, :, 0].ravel(), shares[:, :, 1].ravel())[0, 1]
    assert abs(of_both) < 0.1


def test_mild_is_dirichlet_one_unless_told_otherwise():
    labels = balanced(50)
    default = partition(labels, 8, "mild", rng())
    one = partition(labels, 8, "mild", rng(), alpha=1.0)
    assert all(np.array_equal(a, b) for a, b in zip(default, one, strict=True))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("examples", "alpha"), [(10, 1.0), (12, 0.01), (30, 0.001)])
def test_mild_leaves_nobody_with_nothing_however_few_examples(examples, alpha, seed):
    labels = rng(seed).integers(3, size=examples)
    shares = partition(labels, 10, "mild", rng(seed), alpha=alpha)
    assert min(map(len, shares)) >= 1
    assert sorted(np.concatenate(shares)) == list(range(examples))


@pytest.mark.parametrize("peers", [10, 30, 100])
def test_extreme_peers_hold_one_class_and_equally_many_examples(peers):
    labels = rng(1).permutation(balanced(100))
    counts = class_counts(labels, partition(labels, peers, "extreme", rng()))
    assert ((counts > 0).sum(axis=1) == 1).all()
    assert ((counts > 0).sum(axis=0) == peers // CLASSES).all()
    assert set(counts.sum(axis=1)) == {100 * CLASSES // peers}


def test_extreme_is_bound_by_the_rarest_class():
    labels = np.repeat([0, 1, 2], [50, 9, 30])
    counts = class_counts(labels, partition(labels, 6, "extreme", rng()), 3)
    assert set(counts.sum(axis=1)) == {4}
    assert counts.sum(axis=0).tolist() == [8, 8, 8]


def test_extreme_classes_fall_to_peers_at_random():
    labels = balanced(20)
    held = [
        tuple(labels[share[0]] for share in partition(labels, 20, "extreme", rng(seed)))
        for seed in range(5)
    ]
    assert len(set(held)) == 5
    assert all(list(classes) != sorted(classes) for classes in held)


@pytest.mark.parametrize(
    ("labels", "peers", "distribution", "named"),
    [
        (balanced(2), 5, "milde", "'milde'.*mild"),
        (balanced(2), 0, "iid", "20 examples among 0 peers"),
        (balanced(2), -3, "mild", "20 examples among -3 peers"),
        (balanced(2), 21, "mild", "20 examples among 21 peers"),
        (balanced(2), 15, "extreme", "multiple of 10 peers.*not 15"),
        (np.repeat([0, 1], [50, 2]), 8, "extreme", "4 peers"),
    ],
)
def test_errors_name_what_is_wrong(labels, peers, distribution, named):
    with pytest.raises(InputError, match=named):
        partition(labels, peers, distribution, rng())


def test_the_released_iid_partition_leaves_the_last_peer_what_rounding_left():
    # The sizes of MNIST's classes. In the authors' program she had 522 examples, 25 twos and
    # 28 sevens, where the others had 598 or 599.
    sizes = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    labels = rng(3).permutation(np.repeat(np.arange(10), sizes))
    shares = partition(labels, 100, "iid-released", rng())
    counts = class_counts(labels, shares)
    totals = counts.sum(axis=1)
    assert totals[:-1].min() >= 590
    assert 515 <= totals[-1] <= 540
    assert 18 <= counts[-1, 2] <= 35
    assert 27 <= counts[-1, 7] <= 33
    # Where a hundredth is far from a half, all take the same and the rest is nobody's.
    assert set(counts[:, 1]) <= {67, 68}
    assert set(counts[:, 5]) == {54}
