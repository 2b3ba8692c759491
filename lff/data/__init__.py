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
from lff.data.fetching import Folder, fetch, user_folder
from lff.data.files import DATASETS, FORMS, Report, Status, available, read, verify
from lff.errors import DataError, InputError, unknown
from lff.paths import data_dir

__all__ = [
    "DATASETS",
    "Dataset",
    "Report",
    "Status",
    "as_dataset",
    "at_hand",
    "available",
    "fetch",
    "load",
    "verify",
]

KINDS = ("real", "embedded")


def load(
    name: str, *, data: str = "real", vocabulary: int = 0, folder: Folder | None = None
) -> Dataset:
    """Load a data set, once per process; whoever asks again gets the same tensors.

    Args:
        name: "mnist", "cifar10" or "imdb".
        data: "real" (from the cache, fetched into it if need be) or "embedded" (the small
            stand-in that installed packages carry; its `source` says what it really is).
        vocabulary: how many of the most frequent words get an id of their own; 0 for all.
            Means nothing for images.
        folder: where to look for the files of the real data set first; by default the folder
            that the environment variable `LFF_DATA_FROM` names, if any.

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
    words = vocabulary if name == "imdb" else 0
    if data == "embedded":
        return _embedded(name, words)
    return _real(name, words, user_folder(folder), data_dir())


def at_hand(name: str) -> tuple[str, str] | None:
    """Source and checksum of the form of a real data set that the cache holds, by names and sizes.

    None if it is not there, or comes in one form only, so that there is nothing to confuse.
    """
    report = available(name)
    if name != "imdb" or not report.complete:
        return None
    from lff.data import text

    return text.identity([file.name for file in report.files if file.state == "present"])


@lru_cache(maxsize=4)
def _embedded(name: str, vocabulary: int) -> Dataset:
    from lff.data import images, text

    if name == "imdb":
        return text.imdb_25k(vocabulary)
    return images.mnist_5k() if name == "mnist" else images.color_digits()


@lru_cache(maxsize=4)
def _real(name: str, vocabulary: int, folder: Path | None, cache: Path) -> Dataset:
    """A real data set; `cache` is only here to tell the caches of two environments apart."""
    from lff.data import images, text

    forms = FORMS[name]
    contents = read(name, forms[:1] if folder else forms)  # a folder may have the preferred form
    if contents is None:
        fetch(name, folder=folder)
        contents = read(name, forms)
    if contents is None:
        raise DataError(f"the files of {name!r} in {cache} changed while they were read; try again")
    if name == "imdb":
        return text.imdb(contents, vocabulary)
    return images.mnist(contents) if name == "mnist" else images.cifar10(contents)
