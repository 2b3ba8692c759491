"""The measures that claims name: what is computed from the runs of one seed.

Every metric becomes a score, a fraction of which more is better, so that differences are in points
(hundredths): All-Acc and Src-Acc as they are, 1 - ASR, and exp(-TE), the geometric mean of the
probability given to the true class. A measure gives a table of rows (methods, metrics) by columns
(ratios, rounds); each number in it is one case. Infinite is what was lost altogether.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd

from lff.experiments.benchmarks import BENCHMARKS
from lff.metrics import averaged_rounds, lost
from lff.study.claims.claim import METRICS, WORDS, Claim
from lff.study.statistics import lead

ROBUST = WORDS["robust"]
CV_SCALE = 0.27  # the largest CV of FedAvg without attack in the paper; larger ones count relative
POINT, CV_DIGITS = 2, 2  # digits to which first places are shared: a whole point, the printed CV


def score(metric: str, values: Any) -> Any:
    """A metric as fractions of which more is better."""
    if metric == "test_error":
        return np.exp(-values)
    return 1 - values if metric == "asr" else values


@dataclass(frozen=True)
class View:
    """What a measure sees: a claim, and of one seed the ratios that have all of its cells."""

    claim: Claim
    frame: pd.DataFrame  # indexed by benchmark, defense, attackers
    ratios: list[float]

    @property
    def methods(self) -> tuple[str, ...]:
        """Those the claim is about and those they are compared with."""
        return self.claim.methods + self.claim.others

    @property
    def metrics(self) -> list[str]:
        """The claim's metrics that the runs have; what is read off the paper has no TE."""
        return [m for m in self.claim.metrics if m in self.frame]

    def table(
        self, column: str, methods: tuple[str, ...] = (), benchmark: str = ""
    ) -> pd.DataFrame:
        """One column as methods (if none are named the claim's own) x ratios."""
        wide = self.frame.loc[benchmark or self.claim.benchmark, column].unstack("attackers")
        return wide.reindex(index=list(methods or self.claim.methods), columns=self.ratios)

    def unattacked(self, column: str) -> float:
        """The value of FedAvg without attack."""
        return float(self.frame.loc[(self.claim.benchmark, "fedavg", 0.0), column])

    def curve(self, column: str, method: str, ratio: float) -> pd.Series:
        """One column over the rounds of a run."""
        return self.frame.loc[(self.claim.benchmark, method, ratio)].set_index("round")[column]

    def losses(self, metric: str) -> pd.DataFrame:
        """How much a score is below that of FedAvg without attack."""
        return score(metric, self.unattacked(metric)) - score(metric, self.table(metric))

    def averages(self, methods: tuple[str, ...], benchmark: str = "") -> pd.DataFrame:
        """Each metric's score averaged over the ratios: methods x metrics."""
        tables = {m: score(m, self.table(m, methods, benchmark)) for m in self.metrics}
        return pd.DataFrame({m: table.mean(axis=1) for m, table in tables.items()})

    def leads(self, table: pd.DataFrame, digits: int) -> pd.DataFrame:
        """How far the claim's method is below the smallest other, column by column."""
        name = self.claim.methods[0]
        return pd.DataFrame({r: lead(table[r], name, digits) for r in table}, index=[name])


