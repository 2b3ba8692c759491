"""What the bar of a sweep says."""

import threading
import time

import pytest

import lff
from lff.experiments import forecast, monitor
from lff.experiments.monitor import Monitor, Outcome


@pytest.fixture
def runs(monkeypatch):
    """Four runs of 100 expected seconds."""
    monkeypatch.setattr(forecast, "cost", lambda e: 100.0)
    monkeypatch.setattr(monitor, "cost", lambda e: 100.0)
    return [lff.experiment("mnist-iid", seed=seed) for seed in range(4)]


def test_the_bar_counts_runs_done_running_and_failed(runs, capsys):
    outcome, ended = Outcome(done=[runs[0]]), []
    with Monitor(outcome, runs[1:], at_once=2, show=True, on_end=ended.append) as bar:
        assert bar.text() == "1/4 runs done, 0 running, 0 failed"
        bar.started(runs[1])
        bar.started(runs[2])
        assert bar.text() == "1/4 runs done, 2 running, 0 failed"
        bar.lost(runs[1])
        assert bar.text() == "1/4 runs done, 1 running, 0 failed"
        bar.started(runs[1])
        bar.ended(runs[1], "ValueError: on purpose", 0.0)
        assert bar.text() == "1/4 runs done, 1 running, 1 failed"
        bar.ended(runs[2], "", 100.0)
        bar.started(runs[3])
        bar.ended(runs[3], "", 100.0)
        assert bar.text() == "3/4 runs done, 0 running, 1 failed"
    assert outcome.done == [runs[0], runs[2], runs[3]]
    assert outcome.failed == {runs[1].id: "ValueError: on purpose"}
    assert ended == [runs[1], runs[2], runs[3]]
    shown = capsys.readouterr().err
    assert "1/4 runs done, 2 running, 0 failed |" in shown
    assert "3/4 runs done, 0 running, 1 failed |██████████| 100% [" in shown
    assert shown.endswith(", 00:00 left]\n")


def test_the_bar_tells_the_time_left_from_the_start(runs, capsys):
    with Monitor(Outcome(), runs, at_once=2, show=True) as bar:
        bar.forecast.clock = lambda: 0.0
        bar.started(runs[0])
    assert capsys.readouterr().err.endswith(", 03:20 left]\n")


def test_the_bar_moves_while_runs_are_under_way(runs, monkeypatch, capsys):
    """Half of one run in four is an eighth of all."""
    monkeypatch.setattr(monitor, "REFRESH_UNWATCHED", 0.01)
    with Monitor(Outcome(), runs, show=True) as bar:
        bar.forecast.clock = lambda: 0.0
        bar.started(runs[0])
        bar.forecast.clock = lambda: 50.0
        until = time.monotonic() + 60
        while bar.bar.n < 50 and time.monotonic() < until:
            time.sleep(0.01)
    shown = capsys.readouterr().err
    assert "0/4 runs done, 1 running, 0 failed |█▎        |  12% [" in shown
    assert shown.endswith(", 05:50 left]\n")


def test_nothing_is_shown_or_started_where_nobody_watches(runs, capsys):
    threads = threading.active_count()
    with Monitor(Outcome(), runs, show=False) as bar:
        bar.started(runs[0])
        assert threading.active_count() == threads
    assert capsys.readouterr().err == ""
