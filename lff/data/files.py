"""The canonical files of each data set, and whether the cache holds them intact.

A file is what its sha256 says, wherever it came from. Nothing here needs torch or a network.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lff.errors import unknown
from lff.paths import data_dir


@dataclass(frozen=True)
class File:
    """A canonical file: its name in the cache, its content, and other names it goes by."""

    name: str
    sha256: str
    size: int
    aliases: tuple[str, ...] = ()


MNIST = (
    File(
        "train-images-idx3-ubyte",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        47_040_016,
    ),
    File(
        "train-labels-idx1-ubyte",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        60_008,
    ),
    File(
        "t10k-images-idx3-ubyte",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        7_840_016,
    ),
    File(
        "t10k-labels-idx1-ubyte",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        10_008,
    ),
)

CIFAR10 = tuple(
    File(name, sha256, 10_000 * 3_073)
    for name, sha256 in (
        ("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
        ("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
        ("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
        ("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
        ("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
        ("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    )
)

IMDB_CSV = File(
    "IMDB Dataset.csv",
    "dfc447764f82be365fa9c2beef4e8df89d3919e3da95f5088004797d79695aa2",
    66_212_309,
    aliases=("a1_IMDB_Dataset.csv", "IMDB.csv"),
)
IMDB_ARCHIVE = File(
    "aclImdb_v1.tar.gz",
    "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
    84_125_825,
)

# A data set may come in several forms, the preferred one first; any complete form will do.
FORMS: dict[str, tuple[tuple[File, ...], ...]] = {
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
    path: Path
    state: str
    size: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Report:
    """What the cache holds of one data set; `complete` if that is all it takes to load it."""

    name: str
    complete: bool
    files: tuple[Status, ...]


def home(name: str) -> Path:
    """The folder of the cache that holds one data set."""
    if name not in FORMS:
        raise unknown("data set", name, DATASETS)
    return data_dir() / name


def available(name: str) -> Report:
    """What the cache holds of a data set, by names and sizes only: quick, and no proof."""
    return _report(name, hashed=False)


def verify(name: str) -> Report:
    """What the cache holds of a data set, every file hashed."""
    return _report(name, hashed=True)


def read(name: str, *, preferred_only: bool = False) -> dict[str, bytes] | None:
    """The verified content of the best form in the cache, by file name; None if there is none.

    What is hashed is what is returned, so that a file that changes later does no harm. A broken
    file also gives None, rather than the next form: it has to be named and fetched again.
    """
    folder = home(name)
    forms = FORMS[name][:1] if preferred_only else FORMS[name]
    for form in forms:
        contents = {}
        for file in form:
            try:
                contents[file.name] = (folder / file.name).read_bytes()
            except FileNotFoundError:
                break
            except OSError:
                return None
            if hashlib.sha256(contents[file.name]).hexdigest() != file.sha256:
                return None
        else:
            return contents
    return None


def digest(path: Path) -> str:
    """The sha256 of a file, in constant memory."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def examine(file: File, path: Path, *, hashed: bool = True) -> Status:
    """Whether the file at `path` is the canonical one; never raises."""
    try:
        size = path.stat().st_size
        if not path.is_file():
            return Status(file.name, path, "broken", size, "not a file")
        if size != file.size:
            reason = f"{size:,} bytes instead of {file.size:,}"
            return Status(file.name, path, "broken", size, reason)
        if not hashed:
            return Status(file.name, path, "present", size)
        found = digest(path)
    except FileNotFoundError:
        return Status(file.name, path, "missing")
    except OSError as error:
        return Status(file.name, path, "broken", 0, str(error))
    if found != file.sha256:
        reason = f"sha256 {found} instead of {file.sha256}"
        return Status(file.name, path, "broken", size, reason)
    return Status(file.name, path, "ok", size)


class Hashed(Protocol):
    """Any input known by its sha256."""

    @property
    def sha256(self) -> str: ...


def fingerprint(recipe: str, inputs: Iterable[Hashed]) -> str:
    """One sha256 over the inputs of a data set and the recipe (split, seed) applied to them."""
    lines = [recipe, *(item.sha256 for item in inputs)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _report(name: str, *, hashed: bool) -> Report:
    """Examine a data set: the first complete form (else the preferred one), then any other
    file that is there, since a broken one should be named even if nobody needs it."""
    folder = home(name)
    forms = [
        tuple(examine(file, folder / file.name, hashed=hashed) for file in form)
        for form in FORMS[name]
    ]
    complete = [form for form in forms if all(file.state in ("ok", "present") for file in form)]
    chosen = complete[0] if complete else forms[0]
    others = tuple(
        file for form in forms if form is not chosen for file in form if file.state != "missing"
    )
    return Report(name, bool(complete), chosen + others)
