"""All peers of a round at once, for a GPU."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lff.fast.kernels import conv_pool
from lff.models import FlatModel, Layout, draw_dropout, dropouts
from lff.seeds import stream, torch_generator
from lff.training import Examples, LocalTraining, Loop, Peer, one_thread

AT_ONCE = 64  # peers
AGREEMENT = 1e-4  # with the loop, of what a step changes


class Stacked:
    """Peers' models are the rows of one matrix, their batches a stack; for the CNN with SGD.

    On a GPU the products of many small models keep it busy where one's would not. A round is
    planned before it begins. All steps have the same shapes: small batches are filled up with
    examples of weight zero, and a peer with no batch left stays as she is.
    """

    name = "stacked"

    def __init__(self, module: nn.Module, layout: Layout, training: LocalTraining):
        self.dropouts = list(dropouts(module))
        self.layout, self.training = layout, training

    def train(
        self, global_weights: Tensor, peers: Sequence[Peer], *, seed: int, round: int
    ) -> Tensor:
        """The updates `[m, d]` of `peers`, by SGD with momentum and weight decay.

        Peers with about as many examples train together, so that few wait for others.
        """
        updates = global_weights.repeat(len(peers), 1)
        order = np.argsort([len(peer.examples.y) for peer in peers], kind="stable")
        for rows in np.array_split(order, -(-len(peers) // AT_ONCE)):
            weights = global_weights.repeat(len(rows), 1)
            self._train(weights, [peers[row] for row in rows], seed, round)
            updates[rows.tolist()] = weights
        return updates

    def close(self) -> None:
        """Nothing is held."""

    def _train(self, weights: Tensor, peers: Sequence[Peer], seed: int, round: int) -> None:
        """Train the models `[m, d]` of these peers in place."""
        training, device = self.training, weights.device
        keys = [stream(seed, "dropout", round, peer.id) for peer in peers]
        on_device = torch.tensor(keys).to(device)
        rows, shares = (part.to(device) for part in plan(peers, training, seed, round))
        x, y = (torch.cat(parts) for parts in zip(*(peer.examples for peer in peers), strict=True))
        done = shares[:, :, :1] == 0
        velocity = torch.zeros_like(weights)
        weights.requires_grad_()
        for step, (batch, share) in enumerate(zip(rows, shares, strict=True)):
            factors = draw_dropout(self.dropouts, on_device, step, batch.shape[1], device)
            outputs = self._outputs(weights, x[batch], *factors)
            losses = F.cross_entropy(outputs.flatten(0, 1), y[batch].flatten(), reduction="none")
            (gradients,) = torch.autograd.grad(losses @ share.flatten(), weights)
            with torch.no_grad():
                gradients.add_(weights, alpha=training.weight_decay)
                velocity.mul_(training.momentum).add_(gradients).masked_fill_(done[step], 0)
                weights.sub_(velocity, alpha=training.learning_rate)
        weights.requires_grad_(False)

    def _outputs(self, weights: Tensor, x: Tensor, maps: Tensor, features: Tensor) -> Tensor:
        """What each peer's CNN makes of her batch, `[m, n, classes]`; see `lff.models.CNN`."""
        shapes = dict(zip(self.layout.names, self.layout.shapes, strict=True))
        parts = weights.split([prod(shape) for shape in shapes.values()], dim=1)
        parameters = zip(shapes.items(), parts, strict=True)
        w = {name: part.view(-1, *shape) for (name, shape), part in parameters}
        x = x.permute(0, 2, 3, 4, 1)
        for layer in ("conv1", "conv2"):
            x = F.relu(conv_pool(x, w[f"{layer}.weight"], w[f"{layer}.bias"]))
        x = (x * maps.transpose(1, 2)[:, :, None, None]).flatten(1, 3)
        x = F.relu(torch.baddbmm(w["fc1.bias"].unsqueeze(2), w["fc1.weight"], x))
        x = (x * features.transpose(1, 2)).transpose(1, 2)
        return torch.baddbmm(w["fc2.bias"].unsqueeze(1), x, w["fc2.weight"].transpose(1, 2))


def plan(
    peers: Sequence[Peer], training: LocalTraining, seed: int, round: int
) -> tuple[Tensor, Tensor]:
    """The batches of a round, drawn as the loop draws them: which examples each peer trains on in
    each step, as rows of all peers' examples one after the other, and their weights in the loss,
    both `[steps, peers, batch]`."""
    counts = [len(peer.examples.y) for peer in peers]
    size = min(training.batch_size, max(counts))
    steps = [-(-count // size) for count in counts]  # of an epoch
    shape = (len(peers), training.local_epochs * max(steps), size)
    # What fills up is an example of the peer's own: zero times another's could be NaN.
    firsts = torch.tensor([0, *counts[:-1]]).cumsum(dim=0)
    rows = firsts.view(-1, 1, 1).repeat(1, *shape[1:])
    shares = torch.zeros(shape)
    for k, (peer, count) in enumerate(zip(peers, counts, strict=True)):
        shuffle = torch_generator(seed, "shuffle", round, peer.id)
        epoch_rows, epoch_shares = rows[k].view(-1), shares[k].view(-1)
        for epoch in range(training.local_epochs):
            start = epoch * steps[k] * size
            epoch_rows[start : start + count] += torch.randperm(count, generator=shuffle)
            full = count // size * size
            epoch_shares[start : start + full] = 1 / size
            epoch_shares[start + full : start + count] = 1 / (count - full or 1)
    return rows.transpose(0, 1).contiguous(), shares.transpose(0, 1).contiguous()


def disagreement(
    plain: nn.Module, output_layer: str, training: LocalTraining, peers: Sequence[Peer]
) -> float:
    """How far the stack is from the plain loop after one step of two peers, of the step's length.

    The second peer's batch is half as large, so that something is filled up.
    """
    size = training.batch_size
    one_step = replace(training, local_epochs=1)
    few = [
        replace(peer, examples=Examples(*(part[:count] for part in peer.examples)))
        for peer, count in zip(peers[:2], (size, -(-size // 2)), strict=False)
    ]
    model = FlatModel(copy.deepcopy(plain), output_layer, few[0].examples.x.device)
    weights = model.vector.clone()
    with one_thread(weights.device):
        loop = Loop(model, one_step).train(weights, few, seed=0, round=0)
        stack = Stacked(plain, model.layout, one_step).train(weights, few, seed=0, round=0)
    return ((stack - loop).norm(dim=1) / (loop - weights).norm(dim=1)).max().item()
