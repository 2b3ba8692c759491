"""What a claim is: a sentence of the paper, its scope, a measure by name and a threshold."""

from dataclasses import dataclass
from operator import ge, gt, le, lt

import numpy as np

from lff.experiments.scales import ATTACKER_RATIOS, PAPER_DEFENSES

# What claims are about, in the order of `tally`.
LFIGHTER, OTHERS, ATTACK = "LFighter", "other methods", "the attack and its gradients"
TIMES, BY_DEFINITION = "running times", "true by definition here"
SUBJECTS = (LFIGHTER, OTHERS, ATTACK, TIMES, BY_DEFINITION)

ATTACKED = ATTACKER_RATIOS[1:]
OURS = "lfighter"
# The methods of the robustness figures, which leave out the repeated median; FedAvg is a method
# but not a defense ("not meant to counter poisoning attacks").
SHOWN = tuple(d for d in PAPER_DEFENSES if d != "repeated_median")
DEFENSES = tuple(d for d in SHOWN if d != "fedavg")
ON_SOURCE = ("src_acc", "asr")  # what the attack is after
METRICS = ("test_error", "all_acc", *ON_SOURCE)

SIDES = {"at most": le, "below": lt, "at least": ge, "above": gt}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One sentence of the paper, or one part of it, about one benchmark.

    The `measure` gives a number for each case (a method and ratio, a metric, a round); the sentence
    is true of the case if it is on the `side` of the `threshold`. Read strictly it must be true of
    `cases` of them: "all", "most" (more than half) or "some". Read tolerantly three quarters are
    enough for "all", and the threshold is `tolerant` if there is one.
    """

    name: str
    benchmark: str  # "all": of each in `across`
    quote: str
    fact: str  # the finding it is part of
    subject: str
    measure: str
    side: str
    threshold: float
    tolerant: float | None = None
    cases: str = "all"
    methods: tuple[str, ...] = (OURS,)  # whom it is about; views of the gradients, for pictures
    others: tuple[str, ...] = ()  # with whom they are compared
    ratios: tuple[int, ...] = ATTACKED
    metrics: tuple[str, ...] = ON_SOURCE
    against: str = ""  # the benchmark with which this one is compared
    across: tuple[str, ...] = ()
    control: str = "paper"  # what a contradiction needs: one of `verdicts.CONTROLS`
    large_model: bool = False  # says something of the paper's large models only
    primary: str = ""  # P1 to P6 of docs/decisions.md
    seeds: tuple[int, ...] = ()  # those a primary claim is judged on

    @property
    def id(self) -> str:
        """A short unique name."""
        return self.primary or f"{self.benchmark}-{self.name}"

    def read(self, values: np.ndarray, *, tolerantly: bool) -> bool:
        """Whether the sentence holds by the numbers of its cases."""
        loose = self.threshold if self.tolerant is None else self.tolerant
        agree = np.mean(SIDES[self.side](values, loose if tolerantly else self.threshold))
        if self.cases == "all":
            return bool(agree >= (0.75 if tolerantly else 1))
        return bool(agree > {"most": 0.5, "some": 0}[self.cases])
