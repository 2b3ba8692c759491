"""What updates look like: magnitudes, angles and principal components (paper, Section 5.1)."""

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.metrics import silhouette_score
from torch import Tensor

from lff.updates import Updates


@dataclass(frozen=True)
class Comparison:
    """The magnitudes of a good and a bad update of the same peer, and the angle between them."""

    good: float
    bad: float
    angle: float  # degrees


def compare(good: Tensor, bad: Tensor) -> Comparison:
    """Magnitudes and angle of two gradient vectors."""
    good, bad = good.double().flatten(), bad.double().flatten()
    a, b = good.norm(), bad.norm()
    cosine = (good @ bad / (a * b)).clamp(-1, 1)
    return Comparison(a.item(), b.item(), torch.rad2deg(torch.arccos(cosine)).item())


def compare_updates(updates: Updates, source: int, target: int) -> dict[str, Comparison]:
    """The rows of the paper's Table "norm_angle" from a good (row 0) and a bad update (row 1).

    The whole update is compared over parameters, and over the whole state as well: the paper's
    magnitude of 351,123 cannot come from parameters alone. A model of one or two output neurons
    has no others.
    """
    state = (updates.global_weights - updates.weights) / updates.learning_rate
    layer = updates.output_layer
    neurons = range(layer.shape[1])
    others = [i for i in neurons if len(neurons) > 2 and i not in (source, target)]
    compared = {
        "whole, with BatchNorm statistics": state,
        **views(updates, source, target),
        "non-relevant neurons": layer[:, others],
    }
    return {name: compare(view[0], view[1]) for name, view in compared.items() if view.numel()}


def views(updates: Updates, source: int, target: int) -> dict[str, Tensor]:
    """The three views of the gradients that the paper projects, `[m, ...]` each.

    Of one or two output neurons all are relevant.
    """
    layer = updates.output_layer
    several = layer.shape[1] > 2
    return {
        "whole": updates.gradients,
        "output layer": layer.flatten(1),
        "relevant neurons": updates.relevant(source, target) if several else layer.flatten(1),
    }


@dataclass(frozen=True)
class Components:
    """The first two principal components of a round's gradients, and how well bad ones separate.

    `explained` are the components' shares of the variance; `silhouette` is that of good against
    bad updates in the plane: 1 for two tight distant groups, 0 for mixed ones, NaN for one group.
    """

    points: np.ndarray  # [m, 2]
    explained: tuple[float, float]
    silhouette: float


def principal_components(gradients: Tensor, bad: np.ndarray) -> Components:
    """Project gradients on their first two principal components.

    Through the Gram matrix of the centered rows, `[m, m]`, which is small however many parameters
    there are. Signs are fixed by making each component's largest coordinate positive.
    """
    centered = gradients.double() - gradients.mean(dim=0)
    values, vectors = torch.linalg.eigh(centered @ centered.T)
    values = values.clamp(min=0).flip(0)
    points = (vectors.flip(1) * values.sqrt())[:, :2].cpu().numpy()
    points *= np.sign(points[np.abs(points).argmax(axis=0), [0, 1]] + 1e-300)
    total = float(values.sum())
    first, second = (float(value) / total if total else 0.0 for value in values[:2])
    two_groups = 0 < np.count_nonzero(bad) < len(bad) and len(bad) > 2
    separation = silhouette_score(points, bad) if two_groups else float("nan")
    return Components(points, (first, second), float(separation))
