"""Runs spread over Dask workers: processes of this machine, or an existing cluster.

Dask unpickles what its own processes send each other: whoever reaches a scheduler can run code
there, at its workers and at its callers. So a cluster belongs on a network one trusts; that of this
machine listens on loopback only. `lff` itself unpickles no file and no download. Dask is imported
only when there are workers to talk to.
"""

import contextlib
import logging
import multiprocessing
import os
import platform
import random
import re
import socket
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lff.errors import ClusterError, InputError, LffError, RecordError
from lff.experiments import code, records
from lff.experiments.build import choose_device
from lff.experiments.experiment import ARITHMETIC, Experiment
from lff.experiments.processes import deaf_to_interrupts
from lff.experiments.run import run
from lff.experiments.store import claim, unwritable

if TYPE_CHECKING:
    from distributed import Future

logger = logging.getLogger("lff")

ANSWER = 5.0  # seconds that a scheduler has to answer
REFUSED = 5.0  # seconds after which a worker that cannot take part passes on the run it got
LONGEST_GREETING = 1 << 20  # bytes
PACKAGES = ("lff", "torch", "numpy", "scikit-learn")
SETTINGS = {
    "distributed.scheduler.allowed-failures": 1,  # a run is tried once more when its worker dies
    "distributed.scheduler.worker-ttl": None,  # a machine that slept is not a dead one
}
DASK_VARIABLES = ("PYTHONHASHSEED", "__DASK_PARENT_PID")  # beside those of its settings
MACHINE = "lff-machine"  # under this a scheduler of ours says where its workers are, and how many

_ADDRESS = re.compile(
    r"(?P<kind>tcp|tls)://(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\]):(?P<port>[0-9]{1,5})"
)


