"""What a run notes of its rounds besides: the components of every run, and hooks to ask for.

Each hook of this module works by its name in an experiment's `hooks`.
"""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
import torch

from lff.analysis import compare_updates, principal_components
from lff.analysis import views as views_of
from lff.defenses import FoolsGold
from lff.defenses.geometry import cosines
from lff.errors import InputError
from lff.fast.submodels import FastLoop
from lff.federation import HOOKS, Entry, Federation, compact, hook
from lff.training import Examples
from lff.updates import Updates

__all__ = ["HOOKS", "components", "good_and_bad", "rounds_shown", "similarities", "views"]

SHOWN_ROUNDS = 12


def rounds_shown(rounds: int) -> list[int]:
    """The rounds, counted from 0, whose components a record keeps: all of twelve or fewer, else
    twelve that lie denser at the start, when defenses decide whom to trust."""
    if rounds <= SHOWN_ROUNDS:
        return list(range(rounds))
    spread = np.geomspace(1, rounds, SHOWN_ROUNDS)
    chosen = np.maximum(np.round(spread).astype(int), np.arange(1, SHOWN_ROUNDS + 1))
    return [int(number) - 1 for number in chosen]


def components(federation: Federation, entry: Entry, *, rounds: Sequence[int]) -> Entry:
    """Two principal components of the peers' gradients of the source and the target neuron, and
    of the neurons that the rule looked at if they are others; too few peers have none."""
    if entry["round"] not in rounds:
        return {}
    updates, neurons = federation.updates, federation.decision.saw.get("neurons", ())
    pairs = [sorted((federation.source_class, federation.target_class))]
    if len(neurons) == 2 and sorted(neurons) not in pairs:
        pairs.append(sorted(neurons))
    shown = []
    for i, j in pairs if len(updates) > 2 else []:
        found = _components(federation, views_of(updates, i, j)["relevant neurons"])
        shown.append({"neurons": [i, j], **found})
    return {"components": shown}


@hook("views")
def views(federation: Federation, entry: Entry) -> Entry:
    """The components of whole updates, output layer and relevant neurons, in rounds 1, 2, 4, 8, ...

    With the class that each peer holds most examples of.
    """
    if not _power_of_two(entry["round"] + 1) or len(federation.updates) < 3:
        return {}
    updates = federation.updates
    seen = views_of(updates, federation.source_class, federation.target_class)
    held = [int(federation.peers[k].examples.y.mode().values) for k in updates.peers]
    found = {name: _components(federation, gradients) for name, gradients in seen.items()}
    return {"views": {"held": held, **found}}


def _components(federation: Federation, gradients: torch.Tensor) -> Entry:
    bad = np.isin(federation.updates.peers, federation.attackers)
    found = principal_components(gradients, bad)
    numbers = {
        "points": found.points.tolist(),
        "explained": found.explained,
        "silhouette": found.silhouette,
    }
    return dict(compact(numbers, digits=3))


@hook("good_and_bad")
def good_and_bad(federation: Federation, entry: Entry) -> Entry:
    """A good and a bad update of the same peer after rounds 1, 2, 4, 8, ...: magnitudes and angle.

    The peer is the first who holds both classes; her two trainings share all random numbers.
    """
    t = entry["round"] + 1
    if not _power_of_two(t):
        return {}
    wanted = {federation.source_class, federation.target_class}
    holders = [p for p in federation.peers if wanted <= set(p.examples.y.tolist())]
    if not holders:
        raise InputError(
            f"no peer holds both classes {sorted(wanted)}; the hook 'good_and_bad' needs a "
            "distribution that is iid or mild"
        )
    honest = holders[0]
    x, y = honest.examples
    flipped = federation.attack.poison(Examples(x, y.clone()), federation.context(honest.id, t))
    pair = [honest, replace(honest, examples=Examples(*flipped))]
    trainer = FastLoop(federation.model, federation.training)
    weights = trainer.train(federation.global_weights, pair, seed=federation.seed, round=t)
    updates = Updates(
        weights=weights,
        global_weights=federation.global_weights,
        layout=federation.model.layout,
        learning_rate=federation.training.learning_rate,
        examples=torch.full((2,), float(len(y)), device=weights.device),
        peers=(honest.id, honest.id),
    )
    compared = compare_updates(updates, federation.source_class, federation.target_class)
    return {"good_and_bad": {name: asdict(row) for name, row in compared.items()}}


@hook("similarities")
def similarities(federation: Federation, entry: Entry) -> Entry:
    """The mean cosine, within and between groups of peers, of what FoolsGold remembers of them.

    The groups are attackers, honest peers, and the last peer by herself, who is odd where shares
    are rounded as in the released code. The key is, say, `attacker-honest`.
    """
    if not isinstance(federation.rule, FoolsGold):
        raise InputError("the hook 'similarities' looks into FoolsGold; choose defense 'foolsgold'")
    peers = federation.updates.peers
    cosine = cosines(torch.stack([federation.rule.history[k] for k in peers])).numpy(force=True)
    last = np.array(peers) == len(federation.peers) - 1
    attack = np.isin(peers, federation.attackers)
    groups = {"attacker": attack & ~last, "honest": ~attack & ~last, "last": last}
    different = ~np.eye(len(peers), dtype=bool)
    found = {}
    for one, other in itertools.combinations_with_replacement(groups, 2):
        pairs = np.outer(groups[one], groups[other]) & different
        if pairs.any():
            found[f"{one}-{other}"] = float(cosine[pairs].mean())
    return {"similarities": found}


def _power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
