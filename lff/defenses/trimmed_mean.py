"""The mean of each coordinate without its highest and lowest values.

D. Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates",
ICML 2018. It weighs no peer by her number of examples and drops no whole update.
"""

from functools import partial

from torch import Tensor

from lff.defenses.rule import defense
from lff.updates import Decision, Updates, without_overflow


@defense("trimmed_mean", label="TMean", needs=("attacker_count",))
def trimmed_mean(updates: Updates) -> Decision:
    """Coordinate-wise mean; on each side as many are trimmed as it is told there are attackers.

    Where nothing would remain (from 50%) it is the median.
    """
    trimmed = updates.told("attacker_count")
    rule = partial(coordinate_trimmed_mean, trimmed=trimmed)
    return Decision(aggregate=without_overflow(rule, updates.weights), saw={"trimmed": trimmed})


def coordinate_trimmed_mean(matrix: Tensor, trimmed: int) -> Tensor:
    """The mean of each column without its `trimmed` lowest and highest values.

    One or two values (the median) remain in any case.
    """
    n = len(matrix)
    trimmed = min(trimmed, (n - 1) // 2)
    return matrix.sort(dim=0).values[trimmed : n - trimmed].mean(dim=0)
