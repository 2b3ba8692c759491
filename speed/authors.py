"""The rules in the way the paper's released code computes them, written anew.

A round is a list of state dicts, and every rule works through them layer by layer: deep copies,
one `torch.sort` per layer, all pairs of slopes at once. Where the released code computes another
rule than the paper says (see docs/decisions.md), the rule is ours and only the way of computing
it theirs, so that all contestants give the same aggregate.
"""

import copy

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import cosine_similarity
from torch import Tensor

from lff.updates import Updates

State = dict[str, Tensor]
SHARD = 100_000  # coordinates whose slopes are held at once


def states(updates: Updates) -> list[State]:
    """The updates as state dicts, views of the stacked matrix."""
    return [updates.layout.views(row) for row in updates.weights]


def average(peers: list[State], marks: list[float]) -> State:
    """FedAvg: a copy of the first model, to which the others are added layer by layer."""
    result = copy.deepcopy(peers[0])
    for name in result:
        result[name] = result[name] * marks[0]
        for state, mark in zip(peers[1:], marks[1:], strict=True):
            result[name] += state[name] * mark
        result[name] = result[name] * (1 / sum(marks))
    return result


def by_layer(peers: list[State], rule) -> State:
    """Apply `rule` to each layer's coordinates, `[coordinates, peers]`."""
    result = copy.deepcopy(peers[0])
    for name, first in peers[0].items():
        rows = torch.empty(len(peers), first.numel())
        for row, state in zip(rows, peers, strict=True):
            row.copy_(state[name].reshape(-1))
        result[name] = rule(rows.t()).reshape(first.shape)
    return result


def median(peers: list[State]) -> State:
    """The middle of each sorted coordinate."""
    return by_layer(peers, _middle)


def trimmed_mean(peers: list[State], trimmed: int) -> State:
    """The mean of each sorted coordinate without its ends."""
    return by_layer(peers, lambda y: y.sort().values[:, trimmed:-trimmed].mean(dim=-1))


def repeated_median(peers: list[State]) -> State:
    """All slopes of `SHARD` coordinates at once, `[coordinates, peers, peers]`, sorted twice."""
    return by_layer(peers, lambda y: torch.cat([_repeated_median(part) for part in y.split(SHARD)]))


def _repeated_median(y: Tensor) -> Tensor:
    d, n = y.shape
    y = y.sort().values
    y_j = y.repeat(1, 1, n).reshape(d, n, n)
    y_i = y_j.transpose(-1, -2)
    x = torch.arange(n, dtype=torch.float32) - (n - 1) / 2
    x_j = x.repeat(d, n, 1)
    x_i = x_j.transpose(-1, -2)
    diagonal = torch.diag(torch.full((n,), torch.inf)).repeat(d, 1, 1)
    slopes = (y_i - y_j) / (x_i - x_j + diagonal) + diagonal
    slope = _middle(_middle(slopes.sort().values[:, :, :-1]))
    return _middle(y - slope.unsqueeze(1) * x)


def _middle(values: Tensor) -> Tensor:
    n = values.shape[-1]
    values = values.sort().values
    return (values[..., (n - 1) // 2] + values[..., n // 2]) / 2


def multi_krum(peers: list[State], attackers: int) -> State:
    """Flat copies of the models and `torch.cdist` between them."""
    n = len(peers)
    flat = torch.empty(n, sum(entry.numel() for entry in peers[0].values()))
    for row, state in zip(flat, peers, strict=True):
        row.copy_(torch.cat([entry.reshape(-1) for entry in state.values()]))
    kept = n - attackers - 2
    distances = torch.cdist(flat, flat) ** 2
    scores = distances.topk(kept + 1, largest=False).values.sum(dim=1)  # 0 to oneself
    chosen = scores.argsort()[:kept].tolist()
    return average([peers[k] for k in chosen], [1] * kept)


def foolsgold(peers: list[State], before: State, output_layer: str) -> State:
    """scikit-learn's cosine similarity, and pardoning in two loops."""
    names = [f"{output_layer}.{part}" for part in ("weight", "bias")]
    gradients = np.array(
        [
            np.concatenate([(before[name] - state[name]).numpy().reshape(-1) for name in names])
            for state in peers
        ],
        dtype=np.float64,
    )
    n = len(peers)
    cs = cosine_similarity(gradients) - np.eye(n)
    largest = cs.max(axis=1)
    for i in range(n):
        for j in range(n):
            if i != j and largest[i] < largest[j]:
                cs[i][j] = cs[i][j] * largest[i] / largest[j]
    alpha = np.clip(1 - cs.max(axis=1), 0, 1)
    alpha /= alpha.max()
    alpha[alpha == 1] = 0.99  # its weight is cut to 1 all the same
    with np.errstate(divide="ignore"):
        weights = np.clip(np.log(alpha / (1 - alpha)) + 0.5, 0, 1)
    return average(peers, weights.tolist())


def lfighter(peers: list[State], before: State, output_layer: str, examples: list[float]) -> State:
    """Deep copies of all models, then k-means and scikit-learn's cosine similarity."""
    kept = copy.deepcopy(peers)
    weight, bias = (
        np.array([(before[name] - state[name]).numpy() for state in peers])
        for name in (f"{output_layer}.weight", f"{output_layer}.bias")
    )
    gradients = np.concatenate([weight, bias[:, :, None]], axis=2)
    neurons = np.linalg.norm(gradients, axis=2).sum(axis=0).argsort()[-2:]
    data = gradients[:, neurons].reshape(len(peers), -1)
    labels = KMeans(n_clusters=2, n_init=10, random_state=0).fit(data).labels_
    scores = [_score(data[labels == cluster], len(data)) for cluster in (0, 1)]
    good = int(scores[0] < scores[1])
    marks = [n if label == good else 0.0 for n, label in zip(examples, labels, strict=True)]
    return average(kept, marks)


def _score(cluster: np.ndarray, peers: int) -> float:
    angles = np.arccos(np.clip(cosine_similarity(cluster), -1, 1))
    return len(cluster) / peers * angles.max(axis=1).mean()
