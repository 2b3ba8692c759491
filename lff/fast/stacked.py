"""All peers of a round at once, for a GPU."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from lff.models import Layout, draw_dropout, dropouts
from lff.seeds import stream, torch_generator
from lff.training import Examples, LocalTraining, Peer, batches


class Stacked:
    """Peers' models are the rows of one matrix, their batches a stack.

    On a GPU a hundred small models in one product keep it busy where one would not. Peers have
    batches of different sizes and numbers: small ones are filled up with examples of weight
    zero, and who has no batch left drops out. It is for the CNN with SGD.
    """

    name = "stacked"

    def __init__(self, module: nn.Module, layout: Layout, training: LocalTraining):
        self.module, self.layout = module.train(), layout
        self.training = training
        self.gradients = vmap(grad(self._loss))

    def train(
        self, global_weights: Tensor, peers: Sequence[Peer], *, seed: int, round: int
    ) -> Tensor:
        """The updates `[m, d]` of `peers`, by SGD with momentum and weight decay."""
        plans = [list(self._batches(peer, seed, round)) for peer in peers]
        order = sorted(range(len(peers)), key=lambda row: -len(plans[row]))
        keys = torch.tensor([stream(seed, "dropout", round, peers[row].id) for row in order])
        layers, device = list(dropouts(self.module)), global_weights.device
        weights = global_weights.repeat(len(peers), 1)
        velocity = torch.zeros_like(weights)
        for step in range(len(plans[order[0]])):
            chosen = [plans[row][step] for row in order if step < len(plans[row])]
            active, moving = weights[: len(chosen)], velocity[: len(chosen)]
            x, y, shares = _stacked(chosen)
            factors = draw_dropout(layers, keys[: len(chosen)], step, x.shape[1], device)
            gradients = self.gradients(active, x, y, shares, *factors)
            gradients.add_(active, alpha=self.training.weight_decay)
            moving.mul_(self.training.momentum).add_(gradients)
            active.sub_(moving, alpha=self.training.learning_rate)
        updates = torch.empty_like(weights)
        updates[order] = weights
        return updates

    def close(self) -> None:
        """Nothing is held."""

    def _batches(self, peer: Peer, seed: int, round: int) -> Iterator[Examples]:
        """The examples of each step, drawn as the loop draws them."""
        x, y = peer.examples
        shuffle = torch_generator(seed, "shuffle", round, peer.id)
        for _ in range(self.training.local_epochs):
            order = torch.randperm(len(y), generator=shuffle).to(y.device)
            for batch in batches(order, self.training.batch_size):
                yield Examples(x[batch], y[batch])

    def _loss(
        self, vector: Tensor, x: Tensor, y: Tensor, shares: Tensor, *factors: Tensor
    ) -> Tensor:
        """One peer's loss over her batch."""
        for layer, drawn in zip(dropouts(self.module), factors, strict=True):
            layer.factors = drawn
        outputs = functional_call(self.module, self.layout.views(vector), (x,))
        return F.cross_entropy(outputs, y, reduction="none") @ shares


def _stacked(chosen: Sequence[Examples]) -> list[Tensor]:
    """One step of several peers, filled up to the largest batch, with the examples' weights."""
    largest = max(len(y) for _, y in chosen)
    weighed = [(x, y, torch.full_like(y, 1 / len(y), dtype=torch.float32)) for x, y in chosen]
    return [
        torch.stack([_filled(part, largest) for part in parts])
        for parts in zip(*weighed, strict=True)
    ]


def _filled(part: Tensor, length: int) -> Tensor:
    """`part` with zeros added to that many rows."""
    return torch.cat([part, part.new_zeros(length - len(part), *part.shape[1:])])
