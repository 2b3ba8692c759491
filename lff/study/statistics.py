"""The study's statistics: intervals, paired differences, performance profiles, detectors.

Plain functions on arrays and tables. Where numbers are drawn, the caller gives the generator. Runs
of one seed share data, peers and attackers, so methods are compared seed by seed.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import binomtest, rankdata

from lff.errors import InputError
from lff.experiments.benchmarks import BENCHMARKS
from lff.metrics import lost

CONFIDENCE = 0.95
FEWEST = 3  # runs that can show how they vary
NAN = float("nan")


class Interval(NamedTuple):
    """The two ends of a confidence interval."""

    low: float
    high: float


def wilson(successes: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """The score interval of a share (Wilson 1927): close to its confidence also for few trials.

    Of no trial everything is possible: 0 to 1.
    """
    return _share(successes, trials, confidence, "wilson")


def clopper_pearson(successes: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """The exact interval of a share (Clopper and Pearson 1934): never below its confidence.

    It holds every share p for which `successes` is in neither tail of Binomial(trials, p).
    """
    return _share(successes, trials, confidence, "exact")


def _share(successes: int, trials: int, confidence: float, method: str) -> Interval:
    if trials == 0:
        return Interval(0.0, 1.0)
    ends = binomtest(successes, trials).proportion_ci(confidence, method)
    return Interval(float(ends.low), float(ends.high))


class Difference(NamedTuple):
    """The mean of paired differences, its interval, and how many pairs there are."""

    mean: float
    interval: Interval
    pairs: int


def paired_difference(
    one: pd.Series,
    other: pd.Series,
    generator: np.random.Generator,
    resamples: int = 10_000,
    confidence: float = CONFIDENCE,
) -> Difference:
    """The mean of `one` - `other` over the seeds (the index) that both have.

    Its interval is the percentile bootstrap's (Efron and Tibshirani 1993, chapter 13): pairs are
    drawn with replacement. Fewer than two pairs have none.
    """
    for values in (one, other):
        if values.index.has_duplicates:
            raise InputError("a seed occurs twice; pair one run of each seed")
    differences = (one - other).dropna().to_numpy(dtype=float)
    pairs = len(differences)
    if pairs < 2:
        return Difference(float(differences.mean()) if pairs else NAN, Interval(NAN, NAN), pairs)
    means = differences[generator.integers(pairs, size=(resamples, pairs))].mean(axis=1)
    low, high = _percentiles(means, confidence)
    return Difference(float(differences.mean()), Interval(float(low), float(high)), pairs)


def _percentiles(values: np.ndarray, confidence: float = CONFIDENCE) -> np.ndarray:
    return np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)


class McNemar(NamedTuple):
    """In how many pairs only the one, or only the other, was lost; the two-sided p-value."""

    only_one: int
    only_other: int
    p: float


def mcnemar(one: pd.Series, other: pd.Series) -> McNemar:
    """Is the class lost as often in `one` as in `other`? The exact test (McNemar 1947).

    Both say by seed whether it was lost. Only seeds in which they differ count: without a
    difference each of them falls to either side like a fair coin.
    """
    both = pd.concat([one, other], axis=1, join="inner").dropna().astype(bool).to_numpy()
    only_one = int((both[:, 0] & ~both[:, 1]).sum())
    only_other = int((both[:, 1] & ~both[:, 0]).sum())
    differing = only_one + only_other
    p = binomtest(only_one, differing).pvalue if differing else 1.0
    return McNemar(only_one, only_other, float(p))


def beside_unattacked(
    frame: pd.DataFrame, metrics: Sequence[str], per: Sequence[str] = ("benchmark", "seed")
) -> pd.DataFrame:
    """Runs (or rounds) with the metrics of FedAvg without attack of the same seed beside theirs.

    They are of one scale.
    """
    reference = frame[(frame["defense"] == "fedavg") & (frame["attackers"] == 0)]
    if reference.duplicated(list(per)).any():
        raise InputError("FedAvg without attack occurs twice in a seed; give one run of each cell")
    reference = reference.set_index(list(per))[list(metrics)]
    return frame.join(reference.add_prefix("unattacked_"), on=list(per))


def against_unattacked(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with what they kept of the source class, against FedAvg without attack.

    `kept` is a run's Src-Acc relative to that of FedAvg without attack with the same seed, at most
    1; `lost` is as `lff.metrics.lost` has it. Both are missing where FedAvg was not run or has not
    learned the class.
    """
    table = beside_unattacked(runs, ["src_acc"])
    gone = [
        lost(run.src_acc, run.unattacked_src_acc, BENCHMARKS[run.benchmark].classes)
        if run.benchmark in BENCHMARKS and run.unattacked_src_acc == run.unattacked_src_acc
        else None
        for run in table.itertuples()
    ]
    table["lost"] = pd.array(gone, dtype="boolean")
    kept = (table["src_acc"] / table["unattacked_src_acc"]).clip(upper=1)
    return table.assign(kept=kept.where(table["lost"].notna()))


