"""FedAvg: no defense, the average of all updates.

B. McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS 2017.
"""

from typing import Literal, get_args

import torch

from lff.defenses.rule import defense
from lff.errors import unknown
from lff.updates import Decision, Updates, weighted_mean

Weighing = Literal["examples", "equal"]


@defense("fedavg", label="FedAvg")
def fedavg(updates: Updates, *, weighing: Weighing = "examples") -> Decision:
    """Average the updates in proportion to the peers' numbers of examples.

    `weighing="equal"` weighs all peers the same, as the paper's released code does.
    """
    if weighing not in get_args(Weighing):
        raise unknown("weighing", weighing, get_args(Weighing))
    by_examples = weighing == "examples"
    return weighted_mean(
        updates, updates.examples if by_examples else torch.ones_like(updates.examples)
    )
