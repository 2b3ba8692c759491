"""Claims of "Accuracy stability", "Runtime overhead", and of the rationale about magnitudes."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from lff.experiments.benchmarks import BENCHMARKS
from lff.study.claims.measures import (
    ATTACKED,
    BASELINE,
    CLOSE_CV,
    CLOSE_CV_SHARE,
    CV_DIGITS,
    HALF,
    OURS,
    SHOWN,
    SIMILAR_TIME,
    label,
    listed,
)
from lff.study.claims.registry import ATTACK, LFIGHTER, SECONDS, TIMES, View, cells, claim, percents
from lff.experiments.scales import ATTACKER_RATIOS, PAPER_DEFENSES

CV = {"reads": ("cv",)}


@claim(
    "ours-most-stable",
    {"all": "our proposal outperformed the other methods in most cases"},
    cells(PAPER_DEFENSES, ATTACKER_RATIOS, *BENCHMARKS),
    **CV,
    about=LFIGHTER,
)
def ours_most_stable(v: View):
    """The smallest CV of Src-Acc, alone or shared, as in the paper's boldface."""
    first = {}
    for benchmark in BENCHMARKS:
        table = v.grid("cv", PAPER_DEFENSES, v.ratios(benchmark), benchmark).round(CV_DIGITS)
        smallest = (table.loc[OURS] <= table.drop(OURS).min()) & np.isfinite(table.loc[OURS])
        first[benchmark] = int(smallest.sum())
    text = ", ".join(f"{name} {won} of {len(v.ratios(name))}" for name, won in first.items())
    won, cases = sum(first.values()), len(v.cases)
    return won > cases / 2, f"smallest CV in {won} of {cases} cases ({text})"


@claim(
    "stable-as-without-attack",
    dict.fromkeys(
        BENCHMARKS,
        "our proposal ... achieved a stability very close to that of FedAvg when the attackers' "
        "ratio was 0% (i.e., absence of attack)",
    ),
    BASELINE + cells([OURS], ATTACKED),
    **CV,
    about=LFIGHTER,
)
def stable_as_without_attack(v: View):
    """A general statement: by the average over the ratios with attackers. Less is no worse."""
    without, ours = v.grid("cv", ["fedavg"], [0]).iat[0, 0], v.grid("cv", [OURS], v.attacked)
    above = (ours - without).clip(lower=0).mean(axis=None)
    limit = max(CLOSE_CV, CLOSE_CV_SHARE * without)
    values = _shown(ours.loc[OURS])
    text = f"CV of LFighter at {percents(v.attacked)} {values}, of FedAvg at 0% {without:.2f}"
    text = f"{text}; {_shown([above])} above on average, close up to {limit:.2f}"
    return above <= limit, text, np.isinf(above)


def _shown(values: Iterable[float]) -> str:
    """CVs in one word; as in the paper, NaN if Src-Acc was zero in every round."""
    return "/".join("NaN" if np.isinf(value) else f"{value:.2f}" for value in values)


@claim(
    "attack-destabilizes",
    dict.fromkeys(
        BENCHMARKS,
        "with an LF attack targeting a particular source class, the evolution of the accuracy of "
        "the source class becomes more unstable",
    ),
    cells(["fedavg"], ATTACKER_RATIOS),
    **CV,
    about=ATTACK,
)
def attack_destabilizes(v: View):
    """On average over the ratios that have a CV; a Src-Acc of zero in every round has none."""
    cv = v.grid("cv", ["fedavg"], v.ratios()).loc["fedavg"]
    attacked = cv[v.attacked]
    holds = attacked[np.isfinite(attacked)].mean() > cv[0]
    return holds, f"CV of FedAvg at {percents(v.ratios())} {_shown(cv)}"


@claim(
    "curve-most-similar",
    dict.fromkeys(
        ("mnist-extreme", "cifar10-iid", "cifar10-mild"),
        "the accuracy achieved by our defense was the most similar to the accuracy of the FedAvg "
        "when no attacks were performed",
    ),
    BASELINE + cells(SHOWN, [30]),
    reads=("src_acc",),
    per_round=True,
    about=LFIGHTER,
)
def curve_most_similar(v: View):
    """Alone or shared, to a whole point: closer curves cannot be told apart in the figure."""
    without = v.curve("src_acc", "fedavg", 0)
    far = pd.Series({d: (v.curve("src_acc", d, 30) - without).abs().mean() for d in SHOWN})
    text = f"mean points between Src-Acc curves at 30% and FedAvg's at 0%: {listed(far)}"
    return far[OURS].round(2) <= far.drop(OURS).min().round(2), text


