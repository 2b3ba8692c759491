"""How far does a small last batch throw a peer who trains a ResNet18 on CIFAR10?

    python docs/last_batch.py [WIDTH]

trains peers of 1,280 images and a few more for one local epoch from the same fresh model, in
batches of 32, and prints how far they move. At the end of ResNet18 an image of 32x32 pixels has
become a single pixel, so BatchNorm takes a mean and a variance there of as many numbers as there
are images in the batch.
"""

import sys

import torch

import lff
from lff.data import load
from lff.models import FlatModel, build
from lff.seeds import stream
from lff.threads import one_thread
from lff.training import LocalTraining, Peer, train_peer

WHOLE_BATCHES = 1280
PEERS = 5


def distances(width: int, left: int) -> torch.Tensor:
    """How far each peer moves who has `left` images more than whole batches."""
    paper = lff.experiment("cifar10-iid", scale="paper")
    names = ("batch_size", "learning_rate", "optimizer", "momentum", "weight_decay")
    settings = {name: getattr(paper, name) for name in names}
    training = LocalTraining(local_epochs=1, **settings)
    data = load("cifar10")
    model = FlatModel(build("resnet18", width=width, seed=stream(0, "model")), "fc")
    start, moved = model.vector.clone(), []
    for k in range(PEERS):
        examples = torch.arange(k * 2000, k * 2000 + WHOLE_BATCHES + left)
        model.load(start)
        peer = Peer(k, examples, data.train_y[examples])
        with one_thread():
            train_peer(model, peer, data.train_x, training, seed=0, round=0)
        moved.append((model.vector - start)[: model.layout.parameters].norm())
    return torch.stack(moved)


if __name__ == "__main__":
    chosen = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    print("| images in the last batch | mean distance | largest |\n| --- | --- | --- |")
    for left in (0, 2, 3, 4, 6, 8, 16):
        found = distances(chosen, left)
        print(f"| {left or 'none left'} | {found.mean():.1f} | {found.max():.1f} |", flush=True)
