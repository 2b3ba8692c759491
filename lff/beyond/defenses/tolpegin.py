"""Tolpegin et al.: of the class whose updates fall apart most, the smaller part is dropped.

V. Tolpegin et al., "Data Poisoning Attacks Against Federated Learning Systems", ESORICS 2020,
Algorithm 2.
"""

import torch
from torch import Tensor

from lff.defenses import defense
from lff.defenses.geometry import ROUNDING
from lff.defenses.lfighter import kmeans
from lff.seeds import stream
from lff.updates import Decision, Updates, average_without


@defense("tolpegin", label="Tolpegin")
def tolpegin(updates: Updates) -> Decision:
    """For each class, its output neuron's gradients are standardized and reduced to two principal
    components. The paper looks at the picture for two groups; here they are those of k-means, and
    the class is the one whose two centers are farthest apart. Its smaller cluster is dropped.

    Of clusters of equal size, neither is.
    """
    rows = torch.tensor(updates.peers, device=updates.weights.device).argsort(stable=True)
    gradients = updates.output_layer[rows].double()
    seed = stream(updates.seed, "k-means", updates.round)
    clusters, distances = [], []
    for c in range(gradients.shape[1]):
        points = principal_components(standardized(gradients[:, c]))
        cl = kmeans(points, seed) == 1
        apart = points[cl].mean(dim=0) - points[~cl].mean(dim=0)
        distances.append(apart.norm().item() if cl.any() else 0.0)
        clusters.append(cl)
    suspect = distances.index(max(distances))
    cl = clusters[suspect]
    sizes = int((~cl).sum()), int(cl.sum())
    bad = cl if sizes[1] < sizes[0] else ~cl if sizes[0] < sizes[1] else torch.zeros_like(cl)
    back = rows.argsort()
    saw = {"class": suspect, "distances": distances, "clusters": cl[back].long().tolist()}
    return average_without(updates, bad[back] & bool(sizes[1]), saw)


def standardized(data: Tensor) -> Tensor:
    """Each column with mean 0 and standard deviation 1; constant ones are 0."""
    centered = data - data.mean(dim=0)
    spread = centered.square().mean(dim=0).sqrt()
    constant = spread <= ROUNDING * data.abs().amax(dim=0)
    return torch.where(constant, 0, centered / torch.where(constant, 1, spread))


def principal_components(data: Tensor, count: int = 2) -> Tensor:
    """The first principal components of centered rows."""
    u, s, _ = torch.linalg.svd(data, full_matrices=False)
    return (u * s)[:, :count]
