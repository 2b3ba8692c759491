"""Claims about the robustness figure of MNIST-Extreme."""

import pandas as pd

from lff.claims.measures import (
    ATTACKED,
    BASELINE,
    CLOSE,
    LOST,
    LOST_ANY,
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
from lff.claims.registry import View, cells, claim
from lff.scales import ATTACKER_RATIOS


@claim(
    "ours-effective",
    {"mnist-extreme": "Our defense was effective for all considered attacker ratios"},
    BASELINE + cells([OURS], ATTACKED),
    each_ratio=True,
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
)
def ours_perfect(v: View):
    d = damage(v, SHOWN, metrics=v.metrics)
    perfect = (d <= CLOSE).all(axis=1)
    holds = perfect[OURS] and not perfect.drop(OURS).any()
    return holds, f"{LOST_ANY} {show(d)}; perfect up to {points(CLOSE)}"


@claim(
    "no-false-positives",
    {"mnist-extreme": "we achieved 0 false positives"},
    cells([OURS], ATTACKED),
    reads=("false_positive_rate",),
    each_ratio=True,
)
def no_false_positives(v: View):
    rate = v.grid("false_positive_rate", [OURS], v.attacked)
    return (rate <= ZERO).all(axis=None), f"honest peers dropped, percent {show(rate)}"


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
    return holds, f"ASR {show(asr)}; points lost in the worst other metric {show(d)}"


@claim(
    "foolsgold-well-in-part",
    {
        "mnist-extreme": "FoolsGold did well for Src-Acc and ASR in some cases, but failed for TE "
        "and All-Acc"
    },
    BASELINE + cells(["foolsgold"], ATTACKER_RATIOS),
)
def foolsgold_well_in_part(v: View):
    fools = ["foolsgold"]
    on_source = damage(v, fools, v.ratios())
    rest = damage(v, fools, v.ratios(), [m for m in v.metrics if m not in ON_SOURCE])
    well = on_source <= ROBUST
    holds = well.any(axis=None) and (rest.to_numpy()[well] > ROBUST).all()
    return holds, f"{LOST} {show(on_source)}; in TE or All-Acc {show(rest)}"
