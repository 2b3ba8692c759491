"""The paper's claims: each sentence with its scope, measure and threshold.

A sentence with several parts is several claims; several sentences about one finding are one fact.
`measures` says what the paper's words ("robust", "close") are taken to mean.
"""

from typing import Any

from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.scales import ATTACKER_RATIOS, PAPER_DEFENSES
from lff.study.claims.claim import (
    ATTACK,
    ATTACKED,
    BY_DEFINITION,
    DEFENSES,
    LFIGHTER,
    METRICS,
    OTHERS,
    OURS,
    SHOWN,
    TIMES,
    Claim,
)
from lff.study.claims.measures import CLOSE, CV_SCALE, ROBUST, ZERO

SIX = tuple(BENCHMARKS)
FEDAVG, FOOLSGOLD, MEDIAN, KRUM = ("fedavg",), ("foolsgold",), ("median",), ("multi_krum",)
REPEATED, TRIMMED = ("repeated_median",), ("trimmed_mean",)
UP_TO_40 = ATTACKED[:-1]
DROPPED, WRONGED = ("true_positive_rate",), ("false_positive_rate",)
TWENTY, TEN = tuple(range(100, 120)), tuple(range(100, 110))  # seeds

WHOLE, OUTPUT_LAYER, RELEVANT = ("whole",), ("output layer",), ("relevant neurons",)
# In MNIST-Extreme, by their relevant neurons: the classes held, and the bad updates from others.
CLASSES, FROM_TARGET, FROM_SOURCE = ("classes",), ("bad and target",), ("bad and source",)
SILHOUETTE, ANGLE, MAGNITUDE = ("silhouette",), ("angle",), ("magnitude_change",)
# Kaufman and Rousseeuw (1990): a silhouette above 0.5 is reasonable structure, up to 0.25 none.
SEPARATE, MIXED = 0.5, 0.25

CLAIMS: list[Claim] = []


def but(*names: str, of: tuple[str, ...] = SHOWN) -> tuple[str, ...]:
    """The methods of the robustness figures except these."""
    return tuple(method for method in of if method not in names)


def claim(
    name: str, benchmarks: str | tuple[str, ...], measure: str, side: str, threshold: float,
    quote: str, **scope: Any,
) -> list[dict[str, Any]]:  # fmt: skip
    """A claim of each of these benchmarks, for `fact` to complete."""
    said = {"measure": measure, "side": side, "threshold": threshold, "quote": quote, **scope}
    where = (benchmarks,) if isinstance(benchmarks, str) else benchmarks
    return [{"name": name, "benchmark": benchmark, **said} for benchmark in where]


def fact(text: str, subject: str, *claims: list[dict[str, Any]], **shared: Any) -> None:
    """Register claims that are one finding; what they share may be said once."""
    for one in (one for several in claims for one in several):
        CLAIMS.append(Claim(fact=text, subject=subject, **shared | one))


# fmt: off
# Primary claims, named before their runs (docs/decisions.md). The control is in the measure: the
# other run of the same seed.

fact("LFighter withstands 40% attackers on MNIST-Mild", LFIGHTER,
    claim("withstands-40", "mnist-mild", "lost class", "below", 1 / 10,
        "stayed robust even when the attackers' ratio reached 50%"),
    primary="P1", ratios=(40,), seeds=TWENTY)
fact("LFighter withstands 50% attackers on MNIST-Mild", LFIGHTER,
    claim("withstands-50", "mnist-mild", "lost class", "below", 1 / 10,
        "stayed robust even when the attackers' ratio reached 50%"),
    primary="P2", ratios=(50,), seeds=TWENTY)
fact("LFighter protects the class better than no defense on MNIST-Mild", LFIGHTER,
    claim("protects", "mnist-mild", "ahead", "above", 0,
        "our defense outperformed all the defenses"),
    primary="P3", others=FEDAVG, metrics=("src_acc",), ratios=(40,), seeds=TEN)
fact("LFighter finds the attackers on MNIST-Mild", LFIGHTER,
    claim("finds-attackers", "mnist-mild", "ahead", "above", -0.05,
        "helps better discriminate between the attackers' bad updates and the honest peers' good "
        "updates"),
    primary="P4", others=("oracle",), metrics=("src_acc",), ratios=(40,), seeds=TEN)
