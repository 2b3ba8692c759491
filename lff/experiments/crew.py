"""The workers of an existing Dask cluster that may take part in a sweep.

Dask unpickles what it receives, at every end: whoever reaches a scheduler can run code there, at
its workers and at its callers. So a cluster belongs on a network one trusts, and Dask is imported
only when a cluster is asked for.
"""

import contextlib
import logging
import re
import socket
import time
from collections.abc import Callable, Collection, Iterator
from importlib.metadata import version
from typing import Any, NamedTuple

from lff.errors import ClusterError, InputError, unknown
from lff.experiments.benchmarks import ARITHMETIC
from lff.experiments.runs import DEVICES, choose_device

logger = logging.getLogger("lff")

ANSWER = 5.0  # seconds that a scheduler has to answer
GLANCE = 1.0  # seconds between two looks at who is there
LONGEST_GREETING = 1 << 20  # bytes
PACKAGES = ("lff", "torch", "numpy", "scikit-learn")
INSTALL = "pip install --constraint constraints.txt --editable '.[cluster]'"

_ADDRESS = re.compile(
    r"(?P<kind>tcp|tls)://(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\]):(?P<port>[0-9]{1,5})"
)


def check_address(address: object) -> None:
    """Refuse what cannot be the address of a Dask scheduler."""
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if not match or not 0 < int(match["port"]) < 65536:
        raise InputError(
            "cluster must be the address of a Dask scheduler, such as tcp://192.168.0.1:8786, "
            f"not {address!r}"
        )


class Worker(NamedTuple):
    """One life of a worker: who starts again at the same address is another one."""

    address: str
    id: str


@contextlib.contextmanager
def hired(address: str, device: str) -> Iterator["Crew"]:
    """The crew of the scheduler at this address, as long as the context lasts."""
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError(f"a sweep over a cluster needs Dask ({error}): {INSTALL}") from error
    with _silent("distributed.client"), _without_interrupted_calls():
        try:
            _hear(address)
            client = Client(address, timeout=ANSWER, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(f"no Dask scheduler answers at {address} ({error})") from error
        with client:
            crew = Crew(client, address, device)
            if not crew.look(strict=True):
                logger.info("the scheduler at %s has no workers yet; waiting", address)
            yield crew


def _hear(address: str) -> None:
    """Refuse who does not greet like a scheduler: with a short message, its length first.

    Dask itself would wait for ever for one who says nothing, and believe any length it is told.
    """
    match = _ADDRESS.fullmatch(address)
    if match["kind"] == "tls":
        return  # nothing is said before the encryption is agreed on
    with socket.create_connection((match["host"].strip("[]"), int(match["port"])), ANSWER) as line:
        length = line.recv(8, socket.MSG_WAITALL)
    if len(length) < 8 or not 0 < int.from_bytes(length, "little") < LONGEST_GREETING:
        raise ValueError("something else does")


@contextlib.contextmanager
def _silent(name: str) -> Iterator[None]:
    """Nothing is heard of this logger: what is wrong is said in an error of ours."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _without_interrupted_calls() -> Iterator[None]:
    """Leave out what Dask logs of a call that Ctrl-C comes before: its `sync` then trips over the
    variable `future` that it has not set yet, and the interrupt itself is raised all the same."""

    def is_other(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not (isinstance(error, NameError) and "'future'" in str(error))

    logger = logging.getLogger("tornado.application")
    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


class Crew:
    """The workers of a scheduler that run the same code as this process.

    Those there at the beginning must; one that joins later and does not is named and passed over.
    """

    def __init__(self, client: Any, address: str, device: str):
        self.client, self.address, self.device = client, address, device
        self.admitted: set[Worker] = set()
        self.refused: set[Worker] = set()

    def look(self, *, strict: bool = False) -> dict[Worker, bool]:
        """The workers that are there now, each with whether it takes runs."""
        if self.client.status != "running":
            raise self._gone()
        try:
            found = self.client.sync(self.client.scheduler.identity, n_workers=-1)["workers"]
        except OSError as error:
            raise self._gone() from error
        there = {Worker(a, w["id"]): w["status"] == "running" for a, w in found.items()}
        self._admit(there.keys() - self.admitted - self.refused, strict)
        return {worker: ready for worker, ready in there.items() if worker in self.admitted}

    def submit(self, worker: Worker, function: Callable, *arguments: Any) -> Any:
        """Let this worker, and no other, call a function; returns Dask's future of it."""
        where = {"workers": [worker.address], "allow_other_workers": False}
        return self.client.submit(function, *arguments, pure=False, **where)

    def wait(self, futures: Collection[Any]) -> None:
        """Wait until a run ends, but not long: workers come and go."""
        from distributed import wait

        if not futures:
            time.sleep(GLANCE)
            return
        try:
            wait(list(futures), timeout=GLANCE, return_when="FIRST_COMPLETED")
        except TimeoutError:
            return
        except Exception as error:  # cancelled, as all are when the connection breaks
            if self.client.status != "running":
                raise self._gone() from error

    def cancel(self, futures: Collection[Any]) -> None:
        """Tell the scheduler that nobody waits for these runs any more."""
        if futures and self.client.status == "running":
            self.client.cancel(list(futures), force=True)

    def _admit(self, new: Collection[Worker], strict: bool) -> None:
        """Compare the code of new workers with ours."""
        if not new:
            return
        addresses = [worker.address for worker in new]
        answers = self.client.run(identity, self.device, workers=addresses, on_error="return")
        for worker in sorted(new):
            reason = _difference(answers.get(worker.address, OSError("no answer")))
            if reason is None:
                continue  # it is gone, or will answer next time
            if not reason:
                self.admitted.add(worker)
                continue
            self.refused.add(worker)
            text = f"the worker {worker.address} cannot take part: {reason}"
            if strict:
                raise InputError(text)
            logger.warning("%s", text)

    def _gone(self) -> ClusterError:
        return ClusterError(
            f"the Dask scheduler at {self.address} is gone; records that came back are kept, and "
            "the same command goes on from there"
        )


def identity(device: str) -> dict[str, str]:
    """What must be the same at caller and workers for their records to be."""
    choose_device(device)
    return {
        "arithmetic": str(ARITHMETIC),
        **{name: version(name).split("+")[0] for name in PACKAGES},
    }


def _difference(answer: dict[str, str] | Exception) -> str | None:
    """Why a worker's identity is not ours; empty if it is, None if it was not told."""
    if isinstance(answer, OSError):
        return None
    if isinstance(answer, Exception):
        return f"{type(answer).__name__}: {answer}"
    ours = identity("auto")
    if answer["arithmetic"] != ours["arithmetic"]:
        return "its lff gives other numbers than the one here; install the same version"
    other = [f"{n} {answer[n]} (here {ours[n]})" for n in PACKAGES if answer[n] != ours[n]]
    return f"it has {', '.join(other)}" if other else ""
