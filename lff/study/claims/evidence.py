"""The evidence of a verdict in words: numbers, threshold and seeds in one sentence."""

import numpy as np
import pandas as pd

from lff.defenses import DEFENSES
from lff.study import statistics
from lff.study.claims.asking import METHODS, Answers
from lff.study.claims.claim import Claim
from lff.study.claims.measures import MEASURES

UNITS = {"silhouette": "", "angle": "degrees", "magnitude_change": ""}
LABELS = {
    "test_error": "exp(-TE)",
    "all_acc": "All-Acc",
    "src_acc": "Src-Acc",
    "asr": "ASR",
    "true_positive_rate": "attackers dropped",
    "false_positive_rate": "honest peers dropped",
    "magnitude_change": "change of magnitude",
    **{name: DEFENSES.label(name) for name in METHODS},
}


def says(claim: Claim) -> str:
    """What its measure says, with the claim's names in it."""
    names = {"metrics": claim.metrics, "methods": claim.methods, "others": claim.others}
    labels = {key: ", ".join(LABELS.get(n, n) for n in some) for key, some in names.items()}
    return MEASURES[claim.measure].says.format(**labels)


def asks(claim: Claim) -> str:
    """What the claim asks of the numbers."""
    unit = _unit(claim)
    number = f"{100 * claim.threshold:g}" if unit == "points" else f"{claim.threshold:.3g}"
    return f"{claim.side} {number} {unit}".rstrip() + " asked"


def cases(answers: Answers) -> str:
    """The numbers of the cases, mean over the seeds; of many columns the smallest and largest."""
    unit = _unit(answers.claim)
    mean = pd.concat(answers.values.values()).groupby(level=0, sort=False).mean()
    rows = []
    for name, row in mean.iterrows():
        shown = [_number(value, unit) for value in row]
        if len(shown) > 6:
            shown = [f"{_number(row.min(), unit)} to {_number(row.max(), unit)}"]
        rows.append(f"{LABELS.get(str(name), name)} {'/'.join(shown)}")
    ratios = [column for column in mean.columns if isinstance(column, float) and column]
    return ", ".join(rows) + (f" at {percents(list(mean.columns))}" if ratios else "")


def counted(answers: Answers) -> str:
    """In how many seeds it holds, with the Wilson interval, and in which it does not."""
    held, loosely = (sum(read.values()) for read in (answers.strict, answers.tolerant))
    seeds = len(answers.strict)
    text = f"holds in {held} of {seeds} seeds ({ends(statistics.wilson(held, seeds))})"
    if loosely > held:
        text += f", read tolerantly in {loosely}"
    failed = [str(seed) for seed, holds in answers.strict.items() if not holds]
    return f"{text}, not in {', '.join(failed)}" if 0 < held < seeds else text


def ends(interval: statistics.Interval) -> str:
    """An interval of a share, in percent."""
    return f"{100 * interval.low:.0f} to {100 * interval.high:.0f}%"


def percents(ratios: list[float]) -> str:
    """Attacker ratios in one word."""
    return "/".join(f"{ratio:g}" for ratio in ratios) + "%"


def _unit(claim: Claim) -> str:
    return UNITS.get(claim.metrics[0], MEASURES[claim.measure].unit)


def _number(value: float, unit: str) -> str:
    if not np.isfinite(value):
        return "none" if np.isnan(value) else "lost"
    digits, factor = {"points": (1, 100), "degrees": (0, 1)}.get(unit, (2, 1))
    return f"{factor * value:.{digits}f}"