fact("LFighter withstands 40% attackers on MNIST-iid", LFIGHTER,
    claim("withstands-40", "mnist-iid", "lost class", "below", 1 / 3,
        "which stayed robust against the attack with all ratios"),
    primary="P5", ratios=(40,), seeds=TEN)
fact("without attackers LFighter costs nothing on MNIST-Mild", LFIGHTER,
    claim("costs-nothing", "mnist-mild", "ahead", "above", -0.005,
        "show its superiority at simultaneously delivering low test error, high overall accuracy"),
    primary="P6", others=FEDAVG, metrics=("all_acc",), ratios=(0,), seeds=TEN)

# MNIST-iid

fact("the defenses but FoolsGold withstand up to 40% attackers on MNIST-iid", OTHERS,
    claim("defended-up-to-40", "mnist-iid", "damage", "at most", CLOSE,
        "all the defenses, except FoolsGold, perfectly defended against the attack with ratios of "
        "attackers up to 40%",
        tolerant=ROBUST, methods=but("fedavg", "foolsgold"), ratios=UP_TO_40))
fact("most defenses fail at 50% attackers on MNIST-iid", OTHERS,
    claim("most-fail-at-50", "mnist-iid", "damage", "above", ROBUST,
        "when the attackers' ratio was 50%, most failed to counter the attack, except MKrum and "
        "our defense",
        cases="most", methods=MEDIAN + TRIMMED + FOOLSGOLD, ratios=(50,), control="attack"))
fact("MKrum withstands every ratio on MNIST-iid", OTHERS,
    claim("krum-robust", "mnist-iid", "damage", "at most", ROBUST,
        "MKrum and our defense, which stayed robust against the attack with all ratios",
        methods=KRUM))
fact("LFighter withstands every ratio on MNIST-iid", LFIGHTER,
    claim("ours-robust", "mnist-iid", "damage", "at most", ROBUST,
        "MKrum and our defense, which stayed robust against the attack with all ratios"),
    control="oracle")
fact("FoolsGold fails on MNIST-iid", OTHERS,
    claim("foolsgold-worst", "mnist-iid", "ahead", "at least", 0,
        "FoolsGold achieved the worst performance in the presence of attackers in all the metrics",
        methods=but("foolsgold"), others=FOOLSGOLD, metrics=METRICS),
    claim("foolsgold-plummets", "mnist-iid", "lost class", "at least", 1,
        "Once the attackers appeared in the system, the accuracy of the source class plummeted"),
    claim("foolsgold-asr-near-100", "mnist-iid", "value", "at least", 0.9,
        "the attackers had the highest success rate (close to 100%)", metrics=("asr",)),
    claim("foolsgold-asr-highest", "mnist-iid", "ahead", "at least", 0,
        "the attackers had the highest success rate (close to 100%) compared to the other defenses",
        methods=but("foolsgold", of=DEFENSES), others=FOOLSGOLD, metrics=("asr",)),
    claim("foolsgold-penalizes-honest", "mnist-iid", "value", "above", ZERO,
        "That led to wrongly penalizing honest peers' updates", metrics=WRONGED),
    claim("foolsgold-better-than-iid", "mnist-mild", "change", "above", 0,
        "FoolsGold performed better in this benchmark than in MNIST-iid",
        against="mnist-iid", metrics=METRICS),
    methods=FOOLSGOLD, control="attack")
fact("FedAvg does well up to 40% attackers on MNIST-iid", OTHERS,
    claim("fedavg-good", "mnist-iid", "damage", "at most", ROBUST,
        "although FedAvg is not meant to mitigate poisoning attacks, it achieved a good "
        "performance in this benchmark", methods=FEDAVG, ratios=UP_TO_40))

# MNIST-Mild

fact("the methods but FoolsGold do on MNIST-Mild as on MNIST-iid", OTHERS,
    claim("close-to-iid", "mnist-mild", "apart", "at most", CLOSE,
        "Although the data were non-iid, the performance was close to that in MNIST-iid",
        methods=but("foolsgold"), ratios=ATTACKER_RATIOS, metrics=METRICS, against="mnist-iid"))
