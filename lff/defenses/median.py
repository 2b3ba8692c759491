"""The median of each coordinate over the peers.

D. Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates",
ICML 2018. It weighs no peer by her number of examples and drops no whole update.
"""

from torch import Tensor

from lff.defenses.rule import defense
from lff.updates import Decision, Updates, without_overflow


@defense("median", label="Median")
def median(updates: Updates) -> Decision:
    """Coordinate-wise median."""
    return Decision(aggregate=without_overflow(coordinate_median, updates.weights))


def coordinate_median(matrix: Tensor) -> Tensor:
    """The median of each column; for even counts, the mean of the two middle values."""
    n = len(matrix)
    ordered = matrix.sort(dim=0).values
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
