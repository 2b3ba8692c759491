"""Data sets as tensors: real ones, fetched and verified, or embedded ones that need no network.

    from lff import data
    mnist = data.load("mnist")                       # the real one, fetched if need be
    digits = data.load("cifar10", data="embedded")   # color digits, installed with the package

Nothing is used before its checksum is verified, and nothing read here can execute code. torch
is imported by `load` and `as_dataset` only, so that the other functions are quick.
"""

from functools import lru_cache
from pathlib import Path

from lff.data.dataset import Dataset, as_dataset
from lff.data.files import DATASETS, Report, Status, available, fetch, verify
from lff.errors import InputError, unknown
from lff.paths import data_dir

__all__ = [
    "DATASETS",
    "Dataset",
    "Report",
    "Status",
    "as_dataset",
    "available",
    "fetch",
    "load",
    "verify",
]

KINDS = ("real", "embedded")


def load(name: str, *, data: str = "real", vocabulary: int = 0) -> Dataset:
    """Load a data set, once per process; whoever asks again gets the same tensors.

    Args:
        name: "mnist", "cifar10" or "imdb".
        data: "real" (from the cache, fetched into it if need be) or "embedded" (the small
            stand-in that installed packages carry; its `source` says what it really is).
        vocabulary: how many of the most frequent words get an id of their own; 0 for all.
            Means nothing for images.

    Raises:
        DataError: the data set cannot be had; the message lists every source tried.
        InputError: an argument that cannot be used.
    """
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    if data not in KINDS:
        raise unknown("kind of data", data, KINDS)
    if isinstance(vocabulary, bool) or not isinstance(vocabulary, int) or vocabulary < 0:
        raise InputError(f"vocabulary is {vocabulary!r}; it must be an integer, 0 or more")
    cache = data_dir() if data == "real" else None
    return _load(name, data, vocabulary if name == "imdb" else 0, cache)


@lru_cache(maxsize=8)
def _load(name: str, data: str, vocabulary: int, cache: Path | None) -> Dataset:
    """`cache` is only here to tell the caches of two environments apart."""
    from lff.data import images, text

    if vocabulary:
        return text.restricted(_load(name, data, 0, cache), vocabulary)
    if name == "imdb":
        return text.imdb_25k() if data == "embedded" else text.imdb()
    if name == "mnist":
        return images.mnist_5k() if data == "embedded" else images.mnist()
    return images.color_digits() if data == "embedded" else images.cifar10()
