"""One whole run: found if it is recorded, else built, played, recorded, and resumed where it was
killed."""

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from lff import fast
from lff.defenses import DEFENSES
from lff.errors import InputError, TrainingError
from lff.experiments import records
from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.build import build, choose_device, dataset
from lff.experiments.checkpoints import (
    Checkpoint,
    checkpoint_path,
    checkpoint_path_of,
    load_checkpoint,
    record_path_of,
)
from lff.experiments.experiment import Experiment
from lff.experiments.progress import bar
from lff.experiments.provenance import origin, provenance
from lff.experiments.records import Record
from lff.experiments.scales import checked, experiment
from lff.experiments.store import abandoned, claim, discard, temporary_of, unwritable
from lff.federation import Entry, Federation
from lff.paths import results_dir

logger = logging.getLogger("lff")

CHECKPOINT_SECONDS = 20.0  # at least, between two checkpoints
CHECKPOINT_SHARE = 0.02  # of a run's time, at most


def run(
    benchmark: str | Experiment,
    *,
    device: str = "auto",
    engine: str = "auto",
    workers: int = 1,
    progress: bool | None = None,
    folder: Path | None = None,
    on_round: Callable[[], None] = lambda: None,
    **settings: Any,
) -> Record:
    """Run one experiment, or take its record if it has been run before.

    `benchmark` with `settings` (any field of `Experiment`: `defense`, `attackers`, `scale`, `seed`,
    `rounds`, ...) names the experiment. A run that was killed goes on from its last checkpoint.
    `workers` spread the peers of a round over that many processes, and `engine` says how they are
    trained; neither changes the result. `progress` shows a bar; by default only
    where somebody is watching. `on_round` is called after each round, and may raise to stop.
    """
    if not isinstance(benchmark, Experiment):
        e = experiment(benchmark, **settings)
    elif settings:
        raise InputError("settings belong to a benchmark's name, not to a finished Experiment")
    else:
        e = benchmark
    chosen = choose_device(device)
    fast.check_engine(engine, workers)
    tidy(folder)
    record = records.find(e, folder)
    if record is not None:
        return record
    checked(e)
    with claim(records.path_of(e, folder)):
        discard(temporary_of(checkpoint_path(e, folder)))
        record = records.find(e, folder)  # another process may just have made it
        if record is None:
            examples = dataset(e)
            with closing(build(e, chosen, examples, engine=engine, workers=workers)) as federation:
                made_by = provenance(examples, chosen, federation.trainer.name)
                record = _play(e, federation, made_by, progress, folder, on_round)
        discard(checkpoint_path(e, folder))
    return record


def tidy(folder: Path | None = None) -> None:
    """Remove what killed processes left in the folder of records, except checkpoints to go on from.

    Whatever a living process is working on is left alone. A checkpoint whose run is recorded was
    left by a process that ended between the two, killed or interrupted.
    """
    home = Path(folder or results_dir())
    for path in abandoned(home):
        discard(temporary_of(checkpoint_path_of(path)))
    for checkpoint in home.rglob("checkpoints/*.ckpt"):
        if record_path_of(checkpoint).exists():
            discard(checkpoint)


def _play(
    e: Experiment,
    federation: Federation,
    made_by: dict[str, Any],
    progress: bool | None,
    folder: Path | None,
    on_round: Callable[[], None],
) -> Record:
    """Play the rounds that are not played yet, and record the run."""
    keeper = _Keeper(e, folder, origin(made_by))
    keeper.resume(federation)
    title = f"{BENCHMARKS.label(e.benchmark)}, {DEFENSES.label(e.defense)}, {e.attackers:g}%"
    state = keeper.checkpoint(federation)
    try:
        with bar(
            total=e.rounds, initial=state.rounds, desc=title, unit="round", show=progress
        ) as shown:
            while state.rounds < e.rounds:
                entry = federation.play_round()
                _check_entry(e, entry)
                state = keeper.checkpoint(federation)
                shown.set_postfix(_postfix(entry))
                shown.update()
                if keeper.due() and state.rounds < e.rounds:
                    keeper.keep(state)
                on_round()
        record = record_of(e, federation, made_by)
        try:
            record.save(folder)
        except OSError as error:
            keeper.keep(state)
            raise unwritable(records.path_of(e, folder), error) from error
    except KeyboardInterrupt:  # the round is abandoned, the ones before it are not
        if not records.path_of(e, folder).exists():
            keeper.keep(state)
        raise
    return record


