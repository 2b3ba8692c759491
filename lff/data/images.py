"""Images as normalized tensors, read from the canonical files of MNIST and CIFAR10."""

import numpy as np
import torch
from torch import Tensor

from lff.data.dataset import Dataset
from lff.data.files import CIFAR10, MNIST, fingerprint

DIGITS = tuple("0123456789")
THINGS = (
    "Airplane",
    "Automobile",
    "Bird",
    "Cat",
    "Deer",
    "Dog",
    "Frog",
    "Horse",
    "Ship",
    "Truck",
)

# Mean and standard deviation of each channel, as in the paper's released code.
MNIST_SCALE = ((0.1307,), (0.3081,))
CIFAR10_SCALE = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


def mnist(contents: dict[str, bytes]) -> Dataset:
    """MNIST from its four idx files."""
    parts = []
    for part in ("train", "t10k"):
        images = read_idx(contents[f"{part}-images-idx3-ubyte"])
        labels = read_idx(contents[f"{part}-labels-idx1-ubyte"])
        parts += [normalized(images[:, None], MNIST_SCALE), as_labels(labels)]
    return Dataset("mnist", "MNIST", fingerprint("mnist", MNIST), DIGITS, *parts)


def cifar10(contents: dict[str, bytes]) -> Dataset:
    """CIFAR10 from its six binary batches."""
    train, test = [], []
    for name, content in contents.items():
        (test if name == "test_batch.bin" else train).append(content)
    parts = []
    for batches in (train, test):
        labels, images = read_batches(batches)
        parts += [normalized(images, CIFAR10_SCALE), as_labels(labels)]
    return Dataset("cifar10", "CIFAR10", fingerprint("cifar10", CIFAR10), THINGS, *parts)


def read_idx(content: bytes) -> np.ndarray:
    """An idx file of unsigned bytes: a magic number that ends in the number of dimensions,
    each dimension as a big-endian integer, then the values."""
    dimensions = content[3]
    shape = np.frombuffer(content, dtype=">i4", count=dimensions, offset=4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def read_batches(batches: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Labels and images of CIFAR10's binary batches: a label byte, then 3x32x32 bytes."""
    rows = np.frombuffer(b"".join(batches), dtype=np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return rows[:, 0], rows[:, 1:].reshape(-1, 3, 32, 32)


def normalized(images: np.ndarray, scale: tuple[tuple[float, ...], tuple[float, ...]]) -> Tensor:
    """Bytes `[n, channels, height, width]` as floats: from 0 to 1, then (x - mean) / deviation."""
    mean, deviation = (torch.tensor(values).view(-1, 1, 1) for values in scale)
    return torch.from_numpy(images.astype(np.float32)).div_(255).sub_(mean).div_(deviation)


def as_labels(labels: np.ndarray) -> Tensor:
    """Labels as the int64 tensor that losses expect."""
    return torch.from_numpy(labels.astype(np.int64))
