"""LFighter: the paper's defense, Algorithm 1 with Procedures 1 and 2.

N. M. Jebreel et al., "Defending against the Label-flipping Attack in Federated Learning", 2022.
Names follow the paper: `imax` are output neurons of highest gradient magnitude, `cl` clusters,
`dns` inverse densities.
"""

import math
from typing import Any, Literal, get_args

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from lff.defenses.geometry import ROUNDING, cosines
from lff.defenses.rule import defense
from lff.errors import InputError, unknown
from lff.seeds import stream
from lff.updates import Decision, Updates, average_without

Distribution = Literal["discovered", "declared", "iid", "mild", "extreme"]
Density = Literal["angle", "cosine"]
OUTLIER = -1


@defense("lfighter", label="LFighter")
def lfighter(
    updates: Updates, *, distribution: Distribution = "discovered", density: Density = "angle"
) -> Decision:
    """Filter out the potentially bad updates and average the rest (Algorithm 1).

    `distribution` says how the server knows the peers' data distribution: `discovered` from the
    signs of the bias gradients, `declared` by the peers' word on the classes they hold, or told
    (`iid`, `mild`, `extreme`). `density="cosine"` measures clusters by 1 - cosine as the released
    code does, instead of by angles.
    """
    if distribution not in get_args(Distribution):
        raise unknown("distribution", distribution, get_args(Distribution))
    if density not in get_args(Density):
        raise unknown("density", density, get_args(Density))
    # k-means starts from random rows and HDBSCAN breaks ties by position: peers come by their ids.
    rows = torch.tensor(updates.peers, device=updates.weights.device).argsort(stable=True)
    gradients = updates.output_layer[rows].double()  # {nabla^{L,t}_k | k in S}
    kind = _distribution(updates, gradients, distribution)
    if kind == "extreme":
        bad, saw = filter_extreme(gradients)
    else:
        imax = relevant_neurons(gradients)
        seed = stream(updates.seed, "k-means", updates.round)
        bad, saw = filter_mild(gradients[:, imax].flatten(1), seed=seed, density=density)
        saw = {"neurons": imax, **saw}
    back = rows.argsort()
    saw["clusters"] = [saw["clusters"][row] for row in back.tolist()]
    return average_without(updates, bad[back], {"distribution": kind, **saw})


def relevant_neurons(gradients: Tensor) -> list[int]:
    """imax_{1,S}, imax_{2,S}: the two neurons of highest magnitude, summed over the peers.

    A model of one or two output neurons has nothing to choose: all are relevant.
    """
    magnitudes = gradients.norm(dim=2).sum(dim=0)  # ||nabla_{i,S}||
    return magnitudes.topk(min(2, len(magnitudes))).indices.tolist()


def filter_mild(
    data: Tensor, *, seed: int = 0, density: Density = "angle"
) -> tuple[Tensor, dict[str, list[Any]]]:
    """FILTER_MILD (Procedure 1): the smaller and/or denser of two k-means clusters is bad.

    Where the scores are equal but for rounding (say, both clusters of one direction each), the
    smaller cluster is bad; where the sizes are equal too, nothing tells the clusters apart and
    nobody is bad.
    """
    nobody = torch.zeros(len(data), dtype=torch.bool, device=data.device)
    cl = kmeans(data, seed)
    in_cl = [cl == 0, cl == 1]
    if not in_cl[1].any():
        return nobody, {"clusters": cl.tolist(), "cluster_scores": [], "inverse_densities": []}
    dns = [cluster_inverse_density(data[members], density) for members in in_cl]
    sizes = [int(members.sum()) for members in in_cl]
    score = [size / len(data) * d for size, d in zip(sizes, dns, strict=True)]
    saw = {"clusters": cl.tolist(), "cluster_scores": score, "inverse_densities": dns}
    rank = sizes if math.isclose(*score, rel_tol=ROUNDING) else score
    if rank[0] == rank[1]:
        return nobody, saw
    return in_cl[0 if rank[0] < rank[1] else 1], saw


