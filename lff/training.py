"""Local training: PEER_UPDATE of Algorithm 1 for one peer, and for a round of peers.

This is the plain reference. `lff.fast` trains the same peers quicker and is held to it.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from lff.errors import unknown
from lff.metrics import loss_function
from lff.models import FlatModel, draw_dropout, dropouts
from lff.seeds import seeded, stream, torch_generator

OPTIMIZERS = ("sgd", "adam")


class Examples(NamedTuple):
    """Some examples: features, and labels (true or poisoned)."""

    x: Tensor
    y: Tensor


Loss = Callable[[nn.Module, Examples], Tensor]


def honest_loss(model: nn.Module, batch: Examples) -> Tensor:
    """The loss that honest peers, and attackers who only poison their data, descend."""
    return loss_function(model(batch.x), batch.y)


@dataclass(frozen=True, eq=False)
class Peer:
    """A peer: her id, the examples she trains on, and the loss she descends."""

    id: int
    examples: Examples
    loss: Loss = honest_loss


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """The hyper-parameters the server sends along: E, BS, eta and the optimizer's."""

    local_epochs: int = 1
    batch_size: int = 64
    learning_rate: float = 0.01
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise unknown("optimizer", self.optimizer, OPTIMIZERS)


class Trainer(Protocol):
    """Trains the peers of a round from the same global model.

    Trainers of the same `name` give the same bits.
    """

    name: str

    def train(
        self, global_weights: Tensor, peers: Sequence[Peer], *, seed: int, round: int
    ) -> Tensor:
        """The updates `[m, d]` of `peers`."""

    def close(self) -> None:
        """Give back what the trainer holds."""


class Loop:
    """One peer after another: the loop that anybody understands."""

    name = "loop"

    def __init__(self, model: FlatModel, training: LocalTraining):
        self.model, self.training = model, training

    def train(
        self, global_weights: Tensor, peers: Sequence[Peer], *, seed: int, round: int
    ) -> Tensor:
        """The updates `[m, d]` of `peers`.

        Every peer's randomness comes from streams of her own, so her update does not depend on who
        else was trained, or in which order.
        """
        updates = global_weights.new_empty(len(peers), len(global_weights))
        for row, peer in zip(updates, peers, strict=True):
            self.model.load(global_weights)
            self.train_peer(peer, seed=seed, round=round)
            row.copy_(self.model.vector)
        return updates

    def train_peer(self, peer: Peer, *, seed: int, round: int) -> None:
        """Train the model in place on a peer's examples."""
        peer_update(self.model, peer, self.training, seed=seed, round=round)

    def close(self) -> None:
        """Nothing is held."""


def peer_update(
    model: FlatModel, peer: Peer, training: LocalTraining, *, seed: int, round: int
) -> int:
    """PEER_UPDATE: E epochs over the peer's examples in batches of BS, in place.

    Returns the number of steps. The last batch of an epoch may be smaller. BatchNorm cannot train
    on a single example: where there is no batch to join, its statistics stay as they are. The
    optimizer starts afresh in every round.
    """
    x, y = peer.examples
    shuffle = torch_generator(seed, "shuffle", round, peer.id)
    dropout = stream(seed, "dropout", round, peer.id)
    layers = list(dropouts(model.module))
    optimizer = make_optimizer(model, training)
    smallest = 2 if model.has_batchnorm else 1
    step = 0
    with seeded(stream(seed, "torch", round, peer.id), x.device):
        for _ in range(training.local_epochs):
            order = torch.randperm(len(x), generator=shuffle).to(x.device)
            for batch in batches(order, training.batch_size, smallest=smallest):
                model.module.train(len(batch) >= smallest)
                factors = draw_dropout(layers, dropout, step, len(batch), x.device)
                for layer, drawn in zip(layers, factors, strict=True):
                    layer.factors = drawn
                model.gradient.zero_()
                peer.loss(model.module, Examples(x[batch], y[batch])).backward()
                optimizer.step()
                step += 1
    for layer in layers:
        layer.factors = None
    return step


def batches(order: Tensor, batch_size: int, *, smallest: int = 1) -> list[Tensor]:
    """`order` in batches; a rest of fewer than `smallest` joins the batch before it."""
    pieces = list(order.split(batch_size))
    if len(pieces) > 1 and len(pieces[-1]) < smallest:
        pieces[-2:] = [torch.cat(pieces[-2:])]
    return pieces


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


@contextlib.contextmanager
def one_thread(device: torch.device | str = "cpu") -> Iterator[None]:
    """Compute on one CPU thread, or on a GPU as exactly as on a CPU; the caller's settings stay.

    The order of a parallel sum, and so its last bits, depends on the number of threads. One
    thread per run gives the same record under any load; runs are what is spread over cores. A GPU's
    convolutions would round their factors to 10 bits (TF32), and sum in any order.
    """
    if torch.device(device).type != "cpu":
        with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
            yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)
