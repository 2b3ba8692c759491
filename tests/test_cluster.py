"""Sweeps over a real Dask scheduler and real worker processes, on loopback."""

import fnmatch
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
from lff.errors import ClusterError, InputError
from lff.experiments import cluster, crew, records
from lff.experiments.crew import hired

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
        with open(self.folder / f"{len(self.processes)}.log", "wb") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    f"distributed.cli.dask_{kind}",
                    "--no-dashboard",
                    *arguments,
                ],
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
    return fnmatch.filter(found, ".*.json.gz.lock")


@pytest.fixture
def dask(tmp_path):
    folder = tmp_path / "dask"
    folder.mkdir()
    started = Cluster(folder)
    yield started
    started.close()


def in_background(action):
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def test_a_killed_worker_changes_no_record(dask, tiny, tmp_path):
    runs = lff.grid(["mnist-mild"], ["lfighter"], [30], seeds=range(4), **(tiny | {"rounds": 20}))
    lff.run_all(runs, jobs=1, progress=False, folder=tmp_path / "local")
    (victim, folder), _ = dask.add_worker(), dask.add_worker()

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


def test_a_run_that_loses_every_worker_is_tried_twice_and_reported(dask, tiny, tmp_path):
    (endless,) = lff.grid(["mnist-iid"], ["fedavg"], [0], **(tiny | {"rounds": 9999}))
    workers = [dask.add_worker() for _ in range(3)]

    def at_work():
        return next((w for w, f in workers if w.poll() is None and under_way(f)), None)

    def kill():
        for _ in range(2):
            victim = wait_until(at_work)
            victim.kill()
            victim.wait()

    killer = in_background(kill)
    outcome = lff.run_all([endless], cluster=dask.address, progress=False, folder=tmp_path)
    killer.join()
    assert sum(worker.poll() is None for worker, _ in workers) == 1
    assert outcome.done == []
    assert "the worker tcp://127.0.0.1:" in outcome.failed[endless.id]
    assert outcome.failed[endless.id].endswith("was lost")


def test_an_interrupt_before_a_call_has_begun_leaves_no_traceback(dask, monkeypatch, caplog):
    wait = threading.Event.wait

    def interrupted(event, timeout=None):
        if threading.current_thread() is not threading.main_thread():
            return wait(event, timeout)
        monkeypatch.setattr(threading.Event, "wait", wait)
        raise KeyboardInterrupt

    with hired(dask.address, "cpu") as hands:
        monkeypatch.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            hands.look()
        hands.look()  # by now Dask has tried to cancel the first
    assert not [record for record in caplog.records if record.name == "tornado.application"]


def test_ctrl_c_stops_the_command_and_the_workers_runs(dask, tmp_path):
    _, folder = dask.add_worker()
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
    assert said.endswith("left]\nlff: interrupted; the same command goes on from there\n")
    assert "Traceback" not in said
    wait_until(lambda: not under_way(folder))
    with hired(dask.address, "cpu") as found:
        assert found.client.sync(found.client.scheduler.who_has) == {}
        processing = found.client.processing()
        assert not any(processing.values())


def test_a_worker_with_other_arithmetic_is_refused_by_name(dask, tmp_path, caplog):
    """There at the beginning it is an error; later it is passed over."""
    copy = tmp_path / "other"
    shutil.copytree(Path(lff.__file__).parent, copy / "lff")
    benchmarks = copy / "lff" / "experiments" / "benchmarks.py"
    benchmarks.write_text(benchmarks.read_text().replace("ARITHMETIC = 2", "ARITHMETIC = 1"))
    path = os.pathsep.join([str(copy), os.environ.get("PYTHONPATH", "")])
    dask.add_worker()
    with hired(dask.address, "cpu") as found:
        wait_until(lambda: len(found.look()) == 1)
        dask.add_worker(PYTHONPATH=path)
        wait_until(lambda: found.look() and found.refused)
        assert len(found.look()) == 1
    (refused,) = found.refused
    assert (
        f"the worker {refused.address} cannot take part: its lff gives other numbers" in caplog.text
    )
    with pytest.raises(InputError, match=f"{refused.address} cannot take part: its lff gives"):
        lff.run_all([lff.experiment("mnist-iid")], cluster=dask.address, progress=False)


def test_a_scheduler_that_is_lost_ends_the_sweep_with_a_word(dask, caplog):
    caplog.set_level(logging.INFO, logger="lff")

    def kill():
        wait_until(lambda: "no workers yet" in caplog.text)
        dask.scheduler.kill()

    killer = in_background(kill)
    with pytest.raises(ClusterError, match=f"scheduler at {dask.address} is gone"):
        lff.run_all([lff.experiment("mnist-iid")], cluster=dask.address, progress=False)
    killer.join()


@pytest.mark.parametrize("answer", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_what_is_no_scheduler_is_told_before_anything_runs(answer, monkeypatch, capsys):
    """A closed port, somebody who says nothing, and a web server."""
    monkeypatch.setattr(crew, "ANSWER", 1.0)
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
    assert said.startswith(f"lff: error: no Dask scheduler answers at {address}")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "address",
    ["", "localhost:8786", "tcp://localhost", "tcp://:8786", "http://localhost:8786",
     "tcp://localhost:0", "tcp://localhost:99999", "tcp://localhost:8786/x", "tcp://a b:1"],
)  # fmt: skip
def test_a_wrong_address_is_refused(address, capsys):
    assert main(["sweep", "--scale", "smoke", "--cluster", address]) == 2
    assert f"such as tcp://192.168.0.1:8786, not {address!r}" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["tcp://localhost:8786", "tls://10.0.0.1:1", "tcp://[::1]:9"])
def test_a_right_address_passes(address):
    crew.check_address(address)


def test_without_dask_the_way_to_install_it_is_told(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["sweep", "--scale", "smoke", "--cluster", "tcp://localhost:8786"]) == 2
    assert "pip install --constraint constraints.txt --editable '.[cluster]'" in (
        capsys.readouterr().err
    )


def test_versions_that_differ_are_named():
    ours = crew.identity("cpu")
    assert crew._difference(ours) == ""
    assert crew._difference(ours | {"torch": "2.0"}) == f"it has torch 2.0 (here {ours['torch']})"
    assert "ModuleNotFoundError" in crew._difference(ModuleNotFoundError("No module named 'lff'"))
    assert crew._difference(OSError("closed")) is None


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
    error, _ = cluster._keep(e, changed, tmp_path / "here")
    assert flaw in error
    assert not records.path_of(e, tmp_path / "here").exists()
    error, seconds = cluster._keep(e, packed, tmp_path / "here")
    assert (error, seconds) == ("", pytest.approx(record.summary()["seconds"]))
    assert records.path_of(e, tmp_path / "here").read_bytes() == packed
