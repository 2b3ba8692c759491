"""Claims about the robustness figures of CIFAR10-iid, CIFAR10-Mild and IMDB."""

from lff.study.claims.measures import (
    ATTACKED,
    BASELINE,
    CLOSE,
    FILTER,
    HALF,
    LOST,
    METRIC_LABELS,
    OURS,
    POISONED,
    ROBUST,
    SHOWN,
    ZERO,
    alike,
    averages,
    damage,
    filtered,
    listed,
    overall,
    points,
    show,
    shown_but,
)
from lff.study.claims.registry import LFIGHTER, View, cells, claim

# CIFAR10-iid


@claim(
    "others-degrade",
    {
        "cifar10-iid": "the performance of all methods, except FoolsGold and ours, was highly "
        "affected and degraded as the ratio of the attackers increased"
    },
    BASELINE + cells(shown_but("foolsgold", OURS), ATTACKED),
    at=(50,),
)
def others_degrade(v: View):
    """Highly affected at 50%, and at no step better than before by more than noise."""
    d = damage(v, shown_but("foolsgold", OURS))
    holds = (d[50] > ROBUST).all() and not (d.diff(axis=1) < -CLOSE).any(axis=None)
    text = f"{LOST} {show(d)}; affected beyond {points(ROBUST)}"
    return holds, text, not (d[50] > ROBUST).all()


@claim(
    "foolsgold-effective",
    {"cifar10-iid": "FoolsGold effectively defended against the attack in general"},
    BASELINE + cells(["foolsgold"], ATTACKED),
)
def foolsgold_effective(v: View):
    d = damage(v, ["foolsgold"])
    text = f"{LOST} {show(d)}; effective up to {points(ROBUST)} on average"
    return d.mean(axis=None) <= ROBUST, text


@claim(
    "foolsgold-penalizes-attackers",
    {"cifar10-iid": "FoolsGold penalized the attackers and kept the honest peers contributions"},
    cells(["foolsgold"], ATTACKED),
    reads=FILTER,
)
def foolsgold_penalizes_attackers(v: View):
    """On average over the ratios; penalized is who weighs nothing."""
    caught, wronged = (v.grid(name, ["foolsgold"], v.attacked) for name in FILTER)
    holds = caught.mean(axis=None) > HALF and wronged.mean(axis=None) <= ROBUST
    limits = f"penalized beyond {100 * HALF:g}, kept up to {100 * ROBUST:g} on average"
    return holds, f"{filtered(caught, wronged)}; {limits}"


@claim(
    "ours-excludes-attackers",
    {
        "cifar10-iid": "it was able to perfectly maintain the honest peers' contributions and "
        "exclude all the attackers even when the attackers' ratio was 50%"
    },
    cells([OURS], ATTACKED),
    reads=FILTER,
    each_ratio=True,
    about=LFIGHTER,
)
def ours_excludes_attackers(v: View):
    caught, wronged = (v.grid(name, [OURS], v.attacked) for name in FILTER)
    holds = (caught >= 1 - ZERO).all(axis=None) and (wronged <= ZERO).all(axis=None)
    return holds, f"{filtered(caught, wronged)}; all and none up to {100 * ZERO:g}"


# CIFAR10-Mild


@claim(
    "others-worse-than-iid",
    {"cifar10-mild": "in this benchmark, the performance of all the methods except ours was worse"},
    cells(SHOWN, ATTACKED, "cifar10-mild", "cifar10-iid"),
)
def others_worse_than_iid(v: View):
    change = overall(v, list(SHOWN)) - overall(v, list(SHOWN), "cifar10-iid")
    others = change.drop(OURS).max()
    holds = others < min(0, change[OURS]) and change[OURS] >= -CLOSE
    text = f"average score over metrics and ratios against CIFAR10-iid, points: {listed(change)}"
    return holds, f"{text}; ours not worse down to -{points(CLOSE)}"


@claim(
    "foolsgold-degrades",
    {
        "cifar10-mild": "Although FoolsGold performed well in CIFAR10-iid, its performance "
        "substantially degraded in this benchmark"
    },
    cells(["foolsgold"], ATTACKED, "cifar10-mild", "cifar10-iid"),
)
def foolsgold_degrades(v: View):
    mild, iid = (overall(v, ["foolsgold"], b) for b in ("cifar10-mild", "cifar10-iid"))
    text = f"average score over metrics and ratios: {listed(mild)}, in CIFAR10-iid {listed(iid)}"
    return (iid - mild > CLOSE).all(), f"{text}; substantial beyond {points(CLOSE)}"


# IMDB


@claim(
    "ours-like-foolsgold",
    {"imdb": "Our defense and FoolsGold had almost the same performance"},
    cells([OURS, "foolsgold"], ATTACKED),
    about=LFIGHTER,
)
def ours_like_foolsgold(v: View):
    return alike(v, OURS, "foolsgold", v.attacked, CLOSE)


@claim(
    "ours-and-foolsgold-outperform",
    {"imdb": "Our defense and FoolsGold ... outperformed the other methods for all the metrics"},
    POISONED,
    about=LFIGHTER,
)
def ours_and_foolsgold_outperform(v: View):
    table = averages(v, SHOWN, v.attacked)
    two = [OURS, "foolsgold"]
    lead = table.loc[two].min() - table.drop(two).max()
    text = ", ".join(f"{METRIC_LABELS[m]} {100 * ahead:.1f}" for m, ahead in lead.items())
    return (lead > 0).all(), f"points ahead of the best other method, average over ratios: {text}"
