"""The example with real processes: a SuperLink, five SuperNodes, and `flwr run`, on loopback."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

APP = Path(__file__).parents[2] / "examples" / "flower"
BIN = Path(sys.executable).parent
PEERS, ROUNDS = 5, 2


def free_ports(count):
    """Ports of loopback that nobody uses."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def running(*command, log, **settings):
    """A process with a group of its own, which ends with the block, its children included."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [BIN / command[0], *command[1:]],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **settings,
        )
        try:
            yield process
        finally:
            for how in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, how)
                    process.wait(timeout=10)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue


@pytest.mark.slow
def test_a_flipping_minority_is_dropped_in_a_deployment(tmp_path):
    link, *ports = free_ports(1 + PEERS)
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink.loopback]\naddress = "127.0.0.1:{link}"\ninsecure = true\n'
    )
    environment = os.environ | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    }
    settings = {"env": environment, "cwd": tmp_path}
    logs = [tmp_path / f"{name}.log" for name in ("superlink", *range(PEERS), "run")]
    with ExitStack() as stack:
        server = ("flower-superlink", "--insecure", "--port", str(link))
        stack.enter_context(running(*server, log=logs[0], **settings))
        for k, port in enumerate(ports):
            node = ("flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{link}")
            mine = (
                "--port",
                str(port),
                "--node-config",
                f"partition-id={k} num-partitions={PEERS}",
            )
            stack.enter_context(running(*node, *mine, log=logs[1 + k], **settings))
        wait_for(link)
        command = ("flwr", "run", APP, "loopback", "--stream", "--run-config", f"rounds={ROUNDS}")
        run = stack.enter_context(running(*command, log=logs[-1], **settings))
        code = run.wait(timeout=900)
    said = logs[-1].read_text()
    everything = "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in logs)
    assert code == 0, everything
    dropped = re.findall(r"lfighter dropped (\d) of (\d) peers: \[([\d, ]+)\]", said)
    assert [(count, peers) for count, peers, _ in dropped] == [("2", "5")] * ROUNDS, everything
    assert len({nodes for *_, nodes in dropped}) == 1  # the same nodes, by their ids
    assert re.findall(r"MetricRecord: .*'flips': ([\d.]+)", said) == ["0.0"] * ROUNDS  # of the kept


def wait_for(port, seconds=120):
    """Until a server listens on this port."""
    for _ in range(10 * seconds):
        with socket.socket() as one:
            one.settimeout(0.1)
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail(f"nobody listens on port {port}")
