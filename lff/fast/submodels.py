"""A peer's part of a model: only the parameters that her examples can move.

All others have no gradient, whatever she does. Her update is the same without zeroing and
stepping through them.
"""

from typing import Any

import torch
from torch import Tensor, nn

from lff.fast.kernels import ToOnePixel
from lff.models import BiLSTM, FlatModel, build

Index = tuple[Any, ...]


class Part:
    """A smaller model of the same kind, with weights taken from a whole one.

    `where` says which entries of a parameter it holds; parameters not named there it holds whole.
    """

    def __init__(self, whole: FlatModel, smaller: nn.Module, where: dict[str, Index]):
        self.whole, self.where = whole, where
        device = whole.vector.device
        self.model = FlatModel(smaller.to_empty(device=device), whole.layout.output_layer, device)

    def take(self) -> None:
        """Take the weights of the whole model."""
        theirs = self.whole.layout.views(self.whole.vector)
        for name, view in self.model.layout.views(self.model.vector).items():
            view.copy_(theirs[name][self.where.get(name, ())])

    def put_back(self, shrinkage: float) -> None:
        """Carry its weights over to the whole model, whose other entries weight decay shrank."""
        theirs = self.whole.layout.views(self.whole.vector)
        for name in self.where:
            theirs[name].mul_(shrinkage)
        for name, view in self.model.layout.views(self.model.vector).items():
            theirs[name][self.where.get(name, ())] = view


def own_words(model: FlatModel, tokens: Tensor) -> tuple[Part, Tensor]:
    """Of a model over words, the embeddings of the words in `tokens`: often a tenth of them.

    Comes with the tokens, numbered as the part numbers its words.
    """
    words, renumbered = tokens.unique(return_inverse=True)
    with torch.device("meta"):
        smaller = BiLSTM(len(words))
    return Part(model, smaller, {"embedding.weight": (words,)}), renumbered


def used_taps(model: FlatModel, shape: torch.Size) -> Part:
    """Of a ResNet18, the taps of its kernels that ever meet a pixel of images of this shape.

    Images of 32x32 pixels have become 2x2 and then 1x1 in the last stage, which holds three
    quarters of all parameters; of nine taps there, four or one meet more than padding. The part
    is the same for all peers and made once for a model.
    """
    if shape not in model.parts:
        model.parts[shape] = _used_taps(model, shape)
    return model.parts[shape]


def _used_taps(model: FlatModel, shape: torch.Size) -> Part:
    with torch.device("meta"):
        like = {"classes": len(model.module.fc.bias), "width": model.module.conv1.out_channels}
        smaller = build("resnet18", **like)
        sides = _sides(smaller, shape)
    where: dict[str, Index] = {}
    for name, side in sides.items():
        layer = smaller.get_submodule(name)
        if ToOnePixel.fits(layer) and side <= layer.stride[0] and layer.kernel_size == (3, 3):
            used = slice(1, 1 + side)
            where[f"{name}.weight"] = (slice(None), slice(None), used, used)
            layer.weight = nn.Parameter(layer.weight.detach()[:, :, used, used])
    return Part(model, smaller, where)


def _sides(model: nn.Module, shape: torch.Size) -> dict[str, int]:
    """How many pixels a side the maps have that enter each convolution of a model."""
    sides: dict[str, int] = {}

    def note(name: str):
        return lambda layer, inputs: sides.update({name: max(inputs[0].shape[2:])})

    layers = {n: m for n, m in model.named_modules() if isinstance(m, nn.Conv2d)}
    hooks = [layer.register_forward_pre_hook(note(name)) for name, layer in layers.items()]
    model.eval()(torch.empty(1, *shape))
    for hook in hooks:
        hook.remove()
    return sides
