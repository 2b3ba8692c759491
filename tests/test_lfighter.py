"""Algorithm 1 with Procedures 1 and 2 on gradients whose answer is known, and on trained ones."""

import math

import numpy as np
import pytest
import torch
from helpers import updates_with_gradients
from sklearn.cluster import HDBSCAN

from lff import data
from lff.defenses import fedavg, lfighter
from lff.defenses.lfighter import (
    OUTLIER,
    cluster_inverse_density,
    discover_distribution,
    filter_extreme,
    filter_mild,
    hdbscan,
    held_classes,
    kmeans,
    relevant_neurons,
)
from lff.errors import InputError
from lff.models import FlatModel, build_model
from lff.partition import partition
from lff.training import Examples, LocalTraining, Loop, Peer
from lff.updates import Updates


def at_angles(*degrees, length=1.0, plane=0):
    """Vectors of four entries at these angles in the first or the second plane."""
    vectors = torch.zeros(len(degrees), 4, dtype=torch.float64)
    for row, angle in zip(vectors, degrees, strict=True):
        row[2 * plane] = length * math.cos(math.radians(angle))
        row[2 * plane + 1] = length * math.sin(math.radians(angle))
    return vectors


def two_clusters(first, second):
    """The first cluster around zero, the second far from it, in planes of their own."""
    return torch.cat([at_angles(*first), at_angles(*second, length=100, plane=1)])


def rows(mask):
    return mask.nonzero().flatten().tolist()


# --- cluster inverse density -----------------------------------------------------------------


def test_inverse_density_by_hand():
    """At 0, 30 and 90 degrees the largest angles are 90, 60 and 90 degrees."""
    vectors = at_angles(0, 30, 90)
    assert cluster_inverse_density(vectors) == pytest.approx(math.radians((90 + 60 + 90) / 3))
    assert cluster_inverse_density(vectors, "cosine") == pytest.approx((1 + 0.5 + 1) / 3)


def test_inverse_density_sees_directions_not_lengths():
    vectors = at_angles(0, 30, 90) * torch.tensor([[1.0], [50], [0.2]])
    assert cluster_inverse_density(vectors) == pytest.approx(math.radians(80))


def test_inverse_density_of_opposite_one_or_equal_directions():
    assert cluster_inverse_density(at_angles(0, 180)) == pytest.approx(math.pi)
    assert cluster_inverse_density(at_angles(0, 180), "cosine") == pytest.approx(2)
    assert cluster_inverse_density(at_angles(77)) == 0
    assert cluster_inverse_density(at_angles(77, 77, 77) * torch.tensor([[1.0], [3], [7]])) == 0


@pytest.mark.parametrize("density", ["angle", "cosine"])
def test_inverse_density_is_its_twin(density):
    vectors = np.random.default_rng(0).normal(size=(7, 5))
    largest = []
    for a in vectors:
        angles = []
        for b in vectors:
            cosine = min(1.0, float(a @ b) / math.sqrt(float(a @ a) * float(b @ b)))
            angles.append(math.acos(cosine) if density == "angle" else 1 - cosine)
        largest.append(max(angles))
    got = cluster_inverse_density(torch.from_numpy(vectors), density)
    assert got == pytest.approx(sum(largest) / len(largest))


# --- Procedure 1 -----------------------------------------------------------------------------


def test_scores_by_hand():
    """Three peers at 0, 30, 90 degrees (mean of the largest 80) and two 10 degrees apart."""
    bad, saw = filter_mild(two_clusters((0, 30, 90), (0, 10)))
    assert rows(bad) == [3, 4]
    assert saw["clusters"] == [0, 0, 0, 1, 1]
    assert saw["cluster_scores"] == pytest.approx(
        [3 / 5 * math.radians(80), 2 / 5 * math.radians(10)]
    )


