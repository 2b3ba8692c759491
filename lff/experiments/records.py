"""A run on disk: its record, and the checkpoint of one that is not finished. No pickle.

A record is a compressed JSON file `results/<scale>/<experiment id>.json.gz`; `docs/records.md`
tells every field. All but `seconds` and `provenance` is the same, bit for bit, whenever the same
experiment runs on the same machine. It carries two checksums: `digest` of what every repetition
shares, `checksum` of all it says. `lff.study.frame` makes tables of records.

A checkpoint is a line with its checksum, a line of JSON, and tensors as safetensors.
"""

import gzip
import hashlib
import io
import json
import logging
import math
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from lff.errors import InputError, RecordError, unknown
from lff.experiments.experiment import ARITHMETIC, Experiment
from lff.experiments.scales import SCALES
from lff.paths import results_dir
from lff.store import discard, write_atomically

logger = logging.getLogger("lff")

SCHEMA = 3
SUFFIX = ".json.gz"
OWN_DATA = "own data"  # what an attacker of the paper knows
SHARED = ("attackers", "told", "class_counts", "history", "model", "knew")  # by repetitions
CHECKSUMS = ("digest", "checksum")
LARGEST = 1 << 26  # bytes of a text that are read: a small file can unpack to anything
UNREADABLE = (
    ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError, EOFError, zlib.error,
    SafetensorError,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Record:
    """What a finished run leaves behind.

    `told` is what the rule was told that no server can know, `class_counts` how many examples of
    each class every peer holds (by their true labels), `model` the final global model's checksum
    and length, `knew` what the attackers knew. `history` has one entry per round
    (`Federation.play_round`).
    """

    experiment: Experiment
    attackers: list[int]
    history: list[dict[str, Any]]
    seconds: dict[str, list[float]]
    provenance: dict[str, Any]
    told: list[str] = field(default_factory=list)
    class_counts: list[list[int]] = field(default_factory=list)
    model: dict[str, Any] = field(default_factory=dict)
    knew: str = OWN_DATA

    @property
    def id(self) -> str:
        """The experiment's id, which is also the file's name."""
        return self.experiment.id

    def series(self, name: str) -> list[float]:
        """One quantity of the history over the rounds; a missing value is NaN."""
        return [float("nan") if r.get(name) is None else r[name] for r in self.history]

    @property
    def digest(self) -> str:
        """A checksum of everything that is the same in every repetition of the run."""
        return _checksums(self.content(), self.experiment)[0]

    def content(self) -> dict[str, Any]:
        """All that its file says, but for the checksums."""
        versions = {"schema": SCHEMA, "arithmetic": ARITHMETIC, "id": self.id}
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        if self.knew == OWN_DATA:
            del parts["knew"]
        return versions | parts | {"experiment": asdict(self.experiment)}

    def save(self, folder: Path | None = None) -> Path:
        """Write the record under its experiment's name, whole or not at all."""
        content = self.content()
        digest, checksum = _checksums(content, self.experiment)
        path = path_of(self.experiment, folder)
        write_atomically(path, pack({"checksum": checksum, "digest": digest} | content))
        return path


def path_of(experiment: Experiment, folder: Path | None = None) -> Path:
    """Where the record of an experiment is, or would be."""
    return Path(folder or results_dir()) / experiment.scale / f"{experiment.id}{SUFFIX}"


def find(experiment: Experiment, folder: Path | None = None) -> Record | None:
    """The record of an experiment, if it has been run."""
    path = path_of(experiment, folder)
    return load(path) if path.exists() else None


def load(path: Path) -> Record:
    """Read one record, refusing one that is broken, outdated or not what its name says."""
    try:
        return parse(path.read_bytes(), path)
    except (OSError, RecordError) as error:
        raise RecordError(f"{error}; remove it and run the experiment again") from error


def parse(packed: bytes, path: Path) -> Record:
    """The record that a file's bytes hold, checked as the one that belongs at this path."""
    try:
        content = decompressed(packed)
        versions = content["schema"], content["arithmetic"]
        if versions != (SCHEMA, ARITHMETIC):
            raise RecordError(
                f"{path} has schema and arithmetic {versions[0]!r} and {versions[1]!r}, but this "
                f"version reads {SCHEMA} and {ARITHMETIC}"
            )
        parts = {part.name: content[part.name] for part in fields(Record) if part.name in content}
        record = Record(**parts | {"experiment": _experiment(content["experiment"])})
        flaw = _flaw(record, content, path)
    except UNREADABLE as error:
        raise RecordError(f"{path} is not a readable record ({error!r})") from error
    if flaw:
        raise RecordError(f"{path} does not match its experiment ({flaw})")
    return record


def _experiment(settings: dict[str, Any]) -> Experiment:
    differing = set(settings) - {setting.name for setting in fields(Experiment)}
    if differing:
        names = ", ".join(sorted(differing))
        raise InputError(f"made by a version of lff with other settings: {names}")
    return Experiment(**settings)


def _flaw(record: Record, content: dict[str, Any], path: Path) -> str:
    """What in a record contradicts its name, its checksums or its experiment; empty if nothing."""
    e = record.experiment
    name = path.name.removesuffix(SUFFIX)
    if not (record.id == content["id"] == name and e.scale == path.parent.name):
        return f"it is the record of {record.id} at scale {e.scale}"
    digest, checksum = _checksums(content, e)
    if digest != content["digest"]:
        return "its history was changed"
    if checksum != content["checksum"]:
        return "it was changed"
    if [entry["round"] for entry in record.history] != list(range(e.rounds)):
        return f"it has {len(record.history)} of {e.rounds} rounds"
    for part in ("training", "aggregation", "evaluation"):
        times = record.seconds[part]
        if len(times) != e.rounds or not all(0 <= t < math.inf for t in times):
            return f"its seconds of {part} are not one per round"
    return "" if isinstance(record.provenance["data"]["source"], str) else "it names no data"


def _checksums(content: dict[str, Any], experiment: Experiment) -> tuple[str, str]:
    """The sha256 of what every repetition of a run shares, and of all that a file says.

    Of each value the JSON is made once: that takes most of the time to read a record.
    """
    said = {name: _json(part) for name, part in content.items() if name not in CHECKSUMS}
    shared = {name: text for name, text in said.items() if name in SHARED}
    digest = _sha256(shared | {"experiment": _json(experiment.settings())})
    return digest, _sha256(said | {"digest": _json(digest)})


def _sha256(said: dict[str, str]) -> str:
    """The sha256 of the JSON object of these names and texts of values."""
    text = ", ".join(f"{_json(name)}: {said[name]}" for name in sorted(said))
    return hashlib.sha256(f"{{{text}}}".encode()).hexdigest()


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)


