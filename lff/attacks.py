"""The label-flipping attack: who attacks, and what attackers do to their labels.

An attack is a function from an attacker's labels to poisoned labels; training goes on as for
honest peers (paper, Section 3). Another data-poisoning attack is one function with
`@attack("name")`, after which experiments can name it.
"""

from collections.abc import Callable, Sequence

import numpy as np

from lff.errors import InputError, unknown

Attack = Callable[[np.ndarray, int, int], np.ndarray]

_attacks: dict[str, Attack] = {}


def attack(name: str) -> Callable[[Attack], Attack]:
    """Register an attack `(labels, source_class, target_class) -> poisoned labels`."""

    def register(function: Attack) -> Attack:
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


def number_of_attackers(ratio: float, *, peers: int, classes: int, distribution: str) -> int:
    """How many peers attack at an attacker ratio (a fraction).

    The ratio counts among all peers, but in the extreme distribution among the peers who hold
    the source class: 40% of ten holders are four attackers.
    """
    among = peers // classes if distribution == "extreme" else peers
    return round(ratio * among)


def choose_attackers(
    peer_labels: Sequence[np.ndarray], source_class: int, count: int, rng: np.random.Generator
) -> list[int]:
    """Draw the attackers, without repetition, from the peers who hold the source class."""
    holders = [k for k, labels in enumerate(peer_labels) if np.any(labels == source_class)]
    if count > len(holders):
        raise InputError(
            f"{count} attackers asked for, but only {len(holders)} of {len(peer_labels)} peers "
            f"hold the source class {source_class}"
        )
    return sorted(int(k) for k in rng.choice(holders, size=count, replace=False))
