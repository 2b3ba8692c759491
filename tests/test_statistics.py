"""The statistics against published numbers, brute force, SciPy and scikit-learn."""

from itertools import product
from math import comb

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, bootstrap
from sklearn.metrics import precision_score, recall_score, roc_auc_score

from lff.errors import InputError
from lff.study import statistics
from lff.study.statistics import clopper_pearson, wilson

properties = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# Newcombe (1998), "Two-sided confidence intervals for the single proportion", Table I.
NEWCOMBE = [
    ((81, 263), (0.2553, 0.3662), (0.2527, 0.3676)),
    ((15, 148), (0.0624, 0.1605), (0.0578, 0.1617)),
    ((0, 20), (0.0000, 0.1611), (0.0000, 0.1684)),
    ((1, 29), (0.0061, 0.1718), (0.0009, 0.1776)),
]


@pytest.mark.parametrize(("counts", "score", "exact"), NEWCOMBE)
def test_intervals_of_a_share_as_published(counts, score, exact):
    assert wilson(*counts) == pytest.approx(score, abs=5e-5)
    assert clopper_pearson(*counts) == pytest.approx(exact, abs=5e-5)


def test_two_of_four_is_seven_to_ninety_three_percent():
    assert [round(100 * end) for end in clopper_pearson(2, 4)] == [7, 93]
    assert [round(100 * clopper_pearson(0, n).high) for n in (20, 10)] == [17, 31]


shares = st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@properties
@given(shares, st.sampled_from([0.8, 0.95, 0.99]))
def test_the_ends_solve_their_equations(counts, confidence):
    """Wilson's are z standard errors from the share; at Clopper-Pearson's a tail is full."""
    k, n = counts
    tail = (1 - confidence) / 2
    z = {0.8: 1.2815515655, 0.95: 1.9599639845, 0.99: 2.5758293035}[confidence]
    for p in wilson(k, n, confidence):
        assert abs(k / n - p) == pytest.approx(z * np.sqrt(p * (1 - p) / n), abs=1e-7)
    low, high = clopper_pearson(k, n, confidence)
    mass = [lambda p, i=i: comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(n + 1)]
    assert low == 0 if k == 0 else sum(m(low) for m in mass[k:]) == pytest.approx(tail)
    assert high == 1 if k == n else sum(m(high) for m in mass[: k + 1]) == pytest.approx(tail)


def test_of_no_trial_everything_is_possible():
    assert wilson(0, 0) == clopper_pearson(0, 0) == (0, 1)


def by_seed(*values: float) -> pd.Series:
    return pd.Series(values, index=range(len(values)), dtype=float)


def test_a_paired_difference_is_over_the_seeds_that_both_have():
    one = pd.Series({3: 0.9, 1: 0.5, 2: 0.7, 9: 0.0})
    other = pd.Series({1: 0.4, 2: 0.4, 3: 0.4, 8: 1.0})
    found = statistics.paired_difference(one, other, rng())
    assert found.pairs == 3
    assert found.mean == pytest.approx((0.1 + 0.3 + 0.5) / 3)


def test_the_bootstrap_is_that_of_all_resamples():
    """Of three differences there are 27 resamples, whose means can be listed."""
    values = (0.1, 0.3, 0.8)
    means = np.sort([np.mean(drawn) for drawn in product(values, repeat=3)])
    found = statistics.paired_difference(by_seed(*values), by_seed(0, 0, 0), rng(), 100_000, 0.8)
    shares = np.arange(1, 28) / 27
    ends = [means[np.searchsorted(shares, q)] for q in (0.1, 0.9)]
    assert found.interval == pytest.approx(ends)


def test_the_bootstrap_is_scipys():
    values = rng(1).normal(size=12)
    found = statistics.paired_difference(by_seed(*values), by_seed(*np.zeros(12)), rng(), 50_000)
    theirs = bootstrap((values,), np.mean, method="percentile", n_resamples=50_000, rng=rng(2))
    assert found.interval == pytest.approx(tuple(theirs.confidence_interval), abs=0.02)


