"""TE, All-Acc, Src-Acc, ASR, CV and who was caught, worked by hand."""

import math
from dataclasses import FrozenInstanceError

import pytest
import torch
from torch import nn

from lff.metrics import (
    METRICS,
    PAPER_METRICS,
    Evaluation,
    averaged_rounds,
    caught,
    coefficient_of_variation,
    evaluate,
    last_rounds,
    loss_function,
    lost,
    metric,
    outputs_of,
    predictions,
)


def test_many_classes_by_hand():
    """Seven examples, four of the source class 2: one right, two taken for the target 0."""
    predicted = [2, 0, 0, 1, 0, 1, 2]
    labels = torch.tensor([2, 2, 2, 2, 0, 1, 1])
    outputs = torch.full((7, 3), 0.0)
    outputs[range(7), predicted] = math.log(2)  # softmax: 1/2 for the predicted, 1/4 else
    metrics = evaluate(outputs, labels, source_class=2, target_class=0)
    right = [True, False, False, False, True, True, False]
    error = sum(math.log(2) if r else math.log(4) for r in right) / 7
    assert metrics.confusion.tolist() == [[1, 0, 0], [0, 1, 1], [2, 1, 1]]
    assert metrics.test_error == pytest.approx(error, rel=1e-6)
    assert metrics.all_acc == pytest.approx(3 / 7)
    assert metrics.src_acc == pytest.approx(1 / 4)
    assert metrics.asr == pytest.approx(2 / 4)


def test_a_single_logit_by_hand():
    """Class 1 only above 0 (not above 0.5, and not at 0)."""
    outputs = torch.tensor([0.3, -2.0, 0.0, 5.0, -0.1, 0.2])
    labels = torch.tensor([1, 1, 1, 1, 0, 0])
    assert predictions(outputs).tolist() == [1, 0, 0, 1, 0, 1]
    metrics = evaluate(outputs, labels, source_class=1, target_class=0)
    error = 0.0
    for z, y in zip(outputs.tolist(), labels.tolist(), strict=True):
        p = 1 / (1 + math.exp(-z))
        error -= math.log(p if y else 1 - p) / 6
    assert metrics.confusion.tolist() == [[1, 1], [2, 2]]
    assert metrics.test_error == pytest.approx(error, rel=1e-6)
    assert metrics.all_acc == pytest.approx(3 / 6)
    assert metrics.src_acc == pytest.approx(2 / 4)
    assert metrics.asr == pytest.approx(2 / 4)


def test_a_perfect_model_and_one_wholly_fooled():
    labels = torch.tensor([0, 1, 2, 1])
    perfect = evaluate(50.0 * torch.eye(3)[labels], labels, 1, 2)
    assert (perfect.all_acc, perfect.src_acc, perfect.asr) == (1, 1, 0)
    assert perfect.test_error == pytest.approx(0, abs=1e-6)
    fooled = evaluate(50.0 * torch.eye(3)[[0, 2, 2, 2]], labels, 1, 2)
    assert (fooled.all_acc, fooled.src_acc, fooled.asr) == (0.5, 0, 1)


def test_rates_of_an_absent_source_class_are_nan():
    metrics = evaluate(torch.eye(3), torch.tensor([0, 1, 1]), source_class=2, target_class=0)
    assert math.isnan(metrics.src_acc)
    assert math.isnan(metrics.asr)
    assert metrics.all_acc == pytest.approx(2 / 3)


def test_metrics_are_plain_numbers():
    evaluation = evaluate(torch.eye(2), torch.tensor([0, 1]), 0, 1)
    values = [getattr(evaluation, name) for name in PAPER_METRICS]
    assert all(type(value) is float for value in values)


def test_the_asr_of_a_trigger_is_of_patched_examples_of_other_classes():
    """Of patched examples 3 + 2 of 4 + 5 that are no ones are told one; the ones do not count."""
    patched = torch.tensor([[1, 3, 0], [0, 6, 0], [1, 2, 2]])
    evaluation = Evaluation(torch.eye(3).long(), 0.0, 0, 1, patched)
    assert evaluation.asr == pytest.approx(5 / 9)
    assert evaluation.src_acc == 1


def test_the_worst_class_is_among_those_with_examples():
    """Classes 0, 1 and 3 are right in 3 of 4, 1 of 4 and 1 of 1; of class 2 there is none."""
    confusion = torch.tensor([[3, 1, 0, 0], [2, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]])
    evaluation = Evaluation(confusion, 0.0, source_class=0, target_class=1)
    assert METRICS["worst_class_acc"].create()(evaluation) == 0.25


def test_a_metric_is_shown_by_its_label_or_else_its_name():
    metric("labelled", label="A label")(len)
    metric("bare")(len)
    assert [METRICS.label(name) for name in ("labelled", "bare")] == ["A label", "bare"]


def test_an_evaluation_equals_itself_only():
    """Tensors are not equal or unequal as a whole."""
    one, two = (Evaluation(torch.eye(2), 0.1, 0, 1) for _ in range(2))
    assert one == one
    assert one != two


def test_the_loss_follows_the_number_of_output_neurons():
    one = loss_function(torch.tensor([0.0]), torch.tensor([1]))
    ten = loss_function(torch.zeros(1, 10), torch.tensor([3]))
    assert one.item() == pytest.approx(math.log(2))
    assert ten.item() == pytest.approx(math.log(10))


