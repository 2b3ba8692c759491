"""Peers spread over processes of one thread each: worth a factor of two on two cores."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import cloudpickle
import numpy as np
import torch
from torch import Tensor, nn

from lff.errors import TrainingError
from lff.fast.kernels import accelerate
from lff.fast.submodels import FastLoop
from lff.models import FlatModel
from lff.training import Examples, LocalTraining, Loop, Peer, one_thread
from lff.vision import import_torchvision

# Freed once, a block of this size teaches glibc's malloc to keep the blocks that each step of
# training frees; a fresh process gives them back and gets them anew, a quarter of its time.
# glibc learns from no block of 32 MiB or more.
KEPT = 31 << 20

_trainer: FastLoop  # of a process of the pool


class Pool:
    """The loop over peers, in several processes; whoever is free takes the next.

    Peers, models and updates travel through pipes, so that nothing depends on the size of a
    machine's shared memory. To send a peer of MNIST takes a fiftieth of the time to train her.
    """

    name = Loop.name

    def __init__(self, count: int, plain: nn.Module, output_layer: str, training: LocalTraining):
        task = cloudpickle.dumps((plain, output_layer, training))
        vision = "torchvision" in sys.modules  # the model may be of its classes
        self.pool = ProcessPoolExecutor(
            count,
            multiprocessing.get_context("spawn"),
            initializer=_start,
            initargs=(task, vision),
        )

    def train(
        self, global_weights: Tensor, peers: Sequence[Peer], *, seed: int, round: int
    ) -> Tensor:
        """The updates `[m, d]` of `peers`; those with most examples begin."""
        updates = global_weights.new_empty(len(peers), len(global_weights))
        order = sorted(range(len(peers)), key=lambda row: -len(peers[row].examples.y))
        weights = global_weights.numpy()
        try:
            futures = {}
            for row in order:
                x, y = (part.numpy() for part in peers[row].examples)
                futures[row] = self.pool.submit(_train, weights, seed, round, peers[row].id, x, y)
            for row, future in futures.items():
                updates[row] = torch.from_numpy(future.result())
        except BrokenProcessPool as error:
            raise TrainingError(
                f"a training worker is gone ({error}); the run goes on from its last checkpoint "
                "when started again (a script that asks for workers must start them under "
                "`if __name__ == '__main__':`)"
            ) from error
        return updates

    def close(self) -> None:
        """End the processes, when each has trained the peer it is at."""
        self.pool.shutdown(cancel_futures=True)


def _start(task: bytes, vision: bool) -> None:
    """A process begins: it leaves Ctrl-C to its parent, and ends with it."""
    global _trainer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    bytearray(KEPT)
    if vision:
        import_torchvision()
    plain, output_layer, training = cloudpickle.loads(task)
    _trainer = FastLoop(FlatModel(accelerate(plain, "cpu"), output_layer), training)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _train(
    weights: np.ndarray, seed: int, round: int, peer: int, x: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """The update of one peer."""
    learner = Peer(peer, Examples(torch.from_numpy(x), torch.from_numpy(y)))
    with one_thread():
        update = _trainer.train(torch.from_numpy(weights), [learner], seed=seed, round=round)
    return update[0].numpy()
