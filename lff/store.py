"""Files that are whole or not there, made by one process at a time.

A file is written beside its place, under a hidden name, and moved into it when it is complete. Who
makes a file holds a lock on it meanwhile; a lock dies with its process, so the next one can tell
what a killed one left behind, and removes it.
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from lff.errors import RecordError

logger = logging.getLogger("lff")

_LOCK = ".lock"


def write_atomically(path: Path, *parts: bytes) -> None:
    """Write a file so that a reader or a kill sees the old content or the new, nothing else.

    Its content is the `parts` in turn. The caller has claimed the file, or one that stands for it.
    Raises `RecordError` if it cannot be written.
    """
    temporary = temporary_of(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        discard(temporary)


@contextlib.contextmanager
def claim(path: Path) -> Iterator[None]:
    """Hold the right to make a file, waiting for another process that makes it.

    What a killed process left of it is removed first.
    """
    lock = FileLock(path.with_name(f".{path.name}{_LOCK}"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            held = lock.acquire(blocking=False)
        except Timeout:
            logger.info("another process is working on %s; waiting for it", path.name)
            held = lock.acquire()
    except OSError as error:
        raise unwritable(path, error) from error
    with held:
        discard(temporary_of(path))
        try:
            yield
        finally:
            discard(Path(lock.lock_file))


def abandoned(folder: Path) -> Iterator[Path]:
    """The files below a folder that a killed process was making; each is claimed meanwhile.

    Its half-written content and its lock are removed.
    """
    for lock in sorted(folder.rglob(f".*{_LOCK}")):
        path = lock.with_name(lock.name[1 : -len(_LOCK)])
        with contextlib.suppress(Timeout, OSError), FileLock(lock, blocking=False):
            discard(temporary_of(path))
            yield path
            discard(lock)


def temporary_of(path: Path) -> Path:
    """Where a file is while it is being written."""
    return path.with_name(f".{path.name}.tmp")


def discard(path: Path) -> None:
    """Remove a file if it is there and can be removed."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def unwritable(path: Path, error: OSError) -> RecordError:
    """The error for a folder that takes no files, with what to do."""
    return RecordError(
        f"cannot write {path} ({error.strerror or error}); make room or make the folder writable, "
        "or name another one (LFF_RESULTS, for reports LFF_STUDY), and run the same command again"
    )