fact("LFighter withstands every ratio on MNIST-Mild", LFIGHTER,
    claim("ours-robust", "mnist-mild", "damage", "at most", ROBUST,
        "our defense ... stayed robust even when the attackers' ratio reached 50%"),
    control="oracle")
fact("LFighter is the best defense on MNIST-Mild", LFIGHTER,
    claim("ours-best", "mnist-mild", "simultaneous lead", "at least", 0,
        "our defense outperformed all the defenses",
        others=but(OURS, of=DEFENSES), metrics=METRICS),
    control="oracle")

# MNIST-Extreme

fact("LFighter withstands every ratio on MNIST-Extreme, better than any other method", LFIGHTER,
    claim("ours-effective", "mnist-extreme", "damage", "at most", ROBUST,
        "Our defense was effective for all considered attacker ratios"),
    claim("ours-perfect", "mnist-extreme", "damage", "at most", CLOSE,
        "our defense achieved simultaneous perfect performance in terms of the test error, overall"
        " accuracy, the source class (class 7) accuracy and the attack success rate",
        tolerant=ROBUST),
    claim("ours-best", "mnist-extreme", "simultaneous lead", "at least", 0,
        "In comparison to other methods, our defense achieved simultaneous perfect performance",
        others=but(OURS)),
    metrics=METRICS, control="oracle")
fact("LFighter drops no honest peer on MNIST-Extreme", LFIGHTER,
    claim("no-false-positives", "mnist-extreme", "value", "at most", 0,
        "we achieved 0 false positives", tolerant=ZERO, metrics=WRONGED))
fact("TMean and MKrum suffer less than the others on MNIST-Extreme", OTHERS,
    claim("trimmed-mean-and-krum-less-affected", "mnist-extreme", "ahead overall", "above", 0,
        "the trimmed mean and MKrum were less affected by the attack than the other methods",
        methods=TRIMMED + KRUM, others=FEDAVG + MEDIAN + FOOLSGOLD, metrics=METRICS))
fact("the medians are poor on MNIST-Extreme", OTHERS,
    claim("median-poor", "mnist-extreme", "damage", "above", ROBUST,
        "the median and the repeated median had poor performance",
        methods=MEDIAN + REPEATED, metrics=METRICS),
    claim("median-no-asr", "mnist-extreme", "value", "at most", ZERO,
        "the median achieved an ASR of 0% in most cases",
        cases="most", methods=MEDIAN, ratios=ATTACKER_RATIOS, metrics=("asr",)),
    claim("median-poor-otherwise", "mnist-extreme", "damage", "above", ROBUST,
        "did poorly regarding TE, All-Acc or Src-Acc",
        methods=MEDIAN, ratios=ATTACKER_RATIOS, metrics=("test_error", "all_acc", "src_acc")))
fact("FoolsGold is poor on MNIST-Extreme", OTHERS,
    claim("foolsgold-poor", "mnist-extreme", "damage", "above", ROBUST,
        "FoolsGold performed poorly", metrics=METRICS),
    claim("foolsgold-lopsided", "mnist-extreme", "lopsided", "above", 0,
        "FoolsGold did well for Src-Acc and ASR in some cases, but failed for TE and All-Acc",
        cases="some"),
    methods=FOOLSGOLD)

# CIFAR10

fact("methods on whole updates fail on CIFAR10-iid", OTHERS,
    claim("others-affected", "cifar10-iid", "damage", "above", ROBUST,
        "the performance of all methods, except FoolsGold and ours, was highly affected",
        ratios=(50,)),
    claim("others-degrade", "cifar10-iid", "steps", "at least", -CLOSE,
        "the performance of all methods, except FoolsGold and ours, was highly affected and "
        "degraded as the ratio of the attackers increased"),
    methods=but("foolsgold", OURS), control="attack")
fact("FoolsGold withstands the attack on CIFAR10-iid", OTHERS,
    claim("foolsgold-effective", "cifar10-iid", "damage", "at most", ROBUST,
        "FoolsGold effectively defended against the attack in general"),
    claim("foolsgold-penalizes-attackers", "cifar10-iid", "value", "above", 0.5,
        "FoolsGold penalized the attackers", metrics=DROPPED),
    claim("foolsgold-keeps-honest", "cifar10-iid", "value", "at most", ROBUST,
        "FoolsGold penalized the attackers and kept the honest peers contributions",
        metrics=WRONGED),
    methods=FOOLSGOLD)