@pytest.mark.parametrize(
    ("first", "second", "bad"),
    [
        ((0, 20, 0, 20), (0, 20), [4, 5]),  # as dense: the smaller
        ((0, 20), (0, 20, 20, 0, 20), [0, 1]),
        ((0, 40, 40), (0, 20, 20), [3, 4, 5]),  # as large: the denser
        ((0, 5, 5), (0, 20, 20), [0, 1, 2]),
        ((0, 10, 10, 0), (0, 60, 60), [0, 1, 2, 3]),  # larger, but far denser: 4*10 < 3*60
        ((0, 50, 50, 0), (0, 60, 60), [4, 5, 6]),  # denser, but larger: 4*50 > 3*60
        ((0, 0, 0), (0, 0), [3, 4]),  # of one direction each: the smaller
        ((0, 90, 45), (0,), [3]),  # one peer alone is as dense as can be
        ((0, 0), (0, 0), []),  # nothing tells them apart
        ((0,), (0,), []),
    ],
)
def test_the_smaller_and_or_denser_cluster_is_bad(first, second, bad):
    data = two_clusters(first, second)
    assert rows(filter_mild(data)[0]) == bad
    shuffled = np.random.default_rng(len(data)).permutation(len(data))
    assert rows(filter_mild(data[shuffled])[0]) == sorted(
        i for i, row in enumerate(shuffled) if row in bad
    )


def test_density_by_cosine_can_decide_otherwise():
    """By angle 2*60 < 5*30; by 1 - cosine 2*(1 - 0.5) > 5*(1 - 0.866)."""
    data = two_clusters((0, 60), (0, 30, 30, 0, 30))
    by_angle, _ = filter_mild(data)
    by_cosine, saw = filter_mild(data, density="cosine")
    assert rows(by_angle) == [0, 1]
    assert rows(by_cosine) == [2, 3, 4, 5, 6]
    assert saw["cluster_scores"] == pytest.approx([2 / 7 * 0.5, 5 / 7 * (1 - math.sqrt(3) / 2)])


@pytest.mark.parametrize("m", [1, 2, 3, 10])
def test_of_equal_points_nobody_is_bad(m):
    bad, saw = filter_mild(torch.ones(m, 4).double())
    assert not bad.any()
    assert saw == {"clusters": [0] * m, "cluster_scores": [], "inverse_densities": []}


def test_kmeans_finds_the_best_of_several_starts():
    """Against the best of all divisions in two, on points with more than one local optimum."""
    for seed in range(5):
        points = torch.from_numpy(np.random.default_rng(seed).normal(size=(9, 2)))
        best = min(
            (_inertia(points, mask), mask)
            for mask in ([bool(n >> k & 1) for k in range(9)] for n in range(1, 256))
        )
        found = (kmeans(points, seed=seed) == 1).tolist()
        assert _inertia(points, found) == pytest.approx(best[0])
        assert found[0] is False


def _inertia(points, mask):
    mask = torch.tensor(mask)
    return sum(
        float((points[side] - points[side].mean(dim=0)).square().sum()) for side in (mask, ~mask)
    )


def test_kmeans_is_the_same_for_the_same_seed():
    points = torch.from_numpy(np.random.default_rng(0).normal(size=(30, 3)))
    assert torch.equal(kmeans(points, seed=2**62 + 3), kmeans(points, seed=2**62 + 3))


@pytest.mark.parametrize("first", [-1, 1])
def test_a_first_point_below_or_above_all_others_is_not_equal_to_them(first):
    points = torch.zeros(4, 3).double()
    points[0] = first
    assert kmeans(points, seed=0).tolist() == [0, 1, 1, 1]


def test_the_seed_decides_where_kmeans_starts():
    """A square has two best divisions: starts differ in which they find first."""
    square = torch.tensor([[0.0, 0], [0, 1], [1, 1], [1, 0]]).double()
    found = {tuple(kmeans(square, seed=seed).tolist()) for seed in range(12)}
    assert found == {(0, 0, 1, 1), (0, 1, 1, 0)}


# --- relevant neurons ------------------------------------------------------------------------


def test_relevant_neurons_have_the_highest_sums_of_magnitudes():
    """Neuron 1's gradients cancel over the peers, and neuron 3's is all in the bias column."""
    gradients = torch.zeros(2, 5, 3)
    gradients[0, 1] = torch.tensor([3.0, 4, 0])
    gradients[1, 1] = torch.tensor([-3.0, -4, 0])
    gradients[:, 3, 2] = -6
    gradients[0, 0] = torch.tensor([9.0, 0, 0])  # 9 once; 5 and 6 twice
    assert relevant_neurons(gradients) == [3, 1]


@pytest.mark.parametrize("classes", [1, 2])
def test_all_of_few_neurons_are_relevant(classes):
    assert sorted(relevant_neurons(torch.rand(3, classes, 4))) == list(range(classes))


# --- Procedure 2 -----------------------------------------------------------------------------

CLASSES, FEATURES = 6, 8


