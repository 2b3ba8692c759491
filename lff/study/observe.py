"""What the updates of one round look like, for the paper's analysis of gradients.

An observation is a small table made from the updates of one round of an experiment, the middle one
unless another is named. It is kept like a record, in `results/<scale>/observations/`, so that
notebooks recompute nothing.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lff.analysis import compare_updates, principal_components, views
from lff.errors import InputError, RecordError
from lff.experiments.build import build, choose_device, dataset
from lff.experiments.experiment import Experiment
from lff.experiments.progress import bar
from lff.experiments.provenance import provenance
from lff.experiments.records import SUFFIX, path_of
from lff.experiments.store import UNREADABLE, checksum, claim, seal, unseal, unwritable, write_atomically
from lff.fast.submodels import FastLoop
from lff.federation import Federation
from lff.training import Examples, one_thread
from lff.updates import Updates

SCHEMA = 3
Rows = list[dict[str, Any]]


def components(e: Experiment, round: int | None = None, **where: Any) -> pd.DataFrame:
    """The first two principal components of a round's updates, one row per update and view.

    `where` may name the `device`, and the `folder` of the records.
    """
    return _observation(_components, e, round, **where)


def good_and_bad(e: Experiment, round: int | None = None, **where: Any) -> pd.DataFrame:
    """A good and a bad update of the same peer: magnitudes and angle, one row per part.

    The peer is the first who holds both classes; her two trainings share all random numbers.
    `where` may name the `device`, and the `folder` of the records.
    """
    return _observation(_good_and_bad, e, round, **where)


def _components(federation: Federation, e: Experiment) -> Rows:
    updates = federation.collect_updates()
    bad = np.isin(updates.peers, federation.attackers)
    held = [int(federation.peers[k].examples.y.mode().values) for k in updates.peers]
    rows = []
    for view, gradients in views(updates, e.source_class, e.target_class).items():
        found = principal_components(gradients, bad)
        for k, point, is_bad, c in zip(updates.peers, found.points, bad, held, strict=True):
            rows.append(
                {
                    "view": view,
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


def _good_and_bad(federation: Federation, e: Experiment) -> Rows:
    wanted = {e.source_class, e.target_class}
    holders = [p for p in federation.peers if wanted <= set(p.examples.y.tolist())]
    if not holders:
        raise InputError(
            f"no peer of {e.id} holds both classes {e.source_class} and {e.target_class}; "
            "choose an experiment whose distribution is iid or mild"
        )
    honest = holders[0]
    t = len(federation.history)
    x, y = honest.examples
    flipped = federation.attack.poison(Examples(x, y.clone()), federation.context(honest.id, t))
    pair = [honest, replace(honest, examples=Examples(*flipped))]
    trainer = FastLoop(federation.model, federation.training)
    weights = trainer.train(federation.global_weights, pair, seed=e.seed, round=t)
    updates = Updates(
        weights=weights,
        global_weights=federation.global_weights,
        layout=federation.model.layout,
        learning_rate=e.learning_rate,
        examples=torch.full((2,), float(len(honest.examples.y)), device=weights.device),
        peers=(honest.id, honest.id),
    )
    compared = compare_updates(updates, e.source_class, e.target_class)
    return [{"gradients": name, **asdict(row)} for name, row in compared.items()]


def middle(e: Experiment) -> int:
    """The round in the middle of training, counted from 0."""
    return e.rounds // 2


def is_recorded(e: Experiment, kind: str = "*", folder: Path | None = None) -> bool:
    """Whether the middle round of an experiment has been observed, in this way or in any."""
    return any(_folder(e, folder).glob(f"{kind}_{e.id}_round{middle(e)}{SUFFIX}"))


def _folder(e: Experiment, folder: Path | None) -> Path:
    return path_of(e, folder).parent / "observations"


def _observation(
    see: Callable[[Federation, Experiment], Rows],
    e: Experiment,
    round: int | None,
    device: str = "auto",
    folder: Path | None = None,
) -> pd.DataFrame:
    """The observation's rows from disk; made after playing `round` rounds if they are not there."""
    round = middle(e) if round is None else round
    if type(round) is not int or round < 0:
        raise InputError(f"round must be a whole number of at least 0, not {round!r}")
    kind = see.__name__.strip("_")
    path = _folder(e, folder) / f"{kind}_{e.id}_round{round}{SUFFIX}"
    content = _read(path)
    if content is None:
        with claim(path):
            content = _read(path)  # another process may have made it meanwhile
            if content is None:
                content = {"schema": SCHEMA, "kind": kind, "experiment": asdict(e), "round": round}
                content |= _look(see, e, round, device)
                try:
                    write_atomically(path, seal(content))
                except OSError as error:
                    raise unwritable(path, error) from error
    if [content[name] for name in ("kind", "experiment", "round")] != [kind, asdict(e), round]:
        raise RecordError(f"{path} does not match its experiment; remove it")
    table = pd.DataFrame(content["rows"])
    table.attrs |= {"data_source": content["provenance"]["data"]["source"], "round": round}
    return table


def _look(
    see: Callable[[Federation, Experiment], Rows], e: Experiment, round: int, device: str
) -> dict[str, Any]:
    examples = dataset(e)
    federation = build(e, choose_device(device), examples)
    for _ in bar(iterable=range(round), desc=f"observing {e.benchmark}", unit="round"):
        federation.play_round()
    made_by = provenance(examples, federation.device, federation.trainer.name)
    with one_thread(federation.device):
        return {"provenance": made_by, "rows": see(federation, e)}


def _read(path: Path) -> dict[str, Any] | None:
    """What an observation's file says, if there is one of this schema; a broken one is refused."""
    try:
        content = unseal(path.read_bytes())
        if content["schema"] != SCHEMA:
            return None
        sound = content["checksum"] == checksum(content)
    except FileNotFoundError:
        return None
    except UNREADABLE as error:
        raise RecordError(f"{path} is not a readable observation ({error!r}); remove it") from error
    if not sound:
        raise RecordError(f"{path} was changed; remove it")
    return content