def test_the_generator_alone_draws():
    one, other = by_seed(*rng(3).normal(size=8)), by_seed(*np.zeros(8))
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    twice = [statistics.paired_difference(one, other, rng(5)) for _ in range(2)]
    assert twice[0] == twice[1]
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


@pytest.mark.parametrize("values", [(), (0.5,)])
def test_fewer_than_two_pairs_have_no_interval(values):
    found = statistics.paired_difference(by_seed(*values), 0 * by_seed(*values), rng())
    assert found.pairs == len(values)
    assert np.isnan(found.interval).all()


def test_a_seed_that_occurs_twice_is_refused():
    with pytest.raises(InputError, match="twice"):
        statistics.paired_difference(pd.Series([1.0, 2.0], index=[0, 0]), by_seed(1), rng())


@properties
@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=12))
def test_mcnemar_counts_every_way_the_pairs_could_fall(pairs):
    """Without a difference each pair that differs could as well be the other way round."""
    one, other = (pd.Series([pair[i] for pair in pairs], dtype=object) for i in (0, 1))
    found = statistics.mcnemar(one, other)
    differing = found.only_one + found.only_other
    seen = abs(found.only_one - found.only_other)
    falls = [abs(2 * sum(ways) - differing) for ways in product((0, 1), repeat=differing)]
    assert differing == sum(a != b for a, b in pairs)
    assert found.p == pytest.approx(np.mean([fall >= seen for fall in falls]))


def test_mcnemar_leaves_out_seeds_without_an_answer():
    one = pd.Series([True, True, None, True], index=[0, 1, 2, 3])
    other = pd.Series([False, False, True, None, False], index=[0, 1, 2, 3, 4])
    assert statistics.mcnemar(one, other) == (2, 0, 0.5)


def runs_of(benchmark: str, *cells: tuple[str, float, int, float]) -> pd.DataFrame:
    names = ["defense", "attackers", "seed", "src_acc"]
    return pd.DataFrame(cells, columns=names).assign(benchmark=benchmark)


def test_what_was_kept_of_the_source_class():
    runs = runs_of(
        "mnist-mild",
        ("fedavg", 0, 0, 0.8), ("lfighter", 40, 0, 0.6), ("lfighter", 50, 0, 0.39),
        ("oracle", 40, 0, 0.9),  # cut at 1
        ("fedavg", 0, 1, 0.3), ("lfighter", 40, 1, 0.3),  # not learned: 40% of ten classes
        ("lfighter", 40, 2, 0.9),  # no FedAvg without attack
    )  # fmt: skip
    table = statistics.against_unattacked(runs)
    kept = [1, 0.75, 0.4875, 1, np.nan, np.nan, np.nan]
    assert table["kept"].tolist() == pytest.approx(kept, nan_ok=True)
    assert table["lost"].tolist() == [False, False, True, False, pd.NA, pd.NA, pd.NA]


def test_two_yardsticks_of_a_seed_are_refused():
    runs = runs_of("mnist-mild", ("fedavg", 0, 0, 0.8), ("fedavg", 0, 0, 0.9))
    with pytest.raises(InputError, match="twice"):
        statistics.against_unattacked(runs)


def scores(**by_benchmark: list[float]) -> pd.DataFrame:
    return pd.concat(
        pd.DataFrame({"benchmark": b, "attackers": 40, "kept": values})
        for b, values in by_benchmark.items()
    )


def test_every_stratum_of_a_profile_weighs_the_same():
    """One of one run reaches 0.5, and one of four: 5/8, not two of five."""
    table = scores(a=[0.9], b=[0.1, 0.2, 0.3, 1.0])
    profile = statistics.performance_profile(table, [0.5, 0.95, 1.0], rng())
    assert profile["share"].tolist() == [0.625, 0.125, 0.125]  # a run of 1 counts at tau = 1
    assert profile[["low", "high"]].isna().all(axis=None)  # one run cannot show how runs vary


