"""Looks inside a round, for the paper's analysis of gradients; remembered like records.

An observation is a small table made from the updates of one round of an experiment, the middle one
unless another is named. It is kept as JSON in `results/<scale>/observations/`, so that notebooks
recompute nothing.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lff.analysis import compare_updates, principal_components, views
from lff.attacks import get_attack
from lff.experiments.benchmarks import Experiment
from lff.errors import InputError, RecordError
from lff.federation import Federation
from lff.experiments.progress import bar
from lff.experiments.records import path_of
from lff.experiments.runs import choose_device
from lff.threads import one_thread
from lff.training import Peer, train_round
from lff.updates import Updates
from lff.experiments.writing import claim, unwritable, write_atomically

SCHEMA = 3
Rows = list[dict[str, Any]]


def components(
    e: Experiment,
    round: int | None = None,
    *,
    device: str = "auto",
    folder: Path | None = None,
) -> pd.DataFrame:
    """The first two principal components of a round's updates, one row per update and view."""

    def compute(federation: Federation) -> Rows:
        updates = federation.collect_updates()
        bad = np.isin(updates.peers, federation.attackers)
        truth = federation.data.train_y
        held = [int(truth[federation.peers[k].examples].mode().values) for k in updates.peers]
        rows = []
        for name, gradients in views(updates, e.source_class, e.target_class).items():
            found = principal_components(gradients, bad)
            for k, point, is_bad, c in zip(updates.peers, found.points, bad, held, strict=True):
                rows.append(
                    {
                        "view": name,
                        "peer": k,
                        "class_held": c,
                        "bad": bool(is_bad),
                        "pc1": float(point[0]),
                        "pc2": float(point[1]),
                        "explained1": found.explained[0],
                        "explained2": found.explained[1],
                        "silhouette": None if np.isnan(found.silhouette) else found.silhouette,
                    }
                )
        return rows

    return _remembered("components", e, round, compute, device, folder)


def good_and_bad(
    e: Experiment,
    round: int | None = None,
    *,
    device: str = "auto",
    folder: Path | None = None,
) -> pd.DataFrame:
    """A good and a bad update of the same peer: magnitudes and angle, one row per part.

    The peer is the first who holds both classes; her two trainings share all random numbers.
    """

    def compute(federation: Federation) -> Rows:
        wanted = {e.source_class, e.target_class}
        holders = [p for p in federation.peers if wanted <= set(p.labels.tolist())]
        if not holders:
            raise InputError(
                f"no peer of {e.id} holds both classes {e.source_class} and {e.target_class}; "
                "choose an experiment whose distribution is iid or mild"
            )
        honest = holders[0]
        labels = honest.labels.cpu().numpy().copy()
        flipped = get_attack(e.attack)(labels, e.source_class, e.target_class)
        poisoned = Peer(
            honest.id, honest.examples, torch.from_numpy(flipped).to(honest.labels.device)
        )
        weights = train_round(
            federation.model,
            federation.global_weights,
            [honest, poisoned],
            federation.data.train_x,
            federation.training,
            seed=e.seed,
            round=len(federation.history),
        )
        updates = Updates(
            weights=weights,
            global_weights=federation.global_weights,
            layout=federation.model.layout,
            learning_rate=e.learning_rate,
            examples=torch.full((2,), float(len(honest.examples)), device=weights.device),
            peers=(honest.id, honest.id),
        )
        compared = compare_updates(updates, e.source_class, e.target_class)
        return [{"gradients": name, **asdict(row)} for name, row in compared.items()]

    return _remembered("good_and_bad", e, round, compute, device, folder)


def middle(e: Experiment) -> int:
    """The round in the middle of training, counted from 0."""
    return e.rounds // 2


def remembered(kind: str, e: Experiment, folder: Path | None = None) -> bool:
    """Whether the observation of the middle round has been made."""
    return _read(_path_of(kind, e, middle(e), folder)) is not None


def _path_of(kind: str, e: Experiment, round: int, folder: Path | None) -> Path:
    name = f"{kind}_{e.id}_round{round}.json"
    return path_of(e, folder).parent / "observations" / name


def _remembered(
    kind: str,
    e: Experiment,
    round: int | None,
    compute: Callable[[Federation], Rows],
    device: str,
    folder: Path | None,
) -> pd.DataFrame:
    """The observation's rows from disk; computed after playing `round` rounds if they are not."""
    round = middle(e) if round is None else round
    if type(round) is not int or round < 0:
        raise InputError(f"round must be a whole number of at least 0, not {round!r}")
    path = _path_of(kind, e, round, folder)
    if _read(path) is None:
        with claim(path):
            if _read(path) is None:  # no other process has just made it
                content = _observe(kind, e, round, compute, device)
                try:
                    write_atomically(path, json.dumps(content, indent=0, allow_nan=False).encode())
                except OSError as error:
                    raise unwritable(path, error) from error
    content = _read(path)
    if [content[name] for name in ("kind", "experiment", "round")] != [kind, asdict(e), round]:
        raise RecordError(f"{path} does not match its experiment; remove it")
    table = pd.DataFrame(content["rows"])
    table.attrs |= {
        "data_source": content["provenance"]["data"]["source"],
        "round": content["round"],
    }
    return table


def _observe(
    kind: str, e: Experiment, round: int, compute: Callable[[Federation], Rows], device: str
) -> dict[str, Any]:
    federation = Federation(e, choose_device(device))
    for _ in bar(iterable=range(round), desc=f"{kind}: {e.benchmark}", unit="round"):
        federation.play_round()
    with one_thread(federation.device):
        rows = compute(federation)
    content = {
        "schema": SCHEMA,
        "kind": kind,
        "experiment": asdict(e),
        "round": round,
        "provenance": federation.provenance,
        "rows": rows,
    }
    return {"digest": _digest(content), **content}


def _read(path: Path) -> dict[str, Any] | None:
    """What an observation's file says, if there is one of this schema; a broken one is refused."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            return None
        sound = content["digest"] == _digest(content)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError, OSError) as error:
        raise RecordError(f"{path} is not a readable observation ({error!r}); remove it") from error
    if not sound:
        raise RecordError(f"{path} was changed; remove it")
    return content


def _digest(content: dict[str, Any]) -> str:
    rest = {name: value for name, value in content.items() if name != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
