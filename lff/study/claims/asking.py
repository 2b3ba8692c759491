"""Asking every seed: the tables as claims read them, and the numbers of a claim in each seed."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from lff.errors import InputError
from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.experiment import PAPER_WIDTH
from lff.experiments.scales import PAPER_DEFENSES
from lff.metrics import learned
from lff.study.claims.claim import Claim
from lff.study.claims.measures import MEASURES, Measure, View

KEY = ["benchmark", "defense", "attackers"]
METHODS = (*PAPER_DEFENSES, "oracle")
# The frames of columns that are not of runs or rounds.
FRAMES = {"silhouette": "silhouettes", "angle": "updates", "magnitude_change": "updates"}
Unlearned = set[tuple[str, int]]


def of_runs(table: pd.DataFrame | None, *further: str) -> pd.DataFrame:
    """The runs (or rounds) that claims are about, by cell; two of one cell and seed are refused."""
    unique = [*KEY, "seed", *further]
    if table is None or table.empty:
        return pd.DataFrame(columns=["seed"], index=pd.MultiIndex.from_arrays([[]] * 3, names=KEY))
    _check_columns(table, unique)
    table = table[table["benchmark"].isin(BENCHMARKS) & table["defense"].isin(METHODS)]
    twice = table[table.duplicated(unique)]
    if len(twice):
        cell = ", ".join(f"{name} {twice.iloc[0][name]}" for name in unique)
        raise InputError(f"more than one run of {cell}; give the runs of a single scale")
    if {"aggregation_seconds", "rounds"} <= set(table):
        table = table.assign(per_round=table["aggregation_seconds"] / table["rounds"])
    # NaN: Src-Acc was zero in every round, or the loss overflowed; the worst there is.
    worst = {name: table[name].fillna(np.inf) for name in ("cv", "test_error") if name in table}
    return table.assign(**worst).astype({"attackers": float}).set_index(KEY).sort_index()


def of_views(table: pd.DataFrame | None, view: str) -> pd.DataFrame:
    """Numbers of views of the gradients, as if a view were a method; mean over the rounds."""
    if table is None or table.empty:
        return of_runs(None)
    _check_columns(table, ["benchmark", "seed", view])
    if {"good", "bad"} <= set(table):
        table = table.assign(magnitude_change=(table["bad"] / table["good"] - 1).abs())
    table = table.groupby(["benchmark", view, "seed"]).mean(numeric_only=True).reset_index()
    return table.rename(columns={view: "defense"}).assign(attackers=0.0).set_index(KEY).sort_index()


def _check_columns(table: pd.DataFrame, names: list[str]) -> None:
    if absent := [name for name in names if name not in table]:
        raise InputError(f"the table has no column {', '.join(absent)}")


def not_learned(runs: pd.DataFrame) -> Unlearned:
    """The benchmarks and seeds in which FedAvg without attack has not learned the source class."""
    if "src_acc" not in runs:
        return set()
    rows = zip(runs.index, runs["seed"], runs["src_acc"], strict=True)
    without = [(b, seed, acc) for (b, d, r), seed, acc in rows if (d, r) == ("fedavg", 0)]
    return {(b, seed) for b, seed, acc in without if not learned(acc, BENCHMARKS[b].classes)}


def of_paper_size(table: pd.DataFrame) -> pd.DataFrame:
    """The runs of the paper's models: ResNet18's width, the whole vocabulary."""
    for name, sizes in (("width", (0, PAPER_WIDTH)), ("vocabulary", (0,))):
        if name in table:
            table = table[table[name].isin(sizes)]
    return table


@dataclass
class Answers:
    """What the seeds say of one claim."""

    claim: Claim
    values: dict[int, pd.DataFrame] = field(default_factory=dict)  # of its cases, by seed
    judged: set[tuple[str, float]] = field(default_factory=set)  # benchmarks and ratios
    unlearned: list[int] = field(default_factory=list)  # seeds in which FedAvg learned too little
    undefined: list[int] = field(default_factory=list)  # seeds in which no case has a number

    @cached_property
    def strict(self) -> dict[int, bool]:
        """Whether the claim holds, seed by seed."""
        return self._read(tolerantly=False)

    @cached_property
    def tolerant(self) -> dict[int, bool]:
        """The same, read tolerantly."""
        return self._read(tolerantly=True)

    def _read(self, *, tolerantly: bool) -> dict[int, bool]:
        cases = {seed: table.to_numpy().ravel() for seed, table in self.values.items()}
        known = {seed: own[~np.isnan(own)] for seed, own in cases.items()}
        return {seed: self.claim.read(own, tolerantly=tolerantly) for seed, own in known.items()}

    @property
    def missing(self) -> list[float]:
        """The claim's ratios at which no seed has all that is compared."""
        where = self.claim.across or (self.claim.benchmark,)
        asked = {(b, float(r)) for b in where for r in self.claim.ratios}
        return sorted({ratio for _, ratio in asked - self.judged})


def ask(claim: Claim, table: pd.DataFrame, unlearned: Unlearned) -> Answers:
    """The claim's numbers in every seed that has what it compares."""
    measure, answers = MEASURES[claim.measure], Answers(claim)
    chosen = table[table.index.isin({*claim.across, claim.benchmark, claim.against}, level=0)]
    if claim.seeds:
        chosen = chosen[chosen["seed"].isin(claim.seeds)]
    # Nothing need be learned for times and views, nor for a primary claim about a difference.
    if measure.frame == "timed" or claim.metrics[0] in FRAMES:
        unlearned = set()
    if claim.primary and not measure.unattacked:
        unlearned = set()
    for seed, own in chosen.groupby("seed"):
        parts = []
        for benchmark in claim.across or (claim.benchmark,):
            one = replace(claim, benchmark=benchmark)
            ratios = _ratios(one, measure, own)
            if not ratios:
                continue
            if unlearned & {(benchmark, seed), (claim.against, seed)}:
                answers.unlearned.append(seed)
                continue
            part = measure.compute(View(one, own, ratios))
            if part.isna().all(axis=None):
                answers.undefined.append(seed)
                continue
            parts.append(part.set_axis([benchmark] * len(part)) if claim.across else part)
            answers.judged |= {(benchmark, ratio) for ratio in ratios}
        if parts:
            answers.values[seed] = pd.concat(parts)
    return answers


def _ratios(claim: Claim, measure: Measure, own: pd.DataFrame) -> list[float]:
    """The claim's ratios at which one seed has all that is compared, and the yardstick."""
    columns = [name for name in measure.columns or claim.metrics if name in own]
    there = set(own.index[own[columns].notna().all(axis=1)]) if columns else set()
    if measure.unattacked and (claim.benchmark, "fedavg", 0.0) not in there:
        return []
    where = [name for name in (claim.benchmark, claim.against) if name]
    needed = [(b, m) for b in where for m in claim.methods + claim.others]
    return [float(r) for r in claim.ratios if all((b, m, float(r)) in there for b, m in needed)]
