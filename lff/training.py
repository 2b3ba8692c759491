"""Local training: PEER_UPDATE of Algorithm 1 for one peer, and for a whole round of peers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lff.errors import unknown
from lff.experiments.benchmarks import OPTIMIZERS
from lff.fast.kernels import ToOnePixel
from lff.fast.submodels import Part, own_words, used_taps
from lff.metrics import loss_function
from lff.models import BiLSTM, FlatModel, draw_dropout, dropouts
from lff.seeds import stream, torch_generator


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """The hyper-parameters the server sends along: E, BS, eta and the optimizer's."""

    local_epochs: int
    batch_size: int
    learning_rate: float
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __post_init__(self):
        if self.optimizer not in OPTIMIZERS:
            raise unknown("optimizer", self.optimizer, OPTIMIZERS)


@dataclass(frozen=True, eq=False)
class Peer:
    """A peer: her id, which training examples are hers, and their labels (poisoned or not)."""

    id: int
    examples: Tensor
    labels: Tensor


def train_round(
    model: FlatModel,
    global_weights: Tensor,
    peers: Sequence[Peer],
    train_x: Tensor,
    training: LocalTraining,
    *,
    seed: int,
    round: int,
) -> Tensor:
    """The updates of all `peers` from the same global model, `[m, d]`.

    Every peer's randomness comes from streams of her own, so her update does not depend on who
    else was trained, or in which order.
    """
    updates = global_weights.new_empty(len(peers), len(global_weights))
    for row, peer in zip(updates, peers, strict=True):
        model.load(global_weights)
        train_peer(model, peer, train_x, training, seed=seed, round=round)
        row.copy_(model.vector)
    return updates


def train_peer(
    model: FlatModel,
    peer: Peer,
    train_x: Tensor,
    training: LocalTraining,
    *,
    seed: int,
    round: int,
) -> None:
    """PEER_UPDATE: E epochs over the peer's examples in batches of BS, in place."""
    x = train_x[peer.examples]
    streams = {
        "shuffle": torch_generator(seed, "shuffle", round, peer.id),
        "dropout": stream(seed, "dropout", round, peer.id),
    }
    part, x = part_of(model, x, training)
    if part is None:
        _train(model, x, peer.labels, training, **streams)
    else:
        part.take()
        steps = _train(part.model, x, peer.labels, training, **streams)
        part.put_back(shrinkage(training, steps))


def part_of(model: FlatModel, x: Tensor, training: LocalTraining) -> tuple[Part | None, Tensor]:
    """The part of the model that the examples `x` can move, where training it alone saves much;
    with the examples as that part takes them.

    Parameters without a gradient stay as they are or, by SGD's weight decay, shrink by a factor;
    what Adam's does to them is not so simple.
    """
    decays = training.weight_decay > 0
    if isinstance(model.module, BiLSTM) and not decays:
        return own_words(model, x)
    convolutions = any(isinstance(layer, ToOnePixel) for layer in model.module.modules())
    if convolutions and not (decays and training.optimizer == "adam"):
        return used_taps(model, x.shape[1:]), x
    return None, x


def shrinkage(training: LocalTraining, steps: int) -> float:
    """The factor by which weight decay alone shrinks a parameter in that many steps of SGD."""
    factor, velocity = 1.0, 0.0
    for _ in range(steps):
        velocity = training.momentum * velocity + training.weight_decay * factor
        factor -= training.learning_rate * velocity
    return factor


def _train(
    model: FlatModel,
    x: Tensor,
    labels: Tensor,
    training: LocalTraining,
    *,
    shuffle: torch.Generator,
    dropout: int,
) -> int:
    """Train `model` in place on the examples `x`; returns the number of steps.

    The last batch of an epoch may be smaller. BatchNorm cannot train on a single example: where
    there is no batch to join, its statistics stay as they are. The optimizer starts afresh in
    every round.
    """
    layers = list(dropouts(model.module))
    optimizer = make_optimizer(model, training)
    smallest = 2 if model.has_batchnorm else 1
    steps = 0
    for _ in range(training.local_epochs):
        order = torch.randperm(len(x), generator=shuffle).to(x.device)
        for batch in batches(order, training.batch_size, smallest=smallest):
            model.module.train(len(batch) >= smallest)
            factors = draw_dropout(layers, dropout, steps, len(batch), x.device)
            for layer, drawn in zip(layers, factors, strict=True):
                layer.factors = drawn
            model.parameters.grad.zero_()
            loss_function(model.module(x[batch]), labels[batch]).backward()
            optimizer.step()
            steps += 1
    for layer in layers:
        layer.factors = None
    return steps


def batches(order: Tensor, batch_size: int, *, smallest: int = 1) -> list[Tensor]:
    """`order` in batches; a rest of fewer than `smallest` joins the batch before it."""
    parts = list(order.split(batch_size))
    if len(parts) > 1 and len(parts[-1]) < smallest:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def make_optimizer(model: FlatModel, training: LocalTraining) -> torch.optim.Optimizer:
    """SGD with momentum and weight decay, or Adam, over the model's flat parameters."""
    fused = model.vector.device.type in ("cpu", "cuda")
    if training.optimizer == "adam":
        return torch.optim.Adam(
            [model.parameters],
            lr=training.learning_rate,
            weight_decay=training.weight_decay,
            fused=fused,
        )
    return torch.optim.SGD(
        [model.parameters],
        lr=training.learning_rate,
        momentum=training.momentum,
        weight_decay=training.weight_decay,
        fused=fused,
    )