def iterate(folder: Path | None = None, scale: str | None = None) -> Iterable[Record]:
    """All records, in the order of their names; one that is refused is named and passed over."""
    if scale is not None and scale not in list(SCALES):
        raise unknown("scale", scale, SCALES)
    for path in sorted(Path(folder or results_dir()).glob(f"{scale or '*'}/*{SUFFIX}")):
        try:
            yield load(path)
        except RecordError as error:
            logger.warning("%s", error)


def pack(content: dict[str, Any]) -> bytes:
    """A file of compressed JSON; the same bytes for the same content."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return gzip.compress(text.encode(), mtime=0)


def decompressed(packed: bytes) -> dict[str, Any]:
    """The content of such a file."""
    with gzip.open(io.BytesIO(packed)) as file:
        text = file.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise ValueError(f"it unpacks to more than {LARGEST} bytes")
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError("it holds no object")
    return content


# --- checkpoints ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Everything the next round needs (`Federation.state`): tensors and JSON values.

    `origin` is what a run that goes on from here must share: code, versions and data.
    """

    tensors: dict[str, Tensor]
    values: dict[str, Any]
    origin: dict[str, Any]

    @property
    def rounds(self) -> int:
        """How many rounds are played."""
        return len(self.values["history"])

    def save(self, experiment: Experiment, folder: Path | None = None) -> None:
        """Write the checkpoint of a run, replacing the one before."""
        told = {"id": experiment.id, "origin": self.origin, **self.values}
        tensors = {name: t.detach().cpu().contiguous() for name, t in self.tensors.items()}
        state = json.dumps(told, allow_nan=False).encode() + b"\n" + save_tensors(tensors)
        digest = hashlib.sha256(state).hexdigest().encode()
        write_atomically(checkpoint_path(path_of(experiment, folder)), digest + b"\n", state)


def checkpoint_path(record: Path) -> Path:
    """Where the checkpoint belongs that a record at this path grows from."""
    return record.parent / "checkpoints" / f"{record.name.removesuffix(SUFFIX)}.ckpt"


def load_checkpoint(
    experiment: Experiment, origin: dict[str, Any], folder: Path | None = None
) -> Checkpoint | None:
    """The checkpoint of a run; one that is broken or of another origin is reported and removed."""
    path = checkpoint_path(path_of(experiment, folder))
    if not path.exists():
        return None
    try:
        digest, _, state = path.read_bytes().partition(b"\n")
        if digest != hashlib.sha256(state).hexdigest().encode():
            raise ValueError("its checksum does not fit")
        line, _, tensors = state.partition(b"\n")
        told = json.loads(line)
        if told.pop("id") != experiment.id:
            raise ValueError("it belongs to another experiment")
        there = told.pop("origin")
        if there != origin:
            names = [name for name in origin if there.get(name) != origin[name]]
            raise ValueError(f"it was written with other {' and '.join(names)}")
        return Checkpoint(load_tensors(tensors), told, origin)
    except UNREADABLE as error:
        logger.warning("%s cannot be used (%s); the run starts again", path, error)
        discard(path)
        return None
