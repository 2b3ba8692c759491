"""Every rule but LFighter against a plain twin, and against cases worked by hand."""

import itertools
import math
import statistics
from dataclasses import FrozenInstanceError
from types import SimpleNamespace

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from helpers import updates_of, updates_with_gradients
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from scipy.stats import siegelslopes

from lff import registry
from lff.defenses import DEFENSES, defense, fedavg
from lff.defenses.foolsgold import FoolsGold, foolsgold_weights, largest_similarities
from lff.defenses.geometry import cosines, ranks
from lff.defenses.median import coordinate_median
from lff.defenses.multi_krum import multi_krum
from lff.defenses.repeated_median import coordinate_repeated_median
from lff.defenses.trimmed_mean import coordinate_trimmed_mean
from lff.errors import InputError
from lff.fast import coordinatewise, gram
from lff.fast.gram import squared_distances
from lff.fast.sorting import (
    BLOCK,
    NETWORK_PEERS,
    batcher_network,
    column_blocks,
    median_of,
    ranks_network,
    scratch,
    sort_columns,
)
from lff.registry import format_options, parse_options
from lff.updates import Decision, Updates, average_without

PLAIN = SimpleNamespace(
    coordinate_median=coordinate_median,
    coordinate_trimmed_mean=coordinate_trimmed_mean,
    coordinate_repeated_median=coordinate_repeated_median,
)
both_forms = pytest.mark.parametrize("form", [PLAIN, coordinatewise], ids=["plain", "fast"])
NAMES = ["fedavg", "median", "repeated_median", "trimmed_mean", "multi_krum", "foolsgold"]
ALL = [*NAMES, "lfighter"]
quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)

# Eighths: exact in float32, and equal often enough for ties.
matrices = st.tuples(st.integers(1, 12), st.integers(2, 4)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.integers(-40, 40).map(lambda i: i / 8))
)