def test_cv_by_hand():
    assert coefficient_of_variation([1, 2, 3, 6]) == pytest.approx(math.sqrt(14 / 3) / 3)
    assert coefficient_of_variation([0.4, 0.4]) == 0
    assert coefficient_of_variation([-1, -3]) == pytest.approx(-math.sqrt(2) / 2)


def test_cv_of_one_round_in_two_hundred_is_the_papers():
    """MKrum in MNIST-Extreme at 20%: 14.14."""
    assert round(coefficient_of_variation([0.0] * 199 + [0.3]), 2) == 14.14


def test_cv_of_one_round_is_nan():
    assert math.isnan(coefficient_of_variation([0.5]))


def test_cv_of_zeros_is_nan():
    assert math.isnan(coefficient_of_variation([0.0, 0.0, 0.0]))


def test_the_last_ten_rounds_are_averaged():
    assert last_rounds([100.0] * 190 + [1.0] * 9 + [2.0]) == pytest.approx(1.1)
    assert last_rounds([100.0] * 40 + [1.0] * 9 + [2.0]) == pytest.approx(1.1)


def test_short_runs_average_an_even_number_of_rounds_and_at_least_four():
    assert last_rounds([9.0] * 14 + [1.0] * 4 + [2.0, 6.0]) == pytest.approx(2)  # 6 of 20
    assert last_rounds([9.0] * 8 + [1.0, 2.0, 3.0, 6.0]) == pytest.approx(3)  # 4 of 12
    assert last_rounds([9.0, 9.0, 1.0, 3.0, 1.0, 3.0]) == pytest.approx(2)
    assert last_rounds([9.0, 1.0]) == 5
    assert last_rounds([5.0]) == 5
    for rounds in range(4, 300):
        assert averaged_rounds(rounds) in (4, 6, 8, 10)
        assert averaged_rounds(rounds) <= averaged_rounds(rounds + 1)


@pytest.mark.parametrize(
    ("rounds", "averaged"),
    [(1, 1), (3, 3), (8, 4), (16, 4), (17, 6), (24, 6), (25, 8), (32, 8), (33, 10), (100, 10)],
)
def test_a_quarter_of_a_short_run_is_averaged(rounds, averaged):
    """Rounded up, and then up to an even number: a quarter of 17 is 5, and 6 are averaged."""
    assert averaged_rounds(rounds) == averaged


@pytest.mark.parametrize("rounds", [4, 7, 12, 16, 21, 60, 200])
def test_a_swing_of_two_rounds_is_averaged_out(rounds):
    swing = [0.0, 1.0] * rounds
    assert last_rounds(swing[:rounds]) == last_rounds(swing[1 : rounds + 1]) == 0.5


@pytest.mark.parametrize(
    ("src_acc", "unattacked", "classes", "answer"),
    [
        (0.0, 0.95, 10, True),
        (0.47, 0.95, 10, True),
        (0.48, 0.95, 10, False),  # 0.475 is half
        (0.475, 0.95, 10, False),
        (0.1, 0.39, 10, None),  # below 0.1 + 0.9 / 3
        (0.1, 0.41, 10, True),
        (0.2, 0.5, 4, True),  # just 1/4 + 3/4 / 3
        (0.3, 0.65, 2, None),  # below 0.5 + 0.5 / 3
        (0.3, 0.68, 2, True),
        (0.9, 0.68, 2, False),
        (0.0, 0.0, 10, None),
        (0.2, math.nan, 10, None),
    ],
)
def test_a_class_is_lost_under_half_of_what_fedavg_reaches(src_acc, unattacked, classes, answer):
    assert lost(src_acc, unattacked, classes) is answer


def test_the_caught_are_counted_among_the_peers_of_the_round():
    """Attackers 1, 2, 3, of whom 3 was not selected; 1 and the honest 5 are dropped."""
    found = caught(dropped=[1, 5], attackers=[1, 2, 3], peers=[0, 1, 2, 4, 5, 6])
    assert found.true_positives == 1
    assert found.false_positives == 1
    assert found.attackers == 2
    assert found.honest == 4


def test_dropping_nobody_catches_nobody():
    found = caught(dropped=[], attackers=[], peers=range(4))
    assert (found.true_positives, found.false_positives) == (0, 0)
    assert (found.attackers, found.honest) == (0, 4)


@pytest.mark.parametrize(
    "measured", [Evaluation(torch.eye(2), 0.1, 0, 1), caught([1], [1], [1, 2])]
)
def test_what_was_measured_does_not_change(measured):
    for name in vars(measured):
        with pytest.raises(FrozenInstanceError):
            setattr(measured, name, 0)


@pytest.mark.parametrize("training", [True, False])
def test_outputs_come_from_evaluation_mode_in_order_and_leave_the_mode(training):
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.9), nn.BatchNorm1d(4)).train(training)
    examples = torch.arange(21.0).view(7, 3)
    statistics = model[2].running_mean.clone()
    outputs = outputs_of(model, examples, batch_size=3)
    assert not outputs.requires_grad
    assert model.training is training
    assert torch.equal(model[2].running_mean, statistics)
    torch.testing.assert_close(outputs, model.eval()(examples).detach())
