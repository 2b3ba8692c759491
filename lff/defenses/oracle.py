"""The oracle: a filter that drops exactly the attackers, the ceiling of every filter.

No defense: it is told what no server can know. What it loses against FedAvg without attack is
what the attackers' examples were worth.
"""

import torch

from lff.defenses.rule import defense
from lff.updates import Decision, Updates, average_without


@defense("oracle", label="Oracle", needs=("attackers",))
def oracle(updates: Updates) -> Decision:
    """FedAvg over the honest peers; over all peers of a round in which everybody attacks."""
    attackers = set(updates.told("attackers"))
    bad = [peer in attackers for peer in updates.peers]
    return average_without(updates, torch.tensor(bad, device=updates.weights.device))
