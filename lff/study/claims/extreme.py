"""Claims about the robustness figure of MNIST-Extreme."""

import numpy as np
import pandas as pd

from lff.study.claims.measures import (
    ATTACKED,
    BASELINE,
    CLOSE,
    LOST,
    LOST_ANY,
    METRIC_LABELS,
    ON_SOURCE,
    OURS,
    POISONED,
    ROBUST,
    SHOWN,
    ZERO,
    damage,
    listed,
    losses,
    points,
    show,
    shown_but,
)
from lff.study.claims.registry import LFIGHTER, View, cells, claim, percents
from lff.experiments.scales import ATTACKER_RATIOS


@claim(
    "ours-effective",
    {"mnist-extreme": "Our defense was effective for all considered attacker ratios"},
    BASELINE + cells([OURS], ATTACKED),
    each_ratio=True,
    about=LFIGHTER,
)
def ours_effective(v: View):
    """Effective is "simultaneously perform well in terms of TE, All-Acc, Src-Acc, ASR"."""
    d = damage(v, [OURS], metrics=v.metrics)
    return (d <= ROBUST).all(axis=None), f"{LOST_ANY} {show(d)}; effective up to {points(ROBUST)}"


@claim(
    "ours-perfect",
    {
        "mnist-extreme": "In comparison to other methods, our defense achieved simultaneous "
        "perfect performance in terms of the test error, overall accuracy, the source class "
        "(class 7) accuracy and the attack success rate"
    },
    BASELINE + POISONED,
    about=LFIGHTER,
)
def ours_perfect(v: View):
    d = damage(v, SHOWN, metrics=v.metrics)
    perfect = (d <= CLOSE).all(axis=1)
    holds = perfect[OURS] and not perfect.drop(OURS).any()
    return holds, f"{LOST_ANY} {show(d)}; perfect up to {points(CLOSE)}", not perfect[OURS]


@claim(
    "no-false-positives",
    {"mnist-extreme": "we achieved 0 false positives"},
    cells([OURS], ATTACKED),
    reads=("false_positive_rate",),
    each_ratio=True,
    about=LFIGHTER,
)
def no_false_positives(v: View):
    rate = v.grid("false_positive_rate", [OURS], v.attacked)
    values = "/".join(f"{value:.2%}" for value in rate.loc[OURS])
    text = f"honest peers dropped, of all rounds at {percents(v.attacked)}: {values}"
    return (rate == 0).all(axis=None), text


@claim(
    "trimmed-mean-and-krum-less-affected",
    {
        "mnist-extreme": "the trimmed mean and MKrum were less affected by the attack than the "
        "other methods"
    },
    BASELINE + cells(shown_but(OURS), ATTACKED),
)
def trimmed_mean_and_krum_less_affected(v: View):
    others = shown_but(OURS)
    lost = pd.DataFrame({m: losses(v, m, others).mean(axis=1) for m in v.metrics}).mean(axis=1)
    two = ["trimmed_mean", "multi_krum"]
    text = f"points lost to FedAvg without attack, average over metrics and ratios: {listed(lost)}"
    return lost[two].max() < lost.drop(two).min(), text


@claim(
    "median-poor",
    {"mnist-extreme": "the median and the repeated median had poor performance"},
    BASELINE + cells(["median", "repeated_median"], ATTACKED),
)
def median_poor(v: View):
    return _poor(v, ["median", "repeated_median"])


@claim(
    "foolsgold-poor",
    {"mnist-extreme": "FoolsGold performed poorly"},
    BASELINE + cells(["foolsgold"], ATTACKED),
)
def foolsgold_poor(v: View):
    return _poor(v, ["foolsgold"])


def _poor(v: View, defenses: list[str]):
    d = damage(v, defenses, metrics=v.metrics)
    text = f"{LOST_ANY} {show(d)}; poor if beyond {points(ROBUST)} on average"
    return (d.mean(axis=1) > ROBUST).all(), text


@claim(
    "median-low-asr-but-poor",
    {
        "mnist-extreme": "the median achieved an ASR of 0% in most cases, but did poorly "
        "regarding TE, All-Acc or Src-Acc"
    },
    BASELINE + cells(["median"], ATTACKER_RATIOS),
)
def median_low_asr_but_poor(v: View):
    asr = v.grid("asr", ["median"], v.ratios())
    rest = [m for m in v.metrics if m != "asr"]
    d = damage(v, ["median"], v.ratios(), rest)
    holds = (asr <= ZERO).mean(axis=None) > 0.5 and d.mean(axis=None) > ROBUST
    text = f"ASR {show(asr)}; 0 up to {100 * ZERO:g}; points lost in the worst other metric"
    return holds, f"{text} {show(d)}; poor if beyond {points(ROBUST)} on average"


@claim(
    "foolsgold-well-in-part",
    {
        "mnist-extreme": "FoolsGold did well for Src-Acc and ASR in some cases, but failed for TE "
        "and All-Acc"
    },
    BASELINE + cells(["foolsgold"], ATTACKED),
)
def foolsgold_well_in_part(v: View):
    on_source = damage(v, ["foolsgold"])
    rest = {m: losses(v, m, ["foolsgold"]) for m in v.metrics if m not in ON_SOURCE}
    failed = np.all([lost > ROBUST for lost in rest.values()], axis=0)
    well = on_source.to_numpy() <= ROBUST
    text = "; ".join(f"in {METRIC_LABELS[m]} {show(lost)}" for m, lost in rest.items())
    only_there = failed[well].all()
    return well.any() and only_there, f"{LOST} {show(on_source)}; {text}", not only_there
