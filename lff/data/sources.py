"""Where canonical files come from: a folder the user names, and the official downloads.

Each source puts what it finds of the `wanted` files into a private folder `work`, under their
canonical names; the caller verifies every one of them before it is used (see `fetching`).
"""

import hashlib
import logging
import os
import shutil
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from pathlib import Path

from tqdm.auto import tqdm

from lff.data.archives import Refused, gunzip, read_tar
from lff.data.files import File, examine
from lff.errors import InputError

logger = logging.getLogger("lff")

Wanted = Mapping[str, File]

FOLDER_VARIABLE = "LFF_DATA_FROM"
TIMEOUT = 20.0  # seconds without a byte
CHUNK = 1 << 18
GZIP_OVERHEAD = 4096  # bytes by which a .gz may exceed its content

# torchvision's CIFAR10 is a pickle; the same site has the same images as plain bytes.
CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR10_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
CIFAR10_SIZE = 170_052_171
IMDB_URL = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz"
IMDB_MD5 = "7c2ac02c03563afcf9b574c7e56c153a"


def user_folder(folder: str | os.PathLike | None) -> Path | None:
    """The folder the user names, by argument or by the environment; it has to exist."""
    named = folder or os.environ.get(FOLDER_VARIABLE)
    if not named:
        return None
    path = Path(named).expanduser()
    if not path.is_dir():
        origin = "folder" if folder else FOLDER_VARIABLE
        raise InputError(f"{origin} names {str(named)!r}, which is not a folder")
    return path


def from_folder(origin: Path, wanted: Wanted, work: Path) -> None:
    """Copy the wanted files found anywhere below `origin`, plain or as .gz, by name and content."""
    names = {}
    for file in wanted.values():
        for name in (file.name, *file.aliases):
            names[name] = names[f"{name}.gz"] = file
    complaints, found = [], set()
    for folder, subfolders, entries in os.walk(origin):
        subfolders.sort()
        for entry in sorted(set(entries) & set(names)):
            file, path = names[entry], Path(folder, entry)
            if file.name in found:
                continue
            try:
                _take(path, file, work / file.name)
            except (Refused, OSError) as error:
                complaints.append(f"{path} is not the canonical {file.name} ({error})")
                logger.warning("%s; ignored", complaints[-1])
            else:
                found.add(file.name)
    if found != set(wanted):
        absent = ", ".join(sorted(set(wanted) - found))
        raise Refused("; ".join([f"no {absent} below {origin}", *complaints]))


def official(name: str, wanted: Wanted, work: Path, progress: bool) -> None:
    """Download the wanted files from where the data set's authors publish them."""
    {"mnist": _mnist, "cifar10": _cifar10, "imdb": _imdb}[name](wanted, work, progress)


def download(url: str, target: Path, *, md5: str, limit: int, progress: bool) -> None:
    """Download one file of at most `limit` bytes, and check its md5 before anybody opens it."""
    found, size = hashlib.md5(usedforsecurity=False), 0
    try:
        with target.open("wb") as out:
            for chunk in _chunks(url, target.name, progress):
                size += len(chunk)
                if size > limit:
                    raise Refused(f"{url}: more than the {limit:,} bytes expected")
                found.update(chunk)
                out.write(chunk)
    except (OSError, HTTPException) as error:
        raise Refused(f"{url}: {error}") from error
    if found.hexdigest() != md5:
        raise Refused(f"{url}: md5 {found.hexdigest()} of {size:,} bytes instead of {md5}")


def _chunks(url: str, label: str, progress: bool) -> Iterator[bytes]:
    """The bytes at an address as they arrive, with a progress bar."""
    request = urllib.request.Request(url, headers={"User-Agent": "lff"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        total = int(response.headers.get("Content-Length") or 0) or None
        with tqdm(total=total, unit="B", unit_scale=True, desc=label, disable=not progress) as bar:
            while chunk := response.read(CHUNK):
                bar.update(len(chunk))
                yield chunk


def _take(path: Path, file: File, target: Path) -> None:
    """Copy a user's file if, unpacked, it is the canonical one."""
    if not path.is_file():
        raise Refused("not a file")
    if path.suffix == ".gz" and path.name not in (file.name, *file.aliases):
        target.write_bytes(gunzip(path, file.size))
    elif path.stat().st_size != file.size:
        raise Refused(f"{path.stat().st_size:,} bytes instead of {file.size:,}")
    else:
        shutil.copyfile(path, target)
    status = examine(file, target)
    if status.state != "ok":
        target.unlink()
        raise Refused(status.reason)


def _mnist(wanted: Wanted, work: Path, progress: bool) -> None:
    """The four idx files, from the mirrors that torchvision knows."""
    from lff.vision import import_torchvision

    mnist = import_torchvision().datasets.MNIST
    for name, md5 in mnist.resources:
        file = wanted.get(name.removesuffix(".gz"))
        if file is None:
            continue
        archive, failures = work / name, []
        for mirror in mnist.mirrors:
            try:
                limit = file.size + GZIP_OVERHEAD
                download(f"{mirror}{name}", archive, md5=md5, limit=limit, progress=progress)
            except Refused as error:
                failures.append(str(error))
            else:
                (work / file.name).write_bytes(gunzip(archive, file.size))
                break
        else:
            raise Refused("; ".join(failures))


def _cifar10(wanted: Wanted, work: Path, progress: bool) -> None:
    """The six binary batches, out of the official archive."""
    archive = work / "cifar-10-binary.tar.gz"
    download(CIFAR10_URL, archive, md5=CIFAR10_MD5, limit=CIFAR10_SIZE, progress=progress)
    limits = {f"cifar-10-batches-bin/{file.name}": file.size for file in wanted.values()}
    for member, content in read_tar(archive, limits):
        (work / member.rpartition("/")[2]).write_bytes(content)


def _imdb(wanted: Wanted, work: Path, progress: bool) -> None:
    """The Large Movie Review archive, kept as it is."""
    name = IMDB_URL.rpartition("/")[2]
    if name not in wanted:
        raise Refused(f"has only {name}, which the cache holds already")
    download(IMDB_URL, work / name, md5=IMDB_MD5, limit=wanted[name].size, progress=progress)