@contextlib.contextmanager
def local_cluster(jobs: int, *, dashboard: bool = False) -> Iterator[str]:
    """`jobs` worker processes of one thread each on this machine, for as long as the context lasts.

    Yields the address for `run_all(..., cluster=address)`, here or in another process of this
    machine. With `dashboard`, Dask shows its page about them, which needs the package bokeh.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(1)  # a worker that imports an unguarded script; its parent says so
    if dashboard and find_spec("bokeh") is None:
        raise InputError("the dashboard needs the package bokeh: pip install bokeh")
    import dask
    from distributed import LocalCluster

    with _unnoticed():
        with deaf_to_interrupts(), dask.config.set(SETTINGS):  # Ctrl-C is for this process alone
            try:
                cluster: Any = LocalCluster(
                    n_workers=jobs,
                    threads_per_worker=1,
                    memory_limit=None,
                    dashboard_address="127.0.0.1:0",  # a web server of Dask's is always there
                    scheduler_kwargs={"dashboard": dashboard},
                    silence_logs=logging.CRITICAL,
                )
            except RuntimeError as error:
                raise ClusterError(
                    "a worker process ended before it had begun. A script that runs several "
                    "experiments at a time must do so under `if __name__ == '__main__':`, because "
                    f"each worker imports it; if it does, start it again ({error})"
                ) from None
            cluster.scheduler.set_metadata([MACHINE], (platform.node(), jobs))
        if dashboard:
            logger.info("Dask's dashboard is at %s", cluster.dashboard_link)
        try:
            yield cluster.scheduler_address
        finally:
            with deaf_to_interrupts():  # an impatient second one would leave workers behind
                cluster.close()


def check_address(address: object) -> None:
    """Refuse what cannot be the address of a Dask scheduler."""
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if not match or not 0 < int(match["port"]) < 65536:
        raise InputError(
            "cluster must be the address of a Dask scheduler, such as tcp://192.168.0.1:8786, "
            f"not {address!r}"
        )


@contextlib.contextmanager
def connected(address: str, device: str) -> Iterator[Any]:
    """A client of the scheduler at this address; its workers must run the same code as we do."""
    from distributed import Client

    with _unnoticed():
        try:
            _hear(address)
            client = Client(address, timeout=ANSWER, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(f"no Dask scheduler answers at {address} ({error})") from error
        with client:
            _check_workers(client, device)
            yield client


def number_of_workers(client: Any) -> int:
    """How many workers there are."""
    return len(client.scheduler_info(n_workers=-1)["workers"])


def spread(
    experiments: Sequence[Experiment],
    client: Any,
    *,
    jobs: int | None,
    device: str,
    folder: Path,
    on_start: Callable[[Experiment], None],
) -> Iterator[tuple[Experiment, str]]:
    """Run experiments, the first ones first; yields each as it ends, with its error if it failed.

    At most `jobs` are given to the scheduler at a time. It passes on the run of a worker that dies,
    and gives workers that join later their share. Workers of this machine write into `folder`
    themselves; from others the bytes of a record come back and are checked like those of a file.
    """
    from distributed import as_completed

    machine, workers = client.get_metadata([MACHINE], default=("", 0))
    here = machine == platform.node()
    if here:  # no more than there are workers, so that a dying worker takes no other run with it
        jobs = min(jobs or workers, workers)
    sweep = uuid.uuid4().hex
    by_key = {f"{e.id}-{sweep}": e for e in experiments}
    priorities = {key: -place for place, key in enumerate(by_key)}
    there = str(folder.resolve()) if here else None
    task = partial(work, sweep=sweep, ours=identity("auto"), device=device, folder=there)

    def heard(event: tuple[float, dict[str, str]]) -> None:
        _, said = event
        if "started" in said:
            on_start(by_key[said["started"]])
        else:
            logger.warning("%s", said["refused"])

    def submit(key: str) -> "Future[Any]":
        e = by_key[key]
        return client.submit(task, e, code.packed(e), key=key, priority=priorities[key])

    client.subscribe_topic(sweep, heard)
    waiting = iter(by_key)
    first = [submit(key) for key in islice(waiting, jobs)]
    futures = as_completed(first, loop=client.loop)
    for future in futures:
        if client.status != "running":
            raise ClusterError(
                f"the Dask scheduler at {_address(client)} is gone; records that came "
                "back are kept, and the same command goes on from there"
            )
        for key in islice(waiting, 1):
            futures.add(submit(key))
        yield by_key[future.key], _error(future, by_key[future.key], folder)


def work(
    e: Experiment,
    packed: bytes,
    *,
    sweep: str,
    ours: dict[str, str],
    device: str,
    folder: str | None,
) -> tuple[str, bytes]:
    """Run one experiment at a worker; returns its error, and its record unless `folder` is shared.

    A worker that joined late and cannot take part says so and passes the run on.
    """
    from distributed import Reschedule, get_worker

    worker = get_worker()
    key = worker.get_current_task()
    if reason := difference(identity(device, worker), ours):
        text = f"the worker {worker.address} cannot take part: {reason}"
        worker.log_event(sweep, {"refused": text})
        time.sleep(REFUSED)
        raise Reschedule
    worker.log_event(sweep, {"started": key})

    def go_on() -> None:
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            raise ClusterError("nobody waits for this run any more")

    try:
        code.unpack(packed)
        with contextlib.ExitStack() as stack:
            if folder is None:
                own = tempfile.TemporaryDirectory(dir=worker.local_directory)
                home = Path(stack.enter_context(own))
            else:
                home = Path(folder)
            run(e, device=device, progress=False, folder=home, on_round=go_on)
            return "", records.path_of(e, home).read_bytes() if folder is None else b""
    except Exception:
        return traceback.format_exc(), b""


def identity(device: str, dask_worker: Any = None) -> dict[str, str]:
    """What must be the same at caller and workers for their records to be.

    Dask itself gives the worker that it calls this at.
    """
    choose_device(device)
    versions = {name: version(name).split("+")[0] for name in PACKAGES}
    threads = dask_worker.state.nthreads if dask_worker else 1
    return {"arithmetic": str(ARITHMETIC), "threads": str(threads), **versions}


def difference(theirs: dict[str, str] | Exception, ours: dict[str, str]) -> str:
    """Why a worker cannot take part; empty if it can."""
    if isinstance(theirs, Exception):
        return f"{type(theirs).__name__}: {theirs}"
    if theirs["arithmetic"] != ours["arithmetic"]:
        return "its lff gives other numbers than the one here; install the same version"
    if theirs["threads"] != ours["threads"]:
        return f"it has {theirs['threads']} threads, and runs need one; use --nthreads 1"
    other = [f"{n} {theirs[n]} (here {ours[n]})" for n in PACKAGES if theirs[n] != ours[n]]
    return f"it has {', '.join(other)}" if other else ""


def _check_workers(client: Any, device: str) -> None:
    """Refuse by name a worker that cannot take part."""
    answers = client.run(identity, device, on_error="return")
    for address, answer in answers.items():
        if isinstance(answer, OSError):
            continue  # it is gone
        if reason := difference(answer, identity("auto")):
            raise InputError(f"the worker {address} cannot take part: {reason}")
    if not answers:
        logger.info("the scheduler at %s has no workers yet; waiting", _address(client))


def _error(future: "Future[Any]", e: Experiment, folder: Path) -> str:
    """Why a run that ended has no record; empty if it has one."""
    from distributed import KilledWorker

    try:
        error, packed = future.result()
        if packed:
            _keep(e, packed, folder)
        return str(error)
    except KilledWorker as lost:
        return f"its worker was lost, {lost.allowed_failures + 1} times ({lost.last_worker})"
    except Exception as error:
        return "".join(traceback.format_exception_only(error))


def _keep(e: Experiment, packed: bytes, folder: Path) -> None:
    """Write a record that came back, if it is sound."""
    path = records.path_of(e, folder)
    try:
        record = records.parse(packed, path)
    except LffError as error:
        raise RecordError(f"its record came back, but {error}") from error
    try:
        with claim(path):
            if not path.exists():  # another sweep may have made it meanwhile
                record.save(folder)
    except OSError as error:
        raise unwritable(path, error) from error


def _address(client: Any) -> str:
    return client.scheduler.address if client.scheduler else "an unknown address"


def _hear(address: str) -> None:
    """Refuse who does not greet like a scheduler: with a short message, its length first.

    Dask itself would wait for ever for one who says nothing, and believe any length it is told.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or match["kind"] == "tls":
        return  # nothing is said before the encryption is agreed on
    with socket.create_connection((match["host"].strip("[]"), int(match["port"])), ANSWER) as line:
        length = line.recv(8, socket.MSG_WAITALL)
    if len(length) < 8 or not 0 < int.from_bytes(length, "little") < LONGEST_GREETING:
        raise ValueError("something else does")


@contextlib.contextmanager
def _unnoticed() -> Iterator[None]:
    """Dask's own loggers say nothing: what is wrong is said in an error of ours.

    It draws from Python's global random numbers, and sets environment variables for its workers;
    both are put back.
    """
    import dask
    import distributed  # noqa: F401  (it makes its loggers)

    chatty = ("distributed", "tornado", "bokeh")
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] in chatty]
    levels = {name: logging.getLogger(name).level for name in names}
    variables = (*DASK_VARIABLES, *dask.config.get("distributed.nanny.pre-spawn-environ"))
    numbers, values = random.getstate(), {name: os.environ.get(name) for name in variables}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        random.setstate(numbers)
        for name, value in values.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
