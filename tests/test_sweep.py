"""Sweeps over processes of this machine: every combination once, whatever happens to a worker."""

import contextlib
import logging
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future

import pytest
import torch

import lff
from lff.cli import main
from lff.errors import ClusterError, InputError
from lff.experiments import records, sweep
from lff.experiments.scales import ATTACKER_RATIOS, PAPER_DEFENSES, SCALES
from lff.experiments.sweep import local_cluster


@pytest.fixture(scope="module")
def workers():
    """The address of two workers that the tests of this file share."""
    with local_cluster(2) as address:
        yield address


def test_the_paper_scale_has_all_252_runs():
    assert len(lff.grid(scale="paper")) == 6 * len(ATTACKER_RATIOS) * len(PAPER_DEFENSES) == 252


def test_quick_has_every_cell_of_one_benchmark_and_the_main_ones_of_five():
    cells = [(e.benchmark, e.defense, e.attackers) for e in lff.grid(scale="quick")]
    mild = [cell for cell in cells if cell[0] == "mnist-mild"]
    assert set(mild) == {("mnist-mild", d, r) for d in PAPER_DEFENSES for r in ATTACKER_RATIOS}
    five = ("fedavg", "median", "multi_krum", "foolsgold", "lfighter")
    others = {"mnist-iid", "mnist-extreme", "cifar10-iid", "cifar10-mild", "imdb"}
    assert set(cells) - set(mild) == {(b, d, r) for b in others for d in five for r in (0, 40)}
    assert len(cells) == len(set(cells)) == 92


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
    assert sweep.default_jobs(torch.device("cpu")) == 3
    long = [lff.experiment("mnist-iid", scale="laptop")]
    assert sweep.jobs_worth(long, torch.device("cpu")) == 3
    short = [lff.experiment("mnist-iid", scale="smoke")]
    assert sweep.jobs_worth(short, torch.device("cpu")) == 1  # processes would start longer


def test_workers_and_this_process_give_the_same_records(tiny, workers, tmp_path):
    """Begun in the same order, the longest first."""
    runs = [
        lff.experiment("mnist-mild", defense="lfighter", attackers=30, **(tiny | {"rounds": n}))
        for n in (2, 6, 4)
    ]
    for place, where in (("here", {}), ("there", {"cluster": workers})):
        outcome = lff.run_all(runs, jobs=1, progress=False, folder=tmp_path / place, **where)
        assert [e.rounds for e in outcome.done] == [6, 4, 2]
    for e in runs:
        here, there = (records.find(e, tmp_path / place) for place in ("here", "there"))
        assert here.digest == there.digest
    again = lff.run_all(runs, cluster=workers, progress=False, folder=tmp_path / "there")
    assert again.done == runs


def test_a_killed_worker_costs_its_run_one_retry(tiny, workers, tmp_path):
    marker = tmp_path / "killed"

    @lff.defense("mortal")
    def mortal(updates):
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return lff.Decision(aggregate=updates.weights.mean(dim=0))

    runs = lff.grid(["mnist-iid"], ["mortal", "fedavg"], [0], **tiny)
    outcome = lff.run_all(runs, cluster=workers, progress=False, folder=tmp_path)
    assert outcome.failed == {}
    assert set(outcome.done) == set(runs)
    assert marker.exists()
    assert not list(tmp_path.glob("*/.*.lock"))


def test_a_run_that_kills_every_worker_is_reported_and_the_others_go_on(tiny, workers, tmp_path):
    @lff.defense("deadly")
    def deadly(updates):
        os.kill(os.getpid(), signal.SIGKILL)

    runs = lff.grid(["mnist-iid"], ["deadly", "fedavg"], [0], **tiny)
    failing = lff.experiment("mnist-iid", **(tiny | {"examples": 10**6}))
    outcome = lff.run_all([*runs, failing], cluster=workers, progress=False, folder=tmp_path)
    assert outcome.done == runs[1:]
    assert outcome.failed.keys() == {runs[0].id, failing.id}
    assert "its worker was lost, 2 times" in outcome.failed[runs[0].id]
    assert "examples must be between 1 and" in outcome.failed[failing.id]


def test_a_sweep_whose_workers_never_come_back_ends(tiny, tmp_path, monkeypatch):
    class Client:
        status = "running"
        nthreads = dict
        get_metadata = staticmethod(lambda *_, **__: platform.node())
        submit = staticmethod(lambda *_, **__: Future())

    monkeypatch.setattr(sweep, "RESTART", 0.3)
    e = lff.experiment("mnist-iid", **tiny)
    bar = sweep.Progress([e], show=False)
    with pytest.raises(ClusterError, match="no worker process is left"):
        list(sweep._spread([e], Client(), bar, jobs=None, device="cpu", folder=tmp_path))


# --- code of one's own ------------------------------------------------------------------------

MINE = """import os, sys, lff

BIAS = 0.0

def mean(updates):
    return updates.weights.mean(dim=0) + BIAS

@lff.defense("mine")
class Mine:
    rounds = 0
    def state_dict(self): return {}
    def load_state_dict(self, state): pass
    def __call__(self, updates):
        self.rounds += 1
        return lff.Decision(aggregate=mean(updates), saw={"process": os.getpid()})

@lff.attack("shift")
def shift(data, context):
    return data.x, (data.y + 1) % context.classes
"""
SWEEP = """
if __name__ == "__main__":
    runs = lff.grid(["mnist-iid"], ["mine"], [0, 30], attack="shift", **eval(sys.argv[1]))
    outcome = lff.run_all(runs, jobs=2, progress=False)
    assert not outcome.failed, outcome.failed
"""


