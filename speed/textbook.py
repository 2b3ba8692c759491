"""The textbook round, as the paper's authors run it: the baseline of local training.

For each peer a deep copy of the model, a `DataLoader` over a data set that decodes and transforms
every example each time it is used, an optimizer over the layers, gradients cloned at each step.
"""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from lff.metrics import loss_function
from lff.training import LocalTraining, Peer
from lff.vision import import_torchvision


class Images(Dataset):
    """Images as torchvision's data sets give them: decoded, to a tensor, normalized, one by one."""

    def __init__(self, pixels: np.ndarray, labels: Tensor):
        transforms = import_torchvision().transforms
        self.pixels, self.labels = pixels, labels
        self.transform = transforms.Compose(
            [transforms.ToTensor(), transforms.Normalize((0.5,), (0.25,))]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.pixels[i])), int(self.labels[i])


def datasets(stored: np.ndarray, peers: Sequence[Peer]) -> list[Dataset]:
    """The peers' examples: pixels `[n, height, width, channels]`, else rows of word ids."""
    if stored.ndim == 2:
        return [TensorDataset(*peer.examples) for peer in peers]
    if stored.shape[-1] == 1:
        stored = stored[..., 0]
    shares = np.split(stored, len(peers))
    return [Images(share, peer.examples.y) for share, peer in zip(shares, peers, strict=True)]


def train_round(
    global_model: nn.Module, datasets: Sequence[Dataset], training: LocalTraining
) -> list[dict[str, Tensor]]:
    """Every peer's weights after her local training, as state dictionaries."""
    updates = []
    for dataset in datasets:
        model = copy.deepcopy(global_model).train()
        loader = DataLoader(dataset, batch_size=training.batch_size, shuffle=True)
        optimizer = _optimizer(model, training)
        gradients: list[Tensor] = []
        for _ in range(training.local_epochs):
            for x, y in loader:
                optimizer.zero_grad()
                loss_function(model(x), y).backward()
                _add(gradients, [parameter.grad.clone() for parameter in model.parameters()])
                optimizer.step()
        updates.append(model.state_dict())
    return updates


def _optimizer(model: nn.Module, training: LocalTraining) -> torch.optim.Optimizer:
    settings = {"lr": training.learning_rate, "weight_decay": training.weight_decay}
    if training.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), **settings)
    return torch.optim.SGD(model.parameters(), momentum=training.momentum, **settings)


def _add(total: list[Tensor], gradients: list[Tensor]) -> None:
    """Sum the gradients of a round, layer by layer."""
    if not total:
        total.extend(gradients)
        return
    for sum_, gradient in zip(total, gradients, strict=True):
        sum_ += gradient
