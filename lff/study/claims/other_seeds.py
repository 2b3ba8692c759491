"""Do the verdicts depend on the seed? Every other seed judged by itself, beside the first."""

import pandas as pd

from lff.study.claims.registry import (
    BY_DEFINITION,
    FAILS,
    FAILS_SO_FAR,
    HOLDS,
    HOLDS_SO_FAR,
    KEY,
    SUBJECTS,
    TIMES,
)
from lff.study.claims.verdicts import check_all
from lff.study.tables import labelled

PLAIN = {HOLDS: HOLDS, HOLDS_SO_FAR: HOLDS, FAILS: FAILS, FAILS_SO_FAR: FAILS}
JUDGED, SAME = "claims judged", "same answer as in the first seed"


def in_other_seeds(results: pd.DataFrame) -> pd.DataFrame:
    """One row per claim and seed but the first: its answer there, and in the first seed (`first`).

    Both are judged by the cells that both seeds have, so that only the seed differs. Left out are
    claims that cannot be judged by these, that are about rounds or running times, and that are
    true by definition.
    """
    seeds = sorted(set(results["seed"]))
    parts = [check_all(results.iloc[:0]).iloc[:0].assign(first="", seed=0)]
    for seed in seeds[1:]:
        here, first = _same_cells(results, seed, seeds[0])
        verdicts = check_all(here).assign(first=check_all(first)["answer"], seed=seed)
        verdicts = verdicts[~verdicts["about"].isin([TIMES, BY_DEFINITION])]
        answers = ["answer", "first"]
        verdicts[answers] = verdicts[answers].map(PLAIN.get)
        parts.append(verdicts.dropna(subset=answers))
    return pd.concat(parts, ignore_index=True)


def agreement(table: pd.DataFrame) -> pd.DataFrame:
    """How many claims another seed judges like the first, by seed and what they are about."""
    same = table.assign(same=table["answer"] == table["first"])
    counts = same.groupby(["seed", "about"])["same"].agg(["count", "sum"])
    order = [(seed, s) for seed in sorted(set(table["seed"])) for s in SUBJECTS]
    counts = counts.reindex([key for key in order if key in counts.index])
    return counts.rename(columns={"count": JUDGED, "sum": SAME})


def changed(table: pd.DataFrame) -> pd.DataFrame:
    """The claims whose answer is another one than in the first seed."""
    names = {"first": "answer in the first seed", "answer": "answer in this seed"}
    rows = table[table["answer"] != table["first"]].rename(columns=names)
    return labelled(rows.set_index(["benchmark", "quote", "seed"])[[*names.values(), "evidence"]])


def _same_cells(results: pd.DataFrame, seed: int, first: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The runs of two seeds, of the cells that both have."""
    own = [results[results["seed"] == one] for one in (seed, first)]
    cells = [pd.MultiIndex.from_frame(runs[KEY]) for runs in own]
    here, before = own
    return here[cells[0].isin(cells[1])], before[cells[1].isin(cells[0])]