def holders(count, neuron, *, feature, seed=0):
    """Peers whose largest gradient is one neuron's, of about the same direction.

    Groups of another `feature` are far away, also if the neuron is the same; of the same
    `feature` they would be one cluster, also if the neuron is another.
    """
    gradients = 0.01 * np.random.default_rng(seed).normal(size=(count, CLASSES, FEATURES + 1))
    gradients[:, neuron, feature] -= 10
    gradients[:, (neuron + 1) % CLASSES, feature] += 3
    return torch.from_numpy(gradients)


def test_one_cluster_per_class_is_left_alone():
    groups = [holders(4, c, feature=c, seed=c) for c in range(CLASSES)]
    bad, saw = filter_extreme(torch.cat(groups))
    assert not bad.any()
    assert sorted(saw["cluster_neurons"]) == list(range(CLASSES))


@pytest.mark.parametrize("attackers_first", [False, True])
def test_a_cluster_that_shares_its_neuron_with_a_larger_one_is_bad(attackers_first):
    honest = torch.cat([holders(6, 1, feature=0), holders(6, 3, feature=1)])
    attackers = holders(4, 1, feature=2)
    parts = [attackers, honest] if attackers_first else [honest, attackers]
    bad, saw = filter_extreme(torch.cat(parts))
    assert rows(bad) == list(range(4) if attackers_first else range(12, 16))
    assert sorted(saw["cluster_neurons"]) == [1, 1, 3]


@pytest.mark.parametrize("order", [(6, 4, 3), (3, 6, 4), (4, 3, 6), (3, 4, 6)])
def test_both_of_two_smaller_clusters_are_bad(order):
    """Also in the orders in which the paper's loop, read to the letter, marks the last only."""
    groups = [holders(n, 1, feature=n, seed=n) for n in order]
    groups.append(holders(5, 4, feature=5, seed=5))
    bad, saw = filter_extreme(torch.cat(groups))
    assert sorted(saw["cluster_neurons"]) == [1, 1, 1, 4]
    size = torch.tensor([n for n in (*order, 5) for _ in range(n)])
    assert torch.equal(bad, (size == 3) | (size == 4))


def test_clusters_of_equal_size_are_both_kept():
    groups = [holders(4, 1, feature=0), holders(4, 1, feature=2), holders(5, 3, feature=1)]
    assert not filter_extreme(torch.cat(groups))[0].any()


def test_a_peer_in_no_cluster_is_bad():
    alone = holders(1, 1, feature=2)
    groups = [holders(5, 1, feature=0), alone, holders(5, 3, feature=1)]
    bad, saw = filter_extreme(torch.cat(groups))
    assert rows(bad) == [5]
    assert saw["clusters"][5] == OUTLIER


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_peer_whose_gradients_are_not_finite_is_in_no_cluster(value):
    """HDBSCAN labels such peers -2 or -3."""
    broken = torch.full((1, CLASSES, FEATURES + 1), value, dtype=torch.float64)
    groups = [holders(5, 1, feature=0), broken, holders(5, 3, feature=1)]
    assert rows(filter_extreme(torch.cat(groups))[0]) == [5]


def test_extreme_peers_are_clustered_on_their_own_two_neurons_only():
    """Two groups that differ far, but only in a neuron of third magnitude, are one cluster."""
    one, two = holders(4, 1, feature=0), holders(3, 1, feature=0, seed=1)
    two[:, 5, 3] = 2.5  # below 3, the second magnitude
    bad, saw = filter_extreme(torch.cat([one, two, holders(4, 3, feature=1)]))
    assert not bad.any()
    assert len(saw["cluster_neurons"]) == 2
    two[:, 5, 3] = 20  # now it is the first, and its own class
    assert sorted(filter_extreme(torch.cat([one, two]))[1]["cluster_neurons"]) == [1, 5]


def test_extreme_peers_are_clustered_on_both_of_their_neurons():
    """Two groups are alike in neuron 1, and far apart in neuron 2, the second of both."""
    one, two = holders(4, 1, feature=0), holders(3, 1, feature=0, seed=1)
    two[:, 2, 0] -= 3
    two[:, 2, 4] += 3
    bad, saw = filter_extreme(torch.cat([one, two, holders(4, 3, feature=1)]))
    assert sorted(saw["cluster_neurons"]) == [1, 1, 3]
    assert rows(bad) == [4, 5, 6]


@pytest.mark.parametrize("m", [1, 2])
def test_fewer_than_three_peers_form_no_cluster(m):
    assert hdbscan(torch.rand(m, 4)).tolist() == [OUTLIER] * m


