"""The newer rules: by hand, by brute force, as byzfl computes them, and at their bounds."""

import itertools
import math
import subprocess
import sys

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hdbscan import HDBSCAN
from helpers import updates_of, updates_with_gradients
from hypothesis import given, settings
from scipy.optimize import minimize
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.preprocessing import StandardScaler

import lff
from lff.beyond.defenses import (
    CenteredClipping,
    FLDefender,
    dnc,
    flame,
    fltrust,
    rfa,
    signguard,
    tolpegin,
)
from lff.beyond.defenses.dnc import outlier_scores
from lff.beyond.defenses.flame import majority
from lff.beyond.defenses.signguard import sign_shares
from lff.beyond.defenses.tolpegin import principal_components, standardized
from lff.defenses import DEFENSES
from lff.errors import InputError
from lff.seeds import stream

NAMES = ["tolpegin", "flame", "fltrust", "rfa", "centered_clipping", "dnc", "signguard"]
NAMES += ["fl_defender"]
FAR = [1e3, 1e6, 1e9]
properties = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def rows_of(m, d=6, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).normal(size=(m, d))).astype(np.float32)


def close(got, wanted, tolerance=1e-5):
    wanted = torch.as_tensor(np.asarray(wanted), dtype=got.dtype)
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)


def dropped(rule, updates):
    return rule(updates).dropped(updates.peers)


@st.composite
def honest_and_attackers(draw, most):
    """Honest rows in a box and at most `most(n)` attackers' rows, of any finite values."""
    n = draw(st.integers(2, 12))
    f = draw(st.integers(0, most(n)))
    anything = st.floats(-1e9, 1e9) | st.sampled_from([-1e9, 1e9, -1.0, 0.0, 1.0])
    attackers = np.array([[draw(anything) for _ in range(4)] for _ in range(f)]).reshape(f, 4)
    honest = np.random.default_rng(draw(st.integers(0, 10**6))).uniform(-1, 1, size=(n - f, 4))
    return honest.astype(np.float32), attackers.astype(np.float32)


# --- registration ----------------------------------------------------------------------------


def test_they_are_loaded_through_entry_points_and_only_when_asked_for():
    """The core does not know them; a name that it lacks, or one of theirs taken by somebody else,
    brings them in at once, and then they come after her own."""
    script = (
        "import sys\n"
        "import lff\n"
        "from lff.attacks import ATTACKS\n"
        "from lff.defenses import DEFENSES\n"
        "DEFENSES['median'], ATTACKS['label_flipping']\n"
        "print('lff.beyond' in sys.modules)\n"
        "try:\n"
        "    lff.attack('mimic')(lambda data, context: data)\n"
        "except lff.errors.InputError as error:\n"
        "    print(error)\n"
        "print('lff.beyond.defenses' in sys.modules)\n"
        "print(DEFENSES.label('rfa'), ATTACKS['alie'].knows)\n"
        "lff.attack('mine')(lambda data, context: data)\n"
        "print(list(ATTACKS)[-1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "False", "a attack named 'mimic' exists already; choose another name", "False",
        "RFA attackers' updates", "mine",
    ]  # fmt: skip
    assert set(NAMES) <= set(DEFENSES)


@pytest.mark.parametrize(
    ("name", "told"),
    [("tolpegin", []), ("flame", []), ("rfa", []), ("centered_clipping", []),
     ("signguard", []), ("fl_defender", []), ("dnc", ["attacker_count"]),
     ("fltrust", ["root_update"])],
)  # fmt: skip
def test_a_record_says_what_the_rule_was_told(name, told, tiny):
    record = lff.run("mnist-mild", defense=name, attackers=30, progress=False, **tiny)
    assert record.told == told


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("flame", "noise", -0.1), ("flame", "noise", math.inf), ("fltrust", "root_examples", 0),
        ("rfa", "iterations", 0), ("rfa", "smoothing", 0.0), ("centered_clipping", "radius", 0.0),
        ("centered_clipping", "iterations", 0), ("dnc", "iterations", 0), ("dnc", "share", -1.0),
        ("dnc", "coordinates", 0), ("signguard", "shortest", 1.5), ("signguard", "longest", 0.5),
        ("signguard", "coordinates", 0.0),
    ],
)  # fmt: skip
def test_options_that_cannot_be_are_named(name, option, value):
    updates = updates_of(rows_of(4), attacker_count=1)
    with pytest.raises(InputError, match=rf"{option}.*not .*{value}"):
        DEFENSES[name].create(**{option: value})(updates)