def performance_profile(
    runs: pd.DataFrame,
    taus: Sequence[float],
    generator: np.random.Generator,
    resamples: int = 2_000,
) -> pd.DataFrame:
    """The share of one method's runs that `kept` at least tau: tau, share, low, high.

    The score distribution of Agarwal et al. (2021), "Deep RL at the edge of the statistical
    precipice": every benchmark and ratio (their task) weighs the same, whatever its number of
    seeds. They count runs above tau; here a score is cut at 1, so that a run which lost nothing
    counts at tau = 1. The band is a percentile bootstrap within the tasks, of a single task the
    interval of Clopper and Pearson at each tau (a bootstrap reaches 1 though a run was lost). It is
    missing where a task has fewer than `FEWEST` runs.
    """
    tasks = runs.dropna(subset="kept").groupby(["benchmark", "attackers"])["kept"]
    reached = [task.to_numpy(dtype=float)[:, None] >= np.asarray(taus) for _, task in tasks]
    table = pd.DataFrame(np.nan, range(len(taus)), ["tau", "share", "low", "high"])
    table["tau"] = np.asarray(taus, dtype=float)
    if reached:
        table["share"] = np.mean([task.mean(axis=0) for task in reached], axis=0)
    if not reached or min(map(len, reached)) < FEWEST:
        return table
    if len(reached) == 1:
        ends = [clopper_pearson(int(k), len(reached[0])) for k in reached[0].sum(axis=0)]
        table[["low", "high"]] = np.array(ends)
    else:
        again = np.zeros((resamples, len(taus)))
        for task in reached:
            drawn = generator.integers(len(task), size=(resamples, len(task)))
            again += task[drawn].mean(axis=1) / len(reached)
        table["low"], table["high"] = _percentiles(again)
    return table


def detector(
    peers: Sequence[int],
    attackers: Collection[int],
    dropped: Collection[int],
    scores: Sequence[float] | None = None,
) -> tuple[float, float, float]:
    """Precision and recall of the `dropped` peers, and the AUC of how suspicious each looked.

    `scores`, the higher the more suspicious, are in the order of `peers`. What has no answer
    (nobody dropped, nobody attacking, no score) is NaN. The AUC is the chance that an attacker
    looks more suspicious than an honest peer, ties half: the area under the ROC curve through the
    ranks (Hanley and McNeil 1982).
    """
    bad, out = (np.isin(peers, list(those)) for those in (attackers, dropped))
    n, m, caught = bad.sum(), (~bad).sum(), (bad & out).sum()
    precision = caught / out.sum() if out.any() else NAN
    recall = caught / n if n else NAN
    auc = NAN
    if scores is not None and n and m:
        auc = (rankdata(scores)[bad].sum() - n * (n + 1) / 2) / (n * m)
    return float(precision), float(recall), float(auc)


def lead(values: pd.Series, name: str, digits: int) -> float:
    """How far `name` is below the smallest other value, as printed with so many digits.

    0 is a shared first place: the one tie rule of tables and claims. What is no finite number has
    no place.
    """
    printed = values.astype(float).round(digits).fillna(np.inf)
    if not np.isfinite(printed[name]):
        return -np.inf
    return float(min(printed.drop(name), default=np.inf) - printed[name])