def record_of(e: Experiment, federation: Federation, made_by: dict[str, Any]) -> Record:
    """The record of the rounds that a federation has played."""
    weights = federation.global_weights.cpu()
    held = [peer.examples.y for peer in federation.peers]
    return Record(
        experiment=e,
        attackers=federation.attackers,
        told=list(federation.needs),
        knew=federation.attack.knows,
        class_counts=[torch.bincount(y, minlength=federation.classes).tolist() for y in held],
        history=federation.history,
        model={
            "sha256": hashlib.sha256(weights.numpy().tobytes()).hexdigest(),
            "norm": weights.double().norm().item(),
        },
        seconds=federation.seconds,
        provenance=made_by,
    )


def _check_entry(e: Experiment, entry: Entry) -> None:
    """Refuse what a record cannot hold, before more rounds are played for it."""
    for name, value in {**entry["saw"], **entry}.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise TrainingError(
                f"defense {e.defense!r} or a hook gives as {name!r} what no record can hold "
                f"({error}); give numbers, texts, lists of them, or a tensor"
            ) from error


class _Keeper:
    """Keeps checkpoints of a run, at most every `LFF_CHECKPOINT_SECONDS` (0: after every round) and
    so that writing them takes at most `CHECKPOINT_SHARE` of the time.

    A checkpoint that cannot be written does not stop a run that could finish.
    """

    def __init__(self, e: Experiment, folder: Path | None, origin: dict[str, Any]):
        self.e, self.folder, self.origin = e, folder, origin
        self.pause = self.interval = _checkpoint_seconds()
        self.last = time.monotonic()
        self.warned = False

    def resume(self, federation: Federation) -> None:
        """Let a federation go on from the checkpoint of its run, if there is one."""
        kept = load_checkpoint(self.e, self.origin, self.folder)
        if kept is not None:
            federation.load_state(kept.tensors, kept.values)

    def checkpoint(self, federation: Federation) -> Checkpoint:
        """The state from which to go on; later rounds leave it as it is."""
        return Checkpoint(*federation.state(), self.origin)

    def due(self) -> bool:
        """Whether it is time to write one."""
        return time.monotonic() - self.last >= self.pause

    def keep(self, state: Checkpoint) -> None:
        """Write a checkpoint, if there is a round to keep."""
        if not state.rounds:
            return
        start = time.monotonic()
        try:
            state.save(self.e, self.folder)
        except OSError as error:
            if not self.warned:
                logger.warning(
                    "cannot write the checkpoint %s (%s); rounds since the last one are not kept",
                    checkpoint_path(self.e, self.folder),
                    error.strerror or error,
                )
            self.warned = True
        self.last = time.monotonic()
        if self.interval > 0:
            self.pause = max(self.interval, (self.last - start) / CHECKPOINT_SHARE)


def _checkpoint_seconds() -> float:
    text = os.environ.get("LFF_CHECKPOINT_SECONDS")
    try:
        seconds = CHECKPOINT_SECONDS if text is None else float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InputError(f"LFF_CHECKPOINT_SECONDS must be a number of at least 0, not {text!r}")
    return seconds


def _postfix(entry: Entry) -> dict[str, str]:
    names = {"all_acc": "All-Acc", "src_acc": "Src-Acc", "asr": "ASR"}
    return {label: f"{entry[name]:.1%}" for name, label in names.items() if entry[name] is not None}
