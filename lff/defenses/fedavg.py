"""FedAvg: no defense, the average of all updates.

B. McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS 2017.
"""

import torch

from lff.defenses.registry import defense
from lff.errors import unknown
from lff.updates import Decision, Updates, weighted_mean

WEIGHING = ("examples", "equal")


@defense("fedavg", label="FedAvg")
def fedavg(updates: Updates, *, weighing: str = "examples") -> Decision:
    """Average the updates in proportion to the peers' numbers of examples.

    `weighing="equal"` weighs all peers the same, as the paper's released code does.
    """
    if weighing not in WEIGHING:
        raise unknown("weighing", weighing, WEIGHING)
    by_examples = weighing == "examples"
    return weighted_mean(
        updates, updates.examples if by_examples else torch.ones_like(updates.examples)
    )
