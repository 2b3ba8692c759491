"""One judge for all claims: how the answers of the seeds become a verdict.

A seed answers if it has FedAvg without attack (where that is the yardstick), which has learned the
source class (`lff.metrics.learned`), and a ratio at which all compared methods were run. It answers
twice, by the strict and by the tolerant reading (`Claim`).

* holds: in every seed, read strictly, and at all the claim's ratios
* holds in part: in some seeds, at some ratios, or read tolerantly only
* contradicted: in no seed, not even tolerantly, by two seeds or more, and a control shows that it
  is not our size: the claim's own (`CONTROLS`), or runs of scale `paper` in which it fails as well
* our decision: it does not hold because of how we read the paper where it is silent
* not testable at this scale: it fails in one seed alone or without such a control, FedAvg has not
  learned the class, or the model is not the paper's
* not run: no seed has what it compares

Primary claims have one number per seed, and its interval decides (docs/decisions.md): holds if all
of it is on the claim's side of the threshold, contradicted if all of it is on the other, and
undecided otherwise; before all their seeds are recorded they are not run. All else is exploratory.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from lff.experiments.benchmarks import BENCHMARKS
from lff.study import paper, statistics
from lff.study.claims.asking import (
    FRAMES,
    Answers,
    Unlearned,
    ask,
    not_learned,
    of_paper_size,
    of_runs,
    of_views,
)
from lff.study.claims.claim import CLAIMS, ON_SOURCE, SIDES, SUBJECTS, Claim
from lff.study.claims.evidence import LABELS, asks, cases, counted, ends, percents, says
from lff.study.claims.measures import MEASURES, ROBUST

HOLDS, IN_PART, CONTRADICTED = "holds", "holds in part", "contradicted"
UNDECIDED, DECISION = "undecided", "our decision"
NOT_TESTABLE, NOT_RUN = "not testable at this scale", "not run"
VERDICTS = (HOLDS, IN_PART, CONTRADICTED, UNDECIDED, DECISION, NOT_TESTABLE, NOT_RUN)
OPPOSITE = {"below": "above", "above": "below"}

# What shows that a claim does not fail because of our size: a claim about the same seeds that must
# hold in them. "paper" has none but the runs of that scale, "itself" needs none.
_SAFE = {"measure": "damage", "metrics": ON_SOURCE, "threshold": ROBUST, "tolerant": None}
CONTROLS: dict[str, dict[str, Any]] = {
    "oracle": _SAFE | {"methods": ("oracle",), "side": "at most"},  # the class can be saved
    "attack": _SAFE | {"methods": ("fedavg",), "side": "above", "cases": "some"},  # there is one
}
CONTROL_KINDS = (*CONTROLS, "paper", "itself", "decision")
Frames = dict[str, pd.DataFrame]


def judge(
    runs: pd.DataFrame,
    rounds: pd.DataFrame | None = None,
    silhouettes: pd.DataFrame | None = None,
    updates: pd.DataFrame | None = None,
    timed: pd.DataFrame | None = None,
    at_paper_scale: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Every claim with its verdict, one row each; primary claims first.

    `runs` has one row per run of one scale, in all seeds there are; `rounds` one per round, with
    `relevant` and `non_relevant` magnitudes; `silhouettes` has benchmark, seed, view, silhouette;
    `updates` benchmark, seed, gradients, good, bad, angle; `timed`, like `runs`, those whose
    aggregation times count, if they are others; `at_paper_scale` runs of scale `paper`, as control.
    `strict` and `tolerant` say in how many seeds the claim holds by that reading.
    """
    frames = {
        "runs": of_runs(runs),
        "rounds": of_runs(rounds, "round"),
        "silhouettes": of_views(silhouettes, "view"),
        "updates": of_views(updates, "gradients"),
        "timed": of_runs(runs if timed is None else timed),
        "paper": of_runs(at_paper_scale),
    }
    order = [*BENCHMARKS, "all"]
    claims = sorted(CLAIMS, key=lambda c: (c.primary or "exploratory", order.index(c.benchmark)))
    unlearned = not_learned(frames["runs"])
    return pd.DataFrame([_row(claim, frames, unlearned) for claim in claims])


