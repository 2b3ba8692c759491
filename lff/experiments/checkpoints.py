"""The state of an unfinished run on disk, without pickle.

A checkpoint is one file: a line of JSON with its checksum, the history so far as JSON, then the
global model and the defense's memory as safetensors. It is written atomically and named like the
record to come.
"""

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from lff.experiments.experiment import Experiment
from lff.experiments.records import SUFFIX, path_of
from lff.experiments.store import UNREADABLE, discard, write_atomically

logger = logging.getLogger("lff")

SCHEMA = 2


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
        tensors = {name: t.detach().cpu().contiguous() for name, t in self.tensors.items()}
        body = save_tensors(tensors)
        state = json.dumps({**self.values, "origin": self.origin}, allow_nan=False).encode()
        digest = hashlib.sha256(state)
        digest.update(body)
        header = {
            "schema": SCHEMA,
            "id": experiment.id,
            "state": len(state),
            "digest": digest.hexdigest(),
        }
        line = json.dumps(header).encode() + b"\n"
        write_atomically(checkpoint_path(experiment, folder), line, state, body)


def checkpoint_path(experiment: Experiment, folder: Path | None = None) -> Path:
    """Where the checkpoint of an experiment is, or would be."""
    return checkpoint_path_of(path_of(experiment, folder))


def checkpoint_path_of(record: Path) -> Path:
    """Where the checkpoint belongs that a record at this path grows from."""
    return record.parent / "checkpoints" / f"{record.name.removesuffix(SUFFIX)}.ckpt"


def record_path_of(checkpoint: Path) -> Path:
    """Where the record belongs that grows from a checkpoint at this path."""
    return checkpoint.parent.parent / f"{checkpoint.stem}{SUFFIX}"


def load_checkpoint(
    experiment: Experiment, origin: dict[str, Any], folder: Path | None = None
) -> Checkpoint | None:
    """The checkpoint of a run; one that is broken or of another origin is reported and removed."""
    path = checkpoint_path(experiment, folder)
    if not path.exists():
        return None
    try:
        line, _, rest = path.read_bytes().partition(b"\n")
        header = json.loads(line)
        if (header["schema"], header["id"]) != (SCHEMA, experiment.id):
            raise ValueError("it belongs to another experiment or version")
        if header["digest"] != hashlib.sha256(rest).hexdigest():
            raise ValueError("its checksum does not fit")
        state = json.loads(rest[: header["state"]])
        if state["origin"] != origin:
            names = [name for name in origin if state["origin"].get(name) != origin[name]]
            raise ValueError(f"it was written with other {' and '.join(names)}")
        values = {name: state[name] for name in ("history", "seconds")}
        return Checkpoint(load_tensors(rest[header["state"] :]), values, origin)
    except (*UNREADABLE, SafetensorError) as error:
        logger.warning("%s cannot be used (%s); the run starts again", path, error)
        discard(path)
        return None
