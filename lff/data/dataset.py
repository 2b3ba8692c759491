"""One data set as tensors, with the name of what it really is; also one that a user brings."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import index
from typing import TYPE_CHECKING, Any

from lff.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

TENSORS = ("train_x", "train_y", "test_x", "test_y")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Train and test examples as tensors, ready for a model.

    Images are float32 `[n, channels, height, width]`, normalized; texts are int64 word ids
    `[n, 128]`; labels are int64 indices into `classes`. The tensors are shared by everyone who
    loads the same data set in a process: never write into them.

    `source` says in words what the examples really are, and `checksum` is one sha256 over the
    verified inputs and the way they were split; both belong into every record and figure.
    `vocabulary` is the number of rows an embedding needs (0 for images).
    """

    name: str
    source: str
    checksum: str
    classes: tuple[str, ...]
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    vocabulary: int = field(default=0, kw_only=True)

    def to(self, device: torch.device | str) -> Dataset:
        """The same data set with its tensors on `device`."""
        return replace(self, **{name: getattr(self, name).to(device) for name in TENSORS})


def as_dataset(data: Any, *, name: str) -> Dataset:
    """What a user brings for a benchmark of her own, as a `Dataset`.

    Args:
        data: four tensors (train_x, train_y, test_x, test_y); or two torch data sets (train,
            test) with items (x, y), which are read once; or a `Dataset`, taken as it is. x is
            float32, or int64 for word ids. Labels are 0, 1, 2, ..., each of them in train.
        name: what the data set is called, also as its `source`.

    The classes are called by their numbers, and the checksum is one sha256 over the tensors.

    Raises `InputError` if the data do not fit.
    """
    import torch

    if isinstance(data, Dataset):
        labels = _checked(data.name, [getattr(data, tensor) for tensor in TENSORS])
        if labels != len(data.classes):
            raise InputError(f"{data.name!r} has {len(data.classes)} classes, but {labels} labels")
        return data
    if not isinstance(data, tuple | list) or len(data) not in (2, 4):
        raise InputError(
            f"the data of {name!r} are {_kind(data)}; they must be four tensors (train_x, train_y, "
            "test_x, test_y), two torch data sets (train, test), or a lff.data.Dataset"
        )
    if len(data) == 2:
        data = [*_stacked(name, "train", data[0]), *_stacked(name, "test", data[1])]
    for label, tensor in zip(TENSORS, data, strict=True):
        if not isinstance(tensor, torch.Tensor):
            raise InputError(f"{label} of {name!r} is {_kind(tensor)}; it must be a tensor")
    classes = tuple(str(label) for label in range(_checked(name, data)))
    train_x, train_y, test_x, test_y = (tensor.detach().cpu().contiguous() for tensor in data)
    tensors = train_x, train_y.long(), test_x, test_y.long()
    checksum = hashlib.sha256()
    for tensor in tensors:
        checksum.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
        checksum.update(tensor.numpy().data)
    return Dataset(name, name, checksum.hexdigest(), classes, *tensors)


def _stacked(name: str, part: str, data: Any) -> tuple[Tensor, Tensor]:
    """The items (x, y) of a torch data set as two tensors."""
    import torch

    what = f"the {part} data of {name!r}"
    if isinstance(data, torch.Tensor) or not hasattr(data, "__len__"):
        raise InputError(f"{what} are {_kind(data)}; they must be a torch data set with a length")
    xs, ys = [], []
    for position in range(len(data)):
        item = data[position]
        try:
            x, y = item
            xs.append(torch.as_tensor(x))
            ys.append(index(y))
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"item {position} of {what} is {_kind(item)}; it must be a tensor and an integer"
            ) from error
    if len({x.shape for x in xs}) != 1:
        raise InputError(f"{what} have {len(xs)} items, which are not of one shape")
    return torch.stack(xs), torch.tensor(ys)


def _checked(name: str, tensors: Sequence[Tensor]) -> int:
    """The number of classes, once the tensors fit each other."""
    import torch

    train_x, train_y, test_x, test_y = tensors
    for part, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        if x.dtype not in (torch.float32, torch.int64):
            raise InputError(f"{part}_x of {name!r} is {x.dtype}; it must be float32 or int64")
        if y.dim() != 1 or y.dtype not in (torch.uint8, torch.int16, torch.int32, torch.int64):
            raise InputError(
                f"{part}_y of {name!r} is {y.dtype} {list(y.shape)}; it must be one row of integers"
            )
        if x.dim() < 2 or not len(x) == len(y) > 0:
            raise InputError(
                f"{part}_x of {name!r} is {list(x.shape)} and {part}_y {list(y.shape)}; "
                "they must be one example and one label a row, at least one"
            )
        if not x.isfinite().all():
            raise InputError(f"{part}_x of {name!r} has values that are not finite")
    if train_x.dtype != test_x.dtype or train_x.shape[1:] != test_x.shape[1:]:
        raise InputError(
            f"an example of {name!r} is {train_x.dtype} {list(train_x.shape[1:])} in train, "
            f"but {test_x.dtype} {list(test_x.shape[1:])} in test"
        )
    found, tested = (sorted(set(y.tolist())) for y in (train_y, test_y))
    if found != list(range(len(found))) or len(found) < 2 or not set(tested) <= set(found):
        raise InputError(
            f"the labels of {name!r} are {found[:12]} in train and {tested[:12]} in test; they "
            "must be 0, 1, 2, ..., at least two of them, and each in train"
        )
    return len(found)


def _kind(value: Any) -> str:
    """A value's type in words, with its items' if it is a short tuple or list."""
    if isinstance(value, tuple | list) and len(value) < 6:
        return f"({', '.join(type(item).__name__ for item in value)})"
    return type(value).__name__
