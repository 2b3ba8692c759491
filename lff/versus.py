"""The paper's numbers beside ours, as tables."""

from collections.abc import Sequence

import pandas as pd

from lff import paper
from lff.benchmarks import BENCHMARKS
from lff.scales import PAPER_DEFENSES
from lff.spread import Spread, over_seeds
from lff.tables import labelled

LABELS = {
    "src_acc": "Src-Acc (%)",
    "asr": "ASR (%)",
    "cv": "CV",
    "per_round": "seconds per round",
    "good": "magnitude of good",
    "bad": "magnitude of bad",
    "angle": "angle (degrees)",
}
HEADLINE_DIGITS = {
    f"{name} (%), {who}": 0 for name in ("Src-Acc", "ASR") for who in ("paper", "ours")
}
PARTS = ("paper", "ours", "difference")
CELL = ["benchmark", "attackers", "defense"]


def beside_paper(
    ours: pd.DataFrame, theirs: pd.DataFrame, on: Sequence[str], values: Sequence[str]
) -> pd.DataFrame:
    """The paper's numbers, ours and the difference, one row per cell that the paper reports."""
    table = paper.compare(ours, theirs, list(on), list(values)).set_index(list(on))
    for value in values:  # a NaN that the paper prints is a number it reports
        table[f"{value}_paper"] = table[f"{value}_paper"].map(lambda number: Spread((number,)))
    parts = {f"{v}_{part}": f"{LABELS.get(v, v)}, {part}" for v in values for part in PARTS}
    return labelled(table).rename(columns=parts)


def headline(results: pd.DataFrame, ratio: float = 40, otherwise: float = 30) -> pd.DataFrame:
    """Src-Acc and ASR in percent and the CV, the paper's and ours, at one attacker ratio.

    A benchmark of which more methods were run at the ratio `otherwise` is shown at that.
    """
    methods = results.groupby(CELL[:2])["defense"].nunique().to_dict()
    at = {b: max(ratio, otherwise, key=lambda r: methods.get((b, r), 0)) for b in BENCHMARKS}
    cells = [(b, float(at[b]), d) for b in BENCHMARKS for d in PAPER_DEFENSES]
    rows = pd.MultiIndex.from_tuples(cells, names=CELL)
    scaled = results.assign(src_acc=100 * results["src_acc"], asr=100 * results["asr"])
    ours = over_seeds(scaled, CELL, ["src_acc", "asr", "cv"]).reindex(rows)
    read_off = paper.robustness().set_index(CELL)[["src_acc", "asr"]] * 100
    theirs = read_off.reindex(rows)
    theirs["cv"] = paper.cv().set_index(CELL)["cv"].reindex(rows).map(lambda cv: Spread((cv,)))
    columns = {}
    for name in ("src_acc", "asr", "cv"):
        label = LABELS[name]
        columns |= {f"{label}, paper": theirs[name], f"{label}, ours": ours[name]}
    return labelled(pd.DataFrame(columns))