def test_a_defense_and_attack_of_a_script_travel(tiny, tmp_path):
    """With what they use."""
    script = tmp_path / "script.py"
    script.write_text(MINE + SWEEP)
    started = subprocess.Popen([sys.executable, str(script), repr(tiny)])
    assert started.wait() == 0
    found = [record.history[0]["saw"]["process"] for record in records.iterate(scale="smoke")]
    assert len(found) == len(set(found)) == 2
    assert started.pid not in found


def test_a_module_of_ones_own_travels_where_it_cannot_be_imported(
    tiny, workers, tmp_path, monkeypatch
):
    """The workers were started before, and do not look into this folder."""
    (tmp_path / "elsewhere.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    import elsewhere  # noqa: F401

    runs = lff.grid(["mnist-iid"], ["mine"], [30], seeds=[0, 1], attack="shift", **tiny)
    outcome = lff.run_all(runs, cluster=workers, progress=False, folder=tmp_path)
    assert outcome.failed == {}
    here = lff.run_all(runs, jobs=1, progress=False, folder=tmp_path / "here")
    assert set(here.done) == set(outcome.done)
    for e in runs:
        one, other = (records.find(e, tmp_path / place) for place in ("", "here"))
        assert [entry["src_acc"] for entry in one.history] == [
            entry["src_acc"] for entry in other.history
        ]


def test_code_that_cannot_travel_is_refused_before_anything_runs(tiny, workers, tmp_path):
    lock = threading.Lock()

    @lff.defense("locked")
    def locked(updates):
        with lock:
            return lff.Decision(aggregate=updates.weights.mean(dim=0))

    runs = lff.grid(["mnist-iid"], ["locked"], [0], **tiny)
    with pytest.raises(InputError, match=r"'locked'.* cannot be sent to a worker .*jobs=1"):
        lff.run_all(runs, cluster=workers, progress=False, folder=tmp_path)


def test_a_script_without_a_guard_is_told_so(tiny, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import lff\n"
        f"runs = lff.grid(['mnist-iid'], ['fedavg'], [0, 30], **{tiny!r})\n"
        "lff.run_all(runs, jobs=2, progress=False)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "must do so under `if __name__ == '__main__':`" in done.stderr.splitlines()[-1]
    assert done.stderr.count("Traceback") == 1


# --- the cluster of this machine ----------------------------------------------------------------


def test_workers_have_one_thread_and_the_users_settings_stay(workers):
    import dask
    from distributed import Client

    assert dask.config.get("distributed.scheduler.allowed-failures") == 3
    with Client(workers, set_as_default=False) as client:
        found = client.scheduler_info(n_workers=-1)["workers"].values()
        assert {worker["nthreads"] for worker in found} == {1}
        assert all("127.0.0.1" in address for address in client.nthreads())
        page = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.http_server.address)
        assert page == "127.0.0.1"
        kept = client.run(os.environ.get, "MALLOC_TRIM_THRESHOLD_").values()
        assert min(map(int, kept)) > 2**20  # a step's memory is not given back in between


def test_dask_is_heard_again_afterwards(monkeypatch):
    dask = logging.getLogger("distributed.client")
    monkeypatch.setattr(dask, "level", logging.WARNING)
    with sweep._unnoticed():
        assert dask.level == logging.CRITICAL
    assert dask.level == logging.WARNING


def test_the_dashboard_needs_bokeh(monkeypatch):
    monkeypatch.setattr(sweep, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install bokeh"), local_cluster(1, dashboard=True):
        pass


# --- interrupts and kills -------------------------------------------------------------------------


def left(group):
    """Whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


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
        env=os.environ | {"LFF_CHECKPOINT_SECONDS": "0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + 120
        while len(list(results.glob("checkpoints/*.ckpt"))) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        yield command, set(results.glob("checkpoints/*.ckpt"))
    finally:
        if left(command.pid):
            os.killpg(command.pid, signal.SIGKILL)
            command.wait()


def check_that_all_ended(group: int) -> None:
    until = time.monotonic() + 60
    while left(group) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left(group)


def test_ctrl_c_stops_a_sweep_and_keeps_its_checkpoints(own_folders):
    """As a terminal sends it: to the command and all its workers."""
    smoke = own_folders / "lff_results" / "smoke"
    with endless_sweep(smoke) as (command, kept):
        os.killpg(command.pid, signal.SIGINT)
        said, _ = command.communicate(timeout=60)
        check_that_all_ended(command.pid)
    assert command.returncode == 130
    assert "Traceback" not in said
    assert "distributed" not in said
    assert "0/3 runs done, 2 running, 0 failed" in said
    assert "left]\nlff: interrupted; the same command goes on from there\n" in said
    assert {path for path in smoke.rglob("*") if path.is_file()} == set(kept)


def test_workers_end_with_a_killed_sweep(own_folders):
    """As `kill` sends it: to the command alone. The next command removes their locks."""
    smoke = own_folders / "lff_results" / "smoke"
    with endless_sweep(smoke) as (command, kept):
        command.kill()
        said, _ = command.communicate(timeout=60)
        check_that_all_ended(command.pid)
    assert command.returncode == -signal.SIGKILL
    assert "Traceback" not in said
    lff.run_all([], progress=False)
    assert {path for path in smoke.rglob("*") if path.is_file()} == set(kept)


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
