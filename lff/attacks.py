"""The label-flipping attack: who attacks, and what attackers do to their labels.

An attack is a function from an attacker's labels to poisoned labels; training goes on as for
honest peers (paper, Section 3). Another data-poisoning attack is one function with
`@attack("name")`, after which experiments can name it.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from lff.errors import InputError, unknown

Attack = Callable[[np.ndarray, int, int], np.ndarray]

_attacks: dict[str, Attack] = {}


def attack(name: str) -> Callable[[Attack], Attack]:
    """Register an attack `(labels, source_class, target_class) -> poisoned labels`."""

    def register(function: Attack) -> Attack:
        present = _attacks.get(name)
        if present is not None and present.__module__ != function.__module__:
            raise InputError(f"an attack named {name!r} exists already; choose another name")
        _attacks[name] = function
        return function

    return register


def get_attack(name: str) -> Attack:
    """The attack of that name."""
    if name not in _attacks:
        raise unknown("attack", name, _attacks)
    return _attacks[name]


def attacks() -> list[str]:
    """The names of all registered attacks."""
    return list(_attacks)


@attack("label_flipping")
def label_flipping(labels: np.ndarray, source_class: int, target_class: int) -> np.ndarray:
    """Relabel every source-class example as the target class; features stay as they are."""
    return np.where(labels == source_class, target_class, labels)


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
