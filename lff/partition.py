"""How the training examples fall to the peers (paper, "Data distribution and training").

Each function returns one array of example indices per peer. An example goes to at most one
peer, and every peer gets at least one.
"""

import numpy as np

from lff.errors import InputError, unknown

DISTRIBUTIONS = ("iid", "mild", "extreme", "iid-released")


def partition(
    labels: np.ndarray,
    peers: int,
    distribution: str,
    rng: np.random.Generator,
    *,
    alpha: float = 1.0,
) -> list[np.ndarray]:
    """Divide the examples with these labels among `peers` under one of the distributions."""
    if distribution not in DISTRIBUTIONS:
        raise unknown("distribution", distribution, DISTRIBUTIONS)
    if not 1 <= peers <= len(labels):
        raise InputError(f"cannot divide {len(labels)} examples among {peers} peers")
    if distribution == "iid":
        return iid(labels, peers, rng)
    if distribution == "iid-released":
        return iid_released(labels, peers, rng)
    if distribution == "mild":
        return mild(labels, peers, rng, alpha=alpha)
    return extreme(labels, peers, rng)


def iid(labels: np.ndarray, peers: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Randomly and uniformly: equal shares, up to one example."""
    return np.array_split(rng.permutation(len(labels)), peers)


def iid_released(labels: np.ndarray, peers: int, rng: np.random.Generator) -> list[np.ndarray]:
    """What the authors' released code takes for iid: equal shares but for the last peer.

    Each class is divided in proportions drawn from Dirichlet(1,000,000), which are all but equal,
    and each share is rounded to the nearest. Of a class of 5,958 a hundredth is 59.58, so peers
    take 60 in turn until 18 are left for the last, who resembles nobody.
    """
    shares: list[list[np.ndarray]] = [[] for _ in range(peers)]
    for c in np.unique(labels):
        of_class = rng.permutation(np.flatnonzero(labels == c))
        sizes = np.round(len(of_class) * rng.dirichlet(np.full(peers, 1e6))).astype(int)
        for share, end, size in zip(shares, np.cumsum(sizes), sizes, strict=True):
            share.append(of_class[end - size : end])
    return _nobody_empty([rng.permutation(np.concatenate(share)) for share in shares])


def mild(
    labels: np.ndarray, peers: int, rng: np.random.Generator, *, alpha: float = 1.0
) -> list[np.ndarray]:
    """Mild non-iid: each class is divided in proportions drawn from Dirichlet(alpha).

    A peer left with nothing is given one example of the peer who holds most.
    """
    shares: list[list[np.ndarray]] = [[] for _ in range(peers)]
    for c in np.unique(labels):
        of_class = rng.permutation(np.flatnonzero(labels == c))
        proportions = rng.dirichlet(np.full(peers, alpha))
        cuts = np.round(np.cumsum(proportions)[:-1] * len(of_class)).astype(int)
        for share, part in zip(shares, np.split(of_class, cuts), strict=True):
            share.append(part)
    return _nobody_empty([rng.permutation(np.concatenate(share)) for share in shares])


def extreme(labels: np.ndarray, peers: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Extreme non-iid: one class per peer, as many peers for each class, equal numbers of examples.

    With 100 peers and ten classes, ten peers hold the source class and ten the target class.
    """
    classes = np.unique(labels)
    if peers % len(classes):
        raise InputError(
            f"an extreme distribution needs a multiple of {len(classes)} peers "
            f"(as many for each class), not {peers}"
        )
    holders = peers // len(classes)
    each = min(np.count_nonzero(labels == c) for c in classes) // holders
    if each == 0:
        raise InputError(f"too few examples of some class for {holders} peers to hold it")
    held = []
    for c in classes:
        of_class = rng.permutation(np.flatnonzero(labels == c))[: each * holders]
        held.extend(np.split(of_class, holders))
    return [held[k] for k in rng.permutation(peers)]


def _nobody_empty(held: list[np.ndarray]) -> list[np.ndarray]:
    """Each peer left with nothing is given one example of the peer who holds most."""
    for k in range(len(held)):
        if len(held[k]) == 0:
            richest = max(range(len(held)), key=lambda j: len(held[j]))
            held[k], held[richest] = held[richest][:1], held[richest][1:]
    return held