def normal(*shape, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


def apply(name, updates, **options):
    return DEFENSES[name].create(**options)(updates)


def close(got, wanted, rtol=1e-5, atol=1e-6):
    np.testing.assert_allclose(got.numpy(), np.asarray(wanted), rtol=rtol, atol=atol)


# --- sorting ---------------------------------------------------------------------------------


def through_network(columns):
    rows = list(columns)
    for i, j in batcher_network(len(rows)):
        assert 0 <= i < j < len(rows)
        rows[i], rows[j] = np.minimum(rows[i], rows[j]), np.maximum(rows[i], rows[j])
    return np.array(rows)


@pytest.mark.parametrize("n", range(1, 13))
def test_the_network_sorts_every_zero_one_input(n):
    """By the 0-1 principle it then sorts everything."""
    columns = np.array(list(itertools.product([0, 1], repeat=n))).T
    assert np.array_equal(through_network(columns), np.sort(columns, axis=0))


@pytest.mark.parametrize("n", range(1, NETWORK_PEERS + 2))
def test_the_network_sorts_permutations_and_thresholds(n):
    rng = np.random.default_rng(n)
    columns = rng.permuted(np.tile(np.arange(n)[:, None], 300), axis=0)
    assert np.array_equal(through_network(columns), np.sort(columns, axis=0))
    zero_one = rng.permuted(np.tri(n + 1, n, -1, dtype=int).T.repeat(60, axis=1), axis=0)
    assert np.array_equal(through_network(zero_one), np.sort(zero_one, axis=0))


@pytest.mark.parametrize("n", [1, 2, 3, 8, 31, 32, 33, 40, 100])
def test_columns_are_sorted_into_a_copy(n):
    block = torch.from_numpy(normal(n, 50, seed=n).round(1))
    before = block.clone()
    ordered = sort_columns(block)
    close(ordered, np.sort(before.numpy(), axis=0), rtol=0, atol=0)
    assert torch.equal(block, before)


def test_sorting_leaves_a_slice_of_a_larger_matrix_alone():
    matrix = torch.from_numpy(normal(40, 9))
    before = matrix.clone()
    sort_columns(matrix[:, 3:6]).zero_()
    assert torch.equal(matrix, before)


def ranks_by_network(columns, low, high):
    """Through the pruned network, with a mark in place of every result said to be unused."""
    rows = list(columns)
    for i, j, minimum, maximum in ranks_network(len(rows), low, high):
        a, b = rows[i], rows[j]
        rows[i] = np.minimum(a, b) if minimum else np.full_like(a, 99)
        rows[j] = np.maximum(a, b) if maximum else np.full_like(a, 99)
    return np.sort(np.array(rows[low:high]), axis=0)


@pytest.mark.parametrize("n", range(1, 11))
def test_the_network_for_some_ranks_finds_them_in_every_zero_one_input(n):
    columns = np.array(list(itertools.product([0, 1], repeat=n))).T
    for low, high in itertools.combinations(range(n + 1), 2):
        wanted = np.sort(columns, axis=0)[low:high]
        assert np.array_equal(ranks_by_network(columns, low, high), wanted)


@pytest.mark.parametrize("n", [11, 19, 20, 31, 32])
def test_the_network_for_some_ranks_finds_them_in_permutations(n):
    columns = np.random.default_rng(n).permuted(np.tile(np.arange(n)[:, None], 300), axis=0)
    for low, high in [((n - 1) // 2, n // 2 + 1), (n // 3, n - n // 3), (0, 1), (n - 1, n)]:
        wanted = np.tile(np.arange(low, high)[:, None], 300)
        assert np.array_equal(ranks_by_network(columns, low, high), wanted)


def test_the_network_leaves_out_what_the_ranks_do_not_need():
    whole = 2 * len(batcher_network(20))
    median = sum(low + high for _, _, low, high in ranks_network(20, 9, 11))
    assert median < 0.75 * whole
    assert ranks_network(20, 0, 20) == ()  # a set of all values needs no order


@pytest.mark.parametrize("n", [1, 2, 5, 6, 32, 33, 40])
def test_the_median_of_some_of_the_lowest_values(n):
    values = normal(n, 3, 7, seed=n)
    for count in {1, min(2, n), max(n - 1, 1), n}:
        got = median_of(scratch(torch.empty(0), n, 3, 7).copy_(torch.from_numpy(values)), count)
        close(got, np.median(np.sort(values, axis=0)[:count], axis=0))
    close(median_of(torch.from_numpy(values.copy())), np.median(values, axis=0))


@pytest.mark.parametrize("entries", [1, 4, 5, 12, 35, 1000])
def test_blocks_hold_every_column_once_and_no_more_entries_than_asked_for(entries):
    """But one column at least."""
    blocks = [range(7)[columns] for columns in column_blocks(torch.empty(5, 7), entries)]
    assert [column for block in blocks for column in block] == list(range(7))
    assert all(len(block) <= max(entries // 5, 1) for block in blocks)
    assert len(blocks) == math.ceil(7 / min(max(entries // 5, 1), 7))


# --- coordinate-wise rules -------------------------------------------------------------------


def median_twin(column):
    return statistics.median(column)


def trimmed_mean_twin(column, trimmed):
    kept = sorted(column)[trimmed : len(column) - trimmed]
    return statistics.fmean(kept) if kept else statistics.median(column)


def siegel_slope(y):
    """The median over i of the median over j != i of the slopes through points i and j."""
    n = len(y)
    return statistics.median(
        statistics.median((y[j] - y[i]) / (j - i) for j in range(n) if j != i) for i in range(n)
    )


def repeated_median_twin(column):
    y = sorted(column)
    if len(y) == 1:
        return y[0]
    slope = siegel_slope(y)
    intercept = statistics.median(y[i] - slope * (i + 1) for i in range(len(y)))
    return intercept + slope * (len(y) + 1) / 2


def by_column(twin, matrix, *args):
    return [twin([float(v) for v in column], *args) for column in matrix.T]


@both_forms
@quick
@given(matrices)
def test_median_is_its_twin(form, matrix):
    close(form.coordinate_median(torch.from_numpy(matrix)), by_column(median_twin, matrix))


@both_forms
@quick
@given(matrices, st.integers(0, 7))
def test_trimmed_mean_is_its_twin(form, matrix, trimmed):
    got = form.coordinate_trimmed_mean(torch.from_numpy(matrix), trimmed)
    close(got, by_column(trimmed_mean_twin, matrix, trimmed))


@both_forms
@quick
@given(matrices)
def test_repeated_median_is_its_twin(form, matrix):
    got = form.coordinate_repeated_median(torch.from_numpy(matrix))
    close(got, by_column(repeated_median_twin, matrix), atol=1e-5)


@both_forms
@pytest.mark.parametrize("n", [2, 3, 6, 7, 20, 33, 40])
def test_repeated_median_is_scipys_line_at_the_middle(form, n):
    matrix = normal(n, 5, seed=n) ** 3
    got = form.coordinate_repeated_median(torch.from_numpy(matrix))
    lines = [siegelslopes(np.sort(column).astype(float)) for column in matrix.T]
    close(got, [line.intercept + line.slope * (n - 1) / 2 for line in lines], atol=1e-5)
    slopes = [siegel_slope(sorted(map(float, column))) for column in matrix.T]
    np.testing.assert_allclose(slopes, [line.slope for line in lines], rtol=1e-12)


@both_forms
def test_repeated_median_is_not_the_median(form):
    """y = 0, 0, 0, 1, 10: slopes by point 0, 0, 1/4, 3/4 (of 1/3, 1/2, 1, 9), 3; so 1/4.

    The intercepts y_i - x_i / 4 at x = -2 .. 2 are 1/2, 1/4, 0, 3/4, 9.5: the middle is 1/2.
    """
    column = torch.tensor([[10.0], [0.0], [1.0], [0.0], [0.0]])
    assert form.coordinate_repeated_median(column).tolist() == [0.5]
    assert form.coordinate_median(column).tolist() == [0.0]


@both_forms
@pytest.mark.parametrize("n", [33, 64, 100])
def test_coordinate_rules_are_their_twins_for_many_peers(form, n):
    matrix = normal(n, 3, seed=n)
    tensor = torch.from_numpy(matrix)
    close(form.coordinate_median(tensor), by_column(median_twin, matrix))
    close(
        form.coordinate_trimmed_mean(tensor, n // 5), by_column(trimmed_mean_twin, matrix, n // 5)
    )
    close(
        form.coordinate_repeated_median(tensor), by_column(repeated_median_twin, matrix), atol=1e-5
    )


@both_forms
@pytest.mark.parametrize("n", [7, 40])
def test_rules_over_several_blocks_of_columns_do_each_column_once(form, n):
    """More entries than a block holds, the last block partial: every column is its own answer."""
    width = BLOCK // n
    offsets = torch.arange(2 * width + 5, dtype=torch.float32)
    column = torch.from_numpy(normal(n, 1)).round(decimals=1)
    matrix = column + offsets
    for rule in (
        form.coordinate_median,
        form.coordinate_repeated_median,
        lambda m: form.coordinate_trimmed_mean(m, 2),
    ):
        shift = rule(matrix) - offsets
        assert (shift - rule(column)).abs().max() < 0.1


@both_forms
def test_repeated_median_of_so_many_peers_that_one_column_fills_a_block(form):
    n = math.isqrt(BLOCK) + 1
    matrix = normal(n, 2)
    lines = [siegelslopes(np.sort(column).astype(float)) for column in matrix.T]
    got = form.coordinate_repeated_median(torch.from_numpy(matrix))
    close(got, [line.intercept + line.slope * (n - 1) / 2 for line in lines], atol=1e-5)


@pytest.mark.parametrize("n", [2, 3, 8, 9, 20])
def test_trimmed_mean_at_half_is_the_median_and_at_nothing_the_mean(n):
    matrix = torch.from_numpy(normal(n, 6, seed=n))
    half = updates_of(matrix, attacker_count=round(0.5 * n))
    assert torch.equal(apply("trimmed_mean", half).aggregate, apply("median", half).aggregate)
    nothing = updates_of(matrix, attacker_count=0)
    close(apply("trimmed_mean", nothing).aggregate, matrix.double().mean(dim=0))


def test_trimmed_mean_by_hand():
    updates = updates_of([[1, 9], [2, 0], [4, 1], [6, 5], [100, 3]], attacker_count=1)
    decision = apply("trimmed_mean", updates)
    assert decision.aggregate.tolist() == [4, 3]
    assert decision.saw == {"trimmed": 1}


def test_coordinate_rules_drop_nobody_and_ignore_numbers_of_examples():
    matrix = normal(5, 4)
    for name in ("median", "trimmed_mean", "repeated_median"):
        few = apply(name, updates_of(matrix, attacker_count=1))
        many = apply(
            name, updates_of(matrix, attacker_count=1, examples=torch.tensor([1.0, 9, 2, 7, 5]))
        )
        assert torch.equal(few.aggregate, many.aggregate)
        assert few.dropped(range(5)) == []


# --- FedAvg ----------------------------------------------------------------------------------


def test_fedavg_weighs_by_examples_or_equally():
    updates = updates_of([[1, 0], [2, 4], [7, 8]], examples=torch.tensor([1.0, 2, 5]))
    decision = fedavg(updates)
    close(decision.aggregate, [(1 + 4 + 35) / 8, (0 + 8 + 40) / 8])
    close(decision.weights, [1 / 8, 2 / 8, 5 / 8])
    close(fedavg(updates, weighing="equal").aggregate, [10 / 3, 4])
    with pytest.raises(InputError, match=r"'equl'.*'equal'"):
        fedavg(updates, weighing="equl")


@quick
@given(matrices, st.data())
def test_fedavg_is_its_twin(matrix, data):
    m = len(matrix)
    examples = data.draw(st.lists(st.integers(1, 600), min_size=m, max_size=m))
    decision = fedavg(updates_of(matrix, examples=torch.tensor(examples)))
    total = sum(examples)
    wanted = [
        sum(n * float(v) for n, v in zip(examples, column, strict=True)) / total
        for column in matrix.T
    ]
    close(decision.aggregate, wanted, atol=1e-5)
    assert decision.dropped(range(m)) == []


# --- multi-Krum ------------------------------------------------------------------------------


def distances_twin(matrix):
    rows = [[float(v) for v in row] for row in matrix]
    return [[sum((a - b) ** 2 for a, b in zip(p, q, strict=True)) for q in rows] for p in rows]


def multi_krum_twin(matrix, attackers):
    """The rows kept: n - f - 2 of the lowest sums of distances to n - f - 2 neighbours.

    Of equal scores the first is kept; with one neighbour the two closest rows always tie.
    """
    n = len(matrix)
    count = max(n - attackers - 2, 1)
    distances = distances_twin(matrix)
    scores = [sum(sorted(distances[i][:i] + distances[i][i + 1 :])[:count]) for i in range(n)]
    return sorted(range(n), key=lambda i: scores[i])[:count], scores


@pytest.mark.parametrize("n", [2, 3, 4, 5, 9, 20])
@pytest.mark.parametrize("ratio", [0, 0.1, 0.3, 0.5, 1])
def test_multi_krum_is_its_twin(n, ratio):
    attackers = round(ratio * n)
    for seed in range(5):
        matrix = normal(n, 6, seed=seed)
        matrix[: n // 3] += 2
        decision = multi_krum(updates_of(matrix, attacker_count=attackers))
        kept, scores = multi_krum_twin(matrix, attackers)
        close(decision.scores, scores)
        assert decision.dropped(range(n)) == sorted(set(range(n)) - set(kept))
        close(decision.aggregate, matrix[kept].astype(float).mean(axis=0))
        assert decision.saw["kept"] == len(kept)


def test_multi_krum_by_hand():
    """n = 6, f = 1: three neighbours, three kept: 3, 4 and 2 (scores 1+1+4, 1+4+4, 1+1+4)."""
    updates = updates_of(
        [[0, 0], [2, 0], [3, 0], [4, 0], [5, 0], [90, 0]],
        attacker_count=1,
        examples=torch.tensor([1.0, 1, 100, 1, 1, 1]),
    )
    decision = multi_krum(updates)
    assert decision.scores.tolist()[:5] == [4 + 9 + 16, 1 + 4 + 4, 1 + 1 + 4, 6, 14]
    assert decision.dropped(updates.peers) == [0, 4, 5]
    assert decision.aggregate.tolist() == [3, 0], "kept peers weigh the same"


def test_multi_krum_keeps_the_only_peer():
    decision = multi_krum(updates_of([[3, 4]], attacker_count=0))
    assert decision.aggregate.tolist() == [3, 4]
    assert decision.weights.tolist() == [1]
    assert decision.scores is None, "she has no neighbour, and so no score"


def distances_of(matrix):
    return squared_distances(torch.from_numpy(matrix), torch.from_numpy(matrix[0]))


@quick
@given(matrices)
def test_squared_distances_are_their_twin(matrix):
    got = distances_of(matrix)
    assert got.dtype == torch.float64
    assert (got >= 0).all()
    close(got, distances_twin(matrix), atol=1e-9)


@pytest.mark.parametrize("offset", [1.0, 1e3, 1e6])
def test_distances_of_nearly_equal_updates_keep_their_digits(offset):
    """Rows that differ by a few units in the last place of float32."""
    rng = np.random.default_rng(0)
    base = np.full((6, 40), offset, dtype=np.float32)
    matrix = base + rng.integers(-3, 4, size=base.shape).astype(np.float32) * np.spacing(base)
    close(
        distances_of(matrix),
        distances_twin(matrix),
        rtol=1e-6,
        atol=0,
    )


def test_one_far_update_does_not_blur_the_distances_of_the_others():
    matrix = normal(6, 50, scale=1e-3)
    matrix[5] += 1e6
    close(
        distances_of(matrix),
        distances_twin(matrix),
        rtol=1e-3,
        atol=0,
    )


def test_distances_are_symmetric_to_the_last_bit():
    """Else rounding decides between the two closest peers, who tie when one neighbour counts."""
    rows = torch.from_numpy(normal(9, 6))
    distances = squared_distances(rows, rows[0])
    assert torch.equal(distances, distances.T)


@pytest.mark.parametrize("rounding", [-1e-15, 0, 1e-15])
def test_equal_rows_are_at_no_distance_however_their_products_are_rounded(rounding, monkeypatch):
    """A matrix product may round a row times its copy unlike the row times itself."""

    def product(block):
        products = block @ block.T
        return torch.where(torch.eye(len(products)) == 1, products, products * (1 + rounding))

    monkeypatch.setattr(gram, "_times_its_transpose", product)
    matrix = normal(9, 101, scale=100).repeat(2, axis=0)
    distances = squared_distances(torch.from_numpy(matrix), torch.zeros(101))
    equal = torch.from_numpy(np.arange(18)[:, None] // 2 == np.arange(18) // 2)
    assert (distances[equal] == 0).all()
    assert (distances[~equal] > 1).all()


def test_distances_over_several_blocks_add_up(monkeypatch):
    monkeypatch.setattr(gram, "BLOCK", 12)
    matrix = normal(4, 11)
    close(
        distances_of(matrix),
        distances_twin(matrix),
    )


# --- FoolsGold -------------------------------------------------------------------------------


def cosine_twin(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    length = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
    return dot / length if length else 0.0


def foolsgold_twin(histories):
    """Algorithm 1 of Fung et al. (2020), with 0 for a peer's similarity with herself."""
    n = len(histories)
    cs = [
        [0.0 if i == j else cosine_twin(histories[i], histories[j]) for j in range(n)]
        for i in range(n)
    ]
    v = [max(row) for row in cs]
    for i in range(n):
        for j in range(n):
            if v[j] > v[i]:
                cs[i][j] *= v[i] / v[j]  # pardoning
    alpha = [min(max(1 - max(row), 0.0), 1.0) for row in cs]
    highest = max(alpha)
    weights = []
    for a in alpha:
        a = a / highest if highest else 0.0
        if a in (0, 1):
            weights.append(a)
        else:
            weights.append(min(max(math.log(a / (1 - a)) + 0.5, 0.0), 1.0))
    return weights


def weights_of(vectors):
    return foolsgold_weights(cosines(torch.as_tensor(np.asarray(vectors))))


@quick
@given(st.integers(1, 8), st.integers(0, 3), st.floats(0, 2), st.integers(0, 10**6))
def test_foolsgold_weights_are_their_twin(honest, sybils, spread, seed):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(honest + sybils, 5)) + spread
    vectors[honest:] = vectors[:1] + 0.05 * rng.normal(size=(sybils, 5))
    close(weights_of(vectors), foolsgold_twin(vectors), rtol=1e-6, atol=1e-6)


def test_foolsgold_weights_cover_zero_one_and_between():
    """Lest the comparison with the twin be one of clipped values only."""
    seen = np.concatenate(
        [weights_of(np.random.default_rng(s).normal(size=(6, 4)) + 0.5) for s in range(20)]
    )
    assert (seen == 0).any()
    assert (seen == 1).any()
    assert ((seen > 0.01) & (seen < 0.99)).any()


def test_foolsgold_by_hand():
    """Two sybils in one direction and an honest peer at 60 degrees from them: 0, 0 and 1."""
    vectors = [[1, 0], [2, 0], [0.5, math.sqrt(3) / 2]]
    assert weights_of(vectors).tolist() == [0, 0, 1]
    assert weights_of(vectors[:2]).tolist() == [0, 0]


def test_foolsgold_pardons_by_hand():
    """cs12 = 0.9, cs13 = 0.5, cs23 = 0.4, so v = 0.9, 0.9, 0.5.

    Peer 3 is pardoned: cs31 = 0.5 * 5/9, so alpha = 0.1, 0.1, 1 - 2.5/9 = 0.7222, rescaled
    0.1385, 0.1385, 1. ln(0.1385 / 0.8615) + 0.5 < 0.
    With cs12 = 0.55 instead: v = 0.55, 0.55, 0.5; alpha = 0.45, 0.45, 1 - 0.5 * 0.5 / 0.55.
    """
    similarity = torch.tensor([[1, 0.9, 0.5], [0.9, 1, 0.4], [0.5, 0.4, 1]]).double()
    assert foolsgold_weights(similarity).tolist() == [0, 0, 1]
    similarity[0, 1] = similarity[1, 0] = 0.55
    a = 0.45 / (1 - 0.5 * 0.5 / 0.55)
    weight = math.log(a / (1 - a)) + 0.5
    assert 0 < weight < 1 or weight > 1
    close(foolsgold_weights(similarity), [min(weight, 1), min(weight, 1), 1])
    similarity[0, 1] = similarity[1, 0] = 0.7
    a = 0.3 / (1 - 0.5 * 0.5 / 0.7)
    weight = math.log(a / (1 - a)) + 0.5
    assert 0 < weight < 1
    close(foolsgold_weights(similarity), [weight, weight, 1])


def test_foolsgold_trusts_a_peer_unlike_all_others_by_hand():
    """v = 0.5, 0.5 and 0 (not -0.1), so alpha = 0.5, 0.5, 1, and ln(0.5 / 0.5) + 0.5 = 0.5."""
    similarity = torch.tensor([[1, 0.5, -0.9], [0.5, 1, -0.1], [-0.9, -0.1, 1]]).double()
    close(foolsgold_weights(similarity), [0.5, 0.5, 1])


def test_foolsgold_suspects_whoever_resembles_another_by_hand():
    """v = 0.8, 0.8, 0.4: peer 2 is pardoned by 0.4 / 0.8 for resembling peer 0, and no other."""
    similarity = torch.tensor([[1, 0.8, 0.4], [0.8, 1, 0.1], [0.4, 0.1, 1]]).double()
    close(largest_similarities(similarity), [0.8, 0.8, 0.2])


def test_foolsgold_leaves_its_input_alone():
    similarity = torch.eye(3).double()
    foolsgold_weights(similarity)
    assert torch.equal(similarity, torch.eye(3).double())


def test_foolsgold_remembers_peers_through_rounds_they_miss():
    """Similarities are those of the sums of each peer's output-layer gradients so far."""
    rng = np.random.default_rng(3)
    classes, features = 3, 4
    rule = FoolsGold()
    history = {}
    for t, peers in enumerate([(0, 1, 2, 5), (5, 1, 3), (0, 3, 2, 1, 4)]):
        gradients = rng.normal(size=(len(peers), classes, features + 1)).astype(np.float32) + 0.5
        updates = updates_with_gradients(gradients, peers=peers, round=t)
        decision = rule(updates)
        for peer, gradient in zip(peers, gradients, strict=True):
            history[peer] = history.get(peer, 0) + gradient.ravel().astype(float)
        weights = np.array(foolsgold_twin([history[peer] for peer in peers]))
        shares = weights / weights.sum()
        close(decision.weights, shares, rtol=1e-4, atol=1e-4)
        close(decision.aggregate, shares @ updates.weights.double().numpy(), 1e-3, 1e-4)
    state = rule.state_dict()
    assert state.keys() == {str(peer) for peer in history}
    for peer, gradients in history.items():
        close(state[str(peer)], gradients, rtol=1e-4, atol=1e-5)


def test_foolsgold_sees_the_output_layer_only():
    from lff.models import CNN, Layout

    layout = Layout.of(CNN(), "fc2")
    weights = torch.from_numpy(normal(4, layout.size))
    settings = {
        "global_weights": torch.zeros(layout.size),
        "layout": layout,
        "learning_rate": 0.1,
        "examples": torch.ones(4),
        "peers": (0, 1, 2, 3),
    }
    scores = FoolsGold()(Updates(weights=weights, **settings)).scores
    other = weights.clone()
    other[:, : layout.slice("fc2.weight").start] = 7
    assert torch.equal(FoolsGold()(Updates(weights=other, **settings)).scores, scores)


def test_foolsgold_goes_on_from_its_state():
    rounds = [
        updates_with_gradients(normal(4, 3, 3, seed=s) + 0.5, peers=(4, 7, 1, 2)) for s in (0, 1)
    ]
    whole = FoolsGold()
    whole(rounds[0])
    state = whole.state_dict()
    resumed = FoolsGold()
    resumed.load_state_dict(state)
    one, two = whole(rounds[1]), resumed(rounds[1])
    assert all(isinstance(name, str) for name in state)
    assert torch.equal(one.aggregate, two.aggregate)
    assert torch.equal(one.weights, two.weights)
    fresh = FoolsGold()(rounds[1])
    assert not torch.equal(fresh.weights, one.weights), "the history matters here"
    first = FoolsGold()
    first(rounds[0])
    assert all(torch.equal(state[name], t) for name, t in first.state_dict().items()), (
        "a state taken is not changed by later rounds"
    )


def test_every_run_gets_its_own_foolsgold():
    one, two = (DEFENSES["foolsgold"].create() for _ in range(2))
    one(updates_with_gradients(normal(3, 3, 3)))
    assert not two.state_dict()


# --- geometry --------------------------------------------------------------------------------


def test_cosines_by_hand_and_of_zero_equal_and_opposite_rows():
    rows = torch.tensor([[3.0, 4], [0.3, 0.4], [-3, -4], [4, -3], [1, 0], [0, 0]])
    got = cosines(rows)
    assert got[0, 1] == 1
    assert got[0, 2] == pytest.approx(-1)
    assert got[0, 3] == pytest.approx(0, abs=1e-12)
    assert got[0, 4] == pytest.approx(0.6)
    assert got[5].tolist() == [0, 0, 0, 0, 0, 1]
    assert torch.equal(got, got.T)


def test_rounding_takes_no_cosine_out_of_its_range():
    """Else its angle would be NaN."""
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(100, 7)))
    got = cosines(torch.cat([rows, -rows, 3 * rows]))
    assert got.min() == -1
    assert got.max() == 1
    assert torch.arccos(got).isfinite().all()


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_ranks_by_hand_in_any_unit(unit):
    """Equal but for rounding is equal; a millionth more is more."""
    scores = torch.from_numpy(unit * np.array([3, 1, 2, 1 + 1e-14, 1 + 1e-6, 3 - 1e-14]))
    assert ranks(scores).tolist() == [3, 0, 2, 0, 1, 3]
    assert ranks(torch.zeros(3).double()).tolist() == [0, 0, 0]


# --- all rules -------------------------------------------------------------------------------


def a_round(m, *, seed=0, **settings):
    """Peers of whom about a third differ from the rest, with three output neurons."""
    gradients = normal(m, 3, 5, seed=seed) + 2
    gradients[m - m // 3 :, 0] -= 6
    examples = torch.from_numpy(np.random.default_rng(seed).integers(5, 50, size=m)).float()
    return updates_with_gradients(gradients, examples=examples, attacker_count=m // 3, **settings)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("m", [2, 3, 8, 21, 40])
def test_the_order_of_peers_does_not_matter(name, m):
    updates = a_round(m, seed=m)
    order = np.random.default_rng(m).permutation(m)
    one, two = apply(name, updates), apply(name, updates.select(order))
    close(two.aggregate, one.aggregate, atol=1e-5)
    if one.weights is not None:
        close(two.weights, one.weights[order], atol=1e-6)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("m", [1, 2, 3, 8, 33, 40])
def test_of_identical_updates_the_aggregate_is_that_update(name, m):
    row = normal(1, 18, seed=m)
    updates = updates_of(row.repeat(m, axis=0), classes=3, attacker_count=m // 3)
    close(apply(name, updates).aggregate, row[0], rtol=1e-5)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("m", [1, 2, 3, 20])
def test_decisions_have_the_right_shape_and_shares_sum_to_one(name, m):
    updates = a_round(m)
    before = updates.weights.clone()
    decision = apply(name, updates)
    assert decision.aggregate.shape == updates.global_weights.shape
    assert decision.aggregate.dtype == torch.float32
    assert torch.isfinite(decision.aggregate).all()
    assert torch.equal(updates.weights, before)
    if decision.weights is not None:
        assert decision.weights.shape == (m,)
        assert (decision.weights >= 0).all()
        assert decision.weights.sum().item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_two_peers_meet_in_between(name):
    """Nothing tells two peers apart; Krum alone must choose one."""
    updates = updates_with_gradients([[[1, 2], [3, 4], [5, 6]], [[3, 0], [1, 8], [-5, 6]]])
    updates = updates_of(updates.weights, classes=3, attacker_count=0)
    aggregate = apply(name, updates).aggregate
    wanted = updates.weights[0] if name == "multi_krum" else updates.weights.mean(dim=0)
    close(aggregate, wanted)


def test_a_dropped_update_leaves_no_trace_in_the_aggregate_even_if_it_is_not_finite():
    updates = updates_of([[1, 2], [3, 4], [math.inf, math.nan]])
    decision = average_without(updates, torch.tensor([False, False, True]))
    assert decision.aggregate.tolist() == [2, 3]


def test_without_the_bad_the_rest_is_averaged_by_examples():
    updates = updates_of([[0, 0], [4, 8], [9, 9]], examples=torch.tensor([1.0, 3, 5]))
    decision = average_without(updates, torch.tensor([False, False, True]), {"why": 1})
    assert decision.aggregate.tolist() == [3, 6]
    assert decision.dropped((7, 8, 9)) == [9]
    assert decision.saw == {"why": 1}
    everybody = average_without(updates, torch.ones(3, dtype=torch.bool))
    assert torch.equal(everybody.aggregate, fedavg(updates).aggregate)
    assert everybody.dropped((7, 8, 9)) == []


# --- updates ---------------------------------------------------------------------------------


def test_gradients_and_their_views_by_hand():
    """Two neurons of two features: weights in rows, then the biases."""
    updates = updates_of(
        [[1, 2, 3, 4, 5, 6]],
        classes=2,
        global_weights=torch.tensor([2.0, 2, 2, 2, 2, 2]),
        learning_rate=0.5,
    )
    assert updates.gradients.tolist() == [[2, 0, -2, -4, -6, -8]]
    assert updates.output_layer.tolist() == [[[2, 0, -6], [-2, -4, -8]]]
    assert updates.relevant(1, 0).tolist() == [[-2, -4, -8, 2, 0, -6]]
    assert updates.magnitudes.tolist() == [pytest.approx([math.sqrt(40), math.sqrt(84)])]


def test_updates_that_do_not_fit_together_are_refused():
    with pytest.raises(InputError, match="layout of 4"):
        updates_of(np.zeros((2, 4)), global_weights=torch.zeros(5))
    with pytest.raises(InputError, match="2 updates, 3 peer ids"):
        updates_of(np.zeros((2, 4)), peers=(1, 2, 3))
    with pytest.raises(InputError, match="at least one"):
        updates_of(np.zeros((0, 4)))


def test_selected_rows_keep_what_belongs_to_them():
    updates = updates_of(
        normal(3, 4),
        examples=torch.tensor([1.0, 2, 3]),
        peers=(5, 6, 7),
        declared_classes=torch.eye(3, dtype=torch.bool),
        round=4,
        seed=9,
        attacker_count=1,
    )
    two = updates.select([2, 0])
    assert torch.equal(two.weights, updates.weights[[2, 0]])
    assert two.examples.tolist() == [3, 1]
    assert two.peers == (7, 5)
    assert two.declared_classes.int().tolist() == [[0, 0, 1], [1, 0, 0]]
    assert (two.round, two.seed, two.attacker_count) == (4, 9, 1)


# --- registry and options --------------------------------------------------------------------


def test_the_papers_defenses_come_in_its_order_and_two_must_be_told_something():
    assert list(DEFENSES)[:7] == [
        "fedavg",
        "median",
        "repeated_median",
        "trimmed_mean",
        "multi_krum",
        "foolsgold",
        "lfighter",
    ]
    ours = {n: d for n, d in DEFENSES.items() if d.factory.__module__.startswith("lff.defenses.")}
    assert {name: d.needs for name, d in ours.items() if d.needs} == {
        "trimmed_mean": ("attacker_count",),
        "multi_krum": ("attacker_count",),
        "oracle": ("attackers",),
    }
    with pytest.raises(FrozenInstanceError):
        DEFENSES["median"].needs = ("attackers",)
    with pytest.raises(InputError, match=r"'attacker'.*attacker_count, attackers, root_update"):
        defense("all_knowing", needs=("attacker",))


def test_the_oracle_averages_exactly_the_honest_peers():
    matrix = [[1, 2], [3, 4], [50, 60], [5, 6]]
    settings = {"examples": torch.tensor([1.0, 1, 7, 2]), "peers": (3, 5, 8, 9)}
    decision = apply("oracle", updates_of(matrix, attackers=(8, 11), **settings))
    assert decision.dropped((3, 5, 8, 9)) == [8]
    close(decision.weights, [0.25, 0.25, 0, 0.5])
    close(decision.aggregate, [3.5, 4.5])
    everybody = apply("oracle", updates_of(matrix, attackers=(3, 5, 8, 9), **settings))
    assert everybody.dropped((3, 5, 8, 9)) == []
    with pytest.raises(InputError, match=r"must be told attackers: register it with needs="):
        apply("oracle", updates_of(matrix, attackers=None, **settings))


def test_a_defense_of_ones_own_is_one_function():
    @defense("first_peer", label="First")
    def first_peer(updates, *, row=0):
        return Decision(aggregate=updates.weights[row])

    found = DEFENSES["first_peer"]
    assert (found.label, found.needs, found.options()) == ("First", (), {"row": 0})
    assert list(DEFENSES)[-1] == "first_peer"
    updates = updates_of([[1, 2], [3, 4]])
    assert apply("first_peer", updates).aggregate.tolist() == [1, 2]
    assert apply("first_peer", updates, row=1).aggregate.tolist() == [3, 4]


def test_names_that_are_taken_unknown_or_no_names_are_errors():
    with pytest.raises(InputError, match=r"'median' exists already"):

        @defense("median")
        def other(updates): ...

    with pytest.raises(InputError, match=r"'my rule'"):
        defense("my rule")(lambda updates: None)
    with pytest.raises(TypeError, match="positional"):
        defense("mine", "Mine")
    with pytest.raises(InputError, match=r"'lfigther'.*Did you mean 'lfighter'"):
        DEFENSES["lfigther"]
    with pytest.raises(InputError, match=r"option of lfighter 'densty'.*Did you mean 'density'"):
        DEFENSES["lfighter"].create(densty="angle")
    with pytest.raises(InputError, match=r"option of median 'x'"):
        DEFENSES["median"].create(x=1)


@pytest.mark.parametrize("module", ["a_module", "z_module"])
def test_a_name_is_taken_by_another_module_and_free_in_its_own(module):
    """A notebook cell may be run again."""

    def rule(updates): ...

    rule.__module__ = module
    with pytest.raises(InputError, match=r"'median' exists already"):
        defense("median")(rule)
    defense("mine", label="One")(rule)
    defense("mine", label="Two")(rule)
    assert DEFENSES.label("mine") == "Two"


def test_installed_packages_are_looked_for_once(monkeypatch):
    asked = []
    monkeypatch.setattr(DEFENSES, "complete", False)
    monkeypatch.setattr(registry, "entry_points", lambda group: asked.append(group) or [])
    for _ in range(3):
        list(DEFENSES)
    assert asked == ["lff.defenses"]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ("density=cosine,distribution=mild", {"density": "cosine", "distribution": "mild"}),
        ("a=1,b=0.5,c=true,d=x=y", {"a": 1, "b": 0.5, "c": True, "d": "x=y"}),
    ],
)
def test_options_read_and_write_the_same_text(text, options):
    assert parse_options(text) == options
    assert format_options(options) == text
    assert parse_options(options) == options


def test_options_that_cannot_be_written_are_refused():
    with pytest.raises(InputError, match="'oops'"):
        parse_options("a=1,oops")
    with pytest.raises(InputError, match=r"\[1, 2\]"):
        format_options({"a": [1, 2]})


def test_options_are_sorted_by_name():
    assert format_options({"b": 1, "a": "x"}) == "a=x,b=1"