@properties
@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=6), min_size=1, max_size=3))
def test_a_profile_falls_and_lies_in_its_band(groups):
    table = scores(**{f"b{i}": values for i, values in enumerate(groups)})
    taus = np.linspace(0, 1, 11)
    profile = statistics.performance_profile(table, taus, rng(), resamples=200)
    brute = [np.mean([np.mean([x >= tau for x in g]) for g in groups]) for tau in taus]
    assert profile["share"].tolist() == pytest.approx(brute)
    assert (profile["share"].diff().dropna() <= 1e-12).all()
    assert profile["share"].iloc[0] == 1
    assert (profile["low"] <= profile["share"] + 1e-12).all()
    assert (profile["share"] <= profile["high"] + 1e-12).all()


def test_the_band_of_one_stratum_is_clopper_and_pearsons():
    """Each end of the interval leaves four of ten, or what is farther from it, 2.5%."""
    table = scores(a=[1.0] * 4 + [0.0] * 6)
    row = statistics.performance_profile(table, [0.5], rng()).iloc[0]
    assert binom.sf(3, 10, row["low"]) == pytest.approx(0.025)
    assert binom.cdf(4, 10, row["high"]) == pytest.approx(0.025)


def test_the_band_of_two_equal_strata_is_binomial():
    """Resampling twice five runs of which two reach tau counts Binomial(10, 0.4)."""
    half = [1.0] * 2 + [0.0] * 3
    table = scores(a=half, b=half)
    row = statistics.performance_profile(table, [0.5], rng(), resamples=50_000).iloc[0]
    assert [row["low"], row["high"]] == pytest.approx(list(binom.ppf([0.025, 0.975], 10, 0.4) / 10))


def test_a_band_is_drawn_within_the_strata():
    """Between two strata that are each of one kind nothing varies."""
    profile = statistics.performance_profile(scores(a=[1.0] * 5, b=[0.0] * 5), [0.5], rng())
    assert profile.iloc[0].tolist() == [0.5, 0.5, 0.5, 0.5]


def test_a_profile_of_nothing_has_no_numbers():
    profile = statistics.performance_profile(scores(a=[np.nan]), [0.0, 1.0], rng())
    assert profile["share"].isna().all()


rounds = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.sampled_from([0.0, 0.1, 0.5, 2.0])), min_size=1
)


@properties
@given(rounds)
def test_detectors_are_scikit_learns(peers):
    """Ids are not positions; few values, so that many scores are tied."""
    ids = [10 * i + 3 for i in range(len(peers))]
    bad, out, suspicion = (list(column) for column in zip(*peers, strict=True))
    attackers, dropped = ([k for k, yes in zip(ids, c, strict=True) if yes] for c in (bad, out))
    found = statistics.detector(ids, attackers, dropped, suspicion)
    nan = float("nan")
    precision = precision_score(bad, out) if any(out) else nan
    recall = recall_score(bad, out) if any(bad) else nan
    area = roc_auc_score(bad, suspicion) if len(set(bad)) == 2 else nan
    assert list(found) == pytest.approx([precision, recall, area], nan_ok=True)


def test_a_rule_without_scores_has_no_auc():
    assert np.isnan(statistics.detector([1, 2], [1], [1])[2])


def test_equal_as_printed_is_a_shared_first_place():
    values = pd.Series({"MKrum": 0.291, "LFighter": 0.294, "Median": 0.61, "none": np.nan})
    leads = {name: statistics.lead(values, name, 2) for name in values.index}
    assert leads == pytest.approx({"MKrum": 0, "LFighter": 0, "Median": -0.32, "none": -np.inf})
    assert statistics.lead(values, "LFighter", 3) == pytest.approx(-0.003)
    assert statistics.lead(values, "MKrum", 3) == pytest.approx(0.003)
    assert statistics.lead(pd.Series({"a": np.nan, "b": np.inf}), "b", 2) == -np.inf
    assert statistics.lead(pd.Series({"alone": 3.0}), "alone", 2) == np.inf
