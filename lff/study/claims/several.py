"""Claims about robustness that the paper makes of several benchmarks alike."""

from lff.experiments.benchmarks import BENCHMARKS
from lff.study.claims.measures import (
    ATTACKED,
    BASELINE,
    CLOSE,
    LOST,
    OURS,
    POISONED,
    ROBUST,
    SHOWN,
    ZERO,
    alike,
    damage,
    ours_best,
    points,
    show,
)
from lff.study.claims.registry import BY_DEFINITION, LFIGHTER, View, cells, claim
from lff.experiments.scales import ATTACKER_RATIOS


@claim(
    "ours-robust",
    {
        "mnist-mild": "our defense ... stayed robust even when the attackers' ratio reached 50%",
        "cifar10-iid": "Our defense stayed robust against the attack",
        "cifar10-mild": "our defense stayed robust against the attack for all attacker ratios",
    },
    BASELINE + cells([OURS], ATTACKED),
    each_ratio=True,
    about=LFIGHTER,
)
def ours_robust(v: View):
    d = damage(v, [OURS])
    return (d <= ROBUST).all(axis=None), f"{LOST} {show(d)}; robust up to {points(ROBUST)}"


@claim(
    "ours-best",
    {
        "cifar10-iid": "Our defense ... achieved the best simultaneous performance for all the "
        "metrics",
        "cifar10-mild": "it offered best simultaneous performance on all the metrics",
    },
    POISONED,
    about=LFIGHTER,
)
def ours_best_simultaneously(v: View):
    return ours_best(v, SHOWN)


@claim(
    "repeated-median-like-median",
    dict.fromkeys(
        BENCHMARKS,
        "the results of the repeated median were almost identical to those of the median",
    ),
    cells(["median", "repeated_median"], ATTACKER_RATIOS),
)
def repeated_median_like_median(v: View):
    return alike(v, "repeated_median", "median", v.ratios(), CLOSE)


@claim(
    "trimmed-mean-is-median-at-50",
    dict.fromkeys(
        BENCHMARKS,
        "for a 50% ratio of attackers, we employ the median instead of the trimmed mean (both are "
        "equivalent in this case)",
    ),
    cells(["median", "trimmed_mean"], [50]),
    about=BY_DEFINITION,
)
def trimmed_mean_is_median_at_50(v: View):
    return alike(v, "trimmed_mean", "median", [50], ZERO)
