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

from lff.benchmarks import Experiment
from lff.fingerprint import method
from lff.records import SCHEMA, path_of, write_atomically

logger = logging.getLogger("lff")

_DEFENSE = "defense."


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Everything the next round needs: W^t, the defense's memory, and the rounds so far."""

    global_weights: Tensor
    defense: dict[str, Tensor]
    history: list[dict[str, Any]]
    seconds: dict[str, list[float]]

    def save(self, experiment: Experiment, folder: Path | None = None) -> None:
        """Write the checkpoint of a run, replacing the one before."""
        tensors = {_DEFENSE + name: tensor for name, tensor in self.defense.items()}
        tensors["global_weights"] = self.global_weights
        body = save_tensors({name: t.detach().cpu().contiguous() for name, t in tensors.items()})
        state = json.dumps(
            {"history": self.history, "seconds": self.seconds}, allow_nan=False
        ).encode()
        header = json.dumps(
            {
                "schema": SCHEMA,
                "id": experiment.id,
                "method": method(),
                "state": len(state),
                "digest": hashlib.sha256(state + body).hexdigest(),
            }
        )
        write_atomically(
            checkpoint_path(experiment, folder), header.encode() + b"\n" + state + body
        )


def checkpoint_path(experiment: Experiment, folder: Path | None = None) -> Path:
    """Where the checkpoint of an experiment is, or would be."""
    return path_of(experiment, folder).parent / "checkpoints" / f"{experiment.id}.ckpt"


def load_checkpoint(experiment: Experiment, folder: Path | None = None) -> Checkpoint | None:
    """The checkpoint of a run; a broken one is reported, removed, and as good as none."""
    path = checkpoint_path(experiment, folder)
    if not path.exists():
        return None
    try:
        header, _, rest = path.read_bytes().partition(b"\n")
        header = json.loads(header)
        if (header["schema"], header["id"]) != (SCHEMA, experiment.id):
            raise ValueError("it belongs to another experiment or version")
        if header["method"] != method():
            raise ValueError("it was written by other code")
        if header["digest"] != hashlib.sha256(rest).hexdigest():
            raise ValueError("its checksum does not fit")
        state = json.loads(rest[: header["state"]])
        tensors = load_tensors(rest[header["state"] :])
        return Checkpoint(
            global_weights=tensors.pop("global_weights"),
            defense={name.removeprefix(_DEFENSE): t for name, t in tensors.items()},
            history=state["history"],
            seconds=state["seconds"],
        )
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        logger.warning("%s cannot be used (%s); the run starts again", path, error)
        path.unlink()
        return None
