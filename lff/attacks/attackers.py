"""Who attacks: the peers drawn from those who hold the source class."""

import math
from collections.abc import Sequence

import numpy as np

from lff.errors import InputError


def number_of_attackers(ratio: float, among: int) -> int:
    """How many of `among` peers attack at an attacker ratio (a fraction), rounded down.

    Never more than the ratio says, so that 50% is at most half, as the threat model has it.
    """
    return math.floor(ratio * among + 1e-9)


def source_class_holders(peer_labels: Sequence[np.ndarray], source_class: int) -> list[int]:
    """The peers with examples of the source class, K_{c_src} of them."""
    return [k for k, labels in enumerate(peer_labels) if np.any(labels == source_class)]


def choose_attackers(
    peer_labels: Sequence[np.ndarray], source_class: int, count: int, rng: np.random.Generator
) -> list[int]:
    """Draw the attackers, without repetition, from the peers who hold the source class.

    They are the first of one random order of all holders, so that in one seed the attackers of a
    smaller ratio are among those of a larger one: a curve over the ratio changes the dose alone.
    """
    holders = source_class_holders(peer_labels, source_class)
    if count > len(holders):
        raise InputError(
            f"{count} attackers asked for, but only {len(holders)} of {len(peer_labels)} peers "
            f"hold the source class {source_class}"
        )
    return sorted(int(k) for k in rng.permutation(holders)[:count])
