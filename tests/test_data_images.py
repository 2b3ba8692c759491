"""Images out of small files made here, byte by byte and normalized by hand."""

import hashlib
import struct

import numpy as np
import pytest
import torch

from lff import data
from lff.data import files


def idx(values):
    """An idx file, as http://yann.lecun.com/exdb/mnist describes it."""
    header = struct.pack(">HBB", 0, 8, values.ndim)
    return header + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def cached(monkeypatch, tmp_path, name, contents):
    monkeypatch.setenv("LFF_DATA", str(tmp_path))
    form = tuple(
        files.File(file, hashlib.sha256(content).hexdigest(), len(content))
        for file, content in contents.items()
    )
    monkeypatch.setitem(files.FILES, name, form)
    (tmp_path / name).mkdir()
    for file, content in contents.items():
        (tmp_path / name / file).write_bytes(content)
    return data.load(name)


def test_mnist(monkeypatch, tmp_path):
    train = np.arange(3 * 28 * 28).astype(np.uint8).reshape(3, 28, 28)
    test = np.full((2, 28, 28), 255, np.uint8)
    contents = {
        "train-images-idx3-ubyte": idx(train),
        "train-labels-idx1-ubyte": idx(np.array([5, 0, 9], np.uint8)),
        "t10k-images-idx3-ubyte": idx(test),
        "t10k-labels-idx1-ubyte": idx(np.array([7, 1], np.uint8)),
    }
    mnist = cached(monkeypatch, tmp_path, "mnist", contents)
    assert (mnist.name, mnist.source, mnist.vocabulary) == ("mnist", "MNIST", 0)
    assert mnist.classes == ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
    assert mnist.train_x.shape == (3, 1, 28, 28)
    assert mnist.train_x.dtype == torch.float32
    assert mnist.train_y.tolist() == [5, 0, 9]
    assert mnist.test_y.tolist() == [7, 1]
    assert mnist.train_y.dtype == torch.int64
    assert mnist.train_x[0, 0, 0, 2].item() == pytest.approx((2 / 255 - 0.1307) / 0.3081, rel=1e-5)
    assert mnist.train_x[0, 0, 1, 0].item() == pytest.approx((28 / 255 - 0.1307) / 0.3081, rel=1e-5)
    assert mnist.test_x.unique().item() == pytest.approx((1 - 0.1307) / 0.3081, rel=1e-5)
    assert len(mnist.checksum) == 64


def test_cifar10(monkeypatch, tmp_path):
    contents = {}
    for batch in range(6):  # two images a batch: red = label, green = 100, blue = 200
        label = batch if batch < 5 else 9
        image = bytes([label]) * 1024 + bytes([100]) * 1024 + bytes([200]) * 1024
        name = f"data_batch_{batch + 1}.bin" if batch < 5 else "test_batch.bin"
        contents[name] = (bytes([label]) + image) * 2
    cifar10 = cached(monkeypatch, tmp_path, "cifar10", contents)
    assert cifar10.source == "CIFAR10"
    assert cifar10.classes[3] == "Cat"
    assert cifar10.classes[5] == "Dog"
    assert cifar10.train_x.shape == (10, 3, 32, 32)
    assert cifar10.train_y.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert cifar10.test_y.tolist() == [9, 9]
    for channel, mean, deviation, value in (
        (0, 0.4914, 0.2023, 4),
        (1, 0.4822, 0.1994, 100),
        (2, 0.4465, 0.2010, 200),
    ):
        expected = (value / 255 - mean) / deviation
        assert cifar10.train_x[9, channel].unique().item() == pytest.approx(expected, rel=1e-4)


def test_to_moves_every_tensor(monkeypatch, tmp_path):
    contents = {
        "train-images-idx3-ubyte": idx(np.zeros((1, 28, 28), np.uint8)),
        "train-labels-idx1-ubyte": idx(np.zeros(1, np.uint8)),
        "t10k-images-idx3-ubyte": idx(np.zeros((1, 28, 28), np.uint8)),
        "t10k-labels-idx1-ubyte": idx(np.zeros(1, np.uint8)),
    }
    mnist = cached(monkeypatch, tmp_path, "mnist", contents)
    moved = mnist.to("meta")
    tensors = (moved.train_x, moved.train_y, moved.test_x, moved.test_y)
    assert {t.device.type for t in tensors} == {"meta"}
    assert moved.checksum == mnist.checksum
    assert mnist.train_x.device.type == "cpu"
