"""One data set as tensors, with the name of what it really is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


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
    vocabulary: int = 0

    def to(self, device: torch.device | str) -> Dataset:
        """The same data set with its tensors on `device`."""
        names = ("train_x", "train_y", "test_x", "test_y")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})
