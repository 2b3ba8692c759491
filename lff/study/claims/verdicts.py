"""All claims judged by a table of runs, and the verdicts counted."""

import numpy as np
import pandas as pd

from lff.experiments.benchmarks import BENCHMARKS
from lff.study.claims.registry import (
    ANSWERS,
    CLAIMS,
    KEY,
    METRICS,
    SECONDS,
    SUBJECTS,
    WITHOUT,
    Claim,
    learned,
)
from lff.errors import InputError
from lff.study.tables import labelled, with_seconds_per_round


def check_all(
    results: pd.DataFrame, rounds: pd.DataFrame | None = None, timed: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Judge every claim: one row each, with benchmark, claim, subject, quote, answer and
    evidence.

    `results` has one row per run (`lff.results`) of a single scale; `rounds` one row per round,
    with `relevant` and `non_relevant` gradient magnitudes; `timed`, like `results`, has the runs
    whose aggregation times count, if they are others (`lff.study.plan.timed`). Several seeds are
    averaged; nothing is said of benchmarks in which FedAvg learned too little without an attack
    (`learned`).
    """
    runs = prepared(results)
    clocked = runs if timed is None else prepared(timed)
    by_round = prepared(pd.DataFrame() if rounds is None else rounds, per_round=True)
    order = [*BENCHMARKS, "all"]
    claims = sorted(CLAIMS, key=lambda c: order.index(c.benchmark))
    vain = _unlearned(runs)

    def table_of(claim: Claim) -> pd.DataFrame:
        if claim.per_round:
            return by_round
        return clocked if claim.reads == SECONDS else runs

    return pd.DataFrame([claim.judge(table_of(claim), vain) for claim in claims])


def _unlearned(runs: pd.DataFrame) -> list[str]:
    """The benchmarks FedAvg has not `learned` without attack, as far as is known."""
    reached = runs.groupby(KEY)[["all_acc", "src_acc"]].mean().min(axis=1)
    return [b for b in BENCHMARKS if reached.get((b, *WITHOUT), 1.0) < learned(b)]


def tally(verdicts: pd.DataFrame, by: str = "benchmark") -> pd.DataFrame:
    """How many claims of each benchmark, or by what they are `about`, have which answer."""
    counts = pd.crosstab(verdicts[by], verdicts["answer"])
    order = [*BENCHMARKS, "all"] if by == "benchmark" else SUBJECTS
    rows = [row for row in order if row in counts.index]
    columns = [answer for answer in ANSWERS if answer in counts]
    counts = counts.loc[rows, columns]
    counts.loc["together"] = counts.sum()
    return labelled(counts.rename_axis(index=by, columns=None))


def prepared(table: pd.DataFrame, *, per_round: bool = False) -> pd.DataFrame:
    """What claims read of a table, indexed by cell; refuses two runs of the same cell and seed."""
    unique = [*KEY, "seed", *(["round"] if per_round else [])]
    if not table.empty:
        absent = [name for name in unique if name not in table]
        if absent:
            raise InputError(f"the table has no column {', '.join(absent)}")
        twice = table[table.duplicated(unique)]
        if len(twice):
            cell = ", ".join(f"{name} {twice.iloc[0][name]}" for name in unique)
            raise InputError(f"more than one run of {cell}; give the results of a single scale")
    if {"aggregation_seconds", "rounds"} <= set(table):
        table = with_seconds_per_round(table)
    for name in {"cv", "test_error"} & set(table):
        # NaN: Src-Acc was zero in every round, or the loss overflowed; the worst there is.
        table = table.assign(**{name: table[name].fillna(np.inf)})
    read = dict.fromkeys([*METRICS, *(name for claim in CLAIMS for name in claim.reads)])
    table = table.reindex(columns=[*unique, *read])
    return table.astype({"attackers": float}).set_index(KEY)
