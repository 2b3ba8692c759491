"""One whole run: named, recorded once, and resumed where it was killed."""

import inspect
import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from lff import data
from lff.attacks import get_attack
from lff.defenses import get_defense
from lff.defenses.options import format_options, parse_options
from lff.defenses.registry import Defense
from lff.errors import InputError, TrainingError, unknown
from lff.experiments import benchmarks, records
from lff.experiments.benchmarks import BENCHMARKS, Experiment
from lff.experiments.checkpoints import (
    Checkpoint,
    checkpoint_path,
    checkpoint_path_of,
    load_checkpoint,
    record_path_of,
)
from lff.experiments.fingerprint import fingerprint
from lff.experiments.progress import bar
from lff.experiments.provenance import origin
from lff.experiments.records import Record
from lff.experiments.writing import abandoned, claim, discard, temporary_of, unwritable
from lff.fast.engines import check_engine
from lff.federation import Federation
from lff.paths import results_dir

logger = logging.getLogger("lff")

CHECKPOINT_SECONDS = 20.0  # at least, between two checkpoints
CHECKPOINT_SHARE = 0.02  # of a run's time, at most
DEVICES = ("auto", "cpu", "cuda")


def experiment(
    benchmark: str, *, defense_options: dict[str, Any] | str = "", **settings: Any
) -> Experiment:
    """The experiment of a benchmark at a scale, with any field of `Experiment` set otherwise.

    The defense's name and options are checked, and a user's own code is fingerprinted.
    """
    e = benchmarks.experiment(benchmark, **settings)
    options = parse_options(defense_options)
    _check_options(get_defense(e.defense), options)
    return e.replace(defense_options=format_options(options), user_code=_user_code(e))


def _check_options(defense: Defense, options: dict[str, Any]) -> None:
    """Refuse options a defense does not have, lacks, or that an experiment cannot write down."""
    defense.check(options)
    for name, default in defense.options().items():
        if default is inspect.Parameter.empty and name not in options:
            raise InputError(f"defense {defense.name!r} needs the option {name}")
    for name, value in options.items():
        if parse_options(format_options({name: value})) != {name: value}:
            raise InputError(
                f"option {name} of {defense.name} cannot be {value!r}: a text must hold no comma "
                "and must not read as a number or another JSON value"
            )


def check_code(e: Experiment) -> None:
    """Refuse an experiment that was named for other code than its defense and attack now have."""
    if e.user_code != _user_code(e):
        raise InputError(
            f"the code of defense {e.defense!r} or attack {e.attack!r} is not what {e.id} was "
            "named for: make the experiment again with lff.experiment(...)"
        )


def _user_code(e: Experiment) -> str:
    code = [fingerprint(get_defense(e.defense).factory), fingerprint(get_attack(e.attack))]
    return "+".join(filter(None, code))


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
    e = benchmark
    if not isinstance(e, Experiment):
        e = experiment(benchmark, **settings)
    elif settings:
        raise InputError("settings belong to a benchmark's name, not to a finished Experiment")
    chosen = choose_device(device)
    check_engine(engine, workers)
    tidy(folder)
    record = records.find(e, folder)
    if record is None:
        check_code(e)
        with claim(records.path_of(e, folder)):
            discard(temporary_of(checkpoint_path(e, folder)))
            record = records.find(e, folder)  # another process may just have made it
            if record is None:
                with closing(Federation(e, chosen, engine=engine, workers=workers)) as federation:
                    record = _play(federation, progress, folder, on_round)
            discard(checkpoint_path(e, folder))
    else:
        _compare_origin(record)
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


def choose_device(name: str) -> torch.device:
    """The device of that name; `auto` is a GPU if there is one."""
    if name not in DEVICES:
        raise unknown("device", name, DEVICES)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device 'cuda' asked for, but torch finds no GPU; choose 'cpu' or 'auto'")
    return torch.device(name)


def _compare_origin(record: Record) -> None:
    """Warn if a record was made from another form of its data set than the cache now holds."""
    e, made_from = record.experiment, record.provenance["data"]
    here = data.at_hand(BENCHMARKS[e.benchmark].dataset) if e.data == "real" else None
    if here and here[1] != made_from["checksum"]:
        logger.warning(
            "the record %s was made from %s, but the cache holds %s; remove it to run it on that",
            record.id,
            made_from["source"],
            here[0],
        )


def _play(
    federation: Federation,
    progress: bool | None,
    folder: Path | None,
    on_round: Callable[[], None],
) -> Record:
    """Play the rounds that are not played yet, and record the run."""
    e = federation.experiment
    checkpoint = load_checkpoint(e, origin(federation.provenance), folder)
    if checkpoint is not None:
        federation.restore(checkpoint)
    keeper = _Keeper(e, folder)
    title = f"{BENCHMARKS[e.benchmark].label}, {federation.defense.label}, {e.attackers:g}%"
    state = federation.checkpoint()
    done = len(state.history)
    try:
        with bar(total=e.rounds, initial=done, desc=title, unit="round", show=progress) as shown:
            while len(state.history) < e.rounds:
                entry = federation.play_round()
                _check_entry(e, entry)
                state = federation.checkpoint()
                shown.set_postfix(_postfix(entry))
                shown.update()
                if keeper.due() and len(state.history) < e.rounds:
                    keeper.keep(state)
                on_round()
        record = federation.record()
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


def _check_entry(e: Experiment, entry: dict[str, Any]) -> None:
    """Refuse what a record cannot hold, before more rounds are played for it."""
    for name, value in entry["saw"].items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise TrainingError(
                f"defense {e.defense!r} puts into saw[{name!r}] what no record can hold ({error}); "
                "give numbers, texts, lists of them, or a tensor"
            ) from error


class _Keeper:
    """Keeps checkpoints of a run, at most every `LFF_CHECKPOINT_SECONDS` (0: after every round) and
    so that writing them takes at most `CHECKPOINT_SHARE` of the time.

    A checkpoint that cannot be written does not stop a run that could finish.
    """

    def __init__(self, e: Experiment, folder: Path | None):
        self.e, self.folder = e, folder
        self.pause = self.interval = _checkpoint_seconds()
        self.last = time.monotonic()
        self.warned = False

    def due(self) -> bool:
        return time.monotonic() - self.last >= self.pause

    def keep(self, state: Checkpoint) -> None:
        if not state.history:
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


def _postfix(entry: dict[str, Any]) -> dict[str, str]:
    names = {"all_acc": "All-Acc", "src_acc": "Src-Acc", "asr": "ASR"}
    return {label: f"{entry[name]:.1%}" for name, label in names.items() if entry[name] is not None}
