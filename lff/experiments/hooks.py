"""Hooks of our own, by name in an experiment's `hooks`: what a run notes of a round besides."""

import itertools

import numpy as np
import torch

from lff.defenses import FoolsGold
from lff.defenses.geometry import cosines
from lff.errors import InputError
from lff.federation import HOOKS, Entry, Federation, hook

__all__ = ["HOOKS", "similarities"]


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
