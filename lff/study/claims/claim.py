"""What a claim is: a sentence of the paper, its scope, a measure by name and a threshold.

The claims themselves are in `claims.toml`.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from operator import ge, gt, le, lt
from typing import Any

import numpy as np

from lff.experiments.scales import ATTACKER_RATIOS

# What claims are about, in the order of `tally`.
SUBJECTS = (
    "LFighter", "other methods", "the attack and its gradients", "running times",
    "true by definition here",
)  # fmt: skip
ON_SOURCE = ("src_acc", "asr")  # what the attack is after
METRICS = ("test_error", "all_acc", *ON_SOURCE)
SIDES = {"at most": le, "below": lt, "at least": ge, "above": gt}
ASKS = f"(.+) ({'|'.join(SIDES)}) (.+)"  # measure, side, threshold


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
    methods: tuple[str, ...] = ("lfighter",)  # whom it is about; views of gradients, for pictures
    others: tuple[str, ...] = ()  # with whom they are compared
    ratios: tuple[int, ...] = ATTACKER_RATIOS[1:]
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

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """Those it is about: its own, or each that it goes across."""
        return self.across or (self.benchmark,)

    def read(self, values: np.ndarray, *, tolerantly: bool) -> bool:
        """Whether the sentence holds by the numbers of its cases."""
        loose = self.threshold if self.tolerant is None else self.tolerant
        agree = np.mean(SIDES[self.side](values, loose if tolerantly else self.threshold))
        if self.cases == "all":
            return bool(agree >= (0.75 if tolerantly else 1))
        return bool(agree > {"most": 0.5, "some": 0}[self.cases])


def _claims(fact: dict[str, Any]) -> Iterator[Claim]:
    """The claims of one entry of the file."""
    for part in fact.pop("claim", [{}]):
        said: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in (fact | part).items()
        }
        measure, side, threshold = re.findall(ASKS, said.pop("asks"))[0]
        said |= {"measure": measure, "side": side, "threshold": _number(threshold)}
        if "tolerant" in said:
            said["tolerant"] = _number(said["tolerant"])
        if "seeds" in said:
            said["seeds"] = tuple(range(said["seeds"][0], said["seeds"][1] + 1))
        benchmarks = said.pop("benchmark")
        for benchmark in [benchmarks] if isinstance(benchmarks, str) else benchmarks:
            yield Claim(benchmark=benchmark, **said)


def _number(text: str | float) -> float:
    """A number, or what one of `WORDS` is taken to mean."""
    return WORDS[text] if text in WORDS else float(text)


_FILE = tomllib.loads(files("lff.study.claims").joinpath("claims.toml").read_text(encoding="utf-8"))
WORDS: dict[Any, float] = _FILE["words"] | {f"-{word}": -n for word, n in _FILE["words"].items()}
CLAIMS = [claim for fact in _FILE["fact"] for claim in _claims(fact)]