# --- Tolpegin --------------------------------------------------------------------------------


def one_class_apart(honest, attackers, apart=2, classes=4, features=9, seed=0):
    """Gradients of which those of one output neuron are in two groups."""
    gradients = rows_of((honest + attackers) * classes, features + 1, seed).reshape(
        honest + attackers, classes, features + 1
    )
    gradients[honest:, apart] += 6
    return gradients


@pytest.mark.parametrize("apart", [0, 2, 3])
def test_the_smaller_group_of_the_class_that_falls_apart_is_dropped(apart):
    decision = tolpegin(updates_with_gradients(one_class_apart(7, 4, apart)))
    assert decision.dropped(range(11)) == [7, 8, 9, 10]
    assert decision.saw["class"] == apart
    assert decision.saw["clusters"] == [0] * 7 + [1] * 4


def test_of_equal_groups_nobody_is_dropped():
    decision = tolpegin(updates_with_gradients(one_class_apart(5, 5)))
    assert decision.saw["clusters"] == [0] * 5 + [1] * 5
    assert decision.dropped(range(10)) == []


def test_the_scale_of_a_class_or_a_column_does_not_count():
    """Every column is standardized: a loud class without groups is not chosen."""
    gradients = one_class_apart(7, 4)
    gradients[:, 0] *= 1e4
    assert tolpegin(updates_with_gradients(gradients)).saw["class"] == 2


@properties
@given(st.integers(3, 15), st.integers(0, 6), st.integers(0, 10**6))
def test_tolpegin_is_its_twin_of_scikit_learn(honest, attackers, seed):
    gradients = one_class_apart(honest, attackers, seed=seed)
    updates = updates_with_gradients(gradients)
    start, best, distances = stream(0, "k-means", 0) % 2**32, None, []
    for c in range(4):
        points = StandardScaler().fit_transform(updates.output_layer[:, c].double().numpy())
        found = KMeans(2, n_init=10, random_state=start).fit(PCA(2).fit_transform(points))
        distances.append(np.linalg.norm(np.subtract(*found.cluster_centers_)))
        best = found.labels_ if distances[-1] == max(distances) else best
    sizes = np.bincount(best)
    smaller = [] if sizes[0] == sizes[1] else np.flatnonzero(best == sizes.argmin()).tolist()
    got = tolpegin(updates)
    assert got.saw["distances"] == pytest.approx(distances, rel=1e-6)
    assert got.dropped(updates.peers) == smaller


def test_standardizing_and_principal_components_are_scikit_learns():
    data = rows_of(20, 7, scale=30.0).astype(float)
    data[:, 3] = 0.1  # a constant column, whose mean has a rounding error
    ours = standardized(torch.from_numpy(data))
    close(ours, StandardScaler().fit_transform(data), 1e-9)
    close(principal_components(ours).abs(), np.abs(PCA(2).fit_transform(ours.numpy())), 1e-9)


# --- FLAME -----------------------------------------------------------------------------------


def test_flame_drops_who_points_elsewhere_and_clips_to_the_median_length():
    """Lengths 1, 2, 3 and 10: the median is 2.5."""
    updates = updates_of([[1.0, 0.01], [2, 0], [3, 0.01], [0, 10]])
    decision = flame(updates, noise=0.0)
    assert decision.dropped(updates.peers) == [3]
    assert decision.saw["bound"] == pytest.approx(2.5, abs=1e-3)
    close(decision.aggregate, [(1 + 2 + 2.5) / 3, 0.02 / 3], 5e-3)