def same_clusters(one, two):
    """Whether two labelings put the same points together, and the same ones nowhere."""
    together = [np.equal.outer(labels, labels) for labels in (one, two)]
    return np.array_equal(*together) and np.array_equal(one < 0, two < 0)


def scattered_points(seed):
    """Ten loose groups of a hundred points: hard enough for implementations to differ."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(10, 12))
    return centers[rng.integers(10, size=100)] + rng.uniform(0.2, 0.8) * rng.normal(size=(100, 12))


@pytest.mark.parametrize("seed", range(20))
def test_clusters_are_scikit_learns_when_it_does_not_count_the_point_itself(seed):
    points = scattered_points(seed)
    twin = HDBSCAN(min_cluster_size=2, min_samples=3, copy=True).fit_predict(points)
    assert same_clusters(hdbscan(torch.from_numpy(points)).numpy(), twin)


# --- the distribution ------------------------------------------------------------------------


def test_held_classes_by_the_sign_of_the_bias_gradient():
    gradients = torch.ones(2, 3, 4)
    gradients[0, :, -1] = torch.tensor([-0.5, 0, 0.5])
    gradients[1, :, 0] = -9  # weights do not count
    assert held_classes(gradients).int().tolist() == [[1, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    ("held", "kind"),
    [
        ([1, 1, 1], "extreme"),
        ([1, 0, 1, 1, 4], "extreme"),
        ([1, 1, 1, 9, 9], "extreme"),
        ([1, 1, 2, 9, 9], "mild"),
        ([0, 0, 0], "extreme"),
        ([2, 2, 2], "mild"),
        ([10, 10, 10, 10], "mild"),
        ([1], "extreme"),
        ([7], "mild"),
    ],
)
def test_the_median_peer_tells_the_distribution(held, kind):
    classes = torch.arange(10)
    assert discover_distribution(torch.stack([classes < n for n in held])) == kind


# --- the whole rule --------------------------------------------------------------------------


def honest_and_flipped(honest=7, flipped=4, *, seed=0):
    """Mild gradients: neurons 1 and 4 matter, and attackers pull them the other way.

    Every bias gradient of neurons 0 to 2 is negative, so that the distribution shows as mild.
    """
    rng = np.random.default_rng(seed)
    gradients = 0.1 * rng.normal(size=(honest + flipped, CLASSES, FEATURES + 1))
    gradients[:, 1] += 5
    gradients[:, 4] -= 5
    gradients[honest:, 1] -= 8
    gradients[honest:, 4] += 8
    gradients[:honest, 1, :-1] += rng.normal(size=(honest, FEATURES))
    gradients[:, :3, -1] = -1
    return gradients.astype(np.float32)


def one_class_each(per_class=4, attackers=2):
    """Extreme gradients: peers of six classes, then attackers on neuron 1."""
    groups = [holders(per_class, c, feature=c, seed=c) for c in range(CLASSES)]
    gradients = torch.cat([*groups, holders(attackers, 1, feature=7)])
    gradients[:, :, -1] = 0.5
    return gradients


def test_flipped_gradients_are_dropped_and_the_rest_averaged_by_examples():
    examples = torch.arange(1.0, 12)
    updates = updates_with_gradients(
        honest_and_flipped(), examples=examples, peers=tuple(range(20, 31))
    )
    decision = lfighter(updates)
    assert decision.dropped(updates.peers) == [27, 28, 29, 30]
    assert sorted(decision.saw["neurons"]) == [1, 4]
    assert decision.saw["distribution"] == "mild"
    rest = fedavg(updates.select(range(7)))
    torch.testing.assert_close(decision.aggregate, rest.aggregate)
    torch.testing.assert_close(decision.weights[:7], examples[:7] / examples[:7].sum())


def test_extreme_attackers_are_dropped_and_the_rest_averaged_by_examples():
    gradients = one_class_each()
    m = len(gradients)
    updates = updates_with_gradients(gradients, examples=torch.arange(1.0, m + 1))
    decision = lfighter(updates)
    assert decision.saw["distribution"] == "extreme"
    assert decision.dropped(updates.peers) == [m - 2, m - 1]
    torch.testing.assert_close(decision.aggregate, fedavg(updates.select(range(m - 2))).aggregate)


@pytest.mark.parametrize("gradients", [honest_and_flipped(), one_class_each()])
def test_permuted_peers_get_the_permuted_decision(gradients):
    updates = updates_with_gradients(gradients)
    order = np.random.default_rng(5).permutation(len(updates))
    one, two = lfighter(updates), lfighter(updates.select(order))
    assert one.dropped(updates.peers)
    assert torch.equal(two.weights, one.weights[torch.from_numpy(order)])


def test_what_happens_outside_the_relevant_neurons_is_not_seen():
    gradients = honest_and_flipped()
    for neuron in (0, 2, 3, 5):  # each below 1 and 4; together they would part 0-4 from 5-10
        gradients[:5, neuron, :-1] = 8
    decision = lfighter(updates_with_gradients(gradients))
    assert sorted(decision.saw["neurons"]) == [1, 4]
    assert decision.dropped(range(11)) == [7, 8, 9, 10]


def test_density_is_an_option_of_the_rule():
    """The case above, on neurons 0 and 1 of three, in the features and not the bias."""
    vectors = two_clusters((0, 60), (0, 30, 30, 0, 30)).view(7, 2, 2)
    gradients = torch.zeros(7, 3, 3)
    gradients[:, :2, :2] = vectors
    updates = updates_with_gradients(gradients)
    by_angle = lfighter(updates, distribution="mild")
    by_cosine = lfighter(updates, distribution="mild", density="cosine")
    assert by_angle.dropped(updates.peers) == [0, 1]
    assert by_cosine.dropped(updates.peers) == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("told", ["iid", "mild", "extreme"])
def test_the_distribution_can_be_told(told):
    for gradients in (honest_and_flipped(), one_class_each()):
        saw = lfighter(updates_with_gradients(gradients), distribution=told).saw
        assert saw["distribution"] == told
        assert ("cluster_neurons" in saw) == (told == "extreme")


def test_the_distribution_can_be_declared_by_the_peers():
    """They are believed, whatever the bias gradients show."""
    gradients = honest_and_flipped()
    one = torch.eye(CLASSES, dtype=torch.bool)[torch.arange(len(gradients)) % CLASSES]
    for declared, kind in ((one, "extreme"), (torch.ones_like(one), "mild")):
        updates = updates_with_gradients(gradients, declared_classes=declared)
        assert lfighter(updates, distribution="declared").saw["distribution"] == kind
        assert lfighter(updates).saw["distribution"] == "mild", "unless asked, not believed"


def test_options_that_cannot_be_used_are_errors():
    updates = updates_with_gradients(honest_and_flipped())
    with pytest.raises(InputError, match=r"'mlid'.*'mild'"):
        lfighter(updates, distribution="mlid")
    with pytest.raises(InputError, match=r"'angel'.*'angle'"):
        lfighter(updates, density="angel")
    with pytest.raises(InputError, match="declare"):
        lfighter(updates, distribution="declared")


@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize("distribution", ["discovered", "declared", "extreme"])
def test_one_or_two_output_neurons_are_clustered_whole(classes, distribution):
    """By k-means, however the data are distributed; the bias alone tells the attackers."""
    rng = np.random.default_rng(0)
    gradients = 0.1 * rng.normal(size=(9, classes, 4))
    gradients[:, -1, -1] = [-10, -11, -12, -10, -11, -12, 10, 10, 10]
    updates = updates_with_gradients(gradients)
    decision = lfighter(updates, distribution=distribution)
    assert decision.dropped(updates.peers) == [6, 7, 8]
    assert sorted(decision.saw["neurons"]) == list(range(classes))


def test_three_output_neurons_are_enough_to_be_extreme():
    gradients = 0.01 * np.random.default_rng(0).normal(size=(15, 3, 5))
    neurons = [0] * 4 + [1] * 4 + [2] * 4 + [1] * 3
    for row, neuron in enumerate(neurons):
        gradients[row, neuron, row // 4] -= 10
    gradients[:, :, -1] = 0.5
    updates = updates_with_gradients(gradients)
    decision = lfighter(updates)
    assert decision.saw["distribution"] == "extreme"
    assert decision.dropped(updates.peers) == [12, 13, 14]


@pytest.mark.parametrize("distribution", ["mild", "extreme"])
@pytest.mark.parametrize("m", [1, 2, 3, 10])
def test_of_identical_updates_nobody_is_dropped(distribution, m):
    gradients = np.random.default_rng(0).normal(size=(1, 5, 4)).repeat(m, axis=0)
    updates = updates_with_gradients(gradients)
    assert lfighter(updates, distribution=distribution).dropped(updates.peers) == []


@pytest.mark.parametrize("distribution", ["mild", "extreme"])
def test_two_different_peers_are_both_kept(distribution):
    updates = updates_with_gradients(np.random.default_rng(0).normal(size=(2, 5, 4)))
    assert lfighter(updates, distribution=distribution).dropped(updates.peers) == []


def test_if_nobody_is_in_a_cluster_everybody_is_kept():
    gradients = torch.zeros(5, 5, 3)
    gradients[range(5), range(5), 0] = 4.0 ** torch.arange(1, 6)
    updates = updates_with_gradients(gradients, examples=torch.arange(1.0, 6))
    bad, saw = filter_extreme(gradients.double())
    assert bad.all(), saw
    decision = lfighter(updates, distribution="extreme")
    assert decision.dropped(updates.peers) == []
    torch.testing.assert_close(decision.aggregate, fedavg(updates).aggregate)


@pytest.mark.parametrize("distribution", ["discovered", "mild", "extreme"])
@pytest.mark.parametrize("m", [1, 2, 3, 4, 7])
def test_never_is_everybody_dropped(distribution, m):
    for seed in range(5):
        gradients = np.random.default_rng(seed).normal(size=(m, 4, 3))
        decision = lfighter(updates_with_gradients(gradients), distribution=distribution)
        assert len(decision.dropped(range(m))) < m
        assert torch.isfinite(decision.aggregate).all()


# --- on trained updates ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def mnist():
    return data.load("mnist", data="embedded")


def make_peers(mnist, distribution, count, examples, attackers=()):
    rng = np.random.default_rng(1)
    used = rng.permutation(len(mnist.train_y))[:examples]
    labels = mnist.train_y.numpy()[used]
    peers = []
    for k, share in enumerate(partition(labels, count, distribution, rng)):
        own = torch.from_numpy(used[share])
        x, y = mnist.train_x[own], mnist.train_y[own]
        if k in attackers:
            y = torch.where(y == 7, 1, y)
        peers.append(Peer(k, Examples(x, y)))
    return peers


def play(peers, training, rounds):
    """The updates of each round of FedAvg from a fresh CNN."""
    model = FlatModel(build_model("cnn", seed=0), "fc2")
    weights = model.vector.clone()
    for t in range(rounds):
        held = [torch.bincount(peer.examples.y, minlength=10) > 0 for peer in peers]
        updates = Updates(
            weights=Loop(model, training).train(weights, peers, seed=0, round=t),
            global_weights=weights,
            layout=model.layout,
            learning_rate=training.learning_rate,
            examples=torch.tensor([float(len(peer.examples.y)) for peer in peers]),
            peers=tuple(peer.id for peer in peers),
            round=t,
            declared_classes=torch.stack(held),
        )
        yield updates
        weights = fedavg(updates).aggregate


@pytest.mark.parametrize(
    ("distribution", "kind"), [("iid", "mild"), ("mild", "mild"), ("extreme", "extreme")]
)
def test_the_distribution_of_trained_peers_is_discovered_and_declared(mnist, distribution, kind):
    training = LocalTraining(local_epochs=1, batch_size=16, learning_rate=0.01)
    peers = make_peers(mnist, distribution, 10, 400)
    for updates in play(peers, training, rounds=4):
        assert lfighter(updates).saw["distribution"] == kind
        assert lfighter(updates, distribution="declared").saw["distribution"] == kind


def test_a_trained_peer_of_one_class_shows_that_class_only(mnist):
    training = LocalTraining(local_epochs=1, batch_size=16, learning_rate=0.01)
    peers = make_peers(mnist, "extreme", 10, 400)
    updates = next(play(peers, training, rounds=1))
    assert torch.equal(held_classes(updates.output_layer), updates.declared_classes)


def test_trained_attackers_are_caught(mnist):
    """Four of ten iid peers flip 7 to 1; neuron 1 or 7 is relevant, and just they are dropped."""
    training = LocalTraining(local_epochs=2, batch_size=32, learning_rate=0.02)
    peers = make_peers(mnist, "iid", 10, 2000, attackers=(0, 3, 4, 8))
    updates = next(play(peers, training, rounds=1))
    decision = lfighter(updates)
    assert {1, 7} & set(decision.saw["neurons"])
    assert decision.dropped(updates.peers) == [0, 3, 4, 8]
