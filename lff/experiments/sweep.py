"""Many runs, spread over processes of this machine or a Dask cluster.

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
import signal
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lff.errors import ClusterError, InputError, RecordError, unknown
from lff.experiments import code, records
from lff.experiments.build import DEVICES, choose_device
from lff.experiments.experiment import ARITHMETIC, Experiment
from lff.experiments.progress import Progress, cost
from lff.experiments.run import cores, make, run, tidy
from lff.experiments.scales import checked
from lff.paths import results_dir
from lff.store import claim

if TYPE_CHECKING:
    from distributed import Future

logger = logging.getLogger("lff")

ANSWER = 5.0  # seconds that a scheduler has to answer
WORTH_PROCESSES = 40.0  # seconds of work; each process takes some to start
POLL = 0.1  # seconds between two looks at the runs under way
RESTART = 300.0  # seconds that Dask has to start workers of this machine again
LONGEST_GREETING = 1 << 20  # bytes
PACKAGES = ("lff", "torch", "numpy", "scikit-learn")
SETTINGS = {
    "distributed.scheduler.allowed-failures": 1,  # a run is tried once more when its worker dies
    "distributed.scheduler.worker-ttl": None,  # a machine that slept is not a dead one
    # Memory that a step gives back is kept for the next. By Dask's own settings a worker returns it
    # to the system at once, and fetching it again takes as long as the step itself.
    "distributed.nanny.pre-spawn-environ": {
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), 1),
        **dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), 1 << 30),
    },
}
MACHINE = "lff-machine"  # under this a scheduler of ours says where its workers are


@dataclass
class Outcome:
    """What became of a sweep: which experiments have a record, and why others do not."""

    done: list[Experiment] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def run_all(
    experiments: Sequence[Experiment],
    *,
    jobs: int | None = None,
    device: str = "auto",
    cluster: str | None = None,
    dashboard: bool = False,
    progress: bool | None = None,
    on_end: Callable[[Experiment], None] = lambda e: None,
    folder: Path | None = None,
) -> Outcome:
    """Run every experiment that has no record yet, `jobs` at a time, longest first.

    By default they are spread over processes of this machine, one per core (unless they take a few
    seconds only); with the address of a
    Dask scheduler (`tcp://host:8786`) as `cluster`, or in the environment variable `LFF_CLUSTER`,
    over its workers. A single job runs in this process. Records appear in `folder` as each run
    ends, and `on_end` is told. A run whose worker dies is tried once more (over an existing cluster
    as often as its scheduler allows); one that fails is reported, and the others go on. What is the
    caller's own (a defense, an attack, a benchmark, a hook) goes with it.

    Dask unpickles between its own processes: a cluster belongs on a network one trusts.
    """
    if jobs is not None and (type(jobs) is not int or jobs < 1):
        raise InputError(f"jobs must be a whole number of at least 1, not {jobs!r}")
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)
    cluster = cluster or os.environ.get("LFF_CLUSTER") or None
    home = Path(folder or results_dir())
    tidy(home)
    outcome, waiting = Outcome(), []
    for e in dict.fromkeys(experiments):
        if records.find(e, home) is None:
            checked(e)
            waiting.append(e)
        else:
            outcome.done.append(e)
    waiting.sort(key=cost, reverse=True)
    if not waiting:
        return outcome
    with contextlib.ExitStack() as stack:
        stack.callback(tidy, home)  # after workers that were killed
        client, at_once = None, min(jobs or len(waiting), len(waiting))
        if cluster is None:
            at_once = min(jobs or jobs_worth(waiting, choose_device(device)), len(waiting))
        if cluster or at_once > 1:
            address = cluster or stack.enter_context(local_cluster(at_once, dashboard=dashboard))
            client = stack.enter_context(_connected(address))
            at_once = min(at_once, len(client.nthreads()) or 1)
        bar = Progress(waiting, done=len(outcome.done), at_once=at_once, show=progress)
        stack.callback(bar.bar.close)
        if client is None:
            ends = _one_by_one(waiting, bar, device=device, folder=home)
        else:
            ends = _spread(waiting, client, bar, jobs=jobs, device=device, folder=home)
        for e, error in ends:
            if error:
                outcome.failed[e.id] = error
            else:
                outcome.done.append(e)
            bar.ended(e, error)
            on_end(e)
    return outcome


def default_jobs(device: torch.device) -> int:
    """One run per core, or per GPU."""
    return torch.cuda.device_count() if device.type == "cuda" else cores()


def jobs_worth(experiments: Sequence[Experiment], device: torch.device) -> int:
    """One run per core, or per GPU; one at all where processes would start longer than they run."""
    return default_jobs(device) if sum(map(cost, experiments)) > WORTH_PROCESSES else 1


def _one_by_one(
    waiting: Sequence[Experiment], bar: Progress, *, device: str, folder: Path
) -> Iterator[tuple[Experiment, str]]:
    """Run experiments in this process; yields each as it ends, with its error if it failed."""
    for e in waiting:
        bar.running, error = 1, ""
        bar.show()
        try:
            make(e, choose_device(device), progress=False, folder=folder, on_round=bar.show)
        except Exception:
            error = traceback.format_exc()
        bar.running = 0
        yield e, error


# --- Dask ---------------------------------------------------------------------------------------


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
            cluster.scheduler.set_metadata([MACHINE], platform.node())
        if dashboard:
            logger.info("Dask's dashboard is at %s", cluster.dashboard_link)
        try:
            yield cluster.scheduler_address
        finally:
            with deaf_to_interrupts():  # an impatient second one would leave workers behind
                cluster.close()


@contextlib.contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Processes started meanwhile do not hear Ctrl-C, from their first moment on.

    A terminal sends it to all processes of a command. The parent decides what becomes of its
    children; they would only fill the terminal with tracebacks.
    """
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # its start would let interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # children inherit it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _unnoticed() -> Iterator[None]:
    """Dask's own loggers say nothing: what is wrong is said in an error of ours.

    It draws from Python's global random numbers, and sets environment variables for its workers;
    both are put back.
    """
    import distributed  # noqa: F401  (it makes its loggers)

    chatty = ("distributed", "tornado", "bokeh")
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] in chatty]
    levels = {name: logging.getLogger(name).level for name in names}
    numbers, environment = random.getstate(), dict(os.environ)
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        random.setstate(numbers)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Any]:
    """A client of the scheduler at this address."""
    from distributed import Client

    with _unnoticed():
        try:
            _hear(address)
            client = Client(address, timeout=ANSWER, set_as_default=False)
        except (OSError, ValueError, OverflowError) as error:
            raise InputError(
                f"no Dask scheduler answers at {address!r} ({error}); an address is written "
                "tcp://192.168.0.1:8786"
            ) from error
        with client:
            if not client.nthreads():
                logger.info("the scheduler at %s has no workers yet; waiting", address)
            yield client


