"""The bar of a sweep: how long runs take, what runs that ended teach about the others."""

import threading
import time

import pytest

import lff
from lff.experiments import progress
from lff.experiments.progress import Progress, cost


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def costs(monkeypatch):
    """Expected seconds by rounds alone, so that sums can be worked by hand."""
    monkeypatch.setattr(progress, "cost", lambda e: float(e.rounds))


def foresee(runs, at_once, clock):
    return Progress(runs, at_once=at_once, show=False, clock=clock)


def cnn(seconds, seed=0):
    return lff.experiment("mnist-iid", rounds=seconds, seed=seed)


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


def test_runs_go_where_one_ends_first(costs, clock):
    """70, 50, 40 and 20 s in two processes: 70 + 20 in one, 50 + 40 in the other."""
    runs = [cnn(seconds) for seconds in (70, 50, 40, 20)]
    assert foresee(runs, 2, clock).left() == 90
    assert foresee(runs, 1, clock).left() == 180
    assert foresee(runs, 9, clock).left() == 70
    assert foresee([], 2, clock).left() == 0


def test_time_passes_for_the_runs_under_way(costs, clock):
    runs = [cnn(70), cnn(50), cnn(40)]
    foreseen = foresee(runs, 2, clock)
    foreseen.started(runs[0])
    foreseen.started(runs[1])
    clock.now = 20.0
    assert foreseen.left() == 70  # 50 of the first; 30 of the second, then the third's 40
    assert foreseen.behind() == 40


def test_what_runs_took_corrects_what_is_expected_of_the_others(costs, clock):
    """60 s took 120: with the prior of 30, (30 + 120) / (30 + 60) = 5/3 for all runs. For the same
    model once more, from there: (30 x 5/3 + 120) / (30 + 60) = 17/9."""
    ended, same = cnn(60), cnn(90)
    other = lff.experiment("imdb", rounds=90)
    foreseen = foresee([ended, same, other], 1, clock)
    foreseen.started(ended)
    foreseen.ended(ended, 120.0)
    assert foreseen.pace(other) == pytest.approx(5 / 3)
    assert foreseen.pace(same) == pytest.approx(17 / 9)
    assert foreseen.left() == pytest.approx(90 * 17 / 9 + 90 * 5 / 3)


def test_a_run_that_failed_teaches_nothing(costs, clock):
    runs = [cnn(60), cnn(90)]
    foreseen = foresee(runs, 1, clock)
    foreseen.started(runs[0])
    foreseen.ended(runs[0], None)
    assert foreseen.left() == 90
    assert foreseen.behind() == 60


def test_an_overdue_run_is_given_a_tenth_more_and_never_counts_as_done(costs, clock):
    (run,) = [cnn(50)]
    foreseen = foresee([run], 1, clock)
    foreseen.started(run)
    clock.now = 200.0
    assert foreseen.left() == 20
    assert foreseen.behind() == pytest.approx(50 * 200 / 220)


def test_a_run_that_begins_again_is_expected_whole_again(costs, clock):
    runs = [cnn(50), cnn(40)]
    foreseen = foresee(runs, 1, clock)
    foreseen.started(runs[0])
    clock.now = 45.0
    foreseen.started(runs[0])  # its worker was lost
    assert foreseen.left() == 90
    assert foreseen.behind() == 0


def test_what_is_told_late_changes_nothing(costs, clock):
    """A start that is heard of after the end, and a run that fails before it starts."""
    runs = [cnn(50), cnn(40)]
    foreseen = foresee(runs, 1, clock)
    foreseen.ended(runs[0], 50.0)
    foreseen.started(runs[0])
    foreseen.ended(runs[1], None)
    assert foreseen.text() == "1/2 runs done, 0 running, 1 failed"
    assert foreseen.left() == 0


@pytest.fixture
def runs(monkeypatch):
    """Four runs of 100 expected seconds."""
    monkeypatch.setattr(progress, "cost", lambda e: 100.0)
    return [lff.experiment("mnist-iid", seed=seed) for seed in range(4)]


def test_the_bar_counts_runs_done_running_and_failed(runs, capsys):
    with Progress(runs[1:], done=1, at_once=2, show=True) as bar:
        assert bar.text() == "1/4 runs done, 0 running, 0 failed"
        bar.started(runs[1])
        bar.started(runs[2])
        assert bar.text() == "1/4 runs done, 2 running, 0 failed"
        bar.ended(runs[1], None)
        assert bar.text() == "1/4 runs done, 1 running, 1 failed"
        bar.ended(runs[2], 100.0)
        bar.started(runs[3])
        bar.ended(runs[3], 100.0)
        assert bar.text() == "3/4 runs done, 0 running, 1 failed"
    shown = capsys.readouterr().err
    assert "1/4 runs done, 2 running, 0 failed |" in shown
    assert "3/4 runs done, 0 running, 1 failed |██████████| 100% [" in shown
    assert shown.endswith(", 00:00 left]\n")


def test_the_bar_tells_the_time_left_from_the_start(runs, clock, capsys):
    with Progress(runs, at_once=2, show=True, clock=clock):
        pass
    assert capsys.readouterr().err.endswith(", 03:20 left]\n")


def test_the_bar_moves_while_runs_are_under_way(runs, clock, monkeypatch, capsys):
    """Half of one run in four is an eighth of all."""
    monkeypatch.setattr(progress, "REFRESH_UNWATCHED", 0.01)
    with Progress(runs, show=True, clock=clock) as bar:
        bar.started(runs[0])
        clock.now = 50.0
        until = time.monotonic() + 60
        while bar.bar.n < 50 and time.monotonic() < until:
            time.sleep(0.01)
    shown = capsys.readouterr().err
    assert "0/4 runs done, 1 running, 0 failed |█▎        |  12% [" in shown
    assert shown.endswith(", 05:50 left]\n")


def test_nothing_is_shown_or_started_where_nobody_watches(runs, capsys):
    threads = threading.active_count()
    with Progress(runs, show=False) as bar:
        bar.started(runs[0])
        assert threading.active_count() == threads
    assert capsys.readouterr().err == ""
