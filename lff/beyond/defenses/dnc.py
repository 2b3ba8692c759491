"""DnC (divide and conquer): who is farthest along the main direction of the updates is dropped.

V. Shejwalkar, A. Houmansadr, "Manipulating the Byzantine: Optimizing Model Poisoning Attacks and
Defenses for Federated Learning", NDSS 2021, Algorithm 2.
"""

import torch
from torch import Tensor

from lff.defenses import defense
from lff.defenses.geometry import ranks
from lff.errors import InputError
from lff.seeds import torch_generator
from lff.updates import Decision, Updates, weighted_mean


@defense("dnc", label="DnC", needs=("attacker_count",))
def dnc(
    updates: Updates, *, iterations: int = 1, coordinates: int = 10_000, share: float = 1.0
) -> Decision:
    """Each iteration looks at some coordinates of the gradients, drawn at random, and drops the
    c f peers of the largest squared projections on their first singular vector.

    f is the number of attackers it is told and c the `share`. Who is never dropped weighs the same;
    if that is nobody, all do.
    """
    if iterations < 1 or coordinates < 1 or not 0 <= share < float("inf"):
        raise InputError(
            "iterations and coordinates must be 1 or more and share 0 or more, "
            f"not {iterations!r}, {coordinates!r} and {share!r}"
        )
    n, device = len(updates), updates.weights.device
    drop = min(int(share * updates.told("attacker_count")), n - 1)
    rows = torch.tensor(updates.peers, device=device).argsort(stable=True)
    generator = torch_generator(updates.seed, "coordinates", updates.round)
    good = torch.ones(n, dtype=torch.bool, device=device)
    for _ in range(iterations):
        drawn = torch.randperm(updates.layout.parameters, generator=generator)[:coordinates]
        scores = outlier_scores(updates.gradients[:, drawn][rows].double())
        good[rows[ranks(scores).argsort(stable=True)[n - drop :]]] = False
    decision = weighted_mean(updates, good)
    return Decision(decision.aggregate, decision.weights, scores[rows.argsort()])


def outlier_scores(gradients: Tensor) -> Tensor:
    """<g_k - mean, v>^2, v being the first right singular vector of the centered gradients."""
    centered = gradients - gradients.mean(dim=0)
    v = torch.linalg.svd(centered, full_matrices=False).Vh[0]
    return (centered @ v).square()
