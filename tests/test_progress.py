"""The bar of a sweep: how long runs take, what runs that ended teach about the others."""

import pytest

import lff
from lff.experiments import progress
from lff.experiments.progress import Progress, cost


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""

    class Clock:
        now = 1000.0

    monkeypatch.setattr(progress.time, "monotonic", lambda: Clock.now)
    return Clock


@pytest.fixture
def runs(monkeypatch):
    """Four runs of 100 expected seconds."""
    monkeypatch.setattr(progress, "cost", lambda e: 100.0)
    return [lff.experiment("mnist-iid", seed=seed) for seed in range(4)]


def test_the_cost_of_a_run_is_its_examples_times_those_of_its_model():
    """2 s to start, then rounds x epochs x thousands of examples x seconds per thousand."""
    mnist = {"scale": "laptop", "rounds": 12, "local_epochs": 3, "fraction": 1.0, "examples": 0}
    assert cost(lff.experiment("mnist-mild", **mnist)) == pytest.approx(2 + 12 * 3 * 60 * 0.11)
    cifar10 = {"scale": "paper", "rounds": 5, "local_epochs": 1, "fraction": 0.5, "examples": 1000}
    assert cost(lff.experiment("cifar10-iid", **cifar10)) == pytest.approx(2 + 5 * 0.5 * 5.0)
    imdb = {"scale": "laptop", "rounds": 2, "local_epochs": 2, "fraction": 1.0, "examples": 3000}
    assert cost(lff.experiment("imdb", **imdb)) == pytest.approx(2 + 2 * 2 * 3 * 3.5)


def test_half_the_width_of_a_resnet_takes_about_a_third_of_the_time():
    run = {"scale": "laptop", "rounds": 5, "local_epochs": 1, "examples": 1000}
    seconds = {w: cost(lff.experiment("cifar10-iid", width=w, **run)) - 2 for w in (0, 64, 32, 16)}
    assert seconds[0] == seconds[64] == pytest.approx(5 * 5.0)
    assert seconds[32] / seconds[64] == pytest.approx(0.5**1.5)
    assert seconds[16] / seconds[32] == pytest.approx(0.5**1.5)


def test_the_repeated_median_costs_its_pairs():
    one, other = (lff.experiment("mnist-iid", defense=d) for d in ("median", "repeated_median"))
    assert cost(other) > cost(one)


def test_the_time_left_is_what_is_expected_until_runs_have_ended(runs, clock):
    bar = Progress(runs, at_once=2, show=False)
    assert bar.left() == 200  # four runs of 100 s, two at a time
    clock.now += 50
    assert bar.left() == 150
    clock.now += 500
    assert bar.left() == 0


def test_what_has_ended_corrects_what_is_left(runs, clock):
    """100 s took 230: the pace is (30 + 230) / (30 + 100) = 2."""
    bar = Progress(runs, show=False)
    clock.now += 230
    bar.ended(runs[0], "")
    assert bar.left() == pytest.approx(600)
    clock.now += 10
    assert bar.left() == pytest.approx(590)


def test_the_bar_counts_runs_done_running_and_failed(runs, clock, capsys):
    bar = Progress(runs[1:], done=1, show=True)
    bar.running = 2
    bar.show()
    bar.ended(runs[1], "it failed")
    bar.running = 0
    bar.ended(runs[2], "")
    bar.ended(runs[3], "")
    bar.bar.close()
    shown = capsys.readouterr().err
    assert "1/4 runs done, 2 running, 0 failed |          |   0% [" in shown
    assert ", 05:00 left]" in shown
    assert "1/4 runs done, 2 running, 1 failed |███▎      |  33% [" in shown
    assert "3/4 runs done, 0 running, 1 failed |██████████| 100% [" in shown
    assert shown.endswith(", 00:00 left]\n")


def test_a_log_file_is_not_filled_with_bars(runs, clock, capsys):
    bar = Progress(runs, show=True)
    for _ in range(119):
        bar.show()
        clock.now += 1
    assert capsys.readouterr().err.count("0/4 runs done") == 2


def test_nothing_is_shown_where_nobody_watches(runs, capsys):
    Progress(runs).ended(runs[0], "")
    assert capsys.readouterr().err == ""
