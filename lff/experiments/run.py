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
from lff.errors import InputError, RecordError, TrainingError
from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.build import build, choose_device, dataset
from lff.experiments.experiment import Experiment
from lff.experiments.progress import bar, cost
from lff.experiments.provenance import origin, provenance
from lff.experiments.records import (
    SUFFIX,
    Checkpoint,
    Record,
    checkpoint_path,
    load,
    load_checkpoint,
    path_of,
)
from lff.experiments.scales import checked, experiment
from lff.federation import Entry, Federation
from lff.paths import results_dir
from lff.store import abandoned, claim, discard, temporary_of

logger = logging.getLogger("lff")

CHECKPOINT_SECONDS = 20.0  # at least, between two checkpoints
CHECKPOINT_SHARE = 0.02  # of a run's time, at most
WORTH_WORKERS = 60.0  # seconds; starting processes takes some


def run(
    benchmark: str | Experiment,
    *,
    device: str = "auto",
    engine: str = "auto",
    workers: int | None = 1,
    progress: bool | None = None,
    folder: Path | None = None,
    on_round: Callable[[], None] = lambda: None,
    **settings: Any,
) -> Record:
    """Run one experiment, or take its record if it has been run before.

    `benchmark` with `settings` (any field of `Experiment`: `defense`, `attackers`, `scale`, `seed`,
    `rounds`, ...) names the experiment. A run that was killed goes on from its last checkpoint.
    `workers` spread the peers of a round over that many processes (None: one per core if the run is
    long), and `engine` says how they are trained; neither changes the result. `progress` shows a
    bar; by default only where somebody is watching. `on_round` is called after each round, and may
    raise to stop.
    """
    finished = isinstance(benchmark, Experiment)
    if finished and settings:
        raise InputError("settings belong to a benchmark's name, not to a finished Experiment")
    e = benchmark if isinstance(benchmark, Experiment) else experiment(benchmark, **settings)
    chosen = choose_device(device)
    if workers is None:
        workers = sensible_workers(e, chosen, engine)
    fast.check_engine(engine, workers)
    tidy(folder)
    path = path_of(e, folder)
    if not path.exists():
        if finished:
            checked(e)
        make(e, chosen, engine, workers, progress=progress, folder=folder, on_round=on_round)
    return load(path)


def make(
    e: Experiment,
    device: torch.device,
    engine: str = "auto",
    workers: int = 1,
    *,
    progress: bool | None,
    folder: Path | None,
    on_round: Callable[[], None],
) -> None:
    """Make the record of an experiment that has been checked, unless another process just does."""
    path = path_of(e, folder)
    with claim(path):
        discard(temporary_of(checkpoint_path(path)))
        if not path.exists():
            examples = dataset(e)
            with closing(build(e, device, examples, engine=engine, workers=workers)) as federation:
                made_by = provenance(examples, device, federation.trainer.name)
                _play(e, federation, made_by, progress, folder, on_round)
        discard(checkpoint_path(path))


def tidy(folder: Path | None = None) -> None:
    """Remove what killed processes left in the folder of records, except checkpoints to go on from.

    Whatever a living process is working on is left alone. A checkpoint whose run is recorded was
    left by a process that ended between the two, killed or interrupted.
    """
    home = Path(folder or results_dir())
    for path in abandoned(home):
        discard(temporary_of(checkpoint_path(path)))
    for checkpoint in home.rglob("checkpoints/*.ckpt"):
        if (checkpoint.parents[1] / f"{checkpoint.stem}{SUFFIX}").exists():
            discard(checkpoint)


def cores() -> int:
    """The cores this process may use: Slurm and containers give it fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):  # on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def sensible_workers(e: Experiment, device: torch.device, engine: str) -> int:
    """How many processes a single run's peers are spread over: all cores, if it is worth it."""
    on_cpu = device.type == "cpu" and engine != "stacked"
    return cores() if on_cpu and cost(e) > WORTH_WORKERS else 1


def _play(
    e: Experiment,
    federation: Federation,
    made_by: dict[str, Any],
    progress: bool | None,
    folder: Path | None,
    on_round: Callable[[], None],
) -> None:
    """Play the rounds that are not played yet, and record the run."""
    keeper = _Keeper(e, folder)
    run_of = origin(made_by)
    kept = load_checkpoint(e, run_of, folder)
    if kept is not None:
        federation.load_state(kept.tensors, kept.values)
    state = Checkpoint(*federation.state(), run_of)
    title = f"{BENCHMARKS.label(e.benchmark)}, {DEFENSES.label(e.defense)}, {e.attackers:g}%"
    try:
        with bar(
            total=e.rounds, initial=state.rounds, desc=title, unit="round", show=progress
        ) as shown:
            while state.rounds < e.rounds:
                entry = federation.play_round()
                _check_entry(e, entry)
                state = Checkpoint(*federation.state(), run_of)  # later rounds leave it as it is
                shown.set_postfix(_postfix(entry))
                shown.update()
                if state.rounds < e.rounds:
                    keeper.keep(state)
                on_round()
        record_of(e, federation, made_by).save(folder)
    except (KeyboardInterrupt, RecordError):  # a round under way is lost, those before it are not
        if not path_of(e, folder).exists():
            keeper.keep(state, now=True)
        raise


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

    def __init__(self, e: Experiment, folder: Path | None):
        self.e, self.folder = e, folder
        self.pause = _checkpoint_seconds()
        self.due = time.monotonic() + self.pause
        self.warned = False

    def keep(self, state: Checkpoint, *, now: bool = False) -> None:
        """Write a checkpoint, if there is a round to keep and it is time to."""
        start = time.monotonic()
        if not state.rounds or (start < self.due and not now):
            return
        try:
            state.save(self.e, self.folder)
        except RecordError as error:
            if not self.warned:
                logger.warning("rounds since the last checkpoint are not kept: %s", error)
            self.warned = True
        end = time.monotonic()
        self.due = end + (self.pause and max(self.pause, (end - start) / CHECKPOINT_SHARE))


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
