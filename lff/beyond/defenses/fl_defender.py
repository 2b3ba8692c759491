"""FL-Defender: peers have a reputation of how near the middle their similarities to others lie.

N. M. Jebreel, J. Domingo-Ferrer, "FL-Defender: Combating Targeted Attacks in Federated Learning",
Knowledge-Based Systems 2023.
"""

import torch
from torch import Tensor

from lff.beyond.defenses.tolpegin import principal_components, standardized
from lff.defenses import defense
from lff.defenses.geometry import cosines
from lff.updates import Decision, Updates, weighted_mean

DIGITS = 9  # after the point; what is smaller is rounding, which must not decide


@defense("fl_defender", label="FL-Defender")
class FLDefender:
    """Each peer's cosines with all others' output-layer gradients are reduced to two principal
    components; her score is the cosine between that point and the median of all points.

    Scores add up to reputations over the rounds. A peer's weight is her reputation less the first
    quartile, or nothing below it: a quarter of the peers never counts.
    """

    def __init__(self) -> None:
        self.reputation: dict[int, Tensor] = {}

    def __call__(self, updates: Updates) -> Decision:
        rows = torch.tensor(updates.peers, device=updates.weights.device).argsort(stable=True)
        similarity = cosines(updates.output_layer.flatten(1)[rows]).fill_diagonal_(0)
        points = principal_components(standardized(similarity)).round(decimals=DIGITS)
        middle = points.quantile(0.5, dim=0, keepdim=True)
        scores = cosines(torch.cat([middle, points]))[0, 1:][rows.argsort()]
        for peer, score in zip(updates.peers, scores, strict=True):
            self.reputation[peer] = self.reputation.get(peer, 0) + score
        reputation = torch.stack([self.reputation[peer] for peer in updates.peers])
        trust = (reputation - reputation.quantile(0.25)).clamp(min=0).round(decimals=DIGITS)
        decision = weighted_mean(updates, trust)
        return Decision(decision.aggregate, decision.weights, scores=-reputation)

    def state_dict(self) -> dict[str, Tensor]:
        """The reputations, for a checkpoint."""
        return {str(peer): score for peer, score in self.reputation.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from a checkpoint's reputations."""
        self.reputation = {int(peer): score for peer, score in state.items()}
