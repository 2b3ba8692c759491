"""Extensions as a user writes them, in a module that is no part of the package.

A benchmark of her own (two clouds of points per class, a model of two layers), and one each of an
attack, a defense, a metric and a hook.
"""

import torch
from torch import nn

import lff


def load_clouds():
    """Four classes of 2D points; the first 400 train, the others test."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(600) % 4
    corners = torch.tensor([[2.0, 2.0], [2.0, -2.0], [-2.0, -2.0], [-2.0, 2.0]])
    x = corners[y] + 0.6 * torch.randn(600, 2, generator=generator)
    return x[:400], y[:400], x[400:], y[400:]


def make_net():
    """Two layers, with torch's own dropout between them."""
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4))


lff.benchmark(
    "clouds", data=load_clouds, model=make_net, label="Clouds", distribution="mild", peers=10,
    source_class=3, target_class=1, rounds=8, local_epochs=2, batch_size=8, learning_rate=0.05,
)  # fmt: skip


@lff.defense("middle", label="Middle half")
def middle(updates: lff.Updates) -> lff.Decision:
    """Average the half of the updates that is nearest to the coordinate-wise median."""
    distances = (updates.weights - updates.weights.median(dim=0).values).norm(dim=1)
    kept = (distances <= distances.median()).float()
    return lff.Decision(kept / kept.sum() @ updates.weights, kept / kept.sum(), distances)


@lff.attack("boosted_flip", label="Boosted flip", knows="attackers' updates")
class BoostedFlip:
    """Flip a share of the source labels, and exaggerate the mean of the attackers' updates."""

    def __init__(self, *, share: float = 1.0, boost: float = 2.0):
        self.share, self.boost = share, boost

    def poison(self, data: lff.Examples, context: lff.Context) -> lff.Examples:
        """Some source labels become the target class, others in each round."""
        chosen = torch.rand(len(data.y), generator=context.generator) < self.share
        flipped = chosen & (data.y == context.source_class)
        return lff.Examples(data.x, torch.where(flipped, context.target_class, data.y))

    def craft(self, update: torch.Tensor, context: lff.Context) -> torch.Tensor:
        """W + boost (mean of the attackers' X - W)."""
        mean = context.updates.mean(dim=0)
        return context.global_weights + self.boost * (mean - context.global_weights)


@lff.metric("worst_class", label="Worst class")
def worst_class(evaluation: lff.Evaluation) -> float:
    """The lowest accuracy of any class."""
    confusion = evaluation.confusion.double()
    return (confusion.diagonal() / confusion.sum(dim=1)).min().item()


@lff.hook("spread")
def spread(federation: lff.Federation, entry: dict) -> dict:
    """How far the updates of a round are from their mean, on average."""
    weights = federation.updates.weights
    return {"spread": (weights - weights.mean(dim=0)).norm(dim=1).mean()}
