"""Claims about the robustness figures of MNIST-iid and MNIST-Mild."""

import pandas as pd

from lff.study.claims.measures import (
    ATTACKED,
    BASELINE,
    CLOSE,
    DEFENSES,
    FILTER,
    HALF,
    LOST,
    METRIC_LABELS,
    NEARLY_ALL,
    OURS,
    POISONED,
    ROBUST,
    SHOWN,
    UP_TO_40,
    ZERO,
    apart,
    averages,
    damage,
    filtered,
    listed,
    ours_best,
    overall,
    points,
    show,
    shown_but,
)
from lff.study.claims.registry import LFIGHTER, View, cells, claim
from lff.experiments.scales import ATTACKER_RATIOS

# MNIST-iid


@claim(
    "defended-up-to-40",
    {
        "mnist-iid": "all the defenses, except FoolsGold, perfectly defended against the attack "
        "with ratios of attackers up to 40%"
    },
    BASELINE + cells(DEFENSES, UP_TO_40),
)
def defended_up_to_40(v: View):
    d = damage(v, DEFENSES)
    perfect = (d <= CLOSE).all(axis=1)
    others = perfect.drop("foolsgold").all()
    text = f"{LOST} {show(d)}; perfect up to {points(CLOSE)}"
    return others and not perfect["foolsgold"], text, not others


@claim(
    "most-fail-at-50",
    {
        "mnist-iid": "when the attackers' ratio was 50%, most failed to counter the attack, "
        "except MKrum and our defense"
    },
    BASELINE + cells(DEFENSES, [50]),
)
def most_fail_at_50(v: View):
    d = damage(v, DEFENSES, [50])
    failed = d[50] > ROBUST
    holds = failed.mean() > 0.5 and not failed[["multi_krum", OURS]].any()
    return (
        holds,
        f"{LOST} {show(d)}; failed beyond {points(ROBUST)}: {failed.sum()} of {len(DEFENSES)}",
    )


@claim(
    "krum-and-ours-robust",
    {"mnist-iid": "MKrum and our defense, which stayed robust against the attack with all ratios"},
    BASELINE + cells(["multi_krum", OURS], ATTACKED),
    each_ratio=True,
    about=LFIGHTER,
)
def krum_and_ours_robust(v: View):
    d = damage(v, ["multi_krum", OURS])
    return (d <= ROBUST).all(axis=None), f"{LOST} {show(d)}; robust up to {points(ROBUST)}"


@claim(
    "foolsgold-worst",
    {
        "mnist-iid": "FoolsGold achieved the worst performance in the presence of attackers in "
        "all the metrics"
    },
    POISONED,
)
def foolsgold_worst(v: View):
    table = averages(v, SHOWN, v.attacked)
    ahead = table.loc["foolsgold"] - table.drop("foolsgold").min()
    text = ", ".join(f"{METRIC_LABELS[m]} {100 * value:.1f}" for m, value in ahead.items())
    return (ahead <= 0).all(), f"points above the worst other method, average over ratios: {text}"


@claim(
    "foolsgold-plummets",
    {
        "mnist-iid": "Once the attackers appeared in the system, the accuracy of the source class "
        "plummeted"
    },
    cells(["foolsgold"], ATTACKER_RATIOS),
    at=(0,),
    each_ratio=True,
)
def foolsgold_plummets(v: View):
    accuracy = v.grid("src_acc", ["foolsgold"], v.ratios())
    left = accuracy.loc["foolsgold"] / accuracy.loc["foolsgold", 0]
    return (
        left[v.attacked] < HALF
    ).all(), f"Src-Acc {show(accuracy)}; plummeted below half of that at 0%"


@claim(
    "foolsgold-asr-near-100",
    {
        "mnist-iid": "the attackers had the highest success rate (close to 100%) compared to the "
        "other defenses"
    },
    cells(DEFENSES, ATTACKED),
    each_ratio=True,
)
def foolsgold_asr(v: View):
    asr = v.grid("asr", DEFENSES, v.attacked)
    fools = asr.loc["foolsgold"]
    holds = (fools >= NEARLY_ALL).all() and (fools > asr.drop("foolsgold").max()).all()
    return holds, f"ASR {show(asr)}; close to 100% from {100 * NEARLY_ALL:g}%"


@claim(
    "foolsgold-penalizes-honest",
    {
        "mnist-iid": "That led to wrongly penalizing honest peers' updates and wrongly including "
        "some of the attackers' bad updates in the global model"
    },
    cells(["foolsgold"], ATTACKED),
    reads=FILTER,
)
def foolsgold_penalizes_honest(v: View):
    """On average over the ratios; penalized is who weighs nothing."""
    caught, wronged = (v.grid(name, ["foolsgold"], v.attacked) for name in FILTER)
    holds = wronged.mean(axis=None) > ZERO and caught.mean(axis=None) < 1 - ZERO
    return holds, f"{filtered(caught, wronged)}; all and none up to {100 * ZERO:g} on average"


@claim(
    "fedavg-good",
    {
        "mnist-iid": "although FedAvg is not meant to mitigate poisoning attacks, it achieved "
        "a good performance in this benchmark"
    },
    BASELINE + cells(["fedavg"], UP_TO_40),
)
def fedavg_good(v: View):
    """Up to 40%: the sentence on 50% says that most failed there."""
    d = damage(v, ["fedavg"])
    text = f"{LOST} {show(d)}; good up to {points(ROBUST)} on average"
    return d.mean(axis=None) <= ROBUST, text


# MNIST-Mild


@claim(
    "close-to-iid",
    {
        "mnist-mild": "Although the data were non-iid, the performance was close to that in "
        "MNIST-iid"
    },
    cells(shown_but("foolsgold"), ATTACKER_RATIOS, "mnist-mild", "mnist-iid"),
)
def close_to_iid(v: View):
    """Without FoolsGold, of which the paper goes on to say that it differed."""
    both = [((v.benchmark, d), ("mnist-iid", d)) for d in shown_but("foolsgold")]
    far = pd.Series({mild[1]: apart(v, mild, iid, v.ratios()) for mild, iid in both})
    text = f"mean points apart in the worst metric: {listed(far)}; close up to {points(CLOSE)}"
    return (far <= CLOSE).all(), text


@claim(
    "foolsgold-better-than-iid",
    {"mnist-mild": "FoolsGold performed better in this benchmark than in MNIST-iid"},
    cells(["foolsgold"], ATTACKED, "mnist-mild", "mnist-iid"),
)
def foolsgold_better_than_iid(v: View):
    mild, iid = (overall(v, ["foolsgold"], b) for b in ("mnist-mild", "mnist-iid"))
    text = f"average score over metrics and ratios: {listed(mild)}, in MNIST-iid {listed(iid)}"
    return (mild > iid).all(), text


@claim(
    "ours-outperforms",
    {"mnist-mild": "our defense outperformed all the defenses"},
    cells(DEFENSES, ATTACKED),
    about=LFIGHTER,
)
def ours_outperforms(v: View):
    return ours_best(v, DEFENSES)