def test_flame_looks_at_models_not_at_updates():
    """Two opposite steps, in a large model: as models they point the same way."""
    steps = np.concatenate([np.full((5, 2), 0.1), np.full((4, 2), -0.1)]) * [1, 0]
    steps = steps + 1e-3 * rows_of(9, 2)
    far = updates_of(steps + np.array([100, 0]), global_weights=torch.tensor([100.0, 0]))
    near = updates_of(steps)
    assert dropped(flame, near) == [5, 6, 7, 8]
    assert dropped(flame, far) != [5, 6, 7, 8]


@properties
@given(st.integers(3, 20), st.integers(0, 9), st.integers(0, 10**6))
def test_the_majority_is_that_of_hdbscan_on_cosines(honest, attackers, seed):
    rows = rows_of(honest + attackers, 5, seed) + np.array([3, 0, 0, 0, 0])
    rows[honest:, :2] = rows[honest:, 1::-1]
    n = len(rows)
    twin = HDBSCAN(metric="cosine", algorithm="generic", min_cluster_size=n // 2 + 1,
                   min_samples=1, allow_single_cluster=True)  # fmt: skip
    inside = twin.fit_predict(rows.astype(float)) == 0
    units = torch.from_numpy(rows).double()
    units = units / units.norm(dim=1, keepdim=True)
    got = majority(1 - units @ units.T)
    assert got.tolist() == (inside if inside.any() else ~inside).tolist()
    assert got.sum() > n / 2


def test_the_noise_has_the_paper_s_deviation_and_comes_back_with_the_seed():
    """0.1 times the median distance of the peers' models from the global one, per parameter."""
    rows = rows_of(9, 40_000, scale=0.01) + 1
    plain, once, again, later = (
        flame(updates_of(rows, round=t), noise=noise).aggregate
        for t, noise in ((0, 0.0), (0, 0.1), (0, 0.1), (1, 0.1))
    )
    bound = np.median(np.linalg.norm(rows.astype(float), axis=1))
    assert (once - plain).std().item() == pytest.approx(0.1 * bound, rel=0.02)
    assert (once - plain).mean().abs() < 5 * 0.1 * bound / 200
    assert torch.equal(once, again)
    assert not torch.equal(once, later)