def by_its_own_numbers() -> pd.Series:
    """The claims judged by what the paper reports: figures, CV, running times, one update.

    Claims that need other numbers are left out. There is one "seed", so a sentence that fails is
    contradicted by the paper itself.
    """
    seconds = paper.runtime().assign(attackers=30.0, aggregation_seconds=lambda t: t["total"])
    names = {"whole, with BatchNorm statistics": "whole"}
    updates = (
        paper.norm_angle().replace({"gradients": names}).assign(benchmark="cifar10-iid", seed=0)
    )
    tables = [judge(table.assign(seed=0)) for table in (paper.robustness(), paper.cv(), seconds)]
    judged = pd.concat([*tables, judge(pd.DataFrame(), updates=updates)])
    judged = judged[(judged["seeds"] > 0) & (judged["primary"] == "")].set_index("claim")
    strict, tolerant = (judged[name].str.startswith("1") for name in ("strict", "tolerant"))
    answers = np.select([strict, tolerant], [HOLDS, IN_PART], CONTRADICTED)
    return pd.Series(answers, index=judged.index, name="by the paper's numbers")


def facts(verdicts: pd.DataFrame) -> pd.DataFrame:
    """One row per fact: the verdict of its claims, how many sentences say it, and which."""
    group = verdicts.groupby(["fact", "subject", "primary"], sort=False)
    table = {
        "verdict": group["verdict"].agg(_together),
        "sentences": group["quote"].nunique(),
        "claims": group.size(),
        "quotes": group["quote"].agg(lambda quotes: " | ".join(dict.fromkeys(quotes))),
    }
    return pd.DataFrame(table).reset_index()


def _together(verdicts: pd.Series) -> str:
    """Claims that are not run leave a fact to the rest; if these disagree, it holds in part."""
    found = set(verdicts) - {NOT_RUN} or {NOT_RUN}
    if DECISION in found:
        return DECISION
    if found == {CONTRADICTED, NOT_TESTABLE}:
        return CONTRADICTED
    return found.pop() if len(found) == 1 else IN_PART


def tally(verdicts: pd.DataFrame, by: str = "subject") -> pd.DataFrame:
    """How many claims, or facts, have which verdict, by a column of their table."""
    counts = pd.crosstab(verdicts[by], verdicts["verdict"])
    order = dict.fromkeys([*SUBJECTS, *BENCHMARKS, "all", *verdicts[by]])
    counts = counts.reindex(
        index=[row for row in order if row in counts.index],
        columns=[verdict for verdict in VERDICTS if verdict in counts],
    )
    counts.loc["together"] = counts.sum()
    return counts.rename_axis(columns=None)


def _row(claim: Claim, frames: Frames, unlearned: Unlearned) -> dict[str, Any]:
    table = frames[FRAMES.get(claim.metrics[0], MEASURES[claim.measure].frame)]
    large = of_paper_size(table) if claim.large_model else table
    answers = ask(claim, large, unlearned)
    if not answers.values:
        verdict, evidence = _no_answer(answers, table)
    elif claim.primary:
        verdict, evidence = _by_interval(answers)
    else:
        verdict, why = _by_seeds(answers, frames, unlearned)
        evidence = f"{says(claim)}: {cases(answers)}; {asks(claim)}; {counted(answers)}{why}"
    counts = {"strict": answers.strict, "tolerant": answers.tolerant}
    silent = claim.primary or not answers.values  # of a primary claim the interval says it
    return {
        "claim": claim.id,
        "fact": claim.fact,
        "benchmark": claim.benchmark,
        "subject": claim.subject,
        "primary": claim.primary,
        "quote": claim.quote,
        "verdict": verdict,
        **{way: "" if silent else f"{sum(a.values())} of {len(a)}" for way, a in counts.items()},
        "evidence": evidence,
        "seeds": len(answers.values),
    }


