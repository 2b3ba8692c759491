"""The paper's numbers beside ours."""

from collections.abc import Iterable, Sequence

import pandas as pd

from lff.errors import InputError
from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.scales import PAPER_DEFENSES
from lff.study import paper
from lff.study.frame import benchmarks_in_order
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
HEADLINE = ("src_acc", "asr", "cv")
METHOD = [*CELL, "defense"]
DASH = "\N{EN DASH}"


def compare(
    ours: pd.DataFrame, theirs: pd.DataFrame, on: Sequence[str], values: Sequence[str]
) -> pd.DataFrame:
    """The paper's `values` beside ours, and `<value>_difference` = ours - the paper's.

    One row per row of `theirs`, in its order; NaN where we have no run. Both are mean and range
    over the seeds (`lff.study.tables.over_seeds`); the paper has one seed.
    """
    on, values = list(on), list(values)
    if ours.empty:  # no run yet: a frame without columns
        ours = theirs.iloc[:0].assign(seed=0)
    for owner, given in (("our", ours), ("the paper's", theirs.assign(seed=0))):
        missing = [name for name in (*on, *values, "seed") if name not in given.columns]
        if missing:
            raise InputError(f"{owner} table has no column {', '.join(missing)}")
    reported = over_seeds(theirs.assign(seed=0), on, values)
    table = _joined(over_seeds(ours, on, values).reindex(reported.index), reported, values)
    for value in values:
        table[f"{value}_difference"] = table[f"{value}_ours"] - table[f"{value}_paper"]
    return table.reset_index()


def beside_paper(
    ours: pd.DataFrame, theirs: pd.DataFrame, on: Sequence[str], values: Sequence[str]
) -> pd.DataFrame:
    """`compare` as a table to show: one row per cell that the paper reports."""
    return _named(compare(ours, theirs, on, values).set_index(list(on)))


def headline(runs: pd.DataFrame, ratio: float = 40, otherwise: float = 30) -> pd.DataFrame:
    """Src-Acc and ASR in percent and the CV, the paper's and ours, at one attacker ratio.

    A benchmark of which more methods were run at the ratio `otherwise` is shown at that. Its seeds
    are those in which most methods were run, so that methods are compared by the same ones.
    """
    methods = runs.groupby([*CELL, "seed"])["defense"].transform("nunique")
    runs = runs[methods == methods.groupby([runs[name] for name in CELL]).transform("max")]
    by_cell = runs.groupby(CELL)
    run, seeds = by_cell["defense"].nunique(), by_cell["seed"].agg(listed)
    cells = []
    for benchmark in benchmarks_in_order([*BENCHMARKS, *runs["benchmark"]]):
        at = max((float(ratio), float(otherwise)), key=lambda r: run.get((benchmark, r), 0))
        cells += [(benchmark, at, defense) for defense in PAPER_DEFENSES]
    rows = pd.MultiIndex.from_tuples(cells, names=METHOD)
    table = _beside(runs, rows)
    table.insert(0, "seeds", [seeds.get(cell[:2], DASH) for cell in cells])
    return table


def headline_by_method(headline: pd.DataFrame) -> pd.DataFrame:
    """The headline with a column per method, each cell the paper's number / ours.

    Ours are the range of the seeds; where the paper reports nothing, or we ran nothing, is a dash.
    """
    cells: dict[tuple, dict[str, str]] = {}
    for (benchmark, ratio, method), row in headline.iterrows():
        for label in (LABELS[value] for value in HEADLINE):
            digits = 2 if label == LABELS["cv"] else 0
            pair = (_range(row, f"{label}, {who}", digits) for who in ("paper", "ours"))
            cells.setdefault((benchmark, ratio, row["seeds"], label), {})[method] = " / ".join(pair)
    table = pd.DataFrame.from_dict(cells, orient="index")
    table.index = table.index.set_names([*headline.index.names[:2], "seeds", "paper / ours"])
    return table


def _beside(runs: pd.DataFrame, rows: pd.MultiIndex) -> pd.DataFrame:
    """The paper's and our Src-Acc, ASR and CV of these cells."""
    percent = runs.assign(src_acc=100 * runs["src_acc"], asr=100 * runs["asr"])
    ours = over_seeds(percent, list(rows.names), HEADLINE).reindex(rows)
    read_off = paper.robustness()
    read_off = read_off.assign(src_acc=100 * read_off["src_acc"], asr=100 * read_off["asr"], seed=0)
    theirs = over_seeds(read_off, METHOD, ["src_acc", "asr"])
    theirs = theirs.join(over_seeds(paper.cv().assign(seed=0), METHOD, ["cv"]), how="outer")
    return _named(_joined(ours, theirs.reindex(rows), HEADLINE))


def _joined(ours: pd.DataFrame, theirs: pd.DataFrame, values: Iterable[str]) -> pd.DataFrame:
    columns = {}
    for value in values:
        for part in ("", *COMPANIONS):
            columns[f"{value}_paper{part}"] = theirs[f"{value}{part}"]
        for part in ("", *COMPANIONS):
            columns[f"{value}_ours{part}"] = ours[f"{value}{part}"]
    return pd.DataFrame(columns)


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """The table to show: `src_acc_ours low` becomes `Src-Acc (%), ours low`."""

    def name(column: str) -> str:
        value, who = column.rsplit("_", 1)
        return f"{LABELS.get(value, value)}, {who}"

    return labelled(table.rename(columns=name))


def _range(row: pd.Series, name: str, digits: int) -> str:
    if not row[f"{name} seeds"] > 0:
        return DASH
    if pd.isna(row[name]):
        return "NaN" if pd.isna(row[f"{name} low"]) else "NaN in some"
    ends = (f"{row[name + part]:.{digits}f}" for part in (" low", " high"))
    return " to ".join(dict.fromkeys(ends))
