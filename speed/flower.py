"""Flower's simulation, the textbook loop and `lff` on the same rounds of MNIST-iid.

Each contestant is a program of its own: its start-up and the memory of all its processes count.
Flower's runs in an environment of its own: FedAvg, and nodes whose `ClientApp` is written as its
documentation does around the textbook loop, two at a time on one core each.
"""

import copy
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from lff.fast import accelerate
from lff.fast.pool import Pool
from lff.federation import Federation
from lff.models import OUTPUT_LAYER, FlatModel
from speed import textbook
from speed.common import Report, threads
from speed.training import CORES, MNIST, Round, model

ROOT = Path(__file__).parents[1]
FLOWER = ROOT / ".venv-flower" / "bin" / "python"
CONTESTANTS = {
    "textbook loop": ("play_textbook", sys.executable),
    "Flower 1.41, simulation": ("play_flower", str(FLOWER)),
    "lff, two workers": ("play_lff", sys.executable),
}
HEAD = OUTPUT_LAYER[MNIST.model]


def run(quick: bool = False) -> Report:
    """Measure every contestant's rounds; `quick` only tries every step."""
    peers, examples, rounds = (2, 8, 2) if quick else (MNIST.peers, MNIST.examples, 2)
    report = Report("flower")
    rows = []
    for name, (play, python) in CONTESTANTS.items():
        if not Path(python).exists():
            report.notes.append(f"{name} is not measured: `make flower` makes its environment")
            continue
        code = f"from speed import flower; flower.{play}({peers}, {examples}, {rounds})"
        rows.append({"": name, **measure([python, "-c", code])})
    for row in rows:
        row["x lff"] = row["a round (s)"] / rows[-1]["a round (s)"]
    report.tables[f"{peers} peers x {examples} examples x 3 epochs, {CORES} cores"] = rows
    report.notes.append(
        "Start-up: until the first round begins. A round: the one after the first. "
        "Peak memory: of all processes, what they share counted once."
    )
    return report


def measure(command: list[str]) -> dict[str, float]:
    """Start-up, rounds and memory of a program that says when each round begins."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "FLWR_TELEMETRY_ENABLED": "0"}
    start, peaks, done = time.time(), [0], threading.Event()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=ROOT) as program:

        def watch() -> None:
            while not done.wait(0.5):
                peaks.append(memory(program.pid))

        watching = threading.Thread(target=watch)
        watching.start()
        lines = [line for line in program.stdout or () if line.startswith(b'{"began"')]
        done.set()
        watching.join()
    if program.returncode:
        raise RuntimeError(f"{command} ended with {program.returncode}")
    began = [json.loads(line)["began"] for line in lines]
    rounds = [after - before for before, after in pairwise(began)]
    return {
        "start-up (s)": began[0] - start,
        "first round (s)": rounds[0],
        "a round (s)": min(rounds[1:]),
        "peak memory (MB)": max(peaks) / 1e6,
    }


def memory(pid: int) -> int:
    """Bytes that a process and its children occupy, each page they share counted once."""
    total = 0
    with suppress(psutil.Error):  # it has just ended
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            with suppress(psutil.Error):
                total += process.memory_full_info().pss
    return total


def say() -> None:
    """Tell `measure` that a round begins here, or that the last is over."""
    print(json.dumps({"began": time.time()}), flush=True)


def play_textbook(peers: int, examples: int, rounds: int) -> None:
    """Peer after peer on all cores, then the average."""
    each, data = a_round(peers, examples)
    global_model = model(each)
    with threads(CORES):
        say()
        for _ in range(rounds):
            states = textbook.train_round(global_model, data, each.training)
            mean = {name: sum(s[name] for s in states) / len(states) for name in states[0]}
            global_model.load_state_dict(mean)
            say()


def play_lff(peers: int, examples: int, rounds: int) -> None:
    """A federation with FedAvg, its peers in as many processes as there are cores."""
    each = Round("", MNIST.model, peers, examples, MNIST.training)
    _, holders = each.data()
    flat = FlatModel(accelerate(model(each), "cpu"), HEAD)
    pool = Pool(CORES, copy.deepcopy(model(each)), HEAD, each.training)
    federation = Federation(
        [peer.examples for peer in holders],
        holders[0].examples,
        flat,
        source_class=0,
        target_class=1,
        training=each.training,
        trainer=pool,
    )
    say()
    for _ in range(rounds):
        federation.play_round()
        say()
    federation.close()


@lru_cache(maxsize=1)
def a_round(peers: int, examples: int) -> tuple[Round, list[Any]]:
    """The round, and its peers' examples as torch data sets."""
    each = Round("", MNIST.model, peers, examples, MNIST.training)
    stored, holders = each.data()
    return each, textbook.datasets(stored, holders)


def play_flower(peers: int, examples: int, rounds: int) -> None:
    """The same peers as nodes of Flower's simulation."""
    from flwr.app import ArrayRecord, ConfigRecord, Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server = ClientApp(), ServerApp()
    client.train()(train)

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(min_train_nodes=peers, min_available_nodes=peers, fraction_evaluate=0.0)
        initial = ArrayRecord(model(MNIST).state_dict())
        config = ConfigRecord({"peers": peers, "examples": examples})
        strategy.start(grid, initial, rounds, train_config=config, evaluate_fn=lambda *_: say())

    run_simulation(
        server,
        client,
        num_supernodes=peers,
        backend_config={
            "init_args": {"num_cpus": CORES},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


def train(message: Any, context: Any) -> Any:
    """A node trains on her examples, and replies with her weights."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    config = message.content["config"]
    each, data = a_round(config["peers"], config["examples"])
    mine = data[context.node_config["partition-id"]]
    global_model = model(each)
    global_model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    with threads(1):
        (state,) = textbook.train_round(global_model, [mine], each.training)
    metrics = MetricRecord({"num-examples": len(mine)})
    return Message(RecordDict({"arrays": ArrayRecord(state), "metrics": metrics}), reply_to=message)