fact("LFighter withstands every ratio on CIFAR10-iid", LFIGHTER,
    claim("ours-robust", "cifar10-iid", "damage", "at most", ROBUST,
        "Our defense stayed robust against the attack"))
fact("LFighter is the best on CIFAR10-iid", LFIGHTER,
    claim("ours-best", "cifar10-iid", "simultaneous lead", "at least", 0,
        "Our defense ... achieved the best simultaneous performance for all the metrics",
        others=but(OURS), metrics=METRICS))
fact("LFighter drops exactly the attackers on CIFAR10-iid", LFIGHTER,
    claim("ours-excludes-attackers", "cifar10-iid", "value", "at least", 1 - ZERO,
        "exclude all the attackers even when the attackers' ratio was 50%", metrics=DROPPED),
    claim("ours-keeps-honest", "cifar10-iid", "value", "at most", ZERO,
        "it was able to perfectly maintain the honest peers' contributions", metrics=WRONGED))
fact("CIFAR10-Mild is harder than CIFAR10-iid for all but LFighter", OTHERS,
    claim("others-worse-than-iid", "cifar10-mild", "change", "below", 0,
        "in this benchmark, the performance of all the methods except ours was worse",
        methods=but(OURS)),
    claim("foolsgold-degrades", "cifar10-mild", "change", "below", -CLOSE,
        "Although FoolsGold performed well in CIFAR10-iid, its performance substantially degraded "
        "in this benchmark", methods=FOOLSGOLD),
    against="cifar10-iid", metrics=METRICS)
fact("LFighter does not suffer from mild data on CIFAR10", LFIGHTER,
    claim("ours-not-worse-than-iid", "cifar10-mild", "change", "at least", -CLOSE,
        "in this benchmark, the performance of all the methods except ours was worse",
        against="cifar10-iid", metrics=METRICS))
fact("LFighter withstands every ratio on CIFAR10-Mild", LFIGHTER,
    claim("ours-robust", "cifar10-mild", "damage", "at most", ROBUST,
        "our defense stayed robust against the attack for all attacker ratios"))
fact("LFighter is the best on CIFAR10-Mild", LFIGHTER,
    claim("ours-best", "cifar10-mild", "simultaneous lead", "at least", 0,
        "it offered best simultaneous performance on all the metrics",
        others=but(OURS), metrics=METRICS))

# IMDB, and all benchmarks

fact("LFighter and FoolsGold lead on IMDB", LFIGHTER,
    claim("ours-like-foolsgold", "imdb", "apart", "at most", CLOSE,
        "Our defense and FoolsGold had almost the same performance", others=FOOLSGOLD),
    claim("ours-and-foolsgold-outperform", "imdb", "ahead", "above", 0,
        "Our defense and FoolsGold ... outperformed the other methods for all the metrics",
        methods=(OURS, *FOOLSGOLD), others=but(OURS, "foolsgold")),
    metrics=METRICS)
fact("the repeated median does as the median", OTHERS,
    claim("repeated-median-like-median", SIX, "apart", "at most", CLOSE,
        "the results of the repeated median were almost identical to those of the median",
        methods=REPEATED, others=MEDIAN, ratios=ATTACKER_RATIOS, metrics=METRICS),
    control="decision")
fact("the trimmed mean is the median at 50%", BY_DEFINITION,
    claim("trimmed-mean-is-median-at-50", SIX, "apart", "at most", ZERO,
        "for a 50% ratio of attackers, we employ the median instead of the trimmed mean (both are "
        "equivalent in this case)", methods=TRIMMED, others=MEDIAN, ratios=(50,), metrics=METRICS),
    control="decision")

# Stability

VERY_CLOSE = 0.05 / CV_SCALE  # so far rules differ without attack (MKrum and FedAvg, Extreme)
fact("LFighter has the smallest CV in most cases", LFIGHTER,
    claim("ours-most-stable", "all", "cv lead", "at least", 0,
        "our proposal outperformed the other methods in most cases",
        cases="most", across=SIX, others=but(OURS, of=PAPER_DEFENSES), ratios=ATTACKER_RATIOS))
