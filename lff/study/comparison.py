"""The paper's numbers beside ours."""

from collections.abc import Sequence

import pandas as pd

from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.scales import PAPER_DEFENSES
from lff.study import paper
from lff.study.frame import benchmarks_in_order, defense_label
from lff.study.tables import CELL, labelled, listed, over_seeds
from lff.study.text import COMPANIONS

LABELS = {
    "src_acc": "Src-Acc (%)",
    "asr": "ASR (%)",
    "cv": "CV",
    "per_round": "seconds per round",
    "good": "magnitude of good",
    "bad": "magnitude of bad",
    "angle": "angle (degrees)",
}
HEADLINE = {"src_acc": 0, "asr": 0, "cv": 2}  # with so many digits
METHOD = [*CELL, "defense"]
DASH = "\N{EN DASH}"


def compare(
    ours: pd.DataFrame, theirs: pd.DataFrame, on: Sequence[str], values: Sequence[str]
) -> pd.DataFrame:
    """The paper's `values` beside ours, and `<value>_difference` = ours - the paper's.

    One row per row of `theirs`, in its order; NaN where we have no run. Both are mean and range
    over the seeds (`lff.study.tables.over_seeds`); the paper has one seed.
    """
    reported = over_seeds(theirs.assign(seed=0), on, values)
    found = over_seeds(ours, on, values).reindex(reported.index)
    columns = {
        f"{value}_{who}{part}": table[value + part]
        for value in values
        for who, table in (("paper", reported), ("ours", found))
        for part in ("", *COMPANIONS)
    }
    columns |= {f"{value}_difference": found[value] - reported[value] for value in values}
    return pd.DataFrame(columns).reset_index()


def beside_paper(
    ours: pd.DataFrame, theirs: pd.DataFrame, on: Sequence[str], values: Sequence[str]
) -> pd.DataFrame:
    """`compare` as a table to show: `src_acc_ours low` becomes `Src-Acc (%), ours low`."""
    table = compare(ours, theirs, on, values).set_index(list(on))
    parts = {name: name.rsplit("_", 1) for name in table}
    shown = {name: f"{LABELS[value]}, {who}" for name, (value, who) in parts.items()}
    return labelled(table.rename(columns=shown))


def headline(runs: pd.DataFrame, ratio: float = 40, otherwise: float = 30) -> pd.DataFrame:
    """Src-Acc and ASR in percent and the CV at one attacker ratio, the paper's number / ours.

    A column per method. A benchmark of which more methods were run at the ratio `otherwise` is
    shown at that. Its seeds are those in which most methods were run, so that methods are compared
    by the same ones, and ours is their range. A dash is what the paper does not report or was not
    run.
    """
    methods = runs.groupby([*CELL, "seed"])["defense"].transform("nunique")
    runs = runs[methods == methods.groupby([runs[name] for name in CELL]).transform("max")]
    by_cell = runs.groupby(CELL)
    run, seeds = by_cell["defense"].nunique(), by_cell["seed"].agg(listed)
    ours = over_seeds(_percent(runs), METHOD, [*HEADLINE])
    rates = over_seeds(_percent(paper.robustness()).assign(seed=0), METHOD, ["src_acc", "asr"])
    cv = over_seeds(paper.cv().assign(seed=0), METHOD, ["cv"])
    theirs = {"src_acc": rates, "asr": rates, "cv": cv}
    rows = {}
    for benchmark in benchmarks_in_order([*BENCHMARKS, *runs["benchmark"]]):
        at = max((ratio, otherwise), key=lambda r: run.get((benchmark, r), 0))
        for value in HEADLINE:
            rows[benchmark, at, seeds.get((benchmark, at), DASH), LABELS[value]] = [
                " / ".join(
                    _range(table, (benchmark, at, method), value) for table in (theirs[value], ours)
                )
                for method in PAPER_DEFENSES
            ]
    index = pd.MultiIndex.from_tuples(list(rows), names=[*CELL, "seeds", "paper / ours"])
    return labelled(pd.DataFrame(list(rows.values()), index, map(defense_label, PAPER_DEFENSES)))


def _percent(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(src_acc=100 * table["src_acc"], asr=100 * table["asr"])


def _range(table: pd.DataFrame, cell: tuple, value: str) -> str:
    """The smallest and largest value of a cell's seeds."""
    if cell not in table.index:
        return DASH
    mean, low, high = table.loc[cell, [value, f"{value} low", f"{value} high"]]
    if pd.isna(mean):
        return "NaN" if pd.isna(low) else "NaN in some"
    ends = (f"{end:.{HEADLINE[value]}f}" for end in (low, high))
    return " to ".join(dict.fromkeys(ends))