def _hear(address: str) -> None:
    """Refuse who does not greet like a scheduler: with a short message, its length first.

    Dask itself would wait for ever for one who says nothing, and believe any length it is told.
    """
    kind, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    if kind == "tls":
        return  # nothing is said before the encryption is agreed on
    if kind != "tcp" or not host:
        raise ValueError("it names no host and port")
    with socket.create_connection((host.strip("[]"), int(port)), ANSWER) as line:
        length = line.recv(8, socket.MSG_WAITALL)
    if len(length) < 8 or not 0 < int.from_bytes(length, "little") < LONGEST_GREETING:
        raise ValueError("something else does")


def _spread(
    waiting: Sequence[Experiment],
    client: Any,
    bar: Progress,
    *,
    jobs: int | None,
    device: str,
    folder: Path,
) -> Iterator[tuple[Experiment, str]]:
    """Run experiments at a scheduler's workers; yields each as it ends, with its error if any.

    A worker is given one run at a time, so that it takes no other with it when it dies. Workers of
    this machine work in `folder` themselves, so that a sweep that was killed goes on from their
    checkpoints. The bytes of each record come back, and are checked like those of a file.
    """
    here = client.get_metadata([MACHINE], default="") == platform.node()
    there = str(folder.resolve()) if here else None
    task = partial(work, ours=identity(), device=device, folder=there)
    packed = {e: code.packed(e) for e in waiting}
    left, futures = list(waiting), dict["Future[Any]", Experiment]()
    alive = time.monotonic()
    while left or futures:
        try:
            workers = len(client.nthreads())
            while left and len(futures) < min(jobs or len(waiting), workers or 1):
                e = left.pop(0)
                futures[client.submit(task, e, packed[e], pure=False)] = e
            alive = time.monotonic() if workers or not here else alive
        except OSError:  # its status tells whether it is gone
            time.sleep(POLL)
        if time.monotonic() - alive > RESTART:
            raise ClusterError("no worker process is left; run the same command again")
        ended = [future for future in futures if future.done()]
        if client.status != "running":  # looked at last: then no future ended by its loss
            raise ClusterError(
                "the Dask scheduler is gone; records that came back are kept, and the same command "
                "goes on from there"
            )
        bar.running = len(futures)
        bar.show()
        if not ended:
            time.sleep(POLL)
        for future in ended:
            e = futures.pop(future)
            yield e, _error(future, e, folder)


