"""Sweeps: every combination once, whatever happens to a worker."""

import multiprocessing
import os
import threading
import time

import pytest

import lff
from lff import forecast, records, workers
from lff.defenses.registry import _defenses
from lff.errors import InputError
from lff.scales import ATTACKER_RATIOS, PAPER_DEFENSES, SCALES


def dying_worker(connection, device, folder):
    """A worker that dies of every experiment."""
    connection.recv()
    os._exit(9)


def test_the_paper_scale_has_all_252_runs():
    assert len(lff.grid(scale="paper")) == 6 * len(ATTACKER_RATIOS) * len(PAPER_DEFENSES) == 252


def test_what_is_left_empty_is_what_the_scale_runs():
    runs = lff.grid(["imdb"], scale="quick")
    cells = SCALES["quick"].grid("imdb")
    assert {e.attackers for e in runs} == set(cells.ratios)
    assert {e.defense for e in runs} == set(cells.defenses)
    named = lff.grid(["imdb"], ["median"], [20], [1, 2], scale="quick")
    assert [(e.defense, e.attackers, e.seed) for e in named] == [
        ("median", 20.0, 1),
        ("median", 20.0, 2),
    ]


def test_unknown_names_are_refused_before_anything_runs():
    with pytest.raises(InputError, match="Did you mean 'quick'"):
        lff.grid(scale="qiuck")
    with pytest.raises(InputError, match="unknown benchmark 'mnist'"):
        lff.grid(["mnist"])


def test_long_runs_come_first():
    short, long = lff.experiment("mnist-iid", rounds=2), lff.experiment("mnist-iid", rounds=9)
    assert forecast.cost(long) > forecast.cost(short)


def test_workers_and_this_process_give_the_same_records(tiny, tmp_path):
    runs = lff.grid(["mnist-mild"], ["fedavg", "lfighter"], [30], **tiny)
    for jobs in (1, 2):
        outcome = lff.run_all(runs, jobs=jobs, progress=False, folder=tmp_path / str(jobs))
        assert set(outcome.done) == set(runs)
    for e in runs:
        one, two = (records.find(e, tmp_path / str(jobs)) for jobs in (1, 2))
        assert one.digest == two.digest


def test_a_killed_worker_costs_only_its_run_which_is_tried_again(tiny):
    runs = lff.grid(["mnist-iid"], ["fedavg"], [0], seeds=range(3), **(tiny | {"rounds": 40}))
    killed = []

    def kill_one():
        until = time.monotonic() + 60
        while not killed and time.monotonic() < until:
            for child in multiprocessing.active_children():
                child.kill()
                killed.append(child.pid)
                break
            time.sleep(0.1)

    killer = threading.Thread(target=kill_one)
    killer.start()
    outcome = lff.run_all(runs, jobs=2, progress=False)
    killer.join()
    assert killed
    assert set(outcome.done) == set(runs)
    assert outcome.failed == {}


def test_a_run_that_kills_every_worker_is_reported(tiny, monkeypatch):
    monkeypatch.setattr(workers, "_worker", dying_worker)
    runs = lff.grid(["mnist-iid"], ["fedavg"], [0], seeds=range(2), **tiny)
    outcome = lff.run_all(runs, jobs=2, progress=False)
    assert outcome.done == []
    assert set(outcome.failed) == {e.id for e in runs}
    assert all("exit code 9" in error for error in outcome.failed.values())


def test_a_failing_run_is_reported_and_the_others_go_on(tiny):
    good = lff.grid(["mnist-iid"], ["fedavg"], [0], **tiny)
    bad = lff.grid(["mnist-iid"], ["fedavg"], [0], **(tiny | {"examples": 10**6}))
    outcome = lff.run_all(good + bad, jobs=1, progress=False)
    assert outcome.done == good
    assert "examples must be between 1 and" in outcome.failed[bad[0].id]


def test_a_defense_of_the_callers_own_runs_beside_the_others(tiny, monkeypatch):
    monkeypatch.setattr("lff.defenses.registry._defenses", dict(_defenses))

    @lff.defense("mine")
    def mine(updates):
        return lff.Decision(aggregate=updates.weights.mean(dim=0))

    runs = lff.grid(["mnist-iid"], ["mine", "fedavg", "median"], [0], **tiny)
    outcome = lff.run_all(runs, jobs=2, progress=False)
    assert set(outcome.done) == set(runs)