def largest(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """The largest number of several tables, place by place."""
    return reduce(np.maximum, tables)


Compute = Callable[[View], pd.DataFrame]


@dataclass(frozen=True)
class Measure:
    """A measure, what it says (the first line of its docstring), its unit and what it needs."""

    compute: Compute
    says: str
    columns: tuple[str, ...]  # instead of the claim's metrics
    unit: str = "points"
    frame: str = "runs"  # of `verdicts.judge`
    unattacked: bool = False  # FedAvg without attack is the yardstick
    each_ratio: bool = True  # about every ratio of the claim, so that those not run are missed


MEASURES: dict[str, Measure] = {}


def measure(*columns: str, **needs: Any) -> Callable[[Compute], Compute]:
    """Make a function a measure, by its own name."""

    def register(compute: Compute) -> Compute:
        says = str(compute.__doc__).splitlines()[0].rstrip(".")
        MEASURES[compute.__name__.replace("_", " ")] = Measure(compute, says, columns, **needs)
        return compute

    return register


@measure()
def value(v: View) -> pd.DataFrame:
    """{metrics}."""
    return v.table(v.claim.metrics[0])


# Robustness


@measure(unattacked=True)
def damage(v: View) -> pd.DataFrame:
    """Points lost to FedAvg without attack, in the worst of {metrics}.

    Infinite if the worst class was lost for it: under half of what it was without attack.
    """
    table = largest([v.losses(metric) for metric in v.metrics])
    if "worst_class_acc" in v.frame:
        under_half = v.table("worst_class_acc") < v.unattacked("worst_class_acc") / 2
        table = table.mask(under_half, np.inf)
    return table


@measure(unattacked=True)
def steps(v: View) -> pd.DataFrame:
    """Points lost more than at the ratio before, in the worst of {metrics}."""
    return damage(v).diff(axis=1).iloc[:, 1:]


@measure(unattacked=True)
def lopsided(v: View) -> pd.DataFrame:
    """Points by which {metrics} did well and the rest failed, against FedAvg without attack."""
    well = [v.losses(m) - ROBUST for m in v.metrics]
    failed = [ROBUST - v.losses(m) for m in METRICS if m not in v.metrics and m in v.frame]
    return -largest(well + failed)


@measure("src_acc", unit="", unattacked=True)
def lost_class(v: View) -> pd.DataFrame:
    """Share of seeds in which the source class is lost."""
    classes, without = BENCHMARKS[v.claim.benchmark].classes, v.unattacked("src_acc")
    return v.table("src_acc").map(lambda src_acc: float(bool(lost(src_acc, without, classes))))


@measure()
def simultaneous_lead(v: View) -> pd.DataFrame:
    """Points ahead of the next, each in its worst of {metrics}.

    Who is least far behind the best there has the best simultaneous performance.
    """
    scores = [score(m, v.table(m, v.methods)) for m in v.metrics]
    return v.leads(largest([table.max() - table for table in scores]), POINT)


@measure()
def ahead(v: View) -> pd.DataFrame:
    """{methods} above {others}, mean over the ratios.

    The worst of the one above the best of the other, metric by metric.
    """
    gap = v.averages(v.claim.methods).min() - v.averages(v.claim.others).max()
    return gap.to_frame("")


@measure()
def ahead_overall(v: View) -> pd.DataFrame:
    """{methods} above {others}, mean over {metrics} and the ratios."""
    own, others = (v.averages(m).mean(axis=1) for m in (v.claim.methods, v.claim.others))
    return pd.DataFrame({"": own.min() - others.max()}, index=["all metrics"])


@measure()
def apart(v: View) -> pd.DataFrame:
    """Mean points apart, in the worst of {metrics}.

    From another method, or from the same one in another benchmark.
    """
    gaps = []
    for metric in v.metrics:
        other = v.table(metric, v.claim.others or v.claim.methods, v.claim.against)
        gap = score(metric, v.table(metric)) - score(metric, other).to_numpy()
        gaps.append(gap.abs().mean(axis=1).to_frame(""))
    return largest(gaps)


@measure()
def change(v: View) -> pd.DataFrame:
    """Above the other benchmark in {metrics}, mean over them and the ratios."""
    here, there = (v.averages(v.claim.methods, b) for b in (v.claim.benchmark, v.claim.against))
    return (here - there).mean(axis=1).to_frame("")


# Stability


@measure("cv", unit="", unattacked=True)
def cv_above(v: View) -> pd.DataFrame:
    """CV above that of FedAvg without attack, as a share of it (of 0.27 at least)."""
    return (v.table("cv") - v.unattacked("cv")) / max(v.unattacked("cv"), CV_SCALE)


@measure("cv", unit="", unattacked=True)
def cv_rise(v: View) -> pd.DataFrame:
    """CV above that without attack.

    Only where there is one: a Src-Acc of zero in every round is lost, not unstable.
    """
    table = v.table("cv") - v.unattacked("cv")
    return table.mask(np.isinf(table))


@measure("cv", unit="")
def cv_lead(v: View) -> pd.DataFrame:
    """CV below the smallest other."""
    return v.leads(v.table("cv", v.methods), CV_DIGITS)


@measure("src_acc", frame="rounds", unattacked=True)
def curve_distance(v: View) -> pd.DataFrame:
    """Points between Src-Acc and that of FedAvg without attack, mean over the rounds."""
    without = v.curve("src_acc", "fedavg", 0.0)
    far = {m: (v.curve("src_acc", m, v.ratios[0]) - without).abs().mean() for m in v.methods}
    return pd.Series(far, dtype=float).to_frame("")


@measure("src_acc", frame="rounds", unattacked=True)
def curve_lead(v: View) -> pd.DataFrame:
    """Points closer to the Src-Acc of FedAvg without attack than the next method."""
    return v.leads(curve_distance(v), POINT)


# Running times, and magnitudes of gradients


@measure("per_round", unit="times", frame="timed", each_ratio=False)
def seconds(v: View) -> pd.DataFrame:
    """Seconds of an aggregation relative to its own, mean over the ratios."""
    own, others = (v.table("per_round", m).mean(axis=1) for m in (v.claim.methods, v.claim.others))
    return (others / own.iloc[0]).to_frame("")


@measure("relevant", "non_relevant", unit="times", frame="rounds")
def magnitude_ratio(v: View) -> pd.DataFrame:
    """Magnitude of relevant to that of other neurons, in every round."""
    (who,) = v.claim.methods
    curves = {r: [v.curve(n, who, r) for n in ("relevant", "non_relevant")] for r in v.ratios}
    return pd.DataFrame({f"{r:g}%": one / other for r, (one, other) in curves.items()}).T


@measure("non_relevant", unit="", frame="rounds")
def magnitude_left(v: View) -> pd.DataFrame:
    """Share of the largest round's magnitude that is left in the last rounds.

    Not of the first round's, in which the gradient may still be tiny.
    """
    curves = {r: v.curve("non_relevant", v.claim.methods[0], r) for r in v.ratios}
    left = {r: c.tail(averaged_rounds(len(c))).mean() / c.max() for r, c in curves.items()}
    return pd.DataFrame(left, index=["non-relevant neurons"])
