"""A user's own data: tensors or torch data sets become a `Dataset`, or an error says why not."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from lff import data
from lff.errors import InputError

TRAIN_X = torch.arange(24, dtype=torch.float32).view(6, 1, 2, 2)
TRAIN_Y = torch.tensor([0, 2, 1, 1, 2, 0])
TEST_X, TEST_Y = -TRAIN_X[:2], torch.tensor([2, 1])
FOUR = (TRAIN_X, TRAIN_Y, TEST_X, TEST_Y)


def own(given):
    return data.as_dataset(given, name="mine")


def same(found):
    tensors = (found.train_x, found.train_y, found.test_x, found.test_y)
    return all(torch.equal(a, b) for a, b in zip(tensors, FOUR, strict=True))


def test_four_tensors():
    found = own(FOUR)
    assert (found.name, found.source, found.vocabulary) == ("mine", "mine", 0)
    assert found.classes == ("0", "1", "2")
    assert same(found)
    assert own(list(FOUR)).checksum == found.checksum


def test_the_checksum_is_one_sha256_over_the_tensors():
    known = hashlib.sha256()
    for tensor, kind in zip(FOUR, ("float32", "int64") * 2, strict=True):
        known.update(f"torch.{kind} {tuple(tensor.shape)}\n".encode() + bytes(tensor.numpy()))
    assert own(FOUR).checksum == known.hexdigest()
    for position in range(4):
        changed = [tensor.clone() for tensor in FOUR]
        changed[position][[0, 1]] = changed[position][[1, 0]]
        assert own(changed).checksum != known.hexdigest()
    assert own((TRAIN_X.flatten(1), TRAIN_Y, TEST_X.flatten(1), TEST_Y)).checksum != (
        known.hexdigest()
    )


def test_small_labels_gradients_and_views_do_not_matter():
    x = torch.stack([TRAIN_X, TRAIN_X], dim=-1)[..., 0].requires_grad_()
    assert not x.is_contiguous()
    found = own((x, TRAIN_Y.to(torch.uint8), TEST_X, TEST_Y.int()))
    assert same(found)
    assert found.train_y.dtype == found.test_y.dtype == torch.int64
    assert not found.train_x.requires_grad
    assert found.checksum == own(FOUR).checksum


def test_word_ids_may_be_integers():
    x = torch.tensor([[1, 2], [3, 4]])
    assert own((x, torch.tensor([0, 1]), x, torch.tensor([1, 1]))).train_x.dtype == torch.int64


class Pairs(Dataset):
    """What many write: arrays and plain numbers, and no end to iteration but the length."""

    def __init__(self, x, y):
        self.x, self.y = x.numpy(), y.tolist()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, position):
        return self.x[position % len(self.x)], self.y[position % len(self.x)]


@pytest.mark.parametrize("kind", [TensorDataset, Pairs])
def test_two_torch_data_sets(kind):
    found = own((kind(TRAIN_X, TRAIN_Y), kind(TEST_X, TEST_Y)))
    assert same(found)
    assert found.checksum == own(FOUR).checksum


def test_a_ready_data_set_is_taken_as_it_is():
    ready = replace(own(FOUR), source="mine, by hand", classes=("a", "b", "c"))
    assert data.as_dataset(ready, name="other") is ready
    embedded = data.load("mnist", data="embedded")
    assert own(embedded) is embedded
    with pytest.raises(InputError, match="'mine' has 2 classes, but 3 labels"):
        own(replace(ready, classes=("a", "b")))
    with pytest.raises(InputError, match="train_x of 'mine'"):
        own(replace(ready, train_x=TRAIN_X[1:]))


def changed(position, value):
    return (*FOUR[:position], value, *FOUR[position + 1 :])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "the data of 'mine' are NoneType; they must be four tensors"),
        (TRAIN_X, "the data of 'mine' are Tensor"),
        (FOUR[:3], r"are \(Tensor, Tensor, Tensor\)"),
        (FOUR[:2], "the train data of 'mine' are Tensor; they must be a torch data set"),
        (changed(0, TRAIN_X.numpy()), "train_x of 'mine' is ndarray; it must be a tensor"),
        (changed(0, TRAIN_X.double()), "train_x of 'mine' is torch.float64.*float32 or int64"),
        (changed(2, TEST_X.byte()), "test_x of 'mine' is torch.uint8"),
        (changed(1, TRAIN_Y.float()), r"train_y of 'mine' is torch.float32 \[6\].*integers"),
        (changed(1, TRAIN_Y[:, None]), r"train_y of 'mine' is torch.int64 \[6, 1\]; .* one row"),
        (changed(3, TEST_Y.bool()), "test_y of 'mine' is torch.bool"),
        (changed(1, TRAIN_Y[:-1]), r"train_x of 'mine' is \[6, 1, 2, 2\] and train_y \[5\]"),
        (changed(0, TRAIN_X.flatten()[:6]), r"train_x of 'mine' is \[6\]"),
        ((*FOUR[:2], TEST_X[:0], TEST_Y[:0]), r"test_x of 'mine' is \[0, 1, 2, 2\]"),
        (changed(2, TEST_X / 0), "test_x of 'mine' has values that are not finite"),
        (changed(2, TEST_X[..., 0]), r"\[1, 2, 2\] in train, but torch.float32 \[1, 2\] in test"),
        (changed(2, TEST_X.long()), "but torch.int64"),
        (changed(1, TRAIN_Y + 1), r"labels of 'mine' are \[1, 2, 3\] in train.*0, 1, 2"),
        (changed(1, TRAIN_Y - 1), r"labels of 'mine' are \[-1, 0, 1\]"),
        (changed(1, TRAIN_Y * 2), r"labels of 'mine' are \[0, 2, 4\]"),
        (changed(3, TEST_Y + 1), r"and \[2, 3\] in test"),
        (changed(3, TEST_Y - 2), r"and \[-1, 0\] in test"),
        ((TRAIN_X, TRAIN_Y * 0, TEST_X, TEST_Y * 0), "at least two"),
    ],
)
def test_tensors_that_do_not_fit(given, message):
    with pytest.raises(InputError, match=message):
        own(given)


class Endless(IterableDataset):
    def __iter__(self):
        return iter([])


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (Endless(), "the train data of 'mine' are Endless; they must be a torch data set with a"),
        ([(TRAIN_X[0], 0.5)], r"item 0 of the train data of 'mine' is \(Tensor, float\)"),
        ([(TRAIN_X[0], 1), (object(), 1)], r"item 1 of .* is \(object, int\); it must be a tensor"),
        ([TRAIN_X[0]], "item 0 of the train data of 'mine' is Tensor"),
        ([(TRAIN_X[0], TRAIN_Y)], r"item 0 .* is \(Tensor, Tensor\)"),
        ([(TRAIN_X[0], 0), (TRAIN_X[0, 0], 1)], "have 2 items, which are not of one shape"),
        ([], "have 0 items"),
        ([(TRAIN_X[0], 0), (np.ones((1, 2, 2)), 1)], "train_x of 'mine' is torch.float64"),
    ],
)
def test_torch_data_sets_that_do_not_fit(train, message):
    with pytest.raises(InputError, match=message):
        own((train, TensorDataset(TEST_X, TEST_Y)))
