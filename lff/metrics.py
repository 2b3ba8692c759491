"""The paper's evaluation metrics (Section "Evaluation metrics"), and who was caught.

Accuracies and rates are fractions in [0, 1]; the test error is the mean loss. A metric is a
function of an `Evaluation`; one more is one function with `@metric("name")`. Records keep what an
evaluation found, so that it is known of earlier runs, too.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lff.registry import Factory, Registry

LAST_ROUNDS, FEWEST_ROUNDS = 10, 4
LEARNED = 1 / 3

PAPER_METRICS = {"test_error": "TE", "all_acc": "All-Acc", "src_acc": "Src-Acc", "asr": "ASR"}
METRICS: Registry[Factory] = Registry("metric")  # further ones


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What the global model makes of the test examples.

    `confusion` counts the examples of each true class (row) that are told each class (column);
    `patched` the same for test examples with the attack's trigger, if it has one. `test_error` is
    the mean loss (TE).
    """

    confusion: Tensor
    test_error: float
    source_class: int
    target_class: int
    patched: Tensor | None = None

    @property
    def all_acc(self) -> float:
        """All-Acc: the share of all examples that are told their class."""
        return _share(self.confusion.trace(), self.confusion.sum())

    @property
    def src_acc(self) -> float:
        """Src-Acc: the share of the source class that is told right; NaN if there is none of it."""
        told = self.confusion[self.source_class]
        return _share(told[self.source_class], told.sum())

    @property
    def asr(self) -> float:
        """Attack success rate: the share of the source class that is told the target class.

        Of an attack with a trigger: the share of patched examples of all other classes that is.
        """
        if self.patched is None:
            told = self.confusion[self.source_class]
            return _share(told[self.target_class], told.sum())
        before, after = self.patched[: self.target_class], self.patched[self.target_class + 1 :]
        others = torch.cat([before, after])
        return _share(others[:, self.target_class].sum(), others.sum())


Metric = Callable[[Evaluation], float]


def metric(name: str, *, label: str | None = None) -> Callable[[Metric], Metric]:
    """Register one more metric under `name`, shown in tables as `label`."""

    def register(function: Metric) -> Metric:
        METRICS.add(Factory(name, label or name, function))
        return function

    return register


@metric("worst_class_acc", label="Worst-Acc")
def worst_class_acc(evaluation: Evaluation) -> float:
    """The accuracy of the class that is told right least often, of those in the test set.

    Saving the source class at the price of another one shows here.
    """
    told, of = evaluation.confusion.diagonal(), evaluation.confusion.sum(dim=1)
    return float((told[of > 0] / of[of > 0]).min())


def _share(count: Tensor, of: Tensor) -> float:
    return (count.double() / of).item()


def evaluate(outputs: Tensor, labels: Tensor, source_class: int, target_class: int) -> Evaluation:
    """An evaluation from the outputs (logits) for the test examples."""
    classes = 2 if outputs.dim() == 1 else outputs.shape[1]
    return Evaluation(
        confusion=confusion_matrix(outputs, labels, classes),
        test_error=loss_function(outputs, labels).double().item(),
        source_class=source_class,
        target_class=target_class,
    )


def loss_function(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy over the output neurons, or binary cross-entropy for a single logit."""
    if outputs.dim() == 1:
        return F.binary_cross_entropy_with_logits(outputs, labels.to(outputs.dtype))
    return F.cross_entropy(outputs, labels)


def predictions(outputs: Tensor) -> Tensor:
    """The neuron of the highest score; for a single logit, class 1 if it is positive."""
    return (outputs > 0).long() if outputs.dim() == 1 else outputs.argmax(dim=1)


def confusion_matrix(outputs: Tensor, labels: Tensor, classes: int) -> Tensor:
    """How many test examples of each true class (row) are told each class (column)."""
    pairs = labels * classes + predictions(outputs)
    return torch.bincount(pairs, minlength=classes * classes).view(classes, classes)


def coefficient_of_variation(values: Sequence[float]) -> float:
    """CV = sigma / mu, with the sample's sigma; NaN if the mean is zero or there is one value.

    The paper prints NaN for a source-class accuracy that was zero in every round, and 14.14, the
    square root of 200, for one of 200 rounds above zero: the sample's sigma, not the population's.
    """
    array = np.asarray(values, dtype=float)
    if len(array) < 2 or array.mean() == 0:
        return float("nan")
    return float(array.std(ddof=1) / array.mean())


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
    return float(np.mean(values[-averaged_rounds(len(values)) :]))


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
def outputs_of(model: nn.Module, examples: Tensor, batch_size: int = 512) -> Tensor:
    """The model's outputs for all examples, in evaluation mode, batch by batch."""
    was_training = model.training
    model.eval()
    try:
        return torch.cat([model(batch) for batch in examples.split(batch_size)])
    finally:
        model.train(was_training)
