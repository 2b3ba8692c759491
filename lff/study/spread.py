"""One quantity over the seeds: a plain number of one seed, mean and range of several.

With two to five seeds a standard deviation says little; the range shows the seed that went wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

INTERVAL = "mean [min, max] of the seeds"


@dataclass(frozen=True)
class Spread:
    """The values of one quantity, one per seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean; NaN if any value is."""
        return float(np.mean(self.values))

    @property
    def low(self) -> float:
        """The smallest value."""
        return float(np.min(self.values))

    @property
    def high(self) -> float:
        """The largest value."""
        return float(np.max(self.values))

    def __format__(self, spec: str) -> str:
        """One number, or mean and range; a value that is none is not averaged away.

        A CV is NaN where Src-Acc was zero in every round: no mean of the other seeds may hide it.
        """
        number = len(self.values)
        missing = int(np.isnan(self.values).sum())
        if missing:
            return "NaN" if missing == number else f"NaN in {missing} of {number}"
        if number == 1:
            return format(self.mean, spec)
        return f"{self.mean:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


def over_seeds(table: pd.DataFrame, by: Sequence[str], values: Sequence[str]) -> pd.DataFrame:
    """Each of `values` as a `Spread` over the seeds, one row per value of `by`.

    Rows that share a seed are averaged first, so that a seed counts once.
    """
    by, values = list(by), list(values)
    rows = []
    for key, part in table.groupby(by, sort=False):
        per_seed = part.groupby("seed")[values].mean()
        spreads = {name: Spread(tuple(per_seed[name])) for name in values}
        rows.append(dict(zip(by, key, strict=True)) | spreads)
    return pd.DataFrame(rows, columns=[*by, *values]).set_index(by)


def over_known_seeds(table: pd.DataFrame, by: Sequence[str], values: Sequence[str]) -> pd.DataFrame:
    """Like `over_seeds`, for quantities that a seed may lack: NaN is left out, not reported."""
    spreads = over_seeds(table, by, values)
    return spreads.map(_known).astype(object)


def several(table: pd.DataFrame) -> bool:
    """Whether any cell of a table is over more than one seed."""
    return any(_several(column) for _, column in table.items())


def as_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """The table with numbers in place of spreads: a mean, and for several seeds min and max."""
    columns = {}
    for name, column in table.items():
        if not any(isinstance(cell, Spread) for cell in column):
            columns[name] = column
            continue
        columns[name] = column.map(lambda cell: _part(cell, "mean"))
        if _several(column):
            columns[f"{name}_min"] = column.map(lambda cell: _part(cell, "low"))
            columns[f"{name}_max"] = column.map(lambda cell: _part(cell, "high"))
    return pd.DataFrame(columns, index=table.index)


def _several(column: pd.Series) -> bool:
    return any(isinstance(cell, Spread) and len(cell.values) > 1 for cell in column)


def _known(cell: Spread) -> Spread | float:
    values = tuple(value for value in cell.values if not np.isnan(value))
    return Spread(values) if values else float("nan")


def _part(cell: object, part: str) -> float:
    return getattr(cell, part) if isinstance(cell, Spread) else float("nan")