def work(
    e: Experiment, packed: bytes, *, ours: dict[str, str], device: str, folder: str | None
) -> tuple[str, bytes]:
    """Run one experiment at a worker, in `folder` if it is shared; returns its error or its record.

    A worker that would give other numbers than the caller refuses.
    """
    from distributed import get_worker

    worker = get_worker()
    if other := difference(identity(worker.state.nthreads), ours):
        raise ClusterError(f"the worker {worker.address} has {other}")
    choose_device(device)
    key = worker.get_current_task()

    def go_on() -> None:
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            raise ClusterError("nobody waits for this run any more")

    try:
        code.unpack(packed)
        with tempfile.TemporaryDirectory(dir=worker.local_directory) as own:
            home = Path(folder or own)
            run(e, device=device, progress=False, folder=home, on_round=go_on)
            return "", records.path_of(e, home).read_bytes()
    except Exception:
        return traceback.format_exc(), b""


def identity(threads: int = 1) -> dict[str, str]:
    """What must be the same at caller and workers for their records to be."""
    versions = {name: version(name).split("+")[0] for name in PACKAGES}
    return {"arithmetic": str(ARITHMETIC), "threads": str(threads), **versions}


def difference(theirs: dict[str, str], ours: dict[str, str]) -> str:
    """What a worker has otherwise; empty if nothing."""
    names = [name for name in ours if theirs.get(name) != ours[name]]
    return ", ".join(f"{name} {theirs.get(name)} (here {ours[name]})" for name in names)


def _error(future: "Future[Any]", e: Experiment, folder: Path) -> str:
    """Why a run that ended has no record; empty if it has one."""
    from distributed import KilledWorker

    try:
        error, packed = future.result()
    except KilledWorker as lost:
        return f"its worker was lost, {lost.allowed_failures + 1} times ({lost.last_worker})"
    except Exception as refusal:
        raise ClusterError(
            f"a worker cannot take part ({refusal}); stop it or make it like this process, and run "
            "the same command again"
        ) from refusal
    try:
        if not error:
            _keep(e, packed, folder)
    except RecordError as refused:
        return f"its record came back, but {refused}"
    return str(error)


def _keep(e: Experiment, packed: bytes, folder: Path) -> None:
    """Write a record that came back, if it is sound, unless it is there."""
    path = records.path_of(e, folder)
    record = records.parse(packed, path)
    with claim(path):
        if not path.exists():
            record.save(folder)
