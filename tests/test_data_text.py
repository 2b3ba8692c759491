"""Tokens by hand, and IMDB from small files made here."""

import csv
import hashlib
import io
import tarfile

import numpy as np
import pytest
import torch

from lff import data
from lff.data import files, text


def ids(texts, vocabulary=0):
    x, size = text.encoded(text.numbered(texts), vocabulary)
    return [[i for i in row if i] for row in x.tolist()], size


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
    x, size = text.encoded(text.numbered([long, "w199 w0", "", "..."]), 0)
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
def tiny(tmp_path, monkeypatch):
    """Both forms of a ten-review IMDB whose first eight reviews train, ready to be cached."""
    monkeypatch.setenv("LFF_DATA", str(tmp_path / "cache"))
    monkeypatch.delenv("LFF_DATA_FROM", raising=False)
    monkeypatch.setattr(text, "TRAIN_ROWS", 8)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["review", "sentiment"])
    for i in range(10):
        writer.writerow([f'row{i}, "quoted"\nNA', "positive" if i % 3 == 0 else "negative"])
    table = out.getvalue().encode()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        names = [
            f"aclImdb/{p}/{s}/{i}_7.txt"
            for p in ("train", "test")
            for s in ("pos", "neg")
            for i in (1, 0)
        ]
        names += [
            "aclImdb/train/unsup/0_0.txt",
            "aclImdb/README",
            "../aclImdb/train/pos/9_9.txt",
            "aclImdb/train/pos/urls.txt",
            "aclImdb/test/pos/2_8.txt",
            "aclImdb/test/neg/2_2.txt",
        ]
        for name in names:
            content = f"{name.replace('/', 'x').replace('.', 'x').replace('_', 'x')} é".encode()
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("aclImdb/train/pos/5_5.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    contents = {"IMDB Dataset.csv": table, "aclImdb_v1.tar.gz": archive.getvalue()}
    forms = tuple(
        (files.File(name, hashlib.sha256(content).hexdigest(), len(content)),)
        for name, content in contents.items()
    )
    monkeypatch.setitem(files.FORMS, "imdb", forms)
    folder = tmp_path / "cache" / "imdb"
    folder.mkdir(parents=True)
    return folder, contents


def test_csv_rows_in_order_first_ones_train(tiny):
    folder, contents = tiny
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    imdb = data.load("imdb")
    assert imdb.source == "IMDB (50,000-row CSV)"  # preferred when both are there
    assert imdb.classes == ("negative", "positive")
    assert imdb.train_y.tolist() == [1, 0, 0, 1, 0, 0, 1, 0]
    assert imdb.test_y.tolist() == [0, 1]
    # "quoted" and "na" occur in every row, row0 ... row9 once each.
    assert imdb.train_x[:, -3:].tolist() == [[4 + i, 2, 3] for i in range(8)]
    assert imdb.test_x[:, -3:].tolist() == [[12, 2, 3], [13, 2, 3]]
    assert imdb.vocabulary == 14
    assert data.load("imdb", vocabulary=2).vocabulary == 4


def test_archive_labelled_reviews_sorted_and_shuffled(tiny):
    folder, contents = tiny
    (folder / "aclImdb_v1.tar.gz").write_bytes(contents["aclImdb_v1.tar.gz"])
    imdb = data.load("imdb")
    assert imdb.source == "IMDB (aclImdb archive, own 40,000/10,000 split)"
    # Sorted: test/neg 0,1,2, test/pos 0,1,2, train/neg 0,1, train/pos 0,1.
    order = np.random.default_rng(0).permutation(10)
    truth = np.array([0, 0, 0, 1, 1, 1, 0, 0, 1, 1])[order].tolist()
    assert imdb.train_y.tolist() + imdb.test_y.tolist() == truth
    assert len(imdb.train_y) == 8
    # Each review is one word of its own and "é", which is the most frequent.
    assert imdb.train_x[:, -2:].tolist() == [[3 + i, 2] for i in range(8)]
    assert imdb.vocabulary == 2 + 11
