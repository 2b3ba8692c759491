"""The paper's evaluation metrics (Section "Evaluation metrics"), and who was caught.

Accuracies and rates are fractions in [0, 1]; the test error is the mean loss.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

LAST_ROUNDS = 10


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
    """How many last rounds are averaged: ten, or a quarter of a run of fewer than forty.

    The paper averages ten of 200, 100 or 50 rounds, when training has settled; ten of twelve would
    average the start of training.
    """
    return min(LAST_ROUNDS, -(-rounds // 4))


def last_rounds(values: Sequence[float]) -> float:
    """The average over the last rounds of a run (see `averaged_rounds`)."""
    return float(np.mean(np.asarray(values, dtype=float)[-averaged_rounds(len(values)) :]))


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
