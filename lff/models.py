"""The three models of the paper, and which of their parameters are the output layer.

| data set | model    | parameters                         |
| -------- | -------- | ---------------------------------- |
| MNIST    | CNN      | 21,840                             |
| CIFAR10  | ResNet18 | 11,181,642 (703,386 of a quarter of the width) |
| IMDB     | BiLSTM   | 100 per word of the vocabulary + 236,033 |
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lff.errors import InputError, unknown
from lff.seeds import random_words, seeded
from lff.vision import import_torchvision

MODELS = ("cnn", "resnet18", "bilstm")
OUTPUT_LAYER = {"cnn": "fc2", "resnet18": "fc", "bilstm": "output"}


class Dropout(nn.Module):
    """Dropout by `factors` that local training draws (`draw_dropout`), so that a run never uses
    global random state.

    The factor of each feature (0, or 1 / (1 - p)) is drawn as `[n, features]`; on feature maps,
    whole maps are dropped (Tompson et al., 2015). Without factors they are torch's to draw.
    """

    def __init__(self, features: int, p: float = 0.5):
        super().__init__()
        self.features = features
        self.p = p
        self.factors: Tensor | None = None

    def drawn(self, x: Tensor, n: int) -> Tensor:
        """What the features of a batch of n examples are multiplied by."""
        if self.factors is not None:
            return self.factors
        return x.new_empty(n, self.features).bernoulli_(1 - self.p).div_(1 - self.p)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        return x * self.drawn(x, len(x)).view(x.shape[:2] + (1,) * (x.dim() - 2))


class CNN(nn.Module):
    """Two convolutional and two fully connected layers, for 28x28 gray images."""

    def __init__(self, classes: int = 10):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.dropout2d = Dropout(20)
        self.fc1 = nn.Linear(320, 50)
        self.dropout = Dropout(50)
        self.fc2 = nn.Linear(50, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.fc1(self.features(x)))
        return self.fc2(self.dropout(x))

    def features(self, x: Tensor) -> Tensor:
        """The convolutional layers, `[n, 1, 28, 28]` to `[n, 320]`."""
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.dropout2d(self.conv2(x)), 2))
        return x.flatten(1)


class BiLSTM(nn.Module):
    """A bidirectional LSTM over word embeddings, mean- and max-pooled; one output neuron."""

    def __init__(self, vocabulary: int, embedding: int = 100, hidden: int = 128):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True, bidirectional=True)
        self.output = nn.Linear(4 * hidden, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(tokens))
        pooled = torch.cat([states.mean(dim=1), states.amax(dim=1)], dim=1)
        return self.output(pooled).squeeze(1)


def resnet18(classes: int, width: int) -> nn.Module:
    """torchvision's ResNet18, with `width` channels (0: 64) after the first layer.

    The other layers have in proportion as many; depth, kernels, strides and initialization stay.
    """
    model = import_torchvision().models.resnet18(num_classes=classes)
    paper = model.conv1.out_channels
    if width in (0, paper):
        return model

    def scaled(channels: int) -> int:
        return channels * width // paper

    new: nn.Module
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.Conv2d):
            same: dict[str, Any] = {
                "kernel_size": layer.kernel_size,
                "stride": layer.stride,
                "padding": layer.padding,
                "bias": False,
            }
            ingoing = layer.in_channels if name == "conv1" else scaled(layer.in_channels)
            new = nn.Conv2d(ingoing, scaled(layer.out_channels), **same)
            nn.init.kaiming_normal_(new.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.BatchNorm2d):
            new = nn.BatchNorm2d(scaled(layer.num_features))
        elif isinstance(layer, nn.Linear):
            new = nn.Linear(scaled(layer.in_features), classes)
        else:
            continue
        model.set_submodule(name, new)
    return model


def build_model(
    name: str, *, classes: int = 10, vocabulary: int = 0, width: int = 0, seed: int = 0
) -> nn.Module:
    """A freshly initialized model on the CPU; the same seed gives the same weights.

    torch's initializers draw from the global generator only.
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    with seeded(seed):
        if name == "cnn":
            return CNN(classes)
        if name == "bilstm":
            return BiLSTM(vocabulary)
        return resnet18(classes, width)


def dropouts(model: nn.Module) -> Iterator[Dropout]:
    """The dropout layers of a model, whose factors each step of local training sets."""
    return (module for module in model.modules() if isinstance(module, Dropout))


