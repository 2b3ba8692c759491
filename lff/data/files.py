"""The canonical files of each data set, and whether the cache holds them intact.

A file is what its sha256 says, wherever it came from. Nothing here needs torch or a network.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from lff.errors import DataError, unknown
from lff.paths import data_dir


@dataclass(frozen=True)
class File:
    """A file known by its content; in a user's folder it may go by other names too."""

    name: str
    sha256: str
    size: int
    aliases: tuple[str, ...] = ()


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
IMDB_CSV, IMDB_ARCHIVE = listed("""
66212309 dfc447764f82be365fa9c2beef4e8df89d3919e3da95f5088004797d79695aa2 IMDB Dataset.csv
84125825 c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe aclImdb_v1.tar.gz
""")
IMDB_CSV = replace(IMDB_CSV, aliases=("a1_IMDB_Dataset.csv", "IMDB.csv"))

Form = tuple[File, ...]

# A data set may come in several forms, the preferred one first; any complete form will do.
FORMS: dict[str, tuple[Form, ...]] = {
    "mnist": (MNIST,),
    "cifar10": (CIFAR10,),
    "imdb": ((IMDB_CSV,), (IMDB_ARCHIVE,)),
}
DATASETS = tuple(FORMS)


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
    """What the cache holds of one data set; `complete` if that is all it takes to load it."""

    name: str
    complete: bool
    files: tuple[Status, ...]


def files_of(name: str) -> Form:
    """The files of a data set in all its forms."""
    return tuple(file for form in FORMS[name] for file in form)


def available(name: str) -> Report:
    """What the cache holds of a data set, by names and sizes only: quick, and no proof."""
    return _report(name, hashed=False)


def verify(name: str) -> Report:
    """What the cache holds of a data set, every file hashed."""
    return _report(name, hashed=True)


def _report(name: str, *, hashed: bool) -> Report:
    """The first complete form (else the preferred one), then any other file that is there, since
    a broken one should be named even if nobody needs it."""
    folder = home(name)
    forms = [[examine(folder, file, hashed=hashed) for file in form] for form in FORMS[name]]
    complete = [form for form in forms if all(file.state in ("ok", "present") for file in form)]
    chosen = complete[0] if complete else forms[0]
    others = [file for form in forms if form is not chosen for file in form]
    found = [file for file in others if file.state != "missing"]
    return Report(name, bool(complete), (*chosen, *found))


def home(name: str) -> Path:
    """The folder of the cache that holds one data set."""
    if name not in FORMS:
        raise unknown("data set", name, DATASETS)
    return data_dir() / name


def examine(folder: Path, file: File, *, hashed: bool = True) -> Status:
    """The state of a file in a folder; never raises."""
    path = folder / file.name
    try:
        size = path.stat().st_size
        if not path.is_file():
            reason = "not a file"
        elif hashed and size == file.size:
            reason = mismatch(file, path.read_bytes())
        else:
            reason = _wrong_size(file, size)
    except FileNotFoundError:
        return Status(file.name, "missing")
    except OSError as error:
        return Status(file.name, "broken", 0, str(error))
    state = "broken" if reason else "ok" if hashed else "present"
    return Status(file.name, state, size, reason)


def mismatch(file: File, content: bytes) -> str:
    """Why these bytes are not the file; nothing if they are."""
    found = hashlib.sha256(content).hexdigest()
    wrong_hash = f"sha256 {found} instead of {file.sha256}" if found != file.sha256 else ""
    return _wrong_size(file, len(content)) or wrong_hash


def _wrong_size(file: File, size: int) -> str:
    return f"{size:,} bytes instead of {file.size:,}" if size != file.size else ""


def read(name: str, forms: Sequence[Form]) -> dict[str, bytes] | None:
    """The verified content of the first of these forms in the cache, by file name, or None.

    What is hashed is what is returned, so that a file that changes later does no harm. A broken
    file also gives None, rather than the next form: it has to be named and fetched again.
    """
    folder = home(name)
    for form in forms:
        if all((folder / file.name).exists() for file in form):
            try:
                contents = {file.name: (folder / file.name).read_bytes() for file in form}
            except OSError:
                return None
            broken = any(mismatch(file, contents[file.name]) for file in form)
            return None if broken else contents
    return None


def read_installed(requirement: str, folder: str, file: File) -> bytes:
    """The verified content of a file that an installed package carries, without importing it."""
    try:
        path = Path(
            str(distribution(requirement.partition("==")[0]).locate_file(folder)), file.name
        )
        content = path.read_bytes()
    except PackageNotFoundError as error:
        raise DataError(
            f"the embedded data need the package {requirement}, which is not installed"
        ) from error
    except OSError as error:
        raise DataError(f"{error}; this file of {requirement} is needed") from error
    if reason := mismatch(file, content):
        raise DataError(f"{path} has {reason}; install exactly {requirement}")
    return content


def fingerprint(recipe: str, inputs: Sequence[File]) -> str:
    """One sha256 over the inputs of a data set and the recipe (split, seed) applied to them."""
    lines = [recipe, *(file.sha256 for file in inputs)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