fact("LFighter is as stable as FedAvg without attack", LFIGHTER,
    claim("stable-as-without-attack", SIX, "cv above", "at most", VERY_CLOSE,
        "our proposal ... achieved a stability very close to that of FedAvg when the attackers' "
        "ratio was 0% (i.e., absence of attack)", tolerant=2 * VERY_CLOSE))
fact("the attack makes Src-Acc unstable", ATTACK,
    claim("attack-destabilizes", SIX, "cv rise", "above", 0,
        "with an LF attack targeting a particular source class, the evolution of the accuracy of "
        "the source class becomes more unstable", methods=FEDAVG))
CURVES = ("mnist-extreme", "cifar10-iid", "cifar10-mild")
fact("LFighter's Src-Acc is that of FedAvg without attack, round by round", LFIGHTER,
    claim("curve-most-similar", CURVES, "curve lead", "at least", 0,
        "the accuracy achieved by our defense was the most similar to the accuracy of the FedAvg "
        "when no attacks were performed", others=but(OURS)),
    claim("curve-similar", CURVES, "curve distance", "at most", ROBUST,
        "the accuracy achieved by our defense was the most similar to the accuracy of the FedAvg "
        "when no attacks were performed"),
    ratios=(30,))

# Running times: the mean over the ratios. They are of this machine, so they are their own control.

TIMED = ("mnist-iid", "mnist-extreme", "cifar10-iid", "imdb")  # of the paper's figure
RULES = but("fedavg", of=PAPER_DEFENSES)
fact("FoolsGold is the fastest", TIMES,
    claim("foolsgold-fastest", TIMED, "seconds", "at least", 1,
        "FoolsGold had the smallest runtime in all cases, excluding FedAvg",
        methods=FOOLSGOLD, others=but("foolsgold", of=RULES)),
    ratios=ATTACKER_RATIOS, control="itself")
fact("the repeated median is the slowest", TIMES,
    claim("repeated-median-slowest", TIMED, "seconds", "at most", 1,
        "The repeated median had the highest runtime",
        methods=REPEATED, others=but("repeated_median", of=RULES)),
    ratios=ATTACKER_RATIOS, control="itself")
fact("LFighter takes as long as the median for small models", TIMES,
    claim("ours-as-fast-as-median", TIMED[:2], "seconds", "at least", 1 / 2,
        "the runtime of our method was similar to that of the median and the trimmed mean when the"
        " model size was small", tolerant=1 / 3, others=MEDIAN + TRIMMED),
    ratios=ATTACKER_RATIOS, control="itself")
fact("LFighter is the second fastest for large models", TIMES,
    claim("ours-second-fastest", TIMED[2:], "seconds", "at least", 1,
        "For the large models used in the CIFAR10 and the IMDB benchmarks, our method had the "
        "second smallest runtime after FoolsGold",
        others=but(OURS, "foolsgold", of=RULES), large_model=True),
    ratios=ATTACKER_RATIOS, control="itself")

# Gradients: magnitudes during training, pictures of a round's updates, one good and one bad update

DRAWN = ("mnist-iid", "cifar10-mild")  # in the paper's figure of magnitudes
fact("the gradients of relevant neurons stay the larger ones", ATTACK,
    claim("relevant-magnitudes-larger", DRAWN, "magnitude ratio", "above", 1,
        "the gradients' magnitudes for the relevant source and target class neurons always "
        "remained larger"),
    methods=FEDAVG, ratios=(10, 30))
fact("the gradients of other neurons vanish", ATTACK,
    claim("non-relevant-magnitudes-vanish", DRAWN, "magnitude left", "below", 0.5,
        "the gradients of the non-relevant neurons vanish as the training evolves"),
    methods=FEDAVG, ratios=(10, 30))
fact("a small model shows the attack in every view", ATTACK,
    claim("small-separates", "mnist-iid", "value", "at least", SEPARATE,
        "when the model size is small (MNIST-iid), good and bad updates can be easily separated",
        methods=WHOLE + OUTPUT_LAYER + RELEVANT),
    metrics=SILHOUETTE, ratios=(0,))
