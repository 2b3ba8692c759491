"""The paper's evaluation metrics (Section "Evaluation metrics"), and who was caught.

Accuracies and rates are fractions in [0, 1]; the test error is the mean loss.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

LAST_ROUNDS, FEWEST_ROUNDS = 10, 4
LEARNED = 1 / 3


@dataclass(frozen=True)
class Metrics:
    """TE, All-Acc, Src-Acc and ASR of one global model on the test examples."""

    test_error: float
    all_acc: float
    src_acc: float
    asr: float


def loss_function(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy over the output neurons, or binary cross-entropy for a single logit."""
    if outputs.dim() == 1:
        return F.binary_cross_entropy_with_logits(outputs, labels.to(outputs.dtype))
    return F.cross_entropy(outputs, labels)


def predictions(outputs: Tensor) -> Tensor:
    """The neuron of the highest score; for a single logit, class 1 if it is positive."""
    return (outputs > 0).long() if outputs.dim() == 1 else outputs.argmax(dim=1)


def evaluate(outputs: Tensor, labels: Tensor, source_class: int, target_class: int) -> Metrics:
    """All four metrics from the outputs (logits) for the test examples."""
    return Metrics(*measure(outputs, labels, source_class, target_class).tolist())


def measure(outputs: Tensor, labels: Tensor, source_class: int, target_class: int) -> Tensor:
    """TE, All-Acc, Src-Acc and ASR as one tensor on the outputs' device.

    Src-Acc and ASR are NaN if the test examples hold none of the source class.
    """
    predicted = predictions(outputs)
    source = labels == source_class
    examples = source.sum()
    return torch.stack(
        [
            loss_function(outputs, labels).double(),
            (predicted == labels).double().mean(),
            (source & (predicted == source_class)).sum().double() / examples,
            (source & (predicted == target_class)).sum().double() / examples,
        ]
    )


def confusion_matrix(outputs: Tensor, labels: Tensor, classes: int) -> Tensor:
    """How many test examples of each true class (row) are told each class (column)."""
    pairs = labels * classes + predictions(outputs)
    return torch.bincount(pairs, minlength=classes * classes).view(classes, classes)


def coefficient_of_variation(values: Sequence[float]) -> float:
    """CV = sigma / mu, with the sample's sigma; NaN if the mean is zero or there is one value.

    The paper prints NaN for a source-class accuracy that was zero in every round, and 14.14, the
    square root of 200, for one of 200 rounds above zero: the sample's sigma, not the population's.
    """
    values = np.asarray(values, dtype=float)
    if len(values) < 2 or values.mean() == 0:
        return float("nan")
    return float(values.std(ddof=1) / values.mean())


def averaged_rounds(rounds: int) -> int:
    """How many last rounds are averaged: ten, or an even number of at least four of a short run.

    The paper averages ten of 200, 100 or 50 rounds, when training has settled; ten of twelve would
    average the start of training, so a run of fewer than forty averages its last quarter. Training
    can swing with a period of two rounds: an even number shows neither side of it.
    """
    quarter = -(-rounds // 4)
    return min(LAST_ROUNDS, max(FEWEST_ROUNDS, quarter + quarter % 2), rounds)


def last_rounds(values: Sequence[float]) -> float:
    """The average over the last rounds of a run (see `averaged_rounds`)."""
    return float(np.mean(_window(values)))


def worst_of_last_rounds(values: Sequence[float]) -> float:
    """The lowest of the values that `last_rounds` averages."""
    return float(np.min(_window(values)))


def _window(values: Sequence[float]) -> np.ndarray:
    return np.asarray(values, dtype=float)[-averaged_rounds(len(values)) :]


def learned(src_acc: float, classes: int) -> bool:
    """Whether a model has learned the source class: a third of the way from guessing to right.

    That is 40% of ten classes and 67% of two. Of a class below it an attack has little to take.
    """
    return src_acc >= 1 / classes + LEARNED * (1 - 1 / classes)


def lost(src_acc: float, unattacked: float, classes: int) -> bool | None:
    """Whether a run has lost the source class.

    `src_acc` is the average Src-Acc of its last rounds (`last_rounds`), `unattacked` that of FedAvg
    without attack with the same seed. The class is lost under half of that; where FedAvg has not
    `learned` it, there is nothing to lose and the answer is None.
    """
    return src_acc < unattacked / 2 if learned(unattacked, classes) else None


@dataclass(frozen=True)
class Caught:
    """How a filter's choice of dropped peers compares with the true attackers of a round."""

    true_positives: int
    false_positives: int
    attackers: int
    honest: int


def caught(dropped: Collection[int], attackers: Collection[int], peers: Collection[int]) -> Caught:
    """Count the attackers and the honest peers among the `dropped`, of the round's `peers`."""
    present = set(attackers) & set(peers)
    return Caught(
        true_positives=len(present & set(dropped)),
        false_positives=len(set(dropped) - present),
        attackers=len(present),
        honest=len(set(peers) - present),
    )


@torch.no_grad()
def outputs_of(model: torch.nn.Module, examples: Tensor, batch_size: int = 512) -> Tensor:
    """The model's outputs for all examples, in evaluation mode, batch by batch."""
    was_training = model.training
    model.eval()
    try:
        return torch.cat([model(batch) for batch in examples.split(batch_size)])
    finally:
        model.train(was_training)
