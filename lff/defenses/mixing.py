"""Mixing: updates are averaged with each other before a rule sees them, an option of every rule.

Honest updates come closer to each other that way, which rules count on when data are not iid.

| `mixing`    | what a rule gets in place of the updates                                      |
| ----------- | ----------------------------------------------------------------------------- |
| `nearest`   | for each peer, the mean of her update and its nearest: n - f of the n updates |
| `bucketing` | the means of random buckets of `bucket_size` updates each                     |

Y. Allouah et al., "Fixing by Mixing: A Recipe for Optimal Byzantine ML under Heterogeneity",
AISTATS 2023. S. P. Karimireddy et al., "Byzantine-Robust Learning on Heterogeneous Datasets via
Bucketing", ICLR 2022.
"""

import inspect
from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lff.defenses.geometry import squared_distances
from lff.seeds import torch_generator
from lff.updates import Decision, Updates, within_range


class Mixture(NamedTuple):
    """How much of each update (column) is in each mean (row), and by whose id the mean goes."""

    parts: Tensor
    peers: tuple[int, ...]


def mixture_of(
    updates: Updates,
    *,
    mixing: Literal["none", "nearest", "bucketing"] = "none",
    bucket_size: int = 2,
) -> Mixture:
    """The mixture of that name."""
    if mixing == "none":
        return Mixture(torch.eye(len(updates), device=updates.weights.device), updates.peers)
    return nearest(updates) if mixing == "nearest" else buckets(updates, bucket_size)


MIXING = {
    name: parameter
    for name, parameter in inspect.signature(mixture_of).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY
}


def nearest(updates: Updates) -> Mixture:
    """Nearest-neighbor mixing: y_i is the mean of x_i and the n - f - 1 others nearest to it.

    f is the number of attackers it is told; of equal distances the peer of the lower id is nearer.
    """
    n = len(updates)
    count = max(n - updates.told("attacker_count"), 1)
    distances = squared_distances(updates.weights).fill_diagonal_(-1)
    by_id = torch.tensor(updates.peers, device=distances.device).argsort(stable=True)
    chosen = by_id[distances[:, by_id].argsort(dim=1, stable=True)[:, :count]]
    parts = torch.zeros_like(distances).scatter_(1, chosen, 1 / count)
    return Mixture(parts.float(), updates.peers)


def buckets(updates: Updates, size: int) -> Mixture:
    """Bucketing: the peers in random order, cut into buckets; the last one may be smaller.

    A bucket goes by the id of its first peer, and is another one in each round: rules that remember
    peers gain nothing from it.
    """
    by_id = torch.tensor(updates.peers).argsort(stable=True)
    generator = torch_generator(updates.seed, "bucketing", updates.round)
    members = by_id[torch.randperm(len(updates), generator=generator)].split(size)
    parts = torch.zeros(len(members), len(updates))
    for row, bucket in zip(parts, members, strict=True):
        row[bucket] = 1 / len(bucket)
    peers = tuple(updates.peers[int(bucket[0])] for bucket in members)
    return Mixture(parts.to(updates.weights.device), peers)


def mixed(updates: Updates, mixture: Mixture) -> Updates:
    """The means as a round of updates."""
    parts, declared = mixture.parts, updates.declared_classes
    return replace(
        updates,
        weights=within_range(parts @ updates.weights),
        examples=parts @ updates.examples,
        peers=mixture.peers,
        declared_classes=None if declared is None else parts @ declared.float() > 0,
    )


def unmixed(decision: Decision, mixture: Mixture) -> Decision:
    """A decision about means of updates as one about peers.

    A peer's share is the sum over all means of their shares by her part in them; her score, the
    average of their scores by the same parts.
    """
    weights, scores = decision.weights, decision.scores
    if weights is not None:
        weights = weights @ mixture.parts.to(weights.dtype)
    if scores is not None:
        parts = mixture.parts.to(scores.dtype)
        scores = scores @ parts / parts.sum(dim=0)
    return replace(decision, weights=weights, scores=scores)
