"""Variants of the study's defenses, which the scripts in `docs/` run, beside the originals.

Each script changes one thing in a defense, to learn why it does what it does. The variants live in
the scripts; here they are known by their names in the records.
"""

from typing import Any

import pandas as pd

from lff.experiments.benchmarks import BENCHMARKS, Experiment
from lff.experiments.records import Record, find, iterate
from lff.experiments.runs import experiment
from lff.study.tables import labelled
from lff.study.trials import SETTING_LABELS

# A variant's name in the records, the defense it is of, and what the script of it changes.
VARIANTS = {
    "late_lfighter": ("lfighter", "LFighter from round 4 on (late_lfighter.py)"),
    "lfighter_in_company": ("lfighter", "LFighter, nobody alone (lfighter_in_company.py)"),
    "lfighter_told": ("lfighter", "LFighter, told the classes (lfighter_told.py)"),
    "released_lfighter": ("lfighter", "LFighter as released (as_released.py)"),
    "released_foolsgold": ("foolsgold", "FGold as released (as_released.py)"),
}
KEY = ["variant", "benchmark", "attackers", "settings", "seed"]
COLUMNS = (
    "Src-Acc (%)", "the original's Src-Acc (%)", "ASR (%)",
    "attackers dropped (%)", "by the original (%)", "honest peers dropped (%)",
)  # fmt: skip


def beside_originals() -> pd.DataFrame:
    """One row per recorded run of a variant, with what became of the original in its place.

    The original is the study's defense with the same settings and seed, as far as it is recorded.
    """
    recorded = [record for record in iterate() if record.experiment.defense in VARIANTS]
    rows = [_row(record) for record in sorted(recorded, key=_order)]
    return labelled(pd.DataFrame(rows, columns=[*KEY, *COLUMNS]).set_index(KEY))


def _order(record: Record) -> tuple[Any, ...]:
    e = record.experiment
    which = list(VARIANTS).index(e.defense), e.defense_options
    return *which, list(BENCHMARKS).index(e.benchmark), e.attackers, e.scale, e.seed


def _row(record: Record) -> dict[str, Any]:
    e = record.experiment
    original, variant = VARIANTS[e.defense]
    if e.defense_options:
        variant = f"{variant}, {e.defense_options}"
    there = find(e.replace(defense=original, defense_options="", user_code=""))
    ours, theirs = record.summary(), there.summary() if there else {}
    rates = (
        ours["src_acc"], theirs.get("src_acc"), ours["asr"],
        ours["true_positive_rate"], theirs.get("true_positive_rate"), ours["false_positive_rate"],
    )  # fmt: skip
    cell = variant, e.benchmark, e.attackers, _settings(e), e.seed
    percent = (None if rate is None else 100 * rate for rate in rates)
    return dict(zip([*KEY, *COLUMNS], [*cell, *percent], strict=True))


def _settings(e: Experiment) -> str:
    """The scale, and what is set otherwise than there."""
    usual = experiment(e.benchmark, scale=e.scale)
    changed = [n for n in SETTING_LABELS if n != "scale" and getattr(e, n) != getattr(usual, n)]
    return ", ".join([e.scale, *(SETTING_LABELS[name](getattr(e, name)) for name in changed)])
