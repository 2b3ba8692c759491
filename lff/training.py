"""Local training: PEER_UPDATE of Algorithm 1 for one peer, and for a whole round of peers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lff.benchmarks import OPTIMIZERS
from lff.errors import unknown
from lff.metrics import loss_function
from lff.models import BiLSTM, FlatModel, dropouts
from lff.seeds import torch_generator


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
    generators = {
        "shuffle": torch_generator(seed, "shuffle", round, peer.id),
        "dropout": torch_generator(seed, "dropout", round, peer.id, device=x.device),
    }
    if isinstance(model.module, BiLSTM) and training.weight_decay == 0:
        own = OwnWords(model, x)
        _train(own.model, own.tokens, peer.labels, training, **generators)
        own.put_back()
    else:
        _train(model, x, peer.labels, training, **generators)


class OwnWords:
    """A peer's part of a model over words: only the embeddings of the words that she holds.

    Other words have no gradient, and without weight decay neither SGD nor Adam moves them. Her
    update is the same, without stepping through a vocabulary that is ten times hers.
    """

    def __init__(self, model: FlatModel, tokens: Tensor):
        self.whole = model
        self.words, self.tokens = tokens.unique(return_inverse=True)
        with torch.device("meta"):
            part = BiLSTM(len(self.words))
        part = part.to_empty(device=tokens.device)
        self.model = FlatModel(part, model.layout.output_layer, tokens.device)
        views = model.layout.views(model.vector)
        for name, view in self.model.layout.views(self.model.vector).items():
            view.copy_(views[name][self.words] if name == "embedding.weight" else views[name])

    def put_back(self) -> None:
        """Carry the part's weights over to the whole model."""
        views = self.whole.layout.views(self.whole.vector)
        for name, view in self.model.layout.views(self.model.vector).items():
            if name == "embedding.weight":
                views[name][self.words] = view
            else:
                views[name].copy_(view)


def _train(
    model: FlatModel,
    x: Tensor,
    labels: Tensor,
    training: LocalTraining,
    *,
    shuffle: torch.Generator,
    dropout: torch.Generator,
) -> None:
    """Train `model` in place on the examples `x`.

    The last batch of an epoch may be smaller. BatchNorm cannot train on a single example: where
    there is no batch to join, its statistics stay as they are. The optimizer starts afresh in
    every round.
    """
    for layer in dropouts(model.module):
        layer.generator = dropout
    optimizer = make_optimizer(model, training)
    smallest = 2 if model.has_batchnorm else 1
    for _ in range(training.local_epochs):
        order = torch.randperm(len(x), generator=shuffle).to(x.device)
        for batch in batches(order, training.batch_size, smallest=smallest):
            model.module.train(len(batch) >= smallest)
            model.parameters.grad.zero_()
            loss_function(model.module(x[batch]), labels[batch]).backward()
            optimizer.step()


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
