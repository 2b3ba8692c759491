"""How many processes there is room for, and children that leave Ctrl-C to their parent."""

import contextlib
import os
import signal
from collections.abc import Iterator


def cores() -> int:
    """The cores this process may use: Slurm and containers give it fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):  # on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
