"""How a round's peers are trained: one after another, spread over processes, or stacked.

The updates are those of the plain loop: bit for bit over processes, to floating-point tolerance
when stacked. So an experiment's name does not tell which engine ran it.
"""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from lff.errors import InputError, TrainingError, unknown
from lff.experiments.processes import deaf_to_interrupts
from lff.models import FlatModel, Layout, build, draw_dropout, dropouts
from lff.seeds import stream, torch_generator
from lff.threads import one_thread
from lff.training import LocalTraining, Peer, batches, train_peer, train_round

ENGINES = ("auto", "loop", "stacked")


class Engine(Protocol):
    """Trains the selected peers of a round from the same global model.

    Engines of the same `name` give the same bits.
    """

    name: str

    def train(
        self, global_weights: Tensor, peers: Sequence[Peer], *, seed: int, round: int
    ) -> Tensor:
        """The updates `[m, d]` of `peers`."""

    def close(self) -> None:
        """Give back what the engine holds."""


def choose_engine(
    name: str,
    workers: int,
    *,
    model: dict[str, Any],
    flat: FlatModel,
    train_x: Tensor,
    training: LocalTraining,
) -> Engine:
    """The engine of that name for this model; `auto` stacks where that is made for.

    `model` are the arguments of `lff.models.build`, from which workers build their own, and
    `flat` is the model of this process.
    """
    check_engine(name, workers)
    on_cpu = train_x.device.type == "cpu"
    stackable = model["name"] == "cnn" and training.optimizer == "sgd"
    if name == "stacked" and not stackable:
        raise InputError("engine 'stacked' is for the CNN with SGD; choose 'loop' or 'auto'")
    if workers > 1 and (name == "stacked" or not on_cpu):
        raise InputError(f"{workers} workers train on the CPU with engine 'loop'; choose 1 worker")
    if name == "stacked" or (name == "auto" and stackable and train_x.device.type == "cuda"):
        return Stacked(build(**model).to(train_x.device), flat.layout, train_x, training)
    if workers > 1:
        return Workers(workers, model, flat.layout.output_layer, train_x, training)
    return Loop(flat, train_x, training)