def draw_dropout(
    layers: Sequence[Dropout], key: int | Tensor, step: int, n: int, device: torch.device
) -> list[Tensor]:
    """The factors of each dropout layer for a batch of n examples in one step, `[n, features]`.

    They depend on the peer's key, the step, the example's place in the batch and the feature alone.
    With a tensor of keys they are those of a stack of peers, `[peers, n, features]`.
    """
    if not layers:
        return []
    widths = [layer.features for layer in layers]
    words = random_words(key, step, n * sum(widths), device)
    shares = words.view(*words.shape[:-1], n, sum(widths)).split(widths, dim=-1)
    return [
        (share >= int(layer.p * 2**32)).float().mul_(1 / (1 - layer.p))
        for share, layer in zip(shares, layers, strict=True)
    ]


@dataclass(frozen=True)
class Layout:
    """Where each floating-point entry of a model's state lies in one flat vector.

    Parameters come first, in the model's order, then the floating-point buffers (BatchNorm's
    running statistics): `vector[:parameters]` is what gradients exist for.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    parameters: int
    size: int
    output_layer: str

    @classmethod
    def of(cls, model: nn.Module, output_layer: str) -> "Layout":
        """The layout of `model`, whose output layer is the linear module of that name."""
        weights = dict(model.named_parameters())
        for entry in ("weight", "bias"):
            if f"{output_layer}.{entry}" not in weights:
                raise InputError(
                    f"{type(model).__name__} has no parameter {output_layer}.{entry}: the output "
                    "layer must be a linear layer with a bias"
                )
        statistics = {n: b for n, b in model.named_buffers() if b.is_floating_point()}
        names, shapes, offsets, size = [], [], [], 0
        for name, tensor in {**weights, **statistics}.items():
            names.append(name)
            shapes.append(tuple(tensor.shape))
            offsets.append(size)
            size += tensor.numel()
        return cls(
            names=tuple(names),
            shapes=tuple(shapes),
            offsets=tuple(offsets),
            parameters=sum(p.numel() for p in weights.values()),
            size=size,
            output_layer=output_layer,
        )

    def slice(self, name: str) -> slice:
        """The columns of one entry."""
        i = self.names.index(name)
        return slice(self.offsets[i], self.offsets[i] + prod(self.shapes[i]))

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """Every entry as a view of `vector`, by name."""
        return {
            name: vector[self.slice(name)].view(shape)
            for name, shape in zip(self.names, self.shapes, strict=True)
        }

    def output_layer_of(self, matrix: Tensor) -> Tensor:
        """The output layer in each row of `matrix`: `[m, classes, features + 1]`, bias last."""
        weight = matrix[:, self.slice(f"{self.output_layer}.weight")]
        bias = matrix[:, self.slice(f"{self.output_layer}.bias")]
        return torch.cat([weight.view(len(matrix), bias.shape[1], -1), bias.unsqueeze(2)], dim=2)


class FlatModel:
    """A model whose whole floating-point state lives in one vector.

    Setting the global model, reading an update and stepping the optimizer are then single
    operations on `vector` and its gradient, instead of one per layer.
    """

    def __init__(
        self, model: nn.Module, output_layer: str = "", device: torch.device | str = "cpu"
    ):
        self.module = model.to(device)
        self.layout = Layout.of(model, output_layer or find_output_layer(model))
        self.vector = torch.empty(self.layout.size, device=device)
        self.parameters = nn.Parameter(self.vector[: self.layout.parameters])
        self.gradient = torch.zeros_like(self.parameters)
        self.parameters.grad = self.gradient
        state = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        for name, view in self.layout.views(self.vector).items():
            view.copy_(state[name].detach())
            state[name].data = view
        for name, parameter in self.module.named_parameters():
            parameter.grad = self.gradient[self.layout.slice(name)].view(parameter.shape)

    @property
    def has_batchnorm(self) -> bool:
        """Whether training needs at least two examples in a batch."""
        return any(isinstance(module, nn.BatchNorm2d) for module in self.module.modules())

    def load(self, vector: Tensor) -> None:
        """Become the model with these weights."""
        self.vector.copy_(vector)


def find_output_layer(model: nn.Module) -> str:
    """The name of a model's last linear layer, which has a bias; it is the output layer unless the
    model's author says otherwise."""
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise InputError(
            f"{type(model).__name__} has no linear layer to take for its output layer; "
            "name it with output_layer=..."
        )
    return linear[-1]