def kmeans(data: Tensor, seed: int) -> Tensor:
    """Two clusters (0 and 1) by k-means with 10 restarts; one (all 0) if all points are equal.

    Cluster 0 is the one of the first peer, so that labels mean the same in every call.
    """
    points = data.cpu().numpy()
    if (points == points[0]).all():
        return torch.zeros(len(data), dtype=torch.long, device=data.device)
    model = KMeans(n_clusters=2, n_init=10, random_state=seed % 2**32)
    labels = model.fit_predict(points)
    return torch.from_numpy((labels != labels[0]).astype(np.int64)).to(data.device)


def cluster_inverse_density(gradients: Tensor, density: Density = "angle") -> float:
    """CLUSTER_INVERSE_DENSITY: the mean over i of the largest angle theta_ij within the cluster."""
    cosine = cosines(gradients)
    theta = torch.arccos(cosine) if density == "angle" else 1 - cosine
    return theta.amax(dim=1).mean().item()


def filter_extreme(gradients: Tensor) -> tuple[Tensor, dict[str, list[Any]]]:
    """FILTER_EXTREME (Procedure 2): of clusters for the same neuron all but the largest are bad.

    So are peers in no cluster. Clusters of equal size are both kept: neither is the smaller.
    """
    magnitudes = gradients.norm(dim=2)
    imax = magnitudes.topk(2, dim=1).indices  # imax_{1,k}, imax_{2,k}
    peers = torch.arange(len(gradients), device=gradients.device)
    data = gradients[peers.unsqueeze(1), imax].flatten(1)
    cl = hdbscan(data)
    bad = cl < 0  # HDBSCAN also marks rows it cannot measure
    clusters = [cl == j for j in range(int(cl.max()) + 1)]
    mu = [gradients[members].mean(dim=0) for members in clusters]
    neuron = [int(mean.norm(dim=1).argmax()) for mean in mu]  # imax_{1,j}
    for i, larger in enumerate(clusters):
        for j, smaller in enumerate(clusters):
            if neuron[i] == neuron[j] and larger.sum() > smaller.sum():
                bad = bad | smaller
    return bad, {"clusters": cl.tolist(), "cluster_neurons": neuron}


def hdbscan(data: Tensor) -> Tensor:
    """Clusters 0, 1, ... of at least two peers, and -1 for peers in none.

    Fewer than three peers are too few to cluster and form none. "generic" finds the exact spanning
    tree, which the package's default only approximates; ties are broken by position.
    """
    if len(data) < 3:
        return torch.full((len(data),), OUTLIER, device=data.device)
    from hdbscan import HDBSCAN  # takes a second or two to import, and only Procedure 2 needs it

    model = HDBSCAN(min_cluster_size=2, algorithm="generic")
    labels = model.fit_predict(data.double().cpu().numpy())
    return torch.from_numpy(labels.astype(np.int64)).to(data.device)


def held_classes(gradients: Tensor) -> Tensor:
    """Which classes each peer holds, by the sign of each output neuron's bias gradient.

    The error p_i - y_i of a neuron is in [0, 1] for every example of another class and in
    [-1, 0] for those of its own, so only a held class can have a negative bias gradient.
    """
    return gradients[:, :, -1] < 0


def discover_distribution(held: Tensor) -> str:
    """`extreme` if the median peer holds one class (or shows none), else `mild`.

    iid and mild are filtered in the same way and need not be told apart. A peer whose model is
    right about a class may show no sign of it; one who holds a single class can show no other.
    """
    return "extreme" if held.sum(dim=1).double().quantile(0.5) <= 1 else "mild"


def _distribution(updates: Updates, gradients: Tensor, distribution: str) -> str:
    if gradients.shape[1] <= 2:
        return "mild"
    if distribution == "discovered":
        return discover_distribution(held_classes(gradients))
    if distribution == "declared":
        if updates.declared_classes is None:
            raise InputError("distribution='declared' needs the classes the peers declare")
        return discover_distribution(updates.declared_classes)
    return distribution