def check_engine(name: str, workers: int) -> None:
    """Refuse an engine there is not, and a number of workers that is none."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    if type(workers) is not int or workers < 1:
        raise InputError(f"workers must be a whole number of at least 1, not {workers!r}")


class Loop:
    """One peer after another, in this process."""

    name = "loop"

    def __init__(self, model: FlatModel, train_x: Tensor, training: LocalTraining):
        self.model, self.train_x, self.training = model, train_x, training

    def train(
        self, global_weights: Tensor, peers: Sequence[Peer], *, seed: int, round: int
    ) -> Tensor:
        """The updates `[m, d]` of `peers`."""
        with one_thread(self.train_x.device):
            return train_round(
                self.model,
                global_weights,
                peers,
                self.train_x,
                self.training,
                seed=seed,
                round=round,
            )

    def close(self) -> None:
        """Nothing is held."""


class Workers:
    """Peers spread over processes of one thread each; whoever is free takes the next.

    Examples and models travel through pipes as arrays, so that nothing depends on the size of
    a machine's shared memory.
    """

    name = Loop.name

    def __init__(
        self,
        count: int,
        model: dict[str, Any],
        output_layer: str,
        train_x: Tensor,
        training: LocalTraining,
    ):
        context = multiprocessing.get_context("spawn")
        self.processes: dict[Connection, Any] = {}
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            with deaf_to_interrupts():
                process.start()
            theirs.close()
            self.processes[ours] = process
        for connection in self.processes:
            self._send(connection, (model, output_layer, train_x.numpy(), training))

    def train(
        self, global_weights: Tensor, peers: Sequence[Peer], *, seed: int, round: int
    ) -> Tensor:
        """The updates `[m, d]` of `peers`."""
        updates = global_weights.new_empty(len(peers), len(global_weights))
        waiting = sorted(range(len(peers)), key=lambda row: len(peers[row].examples))
        training: dict[Connection, int] = {}

        def give(connection: Connection) -> None:
            training[connection] = row = waiting.pop()
            peer = peers[row]
            self._send(connection, (peer.id, peer.examples.numpy(), peer.labels.numpy()))

        for connection in self.processes:
            self._send(connection, (global_weights.numpy(), seed, round))
            if waiting:
                give(connection)
        while training:
            for connection in wait(list(training)):
                row = training.pop(connection)
                updates[row] = torch.from_numpy(self._receive(connection))
                if waiting:
                    give(connection)
        return updates

    def close(self) -> None:
        """End the workers."""
        for connection in self.processes:
            connection.close()
        for process in self.processes.values():
            process.terminate()
            process.join()
        self.processes = {}

    def _send(self, connection: Connection, message: tuple) -> None:
        try:
            connection.send(message)
        except OSError:
            raise self._lost(connection) from None

    def _receive(self, connection: Connection) -> np.ndarray:
        try:
            return connection.recv()
        except (EOFError, OSError):
            raise self._lost(connection) from None

    def _lost(self, connection: Connection) -> TrainingError:
        process = self.processes[connection]
        process.join()
        return TrainingError(
            f"a training worker ended with exit code {process.exitcode}; the run goes on from its "
            "last checkpoint when started again (a script that asks for workers must start them "
            "under `if __name__ == '__main__':`)"
        )


def _serve(connection: Connection) -> None:
    """A worker: learn the task, then train peers for as long as they come."""
    torch.set_num_threads(1)
    try:
        arguments, output_layer, x, training = connection.recv()
        model, train_x = FlatModel(build(**arguments), output_layer), torch.from_numpy(x)
        while True:
            message = connection.recv()
            if isinstance(message[0], np.ndarray):
                weights, seed, round = message
                weights = torch.from_numpy(weights)
                continue
            key, examples, labels = message
            peer = Peer(key, torch.from_numpy(examples), torch.from_numpy(labels))
            with one_thread():
                model.load(weights)
                train_peer(model, peer, train_x, training, seed=seed, round=round)
            connection.send(model.vector.numpy())
    except (EOFError, OSError, KeyboardInterrupt):
        os._exit(0)  # the parent is gone, or going


class Stacked:
    """All peers at once: their models are the rows of one matrix, their batches a stack.

    On a GPU a hundred small models in one product keep it busy where one would not. Peers have
    batches of different sizes and numbers: small ones are filled up with examples of weight
    zero, and who has no batch left drops out.
    """

    name = "stacked"

    def __init__(self, module: nn.Module, layout: Layout, train_x: Tensor, training: LocalTraining):
        self.module, self.layout = module.train(), layout
        self.train_x, self.training = train_x, training
        self.gradients = vmap(grad(self._loss))

    def train(
        self, global_weights: Tensor, peers: Sequence[Peer], *, seed: int, round: int
    ) -> Tensor:
        """The updates `[m, d]` of `peers`, by SGD with momentum and weight decay."""
        plans = [list(self._batches(peer, seed, round)) for peer in peers]
        order = sorted(range(len(peers)), key=lambda row: -len(plans[row]))
        keys = torch.tensor([stream(seed, "dropout", round, peers[row].id) for row in order])
        layers, device = list(dropouts(self.module)), self.train_x.device
        weights = global_weights.repeat(len(peers), 1)
        velocity = torch.zeros_like(weights)
        for step in range(len(plans[order[0]])):
            chosen = [plans[row][step] for row in order if step < len(plans[row])]
            active, moving = weights[: len(chosen)], velocity[: len(chosen)]
            x, labels, shares = self._stack(chosen)
            factors = draw_dropout(layers, keys[: len(chosen)], step, x.shape[1], device)
            gradients = self.gradients(active, x, labels, shares, *factors)
            gradients.add_(active, alpha=self.training.weight_decay)
            moving.mul_(self.training.momentum).add_(gradients)
            active.sub_(moving, alpha=self.training.learning_rate)
        updates = torch.empty_like(weights)
        updates[order] = weights
        return updates

    def close(self) -> None:
        """Nothing is held."""

    def _batches(self, peer: Peer, seed: int, round: int) -> Iterator[tuple[Tensor, ...]]:
        """The examples and labels of each step, drawn as the loop draws them."""
        shuffle = torch_generator(seed, "shuffle", round, peer.id)
        for _ in range(self.training.local_epochs):
            order = torch.randperm(len(peer.examples), generator=shuffle)
            for batch in batches(order.to(self.train_x.device), self.training.batch_size):
                yield peer.examples[batch], peer.labels[batch]

    def _stack(self, chosen: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """One step of several peers, filled up to the largest batch."""
        largest = max(len(examples) for examples, _ in chosen)
        weighed = [
            (*plan, torch.full_like(plan[1], 1 / len(plan[1]), dtype=torch.float32))
            for plan in chosen
        ]
        examples, labels, shares = (
            torch.stack([_filled(part, largest) for part in parts])
            for parts in zip(*weighed, strict=True)
        )
        return self.train_x[examples], labels, shares

    def _loss(
        self, vector: Tensor, x: Tensor, labels: Tensor, shares: Tensor, *factors: Tensor
    ) -> Tensor:
        """One peer's loss over her batch."""
        for layer, drawn in zip(dropouts(self.module), factors, strict=True):
            layer.factors = drawn
        outputs = functional_call(self.module, self.layout.views(vector), (x,))
        return F.cross_entropy(outputs, labels, reduction="none") @ shares


def _filled(part: Tensor, length: int) -> Tensor:
    """`part` with zeros added to that many rows."""
    return torch.cat([part, part.new_zeros(length - len(part), *part.shape[1:])])