fact("whole updates of a large model hide the attack", ATTACK,
    claim("whole-hides", "cifar10-iid", "value", "at most", MIXED,
        "the attack's influence does not seem to be enough to distinguish good from bad updates "
        "when using whole update gradients", tolerant=SEPARATE, methods=WHOLE, metrics=SILHOUETTE),
    claim("whole-hides", "cifar10-mild", "value", "at most", MIXED,
        "made it very challenging to separate bad updates from good ones using whole update "
        "gradients or even using the output layer gradients",
        tolerant=SEPARATE, methods=WHOLE + OUTPUT_LAYER, metrics=SILHOUETTE),
    claim("whole-angle", "cifar10-iid", "value", "at most", 10,
        "the angle between them was close to zero", tolerant=20, methods=WHOLE, metrics=ANGLE),
    claim("whole-magnitude", "cifar10-iid", "value", "at most", 0.05,
        "both whole gradients had approximately the same magnitude",
        methods=WHOLE, metrics=MAGNITUDE),
    ratios=(0,), large_model=True)
fact("the output layer of a large model shows the attack", ATTACK,
    claim("output-layer-separates", "cifar10-iid", "value", "at least", SEPARATE,
        "the gradients of the output layer or those of the relevant neurons still allow for a "
        "crisp differentiation between good and bad updates",
        methods=OUTPUT_LAYER + RELEVANT, metrics=SILHOUETTE),
    claim("output-layer-angle", "cifar10-iid", "value", "at least", 45,
        "the difference between the output layer gradients was large",
        methods=OUTPUT_LAYER, metrics=ANGLE),
    ratios=(0,), large_model=True)
fact("relevant neurons show the attack best", ATTACK,
    claim("relevant-best", "mnist-mild", "ahead", "above", 0,
        "the use of the relevant neurons' gradients provided the best separation compared to whole"
        " update gradients or output layer gradients"),
    claim("relevant-clearer", "cifar10-mild", "ahead", "above", 0,
        "the relevant neurons' gradients gave a clearer separation"),
    claim("relevant-better", "all", "ahead", "above", 0,
        "led to better discrimination between good updates and bad ones for both the iid and the "
        "mild non-iid settings", across=("mnist-iid", "mnist-mild", "cifar10-iid", "cifar10-mild")),
    claim("relevant-angle", "cifar10-iid", "ahead", "above", 0,
        "even more significant in the case of the relevant neurons' gradients",
        others=OUTPUT_LAYER, metrics=ANGLE),
    methods=RELEVANT, others=WHOLE + OUTPUT_LAYER, metrics=SILHOUETTE, ratios=(0,))
fact("mild data make the attack harder to see", ATTACK,
    claim("mild-harder", "mnist-mild", "change", "below", 0,
        "distinguishing between good and bad updates was harder than in the iid setting",
        methods=WHOLE + OUTPUT_LAYER + RELEVANT, against="mnist-iid", metrics=SILHOUETTE,
        ratios=(0,)))
fact("the attack leaves other neurons alone", ATTACK,
    claim("non-relevant-angle", "cifar10-iid", "value", "at most", 30,
        "their gradients' magnitude and angle were not significantly affected", metrics=ANGLE),
    claim("non-relevant-magnitude", "cifar10-iid", "value", "at most", 0.25,
        "their gradients' magnitude and angle were not significantly affected", metrics=MAGNITUDE),
    methods=("non-relevant neurons",), ratios=(0,))
fact("in MNIST-Extreme classes are clusters, and the bad updates one beside the target's", ATTACK,
    claim("extreme-classes", "mnist-extreme", "value", "at least", SEPARATE,
        "the gradients of the updates of each class form an individual cluster", methods=CLASSES),
    claim("extreme-bad", "mnist-extreme", "value", "above", MIXED,
        "the 4 bad updates form a cluster", methods=FROM_TARGET),
    claim("extreme-bad-near-target", "mnist-extreme", "ahead", "below", 0,
        "a cluster that is very close to the cluster of the target class 1 updates",
        methods=FROM_TARGET, others=FROM_SOURCE),
    metrics=SILHOUETTE, ratios=(0,))
# fmt: on
