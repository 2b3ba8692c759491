"""SignGuard: whose gradient is too long, too short or of unusual signs is dropped.

J. Xu et al., "Byzantine-robust Federated Learning through Collaborative Malicious Gradient
Filtering", ICDCS 2022, Algorithm 2 (plain SignGuard).
"""

import torch
from sklearn.cluster import MeanShift, estimate_bandwidth
from torch import Tensor

from lff.beyond.defenses.gradients import clipped, lengths, mean, step
from lff.defenses import defense
from lff.errors import InputError
from lff.seeds import torch_generator
from lff.updates import Decision, Updates

SMALLEST = 1e-6  # bandwidth: shares of signs that are equal but for rounding


@defense("signguard", label="SignGuard")
def signguard(
    updates: Updates, *, shortest: float = 0.1, longest: float = 3.0, coordinates: float = 0.1
) -> Decision:
    """Average the gradients that pass two filters, clipped to the median length M.

    A length must be from `shortest` M to `longest` M. The shares of positive, zero and negative
    entries, in a random part of all `coordinates`, must be in the largest cluster of mean shift. If
    nobody passes both, everybody does.
    """
    if not 0 <= shortest <= 1 <= longest or not 0 < coordinates <= 1:
        raise InputError(
            "shortest must be from 0 to 1, longest 1 or more and coordinates above 0 and up to 1, "
            f"not {shortest!r}, {longest!r} and {coordinates!r}"
        )
    rows = torch.tensor(updates.peers, device=updates.weights.device).argsort(stable=True)
    size = lengths(updates.gradients)
    median = size.quantile(0.5)
    usual = (shortest * median <= size) & (size <= longest * median)
    n = updates.layout.parameters
    generator = torch_generator(updates.seed, "coordinates", updates.round)
    drawn = torch.randperm(n, generator=generator)[: max(round(coordinates * n), 1)]
    good = usual & largest_cluster(sign_shares(updates.gradients[:, drawn][rows]))[rows.argsort()]
    good = good if good.any() else torch.ones_like(good)
    average = mean(clipped(updates.gradients[good], median))
    return Decision(step(updates, average), good / good.sum(), saw={"usual": int(usual.sum())})


def sign_shares(gradients: Tensor) -> Tensor:
    """The shares of positive, zero and negative entries in each row."""
    signs = gradients.sign()
    return torch.stack([(signs == s).double().mean(dim=1) for s in (1, 0, -1)], dim=1)


def largest_cluster(points: Tensor) -> Tensor:
    """Which rows are in the largest cluster; of clusters of equal size, the first."""
    data = points.cpu().numpy()
    bandwidth = max(estimate_bandwidth(data, quantile=0.5), SMALLEST)
    labels = MeanShift(bandwidth=bandwidth, cluster_all=False).fit(data).labels_
    cl = torch.from_numpy(labels).to(points.device)
    return cl == cl[cl >= 0].bincount().argmax()
