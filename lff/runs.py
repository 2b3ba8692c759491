"""One whole run: named, recorded once, and resumed where it was killed."""

import time
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from lff import benchmarks, records
from lff.attacks import get_attack
from lff.benchmarks import BENCHMARKS, Experiment
from lff.checkpoints import checkpoint_path, load_checkpoint
from lff.defenses import get_defense
from lff.defenses.options import format_options, parse_options
from lff.errors import InputError, unknown
from lff.federation import Federation
from lff.fingerprint import fingerprint
from lff.progress import bar
from lff.records import Record

CHECKPOINT_SECONDS = 20.0
DEVICES = ("auto", "cpu", "cuda")


def experiment(
    benchmark: str, *, defense_options: dict[str, Any] | str = "", **settings: Any
) -> Experiment:
    """The experiment of a benchmark at a scale, with any field of `Experiment` set otherwise.

    The defense's name and options are checked, and a user's own code is fingerprinted.
    """
    e = benchmarks.experiment(benchmark, **settings)
    chosen, attack = get_defense(e.defense), get_attack(e.attack)
    options = parse_options(defense_options)
    chosen.check(options)
    code = [fingerprint(chosen.factory), fingerprint(attack)]
    return e.replace(
        defense_options=format_options(options), user_code="+".join(filter(None, code))
    )


def run(
    benchmark: str | Experiment,
    *,
    device: str = "auto",
    progress: bool | None = None,
    folder: Path | None = None,
    **settings: Any,
) -> Record:
    """Run one experiment, or take its record if it has been run before.

    `benchmark` with `settings` (any field of `Experiment`: `defense`, `attackers`, `scale`, `seed`,
    `rounds`, ...) names the experiment. A run that was killed goes on from its last checkpoint.
    `progress` shows a bar; by default only where somebody is watching.
    """
    e = benchmark
    if not isinstance(e, Experiment):
        e = experiment(benchmark, **settings)
    elif settings:
        raise InputError("settings belong to a benchmark's name, not to a finished Experiment")
    chosen = choose_device(device)
    lock = checkpoint_path(e, folder).with_suffix(".lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock):
        record = records.find(e, folder)
        if record is None:
            record = _play(e, chosen, progress, folder)
            record.save(folder)
        checkpoint_path(e, folder).unlink(missing_ok=True)
        lock.unlink(missing_ok=True)
    return record


def choose_device(name: str) -> torch.device:
    """The device of that name; `auto` is a GPU if there is one."""
    if name not in DEVICES:
        raise unknown("device", name, DEVICES)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device 'cuda' asked for, but torch finds no GPU; choose 'cpu' or 'auto'")
    return torch.device(name)


def _play(
    e: Experiment, device: torch.device, progress: bool | None, folder: Path | None
) -> Record:
    federation = Federation(e, device)
    checkpoint = load_checkpoint(e, folder)
    if checkpoint is not None:
        federation.restore(checkpoint)
    saved = time.monotonic()
    title = f"{BENCHMARKS[e.benchmark].label}, {federation.defense.label}, {e.attackers:g}%"
    done = len(federation.history)
    with bar(total=e.rounds, initial=done, desc=title, unit="round", show=progress) as shown:
        while len(federation.history) < e.rounds:
            entry = federation.play_round()
            shown.set_postfix(_postfix(entry))
            shown.update()
            if time.monotonic() - saved > CHECKPOINT_SECONDS and len(federation.history) < e.rounds:
                federation.checkpoint().save(e, folder)
                saved = time.monotonic()
    return federation.record()


def _postfix(entry: dict[str, Any]) -> dict[str, str]:
    names = {"all_acc": "All-Acc", "src_acc": "Src-Acc", "asr": "ASR"}
    return {label: f"{entry[name]:.1%}" for name, label in names.items() if entry[name] is not None}
