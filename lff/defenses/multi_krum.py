"""Multi-Krum: the average of the updates with the closest neighbours.

P. Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
NeurIPS 2017.
"""

import torch
from torch import Tensor

from lff.defenses.geometry import ranks, squared_distances
from lff.defenses.rule import defense
from lff.updates import Decision, Updates, weighted_mean


@defense("multi_krum", label="MKrum", needs=("attacker_count",))
def multi_krum(updates: Updates) -> Decision:
    """Keep the n - f - 2 updates of the lowest scores and average them equally.

    The score of an update is the sum of its squared distances to its n - f - 2 nearest other
    updates, f being the number of attackers it is told. At least one is kept, and at
    least one neighbour is looked at. (Libraries differ here: Blanchard et al. leave the number
    kept free, and some count an update among its own neighbours.)
    """
    return closest(updates, squared_distances(updates.weights))


def closest(updates: Updates, distances: Tensor) -> Decision:
    """The average of the updates of the lowest scores, by their squared distances.

    Of equal scores the peer of the lower id goes first: with one neighbour the two closest updates
    always tie.
    """
    n = len(updates)
    if n == 1:
        return weighted_mean(updates, torch.ones_like(updates.examples))
    count = max(n - updates.told("attacker_count") - 2, 1)
    distances = distances.fill_diagonal_(torch.inf)
    scores = distances.sort(dim=1).values[:, :count].sum(dim=1)
    by_id = torch.tensor(updates.peers, device=scores.device).argsort(stable=True)
    kept = torch.zeros_like(updates.examples)
    kept[by_id[ranks(scores[by_id]).argsort(stable=True)[:count]]] = 1
    decision = weighted_mean(updates, kept)
    return Decision(
        aggregate=decision.aggregate,
        weights=decision.weights,
        scores=scores,
        saw={"kept": count},
    )
