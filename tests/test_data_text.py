"""Tokens by hand, and IMDB from small files made here."""

import csv
import hashlib
import io

import pytest
import torch

from lff import data
from lff.data import files, text


def ids(texts, vocabulary=0):
    x, size = text.encoded(text.numbered(texts))
    found = data.Dataset("imdb", "", "", text.CLASSES, x, None, x, None, vocabulary=size)
    if vocabulary:
        found = text.restricted(found, vocabulary)
    return [[i for i in row if i] for row in found.train_x.tolist()], found.vocabulary


def test_words_are_ranked_by_frequency_then_first_occurrence():
    # b occurs 3 times, a and c twice (a first), d once.
    rows, size = ids(["a b c", "b d c b a"])
    assert rows == [[3, 2, 4], [2, 5, 4, 2, 3]]
    assert size == 2 + 4


def test_lower_case_and_punctuation_become_spaces_but_apostrophes_stay():
    rows, _ = ids(["It's \"GREAT\",(really)!<br />it's\tso-so\n", "it's"])
    # it's great really br it's so so | it's: it's 3, so 2, then great, really, br in order
    assert rows == [[2, 4, 5, 6, 2, 3, 3], [2]]


@pytest.mark.parametrize("character", list('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n '))
def test_every_filtered_character_separates(character):
    rows, size = ids([f"{character}x{character}{character}y{character}"])
    assert rows == [[2, 3]]
    assert size == 4


@pytest.mark.parametrize("character", ["'", "\r", "\x0b", "\u00a0", "\u0085", "é", "\u2019"])
def test_no_other_character_separates(character):
    """Keras splits at the space alone, not at whatever Python takes for white space."""
    rows, size = ids([f"x{character}y"])
    assert rows == [[2]]
    assert size == 3


def test_the_last_128_words_are_kept_and_padding_is_in_front():
    long = " ".join(f"w{i}" for i in range(200))
    x, size = text.encoded(text.numbered([long, "w199 w0", "", "..."]))
    assert x.shape == (4, 128)
    assert x.dtype == torch.int64
    assert size == 202
    # w0 and w199 occur twice, so they are 2 and 3; w1 ... w198 follow as 4 ... 201.
    assert x[0].tolist() == [*range(75, 202), 3]
    assert x[1].tolist() == [0] * 126 + [3, 2]
    assert x[2:].sum() == 0


def test_a_restricted_vocabulary_sends_other_words_to_1():
    rows, size = ids(["a b c", "b d c b a"], vocabulary=2)
    assert rows == [[3, 2, 1], [2, 1, 1, 2, 3]]
    assert size == 4
    assert ids(["a b"], vocabulary=50) == ([[2, 3]], 4)


def test_words_beyond_the_last_128_count_for_the_frequencies():
    rows, _ = ids(["rare " * 5 + "x " * 3 + "y " * 125])
    assert rows == [[4] * 3 + [2] * 125]  # y 125, rare 5, x 3


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """A ten-review IMDB in the cache, whose first eight reviews train."""
    monkeypatch.setenv("LFF_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(text, "TRAIN_ROWS", 8)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["review", "sentiment"])
    for i in range(10):
        writer.writerow([f'row{i}, "quoted"\nNA', "positive" if i % 3 == 0 else "negative"])
    table = out.getvalue().encode()
    file = files.File("IMDB Dataset.csv", hashlib.sha256(table).hexdigest(), len(table))
    monkeypatch.setitem(files.FILES, "imdb", (file,))
    folder = tmp_path / "cache" / "imdb"
    folder.mkdir(parents=True)
    (folder / file.name).write_bytes(table)


@pytest.mark.usefixtures("cached")
def test_rows_in_order_first_ones_train():
    imdb = data.load("imdb")
    assert imdb.source == "IMDB (50,000-row CSV)"
    assert imdb.classes == ("negative", "positive")
    assert imdb.train_y.tolist() == [1, 0, 0, 1, 0, 0, 1, 0]
    assert imdb.test_y.tolist() == [0, 1]
    # "quoted" and "na" occur in every row, row0 ... row9 once each.
    assert imdb.train_x[:, -3:].tolist() == [[4 + i, 2, 3] for i in range(8)]
    assert imdb.test_x[:, -3:].tolist() == [[12, 2, 3], [13, 2, 3]]
    assert imdb.vocabulary == 14
    assert data.load("imdb", vocabulary=2).vocabulary == 4
