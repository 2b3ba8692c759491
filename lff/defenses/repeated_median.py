"""The repeated median of each coordinate.

A. F. Siegel, "Robust regression using repeated medians", Biometrika 1982. The paper names it
without saying of which line; ours goes through the sorted values (`docs/decisions.md`).
"""

import torch
from torch import Tensor

from lff.defenses.median import coordinate_median
from lff.defenses.rule import defense
from lff.updates import Decision, Updates, without_overflow


@defense("repeated_median", label="RMedian")
def repeated_median(updates: Updates) -> Decision:
    """Coordinate-wise repeated median."""
    return Decision(aggregate=without_overflow(coordinate_repeated_median, updates.weights))


def coordinate_repeated_median(matrix: Tensor) -> Tensor:
    """Siegel's line through the sorted values of each column, at its middle.

    With the sorted values y_1 <= ... <= y_n at x_i = i:
    slope = med_i med_{j != i} (y_j - y_i) / (j - i), intercept = med_i (y_i - slope i),
    and the value is intercept + slope (n + 1) / 2.
    """
    n = len(matrix)
    if n == 1:
        return matrix[0].clone()
    y = matrix.sort(dim=0).values
    # Centered positions: the value at the middle is then the intercept itself.
    x = torch.arange(n, dtype=matrix.dtype, device=matrix.device) - (n - 1) / 2
    slopes = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        rise, run = y[others] - y[i], x[others] - x[i]
        slopes.append(coordinate_median(rise / run.unsqueeze(1)))
    slope = coordinate_median(torch.stack(slopes))
    return coordinate_median(y - slope * x.unsqueeze(1))
