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
    return Difference(float(differences.mean()), _percentiles(means, confidence), pairs)


def _percentiles(values: np.ndarray, confidence: float) -> Interval:
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high))


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
    *,
    score: str = "kept",
    strata: Sequence[str] = ("benchmark", "attackers"),
    resamples: int = 2_000,
    confidence: float = CONFIDENCE,
    fewest: int = 3,
) -> pd.DataFrame:
    """The share of one method's runs whose score is at least tau: tau, share, low, high.

    The score distribution of Agarwal et al. (2021), "Deep RL at the edge of the statistical
    precipice": every stratum (task) weighs the same, whatever its number of seeds. They count runs
    above tau; here a score is cut at 1, so that a run which lost nothing counts at tau = 1. The
    band is a percentile bootstrap within the strata; it is missing where a stratum has fewer than
    `fewest` runs, which cannot show how they vary.
    """
    groups = runs.dropna(subset=[score]).groupby(list(strata))[score]
    reached = [group.to_numpy(dtype=float)[:, None] >= np.asarray(taus) for _, group in groups]
    table = pd.DataFrame({"tau": np.asarray(taus, dtype=float)}).assign(
        share=NAN, low=NAN, high=NAN
    )
    if not reached:
        return table
    table["share"] = np.mean([stratum.mean(axis=0) for stratum in reached], axis=0)
    if min(map(len, reached)) >= fewest:
        again = np.zeros((resamples, len(taus)))
        for stratum in reached:
            drawn = generator.integers(len(stratum), size=(resamples, len(stratum)))
            again += stratum[drawn].mean(axis=1) / len(reached)
        ends = np.quantile(again, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
        table["low"], table["high"] = ends
    return table


class Detector(NamedTuple):
    """How well a rule told the attackers of one round from the honest peers."""

    precision: float
    recall: float
    auc: float


def detector(
    peers: Sequence[int],
    attackers: Collection[int],
    dropped: Collection[int],
    scores: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
) -> Detector:
    """Precision and recall of the `dropped` peers, and the AUC of how suspicious each looked.

    `scores` (the higher the more suspicious) and `weights` (the lower) are in the order of
    `peers`; the scores are used if there are any. What has no answer (nobody dropped, nobody
    attacking, no score) is NaN.
    """
    bad, out = (np.isin(peers, list(those)) for those in (attackers, dropped))
    caught = float((bad & out).sum())
    precision = caught / out.sum() if out.any() else NAN
    recall = caught / bad.sum() if bad.any() else NAN
    if scores is None and weights is not None:
        scores = [-weight for weight in weights]
    return Detector(float(precision), float(recall), NAN if scores is None else auc(scores, bad))


def auc(scores: Sequence[float], bad: Sequence[bool] | np.ndarray) -> float:
    """The chance that an attacker looks more suspicious than an honest peer, ties half.

    The area under the ROC curve through the ranks (Hanley and McNeil 1982); NaN if there is only
    one kind.
    """
    bad = np.asarray(bad, dtype=bool)
    n, m = int(bad.sum()), int((~bad).sum())
    if not n or not m:
        return NAN
    return float((rankdata(scores)[bad].sum() - n * (n + 1) / 2) / (n * m))


def first_places(values: pd.Series, digits: int) -> list[str]:
    """Who has the smallest value, as printed with so many digits: equal ones share the place.

    The one tie rule of tables (boldface) and claims. What is no finite number has no place.
    """
    return [name for name in values.index if lead(values, name, digits) >= 0]


def lead(values: pd.Series, name: str, digits: int) -> float:
    """How far `name` is below the smallest other value, as printed; 0 is a shared first place."""
    printed = values.astype(float).round(digits).fillna(np.inf)
    if not np.isfinite(printed[name]):
        return -np.inf
    return float(min(printed.drop(name), default=np.inf) - printed[name])