@properties
@given(honest_and_attackers(lambda n: (n - 1) // 2))
def test_flame_stays_as_near_as_the_farthest_honest_peer_below_half(rows):
    honest = rows[0]
    aggregate = flame(updates_of(np.concatenate(rows)), noise=0.0).aggregate
    farthest = np.linalg.norm(honest.astype(float), axis=1).max()
    assert aggregate.double().norm() <= farthest * (1 + 1e-5)


def test_a_majority_takes_flame_anywhere():
    moved = []
    for far in FAR:
        rows = np.concatenate([rows_of(4, 3) + 3, np.full((5, 3), -far)])
        moved.append(flame(updates_of(rows), noise=0.0).aggregate.abs().min().item())
    assert_broken(moved)


# --- FLTrust ---------------------------------------------------------------------------------


def trusted(rows, root, **settings):
    root = torch.tensor(root, dtype=torch.float32)
    return fltrust(updates_of(rows, root_update=lambda examples: root, **settings))


def test_fltrust_by_hand():
    """Trust 1, 0 and 0.6; all at the length of the server's own step, 5."""
    decision = trusted([[6.0, 8], [-3, -4], [1, 0]], [3.0, 4])
    close(decision.weights, [1 / 1.6, 0, 0.6 / 1.6])
    close(decision.scores, [0, 2, 0.4])
    close(decision.aggregate, [(3 + 0.6 * 5) / 1.6, 4 / 1.6])


def test_if_nobody_is_trusted_all_weigh_the_same_at_the_servers_length():
    decision = trusted([[-6.0, 0], [-3, -4]], [3.0, 4])
    close(decision.aggregate, [(-5 - 3) / 2, (0 - 4) / 2])


def test_who_sends_the_global_model_back_is_not_trusted():
    close(trusted([[0.0, 0], [3, 4]], [3.0, 4]).weights, [0, 1])


@properties
@given(honest_and_attackers(lambda n: n - 1), st.integers(0, 10**6))
def test_no_number_of_peers_takes_fltrust_farther_than_the_servers_own_step(rows, seed):
    root = rows_of(1, 4, seed)[0]
    aggregate = trusted(np.concatenate(rows), root).aggregate
    assert aggregate.double().norm() <= np.linalg.norm(root.astype(float)) * (1 + 1e-4)


@properties
@given(st.integers(1, 8), st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_the_length_of_an_update_is_nothing_to_fltrust(m, seed, factor):
    rows, root = rows_of(m, seed=seed), rows_of(1, seed=seed + 1)[0]
    longer = rows.copy()
    longer[0] *= factor
    close(trusted(longer, root).aggregate, trusted(rows, root).aggregate, 1e-4)


def test_the_rule_says_how_many_clean_examples_it_wants():
    asked = []
    fltrust(updates_of(rows_of(3, 4), root_update=lambda n: asked.append(n) or torch.ones(4)))
    fltrust(
        updates_of(rows_of(3, 4), root_update=lambda n: asked.append(n) or torch.ones(4)),
        root_examples=7,
    )
    assert asked == [100, 7]
    with pytest.raises(InputError, match="must be told root_update"):
        fltrust(updates_of(rows_of(3, 4), root_update=None))


# --- RFA -------------------------------------------------------------------------------------


@pytest.mark.parametrize("iterations", [1, 3, 10])
@pytest.mark.parametrize("smoothing", [1e-5, 0.1, 3.0])
def test_rfa_is_byzfls_geometric_median(byzfl, iterations, smoothing):
    """Which starts at zero: our global model here."""
    rows = rows_of(9, seed=iterations)
    theirs = byzfl.GeometricMedian(nu=smoothing, T=iterations)(torch.from_numpy(rows))
    ours = rfa(updates_of(rows), iterations=iterations, smoothing=smoothing)
    close(ours.aggregate, theirs)


def test_one_iteration_weighs_by_examples_over_distance():
    """2/4, 3/1 and 1/10."""
    updates = updates_of([[4.0, 0], [0, 1], [-6, -8]], examples=torch.tensor([2.0, 3, 1]))
    decision = rfa(updates, iterations=1)
    close(decision.weights, np.array([0.5, 3, 0.1]) / 3.6)
    close(decision.aggregate, [(2 - 0.6) / 3.6, (3 - 0.8) / 3.6])


@pytest.mark.parametrize("seed", range(5))
def test_many_iterations_find_the_geometric_median(seed):
    """The minimum of the sum of distances, weighed by examples."""
    rows, examples = rows_of(7, 3, seed) + 2, np.arange(1.0, 8)
    updates = updates_of(
        rows, examples=torch.from_numpy(examples).float(), global_weights=torch.zeros(3)
    )

    def objective(z):
        return examples @ np.linalg.norm(rows - z, axis=1)

    best = minimize(objective, rows.mean(axis=0), method="Nelder-Mead", tol=1e-10).fun
    found = rfa(updates, iterations=500).aggregate.numpy()
    assert objective(found) <= best * (1 + 1e-6)


@properties
@given(honest_and_attackers(lambda n: (n - 1) // 2), st.integers(1, 40))
def test_rfa_stays_near_the_global_model_and_the_honest_below_half(rows, iterations):
    """Each iteration at most: R + f / (n - f) (R + 2r), from radius r, R being the honest one."""
    honest, attackers = rows
    radius, share = 2.0, len(attackers) / len(honest)
    reach = 0.0
    for _ in range(min(iterations, 4)):
        reach = radius + share * (radius + 2 * reach)
    aggregate = rfa(updates_of(np.concatenate(rows)), iterations=min(iterations, 4)).aggregate
    assert aggregate.double().norm() <= reach + 1e-3


def test_a_majority_takes_the_geometric_median_anywhere_but_not_in_four_iterations():
    """From the global model, four iterations go only so far however far away the attackers are."""
    honest = rows_of(4, 3, scale=0.5)
    long, short = [], []
    for far in FAR:
        updates = updates_of(np.concatenate([honest, np.full((5, 3), far)]))
        long.append(rfa(updates, iterations=400).aggregate.abs().min().item())
        short.append(rfa(updates).aggregate.abs().max().item())
    assert_broken(long)
    assert max(short) < 20


def test_examples_are_taken_at_their_word():
    rows = np.concatenate([rows_of(4, 3), [[1e6, 1e6, 1e6]]])
    examples = torch.tensor([1.0, 1, 1, 1, 1e12])
    assert rfa(updates_of(rows, examples=examples)).aggregate.min() > 1e5


# --- centered clipping -----------------------------------------------------------------------


@pytest.mark.parametrize(("iterations", "radius"), [(1, 100.0), (1, 1.0), (3, 0.5)])
def test_centered_clipping_is_byzfls_also_over_rounds(byzfl, iterations, radius):
    theirs = byzfl.CenteredClipping(L=iterations, tau=radius)
    ours = CenteredClipping(iterations=iterations, radius=radius)
    for t in range(4):
        gradients = rows_of(9, seed=t) + t
        v = theirs(torch.from_numpy(gradients))
        updates = updates_of(
            5 - 0.1 * gradients, learning_rate=0.1, global_weights=torch.full((6,), 5.0)
        )
        close(ours(updates).aggregate, 5 - 0.1 * v)


def test_centered_clipping_by_hand_with_memory():
    """Radius 1: [3, 0] counts as [1, 0]; then the center is [0.5, 0] and all is within reach."""
    rule = CenteredClipping(radius=1.0)
    first = rule(updates_of([[-3.0, 0], [0, 0]]))
    close(first.aggregate, [-0.5, 0])
    close(first.scores, [3, 0])
    assert first.saw == {"clipped": 1}
    second = rule(updates_of([[-1.0, 0], [0, 0]]))
    close(second.aggregate, [-0.5, 0])
    assert second.saw == {"clipped": 0}


def test_centered_clipping_goes_on_from_its_state():
    one, two = (CenteredClipping(radius=1.0) for _ in range(2))
    assert one.state_dict() == {}
    one(updates_of(rows_of(5)))
    two.load_state_dict(one.state_dict())
    updates = updates_of(rows_of(5, seed=1))
    assert torch.equal(one(updates).aggregate, two(updates).aggregate)


@properties
@given(honest_and_attackers(lambda n: n - 1))
def test_one_peer_moves_centered_clipping_by_two_radii_over_n_at_most(rows):
    rows = np.concatenate(rows)
    other = rows.copy()
    other[0] = -1e8
    one, two = (CenteredClipping(radius=2.0)(updates_of(r)).aggregate for r in (rows, other))
    assert (one - two).double().norm() <= 2 * 2.0 / len(rows) * (1 + 1e-4)


# --- DnC -------------------------------------------------------------------------------------


@properties
@given(st.integers(2, 15), st.integers(0, 15), st.integers(0, 10**6))
def test_dnc_is_its_twin(m, told, seed):
    """numpy's first singular vector; the largest projections leave."""
    rows = rows_of(m, seed=seed) * np.array([5, 1, 1, 1, 1, 1])
    centered = rows - rows.astype(float).mean(axis=0)
    projections = (centered @ np.linalg.svd(centered)[2][0]) ** 2
    drop = min(told, m - 1)
    kept = np.sort(projections.argsort()[: m - drop])
    updates = updates_of(rows, attacker_count=told)
    decision = dnc(updates)
    assert decision.dropped(range(m)) == sorted(set(range(m)) - set(kept.tolist()))
    close(decision.aggregate, rows[kept].mean(axis=0))
    close(decision.scores, projections, 1e-4)


def test_scores_are_squared_projections_by_hand():
    """Along the first axis, where the mean is 2."""
    data = torch.tensor([[0.0, 0.1], [1, -0.1], [5, 0]], dtype=torch.float64)
    close(outlier_scores(data), [4, 1, 9], 0.05)


def test_iterations_drop_whom_any_of_them_drops():
    """Each sees one coordinate, in which another peer is far off."""
    rows = np.zeros((9, 4))
    rows[[0, 1, 2, 3], [0, 1, 2, 3]] = 50
    rows += 0.01 * rows_of(9, 4)
    updates = updates_of(rows, attacker_count=1)
    once = dropped(lambda u: dnc(u, coordinates=1), updates)
    often = dropped(lambda u: dnc(u, coordinates=1, iterations=40), updates)
    assert len(once) == 1
    assert often == [0, 1, 2, 3]


def test_a_share_of_the_attackers_may_be_dropped_or_more():
    updates = updates_of(rows_of(12), attacker_count=4)
    counts = [len(dnc(updates, share=share).dropped(range(12))) for share in (0.0, 0.5, 1.0, 1.5)]
    assert counts == [0, 2, 4, 6]


@pytest.mark.parametrize("f", [1, 3, 4])
def test_dnc_drops_far_attackers_at_one_point_as_many_as_it_is_told(f):
    moved = []
    for far in FAR:
        rows = np.concatenate([rows_of(9 - f, 3), np.full((f, 3), far)])
        assert dropped(dnc, updates_of(rows, attacker_count=f)) == list(range(9 - f, 9))
        more = updates_of(rows, attacker_count=f - 1)
        moved.append(dnc(more).aggregate.abs().min().item())
    assert_broken(moved)


# --- SignGuard -------------------------------------------------------------------------------


def test_shares_of_signs_by_hand():
    shares = sign_shares(torch.tensor([[1.0, 2, 0, -1], [-1, -1, -1, -1]]))
    close(shares, [[0.5, 0.25, 0.25], [0, 0, 1]])


def mostly(positive, count, seed, d=1000):
    """Rows of which this share of the entries is positive (negative as updates)."""
    rng = np.random.default_rng(seed)
    signs = np.where(rng.random((count, d)) < positive, 1, -1)
    return -(signs * rng.uniform(0.5, 1.5, size=(count, d))).astype(np.float32)


def test_unusual_signs_and_lengths_are_dropped_and_the_rest_clipped():
    rows = np.concatenate([mostly(0.5, 8, 0), mostly(0.2, 3, 1)])
    rows[0] *= 50
    rows[1] *= 0.01
    rows[2] *= 2
    updates = updates_of(rows)
    decision = signguard(updates)
    assert decision.dropped(updates.peers) == [0, 1, 8, 9, 10]
    assert decision.saw == {"usual": 9}
    sizes = np.linalg.norm(rows.astype(float), axis=1)
    kept = rows[2:8] * np.minimum(np.median(sizes) / sizes[2:8], 1)[:, None]
    close(decision.aggregate, kept.mean(axis=0))


def test_the_scale_of_all_is_nothing_to_who_passes():
    rows = np.concatenate([mostly(0.5, 8, 0), mostly(0.2, 3, 1)])
    assert dropped(signguard, updates_of(1e-6 * rows)) == dropped(signguard, updates_of(rows))


def test_if_nobody_passes_both_filters_everybody_does():
    """The majority of signs are too long or too short, and the usual lengths of other signs."""
    rows = np.concatenate([mostly(0.5, 6, 0), mostly(0.05, 5, 1)])
    rows[:3] *= 100
    rows[3:6] *= 0.001
    assert dropped(signguard, updates_of(rows)) == []


@properties
@given(honest_and_attackers(lambda n: (n - 1) // 2))
def test_signguard_stays_as_near_as_the_farthest_honest_peer_below_half(rows):
    aggregate = signguard(updates_of(np.concatenate(rows))).aggregate
    farthest = np.linalg.norm(rows[0].astype(float), axis=1).max()
    assert aggregate.double().norm() <= farthest * (1 + 1e-5)


def test_a_majority_takes_signguard_anywhere():
    moved = []
    for far in FAR:
        rows = np.concatenate([rows_of(4, 30), np.full((5, 30), far)])
        moved.append(signguard(updates_of(rows)).aggregate.abs().min().item())
    assert_broken(moved)


# --- FL-Defender -----------------------------------------------------------------------------


def reputations_of(gradients):
    """As the authors compute a round's scores, with scikit-learn."""
    similarity = cosine_similarity(gradients.astype(float)) - np.eye(len(gradients))
    points = PCA(2).fit_transform(StandardScaler().fit_transform(similarity))
    return cosine_similarity(np.median(points, axis=0, keepdims=True), points)[0]


@pytest.mark.parametrize("m", [5, 12, 20])
def test_fl_defender_is_its_twin_of_scikit_learn_over_rounds(m):
    rule, reputation = FLDefender(), np.zeros(m)
    for t in range(3):
        gradients = one_class_apart(m - m // 4, m // 4, seed=10 * m + t)
        updates = updates_with_gradients(gradients)
        reputation += reputations_of(gradients.reshape(m, -1))
        trust = np.maximum(reputation - np.quantile(reputation, 0.25), 0)
        decision = rule(updates)
        close(decision.weights, trust / trust.sum(), 1e-4)
        close(decision.scores, -reputation, 1e-4)
    assert len(decision.dropped(range(m))) >= m // 4


def test_fl_defender_trusts_who_lies_with_the_majority():
    rule = FLDefender()
    for t in range(3):
        decision = rule(updates_with_gradients(one_class_apart(8, 3, seed=t), round=t))
    assert decision.weights[:8].mean() > 3 * decision.weights[8:].mean()


def test_fl_defender_goes_on_from_its_state():
    one, two = FLDefender(), FLDefender()
    one(updates_with_gradients(one_class_apart(6, 2)))
    two.load_state_dict(one.state_dict())
    updates = updates_with_gradients(one_class_apart(6, 2, seed=1))
    assert torch.equal(one(updates).weights, two(updates).weights)


def test_one_attacker_takes_fl_defender_anywhere():
    """It weighs angles alone: who points a trusted way may be as long as she likes."""
    gradients = one_class_apart(9, 0)
    trusted_most = int(FLDefender()(updates_with_gradients(gradients)).weights.argmax())
    moved = []
    for far in FAR:
        longer = gradients.copy()
        longer[trusted_most] *= far
        moved.append(FLDefender()(updates_with_gradients(longer)).aggregate.abs().max().item())
    assert_broken(moved)


def test_two_attackers_who_do_not_train_take_tolpegin_anywhere():
    """Each in another class: only one of the two classes is looked at."""
    moved = []
    for far in FAR:
        gradients = one_class_apart(9, 0)
        gradients = np.concatenate([gradients, np.zeros_like(gradients[:2])])
        gradients[9, 0], gradients[10, 1] = far, far
        moved.append(tolpegin(updates_with_gradients(gradients)).aggregate.abs().max().item())
    assert_broken(moved)


def assert_broken(moved):
    """The aggregate follows the attackers: as they go 1,000 times further, so does it."""
    assert moved[0] > 10
    for near, far in itertools.pairwise(moved):
        assert far / near == pytest.approx(1000, rel=0.2)
