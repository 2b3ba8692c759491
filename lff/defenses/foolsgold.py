"""FoolsGold: peers whose updates resemble each other weigh less.

C. Fung et al., "The Limitations of Federated Learning in Sybil Settings", RAID 2020,
Algorithm 1.
"""

import torch
from torch import Tensor

from lff.defenses.geometry import cosines
from lff.defenses.rule import defense
from lff.updates import Decision, Updates, weighted_mean, within_range


@defense("foolsgold", label="FGold")
class FoolsGold:
    """Weigh peers by how unlike the others their output-layer gradients have been so far.

    The gradients of all rounds are summed per peer; the similarity of two peers is the cosine
    of their sums. If every peer looks like a sybil (all weights zero), all weigh the same.
    """

    def __init__(self) -> None:
        self.history: dict[int, Tensor] = {}

    def __call__(self, updates: Updates) -> Decision:
        gradients = updates.output_layer.flatten(1)
        for peer, gradient in zip(updates.peers, gradients, strict=True):
            self.history[peer] = within_range(self.history.get(peer, 0) + gradient)
        similarity = cosines(torch.stack([self.history[peer] for peer in updates.peers]))
        decision = weighted_mean(updates, foolsgold_weights(similarity))
        return Decision(
            aggregate=decision.aggregate,
            weights=decision.weights,
            scores=largest_similarities(similarity),
        )

    def state_dict(self) -> dict[str, Tensor]:
        """The history, for a checkpoint."""
        return {str(peer): gradients for peer, gradients in self.history.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from a checkpoint's history."""
        self.history = {int(peer): gradients for peer, gradients in state.items()}


def largest_similarities(similarity: Tensor) -> Tensor:
    """max_j cs_ij of each peer, from the pairwise similarities; those below 0 count as 0.

    An honest peer who resembles a sybil is pardoned in proportion: cs_ij is scaled by v_i / v_j
    where v_i < v_j, v being each peer's largest similarity.
    """
    similarity = similarity.clone().fill_diagonal_(0)
    largest = similarity.amax(dim=1)
    mine, other = largest.unsqueeze(1), largest.unsqueeze(0)
    pardon = torch.where(mine < other, mine / other, 1)
    return (similarity * pardon).amax(dim=1)


def foolsgold_weights(similarity: Tensor) -> Tensor:
    """The weights in [0, 1] of Algorithm 1, from the peers' pairwise similarities.

    alpha_i = 1 - max_j cs_ij is rescaled to a maximum of one, and the weight is
    ln(alpha / (1 - alpha)) + 0.5, cut to [0, 1].
    """
    alpha = (1 - largest_similarities(similarity)).clamp(0, 1)
    highest = alpha.max()
    alpha = alpha / torch.where(highest > 0, highest, 1)
    return (torch.logit(alpha) + 0.5).clamp(0, 1)
