"""Sweeps over an existing Dask cluster: a real scheduler and real worker processes, on loopback."""

import contextlib
import gzip
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import lff
from lff.cli import main
from lff.errors import ClusterError, RecordError
from lff.experiments import records, sweep

PATIENCE = 120.0


def wait_until(condition):
    """Wait for a condition to be true; returns what it said then."""
    until = time.monotonic() + PATIENCE
    while not (met := condition()):
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)
    return met


class Cluster:
    """A scheduler, and workers of one thread without anybody who starts them again."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []
        file = folder / "scheduler.json"
        arguments = ["--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file)]
        self.scheduler = self.start("scheduler", *arguments)
        wait_until(file.exists)
        wait_until(lambda: file.read_text().endswith("}"))
        self.address = json.loads(file.read_text())["address"]

    def start(self, kind, *arguments, **environment):
        module = f"distributed.cli.dask_{kind}"
        with open(self.folder / f"{len(self.processes)}.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments, "--dashboard-address", "127.0.0.1:0"],
                stdout=log,
                stderr=log,
                env=os.environ | environment,
                cwd=self.folder,  # `-m` imports from there first
            )
        self.processes.append(process)
        return process

    def add_worker(self, **environment):
        """Start a worker; returns it with the folder that its runs are in."""
        folder = self.folder / f"worker{len(self.processes)}"
        process = self.start(
            "worker", self.address, "--host", "127.0.0.1", "--nworkers", "1", "--nthreads", "1",
            "--no-nanny", "--local-directory", str(folder), **environment,
        )  # fmt: skip
        return process, folder

    def close(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()


def under_way(folder):
    """The locks of the runs that a worker is at.

    `os.walk` passes over the folders that the worker removes meanwhile; `rglob` raises.
    """
    found = [name for _, _, names in os.walk(folder) for name in names]
    return [name for name in found if name.endswith(".json.gz.lock")]


@contextlib.contextmanager
def started(folder):
    folder.mkdir()
    dask = Cluster(folder)
    try:
        yield dask
    finally:
        dask.close()


@pytest.fixture
def dask(tmp_path):
    with started(tmp_path / "dask") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def one_worker(tmp_path_factory):
    """A cluster with a worker that the tests share that leave it as it is, and its folder."""
    with started(tmp_path_factory.mktemp("shared") / "dask") as cluster:
        _, folder = cluster.add_worker()
        yield cluster, folder


def in_background(action):
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def test_a_killed_worker_changes_no_record(one_worker, tiny, tmp_path):
    dask, _ = one_worker
    runs = lff.grid(["mnist-mild"], ["lfighter"], [30], seeds=range(3), **(tiny | {"rounds": 8}))
    lff.run_all(runs, jobs=1, progress=False, folder=tmp_path / "local")
    victim, folder = dask.add_worker()

    def kill():
        wait_until(lambda: under_way(folder))
        victim.kill()

    killer = in_background(kill)
    outcome = lff.run_all(runs, cluster=dask.address, progress=False, folder=tmp_path / "away")
    killer.join()
    assert victim.wait() == -signal.SIGKILL
    assert outcome.failed == {}
    assert set(outcome.done) == set(runs)
    for e in runs:
        here, away = (records.find(e, tmp_path / place) for place in ("local", "away"))
        assert here.digest == away.digest
    files = {path.name for path in (tmp_path / "away").rglob("*") if path.is_file()}
    assert files == {f"{e.id}.json.gz" for e in runs}


def test_own_code_travels(one_worker, tiny, tmp_path):
    dask, _ = one_worker

    @lff.defense("mine")
    def mine(updates):
        return lff.Decision(aggregate=updates.weights.mean(dim=0), saw={"process": os.getpid()})

    e = lff.experiment("mnist-iid", defense="mine", **tiny)
    lff.run_all([e], cluster=dask.address, progress=False, folder=tmp_path)
    assert records.find(e, tmp_path).history[0]["saw"]["process"] == dask.processes[1].pid


def test_ctrl_c_stops_the_command_and_the_workers_runs(one_worker):
    dask, folder = one_worker
    arguments = ["sweep", "--cluster", dask.address, "--benchmarks", "mnist-iid", "--ratios", "0",
                 "--defenses", "fedavg", "--seeds", "0", "1", "--scale", "smoke",
                 "--rounds", "9999", "--peers", "10", "--examples", "200", "--test-examples",
                 "100"]  # fmt: skip
    command = subprocess.Popen(
        [sys.executable, "-m", "lff.cli", *arguments], stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: under_way(folder))
        command.send_signal(signal.SIGINT)
        said = command.communicate(timeout=PATIENCE)[1]
    finally:
        command.kill()
        command.wait()
    assert command.returncode == 130
    assert "left]\nlff: interrupted; the same command goes on from there\n" in said
    assert "Traceback" not in said
    wait_until(lambda: not under_way(folder))
    with sweep._connected(dask.address) as client:
        wait_until(lambda: not any(client.processing().values()))
        assert client.sync(client.scheduler.who_has) == {}


def test_a_worker_with_other_arithmetic_is_refused_by_name(dask, tiny, tmp_path, caplog):
    """Here one that joins a sweep which waits for workers."""
    copy = tmp_path / "other"
    shutil.copytree(Path(lff.__file__).parent, copy / "lff")
    path = copy / "lff/experiments/experiment.py"
    path.write_text(path.read_text().replace("ARITHMETIC = 2", "ARITHMETIC = 1"))
    environment = {"PYTHONPATH": os.pathsep.join([str(copy), os.environ.get("PYTHONPATH", "")])}

    def join():
        wait_until(lambda: "no workers yet; waiting" in caplog.text)
        dask.add_worker(**environment)

    caplog.set_level(logging.INFO, logger="lff")
    joining = in_background(join)
    runs = lff.grid(["mnist-iid"], ["fedavg"], [0], **tiny)
    refusal = r"the worker tcp://127.0.0.1:\d+ has arithmetic 1 \(here 2\)\); stop it"
    with pytest.raises(ClusterError, match=refusal):
        lff.run_all(runs, cluster=dask.address, progress=False, folder=tmp_path)
    joining.join()


@pytest.mark.parametrize("answer", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_what_is_no_scheduler_is_told_before_anything_runs(answer, monkeypatch, capsys):
    """A closed port, somebody who says nothing, and a web server."""
    monkeypatch.setattr(sweep, "ANSWER", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        connections = []

        def serve():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connections.append(connection)
                connection.sendall(answer)

        if answer is None:
            server.close()
        else:
            threading.Thread(target=serve, daemon=True).start()
        assert main(["sweep", "--scale", "smoke", "--cluster", address]) == 2
        if answer is not None:
            server.shutdown(socket.SHUT_RDWR)
        for connection in connections:
            connection.close()
    said = capsys.readouterr().err
    assert said.startswith(f"lff: error: no Dask scheduler answers at '{address}'")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "address",
    ["localhost:8786", "tcp://localhost", "tcp://:8786", "http://localhost:8786",
     "tcp://localhost:0", "tcp://localhost:99999", "tcp://localhost:8786/x", "tcp://a b:1"],
)  # fmt: skip
def test_a_wrong_address_is_refused(address, capsys):
    assert main(["sweep", "--scale", "smoke", "--cluster", address]) == 2
    said = capsys.readouterr().err
    assert f"no Dask scheduler answers at {address!r}" in said
    assert "written tcp://192.168.0.1:8786" in said


def test_versions_and_threads_that_differ_are_named():
    ours = sweep.identity()
    assert sweep.difference(ours, ours) == ""
    other = sweep.identity(threads=4) | {"torch": "2.0"}
    assert sweep.difference(other, ours) == f"threads 4 (here 1), torch 2.0 (here {ours['torch']})"


@pytest.mark.parametrize(
    ("old", "new", "flaw"),
    [
        ('"all_acc":', '"all_acc":1', "its history was changed"),
        ('"seed":0', '"seed":1', "it is the record of"),
        ("{", "", "not a readable record"),
    ],
)
def test_a_record_that_is_not_sound_is_not_kept(old, new, flaw, tiny, tmp_path):
    record = lff.run("mnist-iid", folder=tmp_path / "there", progress=False, **tiny)
    e = record.experiment
    packed = records.path_of(e, tmp_path / "there").read_bytes()
    text = gzip.decompress(packed).decode()
    changed = gzip.compress(text.replace(old, new, 1).encode())
    with pytest.raises(RecordError, match=flaw):
        sweep._keep(e, changed, tmp_path / "here")
    assert not records.path_of(e, tmp_path / "here").exists()
    sweep._keep(e, packed, tmp_path / "here")
    assert records.path_of(e, tmp_path / "here").read_bytes() == packed


def test_a_scheduler_that_is_lost_ends_the_sweep_with_a_word(one_worker, tiny, tmp_path):
    """The last test here, for the cluster is gone with it."""
    dask, folder = one_worker
    endless = lff.experiment("mnist-iid", **(tiny | {"rounds": 9999}))

    def kill():
        wait_until(lambda: under_way(folder))
        dask.scheduler.kill()

    killer = in_background(kill)
    with pytest.raises(ClusterError, match="scheduler is gone"):
        lff.run_all([endless], cluster=dask.address, folder=tmp_path, progress=False)
    killer.join()
