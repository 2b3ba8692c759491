"""Asking every seed: the tables as claims read them, and the numbers of a claim in each seed."""

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from lff.errors import InputError
from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.experiment import PAPER_WIDTH
from lff.experiments.scales import PAPER_DEFENSES
from lff.metrics import learned
from lff.study.claims.claim import Claim
from lff.study.claims.measures import MEASURES, View

KEY = ["benchmark", "defense", "attackers"]
METHODS = (*PAPER_DEFENSES, "oracle")
# The frames of columns that are not of runs or rounds.
FRAMES = {"silhouette": "silhouettes", "angle": "updates", "magnitude_change": "updates"}
Unlearned = set[tuple[str, int]]


def of_runs(table: pd.DataFrame | None, *further: str) -> pd.DataFrame:
    """The runs (or rounds) that claims are about, by cell; two of one cell and seed are refused."""
    unique = [*KEY, "seed", *further]
    if table is None or table.empty:
        return pd.DataFrame(columns=unique).set_index(KEY)
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
    if {"good", "bad"} <= set(table):
        table = table.assign(magnitude_change=(table["bad"] / table["good"] - 1).abs())
    table = table.groupby(["benchmark", view, "seed"]).mean(numeric_only=True).reset_index()
    return table.rename(columns={view: "defense"}).assign(attackers=0.0).set_index(KEY).sort_index()


def not_learned(runs: pd.DataFrame) -> Unlearned:
    """The benchmarks and seeds in which FedAvg without attack has not learned the source class."""
    if "src_acc" not in runs:
        return set()
    without = runs[runs.index.isin([(name, "fedavg", 0.0) for name in BENCHMARKS])].reset_index()
    return {
        (run.benchmark, run.seed)
        for run in without.itertuples()
        if not learned(run.src_acc, BENCHMARKS[run.benchmark].classes)
    }


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
    strict: dict[int, bool] = field(default_factory=dict)  # whether it holds, by seed
    tolerant: dict[int, bool] = field(default_factory=dict)  # the same, read tolerantly
    judged: set[tuple[str, float]] = field(default_factory=set)  # benchmarks and ratios
    unlearned: list[int] = field(default_factory=list)  # seeds in which FedAvg learned too little
    undefined: list[int] = field(default_factory=list)  # seeds in which no case has a number

    def add(self, seed: int, values: pd.DataFrame) -> None:
        """Read the numbers of one seed."""
        known = values.stack().to_numpy()
        self.values[seed] = values
        self.strict[seed] = self.claim.read(known, tolerantly=False)
        self.tolerant[seed] = self.claim.read(known, tolerantly=True)

    @property
    def missing(self) -> list[float]:
        """The claim's ratios at which no seed has all that is compared."""
        asked = {(b, float(r)) for b in self.claim.benchmarks for r in self.claim.ratios}
        return sorted({ratio for _, ratio in asked - self.judged})


def ask(claim: Claim, table: pd.DataFrame, unlearned: Unlearned) -> Answers:
    """The claim's numbers in every seed that has what it compares."""
    measure, answers = MEASURES[claim.measure], Answers(claim)
    chosen = table[table.index.isin({*claim.benchmarks, claim.against}, level=0)]
    if claim.seeds:
        chosen = chosen[chosen["seed"].isin(claim.seeds)]
    # Nothing need be learned for times and views, nor for a primary claim about a difference.
    difference = claim.primary and not measure.unattacked
    if difference or measure.frame == "timed" or claim.metrics[0] in FRAMES:
        unlearned = set()
    for seed, own in chosen.groupby("seed"):
        parts = []
        for benchmark in claim.benchmarks:
            one = replace(claim, benchmark=benchmark, across=())
            ratios = _ratios(one, own)
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
            answers.add(seed, pd.concat(parts))
    return answers


def _ratios(claim: Claim, own: pd.DataFrame) -> list[float]:
    """The claim's ratios at which one seed has all that is compared, and the yardstick."""
    measure = MEASURES[claim.measure]
    columns = [name for name in measure.columns or claim.metrics if name in own]
    there = set(own.index[own[columns].notna().all(axis=1)]) if columns else set()
    if measure.unattacked and (claim.benchmark, "fedavg", 0.0) not in there:
        return []
    where = [name for name in (claim.benchmark, claim.against) if name]
    needed = [(b, m) for b in where for m in claim.methods + claim.others]
    return [float(r) for r in claim.ratios if all((b, m, float(r)) in there for b, m in needed)]
