"""One CPU thread per run."""

import contextlib
from collections.abc import Iterator

import torch
from threadpoolctl import threadpool_limits


@contextlib.contextmanager
def one_thread(device: torch.device | str = "cpu") -> Iterator[None]:
    """Compute on one CPU thread, and leave the caller's setting as it was.

    The order of a parallel sum, and so its last bits, depends on the number of threads. One
    thread per run gives the same record under any load; runs are what is spread over cores.
    """
    threads = torch.get_num_threads()
    limit = 1 if torch.device(device).type == "cpu" else None
    torch.set_num_threads(limit or threads)
    try:
        with threadpool_limits(limit):
            yield
    finally:
        torch.set_num_threads(threads)
