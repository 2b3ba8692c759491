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
from lff.fast.sorting import (
    BLOCK,
    column_blocks,
    fill,
    mean_of_ranks,
    median_of,
    scratch,
    sort_columns,
)
from lff.updates import Decision, Updates, finite_rows, within_range


@defense("median", label="Median")
def median(updates: Updates) -> Decision:
    """Coordinate-wise median (Yin et al., 2018)."""
    return Decision(aggregate=without_overflow(coordinate_median, updates.weights))


@defense("repeated_median", label="RMedian")
def repeated_median(updates: Updates) -> Decision:
    """Coordinate-wise repeated median (Siegel, 1982)."""
    return Decision(aggregate=without_overflow(coordinate_repeated_median, updates.weights))


@defense("trimmed_mean", label="TMean", needs=("attacker_count",))
def trimmed_mean(updates: Updates) -> Decision:
    """Coordinate-wise mean without the highest and lowest values (Yin et al., 2018).

    As many are trimmed on each side as it is told there are attackers; where nothing would remain
    (from 50%) it is the median.
    """
    trimmed = updates.told("attacker_count")
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
    """The median of each column; for even counts, the mean of the two middle values."""
    return coordinate_trimmed_mean(matrix, len(matrix))


def coordinate_trimmed_mean(matrix: Tensor, trimmed: int) -> Tensor:
    """The mean of each column without its `trimmed` lowest and highest values.

    One or two values (the median) remain in any case.
    """
    n = len(matrix)
    trimmed = min(trimmed, (n - 1) // 2)
    if trimmed == 0:
        return matrix.mean(dim=0)
    result = torch.empty_like(matrix[0])
    buffer = scratch(matrix, n, BLOCK // n + 1)
    for columns in column_blocks(matrix):
        block = fill(buffer, matrix[:, columns])
        result[columns] = mean_of_ranks(block, trimmed, n - trimmed)
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
    x = torch.arange(n, dtype=matrix.dtype, device=matrix.device).unsqueeze(1) - (n - 1) / 2
    result = torch.empty_like(matrix[0])
    run = scratch(matrix, n, n, 1).copy_(x.unsqueeze(1) - x)  # j - i
    buffer = scratch(matrix, n, n, BLOCK // n**2 + 1)
    for columns in column_blocks(matrix, BLOCK // n):
        y = sort_columns(matrix[:, columns])
        slopes = buffer[:, :, : y.shape[1]]  # [j, i, column]
        torch.sub(y.unsqueeze(1), y, out=slopes).div_(run)
        slopes.diagonal().fill_(torch.inf)  # j = i comes last and does not count
        slope = median_of(median_of(slopes, n - 1))
        result[columns] = median_of(y - slope * x)
    return result
