"""Only the parameters that a peer's examples can move.

All others have no gradient, whatever she does: the embeddings of words she does not have, and the
taps of ResNet18's last kernels that only ever meet padding. Her update is the same without zeroing
and stepping through them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lff.fast.kernels import ToOnePixel, accelerate
from lff.models import BiLSTM, FlatModel, build_model
from lff.training import Examples, LocalTraining, Loop, Peer, honest_loss, peer_update

Index = tuple[Any, ...]


class FastLoop(Loop):
    """The loop over peers, each with the submodel that her examples can move."""

    def __init__(self, model: FlatModel, training: LocalTraining):
        super().__init__(model, training)
        self.by_shape: dict[torch.Size, Submodel] = {}

    def train_peer(self, peer: Peer, *, seed: int, round: int) -> None:
        """Train the model in place on a peer's examples."""
        submodel, peer = self.submodel(peer)
        if submodel is None:
            peer_update(self.model, peer, self.training, seed=seed, round=round)
            return
        submodel.take()
        steps = peer_update(submodel.model, peer, self.training, seed=seed, round=round)
        submodel.put_back(shrinkage(self.training, steps))

    def submodel(self, peer: Peer) -> tuple["Submodel | None", Peer]:
        """The submodel that pays for itself, with the peer's examples as it takes them.

        Parameters without a gradient stay as they are or, by SGD's weight decay, shrink by a
        factor; what Adam's does to them is not so simple. An attacker with a loss of her own may
        move any parameter.
        """
        module, x = self.model.module, peer.examples.x
        decays = self.training.weight_decay > 0
        if peer.loss is not honest_loss:
            return None, peer
        if isinstance(module, BiLSTM) and not decays:
            submodel, tokens = own_words(self.model, x)
            return submodel, replace(peer, examples=Examples(tokens, peer.examples.y))
        convolutions = any(isinstance(layer, ToOnePixel) for layer in module.modules())
        if convolutions and not (decays and self.training.optimizer == "adam"):
            shape = x.shape[1:]
            if shape not in self.by_shape:
                self.by_shape[shape] = used_taps(self.model, shape)
            return self.by_shape[shape], peer
        return None, peer


class Submodel:
    """A smaller model of the same kind, with weights taken from a whole one.

    `where` says which entries of a parameter it holds; parameters not named there it holds whole.
    """

    def __init__(self, whole: FlatModel, smaller: nn.Module, where: dict[str, Index]):
        self.whole, self.where = whole, where
        device = whole.vector.device
        smaller = accelerate(smaller.to_empty(device=device), device)
        self.model = FlatModel(smaller, whole.layout.output_layer, device)

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


def shrinkage(training: LocalTraining, steps: int) -> float:
    """The factor by which weight decay alone shrinks a parameter in that many steps of SGD."""
    factor, velocity = 1.0, 0.0
    for _ in range(steps):
        velocity = training.momentum * velocity + training.weight_decay * factor
        factor -= training.learning_rate * velocity
    return factor


def own_words(model: FlatModel, tokens: Tensor) -> tuple[Submodel, Tensor]:
    """Of a model over words, the embeddings of the words in `tokens`: often a tenth of them.

    Comes with the tokens, numbered as the submodel numbers its words.
    """
    words, renumbered = tokens.unique(return_inverse=True)
    with torch.device("meta"):
        smaller = BiLSTM(len(words))
    return Submodel(model, smaller, {"embedding.weight": (words,)}), renumbered


def used_taps(model: FlatModel, shape: torch.Size) -> Submodel:
    """Of a ResNet18, the taps of its kernels that ever meet a pixel of images of this shape.

    Images of 32x32 pixels have become 2x2 and then 1x1 in the last stage, which holds three
    quarters of all parameters; of nine taps there, four or one meet more than padding.
    """
    with torch.device("meta"):
        whole: Any = model.module
        classes, width = whole.fc.out_features, whole.conv1.out_channels
        smaller = build_model("resnet18", classes=classes, width=width)
        sides = _sides(smaller, shape)
    where: dict[str, Index] = {}
    for name, side in sides.items():
        layer: Any = smaller.get_submodule(name)
        if ToOnePixel.fits(layer) and side <= layer.stride[0] and layer.kernel_size == (3, 3):
            used = slice(1, 1 + side)
            where[f"{name}.weight"] = (slice(None), slice(None), used, used)
            layer.weight = nn.Parameter(layer.weight.detach()[:, :, used, used])
    return Submodel(model, smaller, where)


def _sides(model: nn.Module, shape: torch.Size) -> dict[str, int]:
    """How many pixels a side the maps have that enter each convolution of a model."""
    sides: dict[str, int] = {}

    def note(name: str) -> Callable[..., None]:
        return lambda layer, inputs: sides.update({name: max(inputs[0].shape[2:])})

    layers = {n: m for n, m in model.named_modules() if isinstance(m, nn.Conv2d)}
    hooks = [layer.register_forward_pre_hook(note(name)) for name, layer in layers.items()]
    model.eval().forward(torch.empty(1, *shape))
    for hook in hooks:
        hook.remove()
    return sides