# Runtime: CPU seconds of a round's aggregation at 30%

SMALL, LARGE = ("mnist-iid", "mnist-extreme"), ("cifar10-iid", "imdb")  # of the paper's figure
RUNTIME = {
    "needs": cells([d for d in PAPER_DEFENSES if d != "fedavg"], [30]),
    "reads": SECONDS,
    "about": TIMES,
}


def _seconds(v: View) -> tuple[pd.Series, str]:
    defenses = dict.fromkeys(d for _, d, _ in RUNTIME["needs"])
    seconds = v.grid("per_round", defenses, [30])[30].sort_values()
    texts = (f"{label(name)} {value:.3g}" for name, value in seconds.items())
    return seconds, f"seconds per round: {', '.join(texts)}"


@claim(
    "foolsgold-fastest",
    dict.fromkeys(
        SMALL + LARGE, "FoolsGold had the smallest runtime in all cases, excluding FedAvg"
    ),
    **RUNTIME,
)
def foolsgold_fastest(v: View):
    seconds, text = _seconds(v)
    return seconds.index[0] == "foolsgold", text


@claim(
    "repeated-median-slowest",
    dict.fromkeys(SMALL + LARGE, "The repeated median had the highest runtime"),
    **RUNTIME,
)
def repeated_median_slowest(v: View):
    seconds, text = _seconds(v)
    return seconds.index[-1] == "repeated_median", text


@claim(
    "ours-as-fast-as-median",
    dict.fromkeys(
        SMALL,
        "the runtime of our method was similar to that of the median and the trimmed mean when "
        "the model size was small",
    ),
    **RUNTIME,
)
def ours_as_fast_as_median(v: View):
    seconds, text = _seconds(v)
    ratio = seconds[OURS] / seconds[["median", "trimmed_mean"]]
    holds = ratio.between(1 / SIMILAR_TIME, SIMILAR_TIME).all()
    return holds, f"{text}; similar within a factor of {SIMILAR_TIME:g}"


@claim(
    "ours-second-fastest",
    dict.fromkeys(
        LARGE,
        "For the large models used in the CIFAR10 and the IMDB benchmarks, our method had the "
        "second smallest runtime after FoolsGold",
    ),
    **RUNTIME,
)
def ours_second_fastest(v: View):
    seconds, text = _seconds(v)
    return list(seconds.index[:2]) == ["foolsgold", OURS], text


# Rationale: mean gradient magnitudes of a round's updates, without a defense

MAGNITUDES = {
    "needs": cells(["fedavg"], [10, 30]),
    "reads": ("relevant", "non_relevant"),
    "each_ratio": True,
    "per_round": True,
    "about": ATTACK,
}


@claim(
    "relevant-magnitudes-larger",
    dict.fromkeys(
        ("mnist-iid", "cifar10-mild"),
        "the gradients' magnitudes for the relevant source and target class neurons always "
        "remained larger",
    ),
    **MAGNITUDES,
)
def relevant_magnitudes_larger(v: View):
    texts, holds = [], True
    for ratio in v.attacked:
        quotient = v.curve("relevant", "fedavg", ratio) / v.curve("non_relevant", "fedavg", ratio)
        holds &= bool((quotient > 1).all())
        texts.append(
            f"at {ratio:g}% in {(quotient > 1).sum()} of {len(quotient)} rounds, smallest "
            f"relevant / non-relevant {quotient.min():.2f}"
        )
    return holds, f"larger {'; '.join(texts)}"


@claim(
    "non-relevant-magnitudes-vanish",
    dict.fromkeys(
        ("mnist-iid", "cifar10-mild"),
        "the gradients of the non-relevant neurons vanish as the training evolves",
    ),
    **MAGNITUDES,
)
def non_relevant_magnitudes_vanish(v: View):
    left = {}
    for ratio in v.attacked:
        curve = v.curve("non_relevant", "fedavg", ratio)
        left[ratio] = curve.iloc[-1] / curve.iloc[0]
    texts = ", ".join(f"{value:.0%} at {ratio:g}%" for ratio, value in left.items())
    text = f"left in the last round of the first round's: {texts}"
    return all(value < HALF for value in left.values()), text