def _by_seeds(answers: Answers, frames: Frames, unlearned: Unlearned) -> tuple[str, str]:
    """The verdict of a claim that some seed answers, and what there is to add to its evidence."""
    claim = answers.claim
    missing = answers.missing if MEASURES[claim.measure].each_ratio else []
    gap = f"; not everything was run at {percents(missing)}" if missing else ""
    if all(answers.strict.values()):
        return (IN_PART if gap else HOLDS), gap
    if claim.control == "decision":
        return DECISION, gap
    if any(answers.tolerant.values()):
        return IN_PART, gap
    exact = ask(claim, frames["paper"], not_learned(frames["paper"]))
    if exact.values and not any(exact.tolerant.values()):
        return CONTRADICTED, f"{gap}; at scale paper it {counted(exact)}"
    if len(answers.values) < 2:
        return NOT_TESTABLE, f"{gap}; one seed decides nothing"
    shown, control = _control(answers, frames["runs"], unlearned)
    return (CONTRADICTED if shown else NOT_TESTABLE), gap + control


def _control(answers: Answers, runs: pd.DataFrame, unlearned: Unlearned) -> tuple[bool, str]:
    """Whether the claim's control shows that it fails for another reason than our size."""
    claim = answers.claim
    if claim.control == "itself" or ("scale" in runs and set(runs["scale"]) == {"paper"}):
        return True, ""
    if claim.control == "paper":
        return False, "; no control: not run at scale paper"
    control = replace(claim, others=(), against="", across=(), **CONTROLS[claim.control])
    found = ask(control, runs[runs["seed"].isin(answers.values)], unlearned)
    if not found.values:
        return False, f"; no control: {LABELS[control.methods[0]]} was not run"
    shown = all(found.strict.values())
    return shown, f"; {'control' if shown else 'the control fails'}: points lost by {cases(found)}"


def _by_interval(answers: Answers) -> tuple[str, str]:
    """The verdict of a primary claim: on which side of the threshold its interval is."""
    claim = answers.claim
    values = pd.Series({seed: table.iat[0, 0] for seed, table in answers.values.items()})
    recorded, wanted = len(values) + len(answers.unlearned), len(claim.seeds)
    if recorded < wanted:
        return NOT_RUN, f"{recorded} of {wanted} seeds are recorded"
    if claim.measure == "lost class":
        interval = statistics.clopper_pearson(int(values.sum()), len(values))
        text = f"lost in {values.sum():.0f} of {len(values)} seeds ({ends(interval)})"
    else:
        found = statistics.paired_difference(values, 0 * values, np.random.default_rng(0))
        interval = found.interval
        both = " to ".join(f"{100 * end:.1f}" for end in interval)
        text = f"{says(claim)}: {100 * found.mean:.1f} ({both}) in {found.pairs} seeds"
    text = f"{text}; {asks(claim)}"
    if answers.unlearned:
        text += f"; FedAvg has not learned the class in {len(answers.unlearned)} seeds"
    for side, verdict in ((claim.side, HOLDS), (OPPOSITE[claim.side], CONTRADICTED)):
        if all(SIDES[side](end, claim.threshold) for end in interval):
            return verdict, text
    return UNDECIDED, text


def _no_answer(answers: Answers, table: pd.DataFrame) -> tuple[str, str]:
    """Why no seed answers."""
    claim = answers.claim
    if answers.unlearned:
        seeds = ", ".join(str(seed) for seed in dict.fromkeys(answers.unlearned))
        return NOT_TESTABLE, f"FedAvg without attack has not learned the class in seed {seeds}"
    if answers.undefined:
        return NOT_TESTABLE, "Src-Acc was 0 in every round, which has no CV"
    if claim.large_model and ask(claim, table, set()).values:
        return NOT_TESTABLE, "the model is smaller than the paper's"
    if claim.primary:
        return NOT_RUN, f"0 of {len(claim.seeds)} seeds are recorded"
    return NOT_RUN, "no seed has all runs that are compared"
