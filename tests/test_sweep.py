"""Sweeps: every combination once, whatever happens to a worker."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from helpers import installed

import lff
from lff.cli import main
from lff.defenses.registry import _defenses
from lff.errors import InputError
from lff.experiments import records, workers
from lff.experiments.scales import ATTACKER_RATIOS, PAPER_DEFENSES, SCALES


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


def test_combinations_may_come_from_iterators(tiny):
    given = (["mnist-iid", "mnist-mild"], ["fedavg", "median"], [0, 30], [0, 1])
    assert lff.grid(*map(iter, given), **tiny) == lff.grid(*given, **tiny)
    assert lff.grid(iter([]), ["fedavg"], [0]) == lff.grid([], ["fedavg"], [0])
    with pytest.raises(InputError, match="at least one seed"):
        lff.grid(seeds=iter([]))


def test_there_is_one_job_per_core_that_may_be_used(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 7})
    assert workers.default_jobs(torch.device("cpu")) == 3


def test_long_runs_come_first(tiny):
    short, long = (lff.experiment("mnist-iid", **(tiny | {"rounds": n})) for n in (2, 9))
    ended = []
    lff.run_all([short, long], jobs=1, progress=False, on_end=ended.append)
    assert ended == [long, short]


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


def test_a_defense_of_an_installed_package_goes_to_the_workers(own_folders, tmp_path):
    code = (
        "import os, lff\n"
        "@lff.defense('theirs')\n"
        "def theirs(updates):\n"
        "    mean = updates.weights.mean(dim=0)\n"
        "    return lff.Decision(aggregate=mean, saw={'process': os.getpid()})\n"
    )
    sweep = "sweep --scale smoke --benchmarks mnist-iid --defenses theirs --ratios 0 30 --jobs 2"
    started = subprocess.Popen(
        [sys.executable, "-m", "lff.cli", *sweep.split()],
        env=installed(tmp_path, "their_module", code),
    )
    assert started.wait() == 0
    found = [record.history[0]["saw"]["process"] for record in records.iterate(scale="smoke")]
    assert len(found) == len(set(found)) == 2
    assert started.pid not in found


def left(group):
    """Whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def written(path):
    """What differs once a file has been replaced; the inode alone may be given out again."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


@contextlib.contextmanager
def endless_sweep(results):
    """A sweep over two workers that would take hours, once each of them has kept some rounds.

    Yields the command and the checkpoints there are.
    """
    endless = ["--scale", "smoke", "--peers", "10", "--examples", "200", "--rounds", "9999",
               "--test-examples", "100", "--local-epochs", "1"]  # fmt: skip
    sweep = ["sweep", "--benchmarks", "mnist-iid", "--defenses", "fedavg", "--ratios", "0",
             "--seeds", "0", "1", "2", "--jobs", "2", *endless]  # fmt: skip
    command = subprocess.Popen(
        [sys.executable, "-m", "lff.cli", *sweep],
        env=os.environ | {"LFF_CHECKPOINT_SECONDS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + 120
        while len(list(results.glob("checkpoints/*.ckpt"))) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        yield command, {path: written(path) for path in results.glob("checkpoints/*.ckpt")}
    finally:
        if left(command.pid):
            os.killpg(command.pid, signal.SIGKILL)
            command.wait()


def check_that_all_ended(group: int) -> None:
    until = time.monotonic() + 60
    while left(group) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left(group)


def check_that_rounds_were_kept(results, kept: dict) -> None:
    """Two checkpoints, each written once more at the end, and nothing else is left behind."""
    assert len(kept) == 2
    assert {path for path in results.rglob("*") if path.is_file()} == set(kept)
    assert all(written(path) != before for path, before in kept.items())


def test_ctrl_c_stops_a_sweep_and_keeps_its_rounds(own_folders):
    """As a terminal sends it: to the command and all its workers."""
    smoke = own_folders / "lff_results" / "smoke"
    with endless_sweep(smoke) as (command, kept):
        os.killpg(command.pid, signal.SIGINT)
        said, _ = command.communicate(timeout=60)
        check_that_all_ended(command.pid)
    assert command.returncode == 130
    assert "Traceback" not in said
    assert "0/3 runs done, 2 running, 0 failed" in said
    assert said.endswith("left]\nlff: interrupted; the same command goes on from there\n")
    check_that_rounds_were_kept(smoke, kept)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_keep_their_rounds_and_end_with_a_killed_sweep(own_folders, number):
    """As `kill` sends it: to the command alone."""
    smoke = own_folders / "lff_results" / "smoke"
    with endless_sweep(smoke) as (command, kept):
        command.send_signal(number)
        said, _ = command.communicate(timeout=60)
        check_that_all_ended(command.pid)
    assert command.returncode == -number
    assert "Traceback" not in said
    check_that_rounds_were_kept(smoke, kept)


def test_failures_are_listed_with_the_last_line_of_their_error(capsys):
    arguments = ["sweep", "--benchmarks", "mnist-iid", "--defenses", "fedavg", "--ratios", "0",
                 "--scale", "smoke", "--examples", "1000000", "--quiet"]  # fmt: skip
    assert main(arguments) == 1
    printed = capsys.readouterr()
    (failed,) = lff.grid(["mnist-iid"], ["fedavg"], [0], scale="smoke", examples=1000000)
    error = "lff.errors.InputError: examples must be between 1 and"
    assert printed.err.startswith(f"lff: {failed.id} failed: {error}")
    assert len(printed.err.splitlines()) == 1
    assert "0 runs recorded, 1 failed" in printed.out
