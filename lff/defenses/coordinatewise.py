"""Robust statistics of each coordinate: median, trimmed mean, repeated median.

D. Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates",
ICML 2018; A. F. Siegel, "Robust regression using repeated medians", Biometrika 1982.
None of them weighs peers by their number of examples, and none drops a whole update.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from lff.defenses.registry import defense
from lff.defenses.sorting import column_blocks, middle, sort_columns
from lff.updates import Decision, Updates, finite_rows, within_range


@defense("median", label="Median")
def median(updates: Updates) -> Decision:
    """Coordinate-wise median (Yin et al., 2018)."""
    return Decision(aggregate=without_overflow(coordinate_median, updates.weights))


@defense("repeated_median", label="RMedian")
def repeated_median(updates: Updates) -> Decision:
    """Coordinate-wise repeated median (Siegel, 1982)."""
    return Decision(aggregate=without_overflow(coordinate_repeated_median, updates.weights))


@defense("trimmed_mean", label="TMean", oracle=True)
def trimmed_mean(updates: Updates) -> Decision:
    """Coordinate-wise mean without the highest and lowest values (Yin et al., 2018).

    As many are trimmed on each side as the oracle says there are attackers; where nothing
    would remain (from 50%) it is the median.
    """
    trimmed = updates.attackers_told()
    rule = partial(coordinate_trimmed_mean, trimmed=trimmed)
    return Decision(aggregate=without_overflow(rule, updates.weights), saw={"trimmed": trimmed})


def without_overflow(rule: Callable[[Tensor], Tensor], matrix: Tensor) -> Tensor:
    """`rule(matrix)`, and again in float64 for the columns whose sums overflow float32."""
    result = rule(matrix)
    if not all(finite_rows(result.unsqueeze(0))):
        columns = (~result.isfinite()).nonzero().flatten()
        result[columns] = within_range(rule(matrix[:, columns].double())).to(result.dtype)
    return result


def coordinate_median(matrix: Tensor) -> Tensor:
    """The median of each column."""
    result = torch.empty_like(matrix[0])
    for columns in column_blocks(matrix):
        result[columns] = middle(sort_columns(matrix[:, columns]))
    return result


def coordinate_trimmed_mean(matrix: Tensor, trimmed: int) -> Tensor:
    """The mean of each column without its `trimmed` lowest and highest values."""
    n = len(matrix)
    if trimmed == 0:
        return matrix.mean(dim=0)
    if 2 * trimmed >= n:
        return coordinate_median(matrix)
    result = torch.empty_like(matrix[0])
    for columns in column_blocks(matrix):
        result[columns] = sort_columns(matrix[:, columns])[trimmed : n - trimmed].mean(dim=0)
    return result


def coordinate_repeated_median(matrix: Tensor) -> Tensor:
    """Siegel's line through the sorted values of each column, at its middle.

    With the sorted values y_1 <= ... <= y_n at x_i = i:
    slope = med_i med_{j != i} (y_j - y_i) / (j - i), intercept = med_i (y_i - slope i),
    and the value is intercept + slope (n + 1) / 2.
    """
    n = len(matrix)
    if n == 1:
        return matrix[0].clone()
    # Centered positions: the value at the middle is then the intercept itself.
    x = torch.arange(n, dtype=matrix.dtype, device=matrix.device) - (n - 1) / 2
    result = torch.empty_like(matrix[0])
    for columns in column_blocks(matrix):
        y = sort_columns(matrix[:, columns])
        slopes = torch.stack([_median_slope(y, x, i) for i in range(n)])
        slope = middle(sort_columns(slopes))
        result[columns] = middle(sort_columns(y - slope * x.unsqueeze(1)))
    return result


def _median_slope(y: Tensor, x: Tensor, i: int) -> Tensor:
    """med_{j != i} (y_j - y_i) / (x_j - x_i) for each column."""
    others = [j for j in range(len(y)) if j != i]
    return middle(sort_columns((y[others] - y[i]) / (x[others] - x[i]).unsqueeze(1)))
