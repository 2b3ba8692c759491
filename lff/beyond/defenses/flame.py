"""FLAME: models that point elsewhere are dropped, long updates clipped, and noise is added.

T. D. Nguyen et al., "FLAME: Taming Backdoors in Federated Learning", USENIX Security 2022,
Algorithm 1.
"""

import numpy as np
import torch
from torch import Tensor

from lff.beyond.defenses.gradients import clipped, lengths, mean, step
from lff.defenses import defense
from lff.defenses.geometry import cosines
from lff.errors import InputError
from lff.seeds import torch_generator
from lff.updates import LARGEST, Decision, Updates


@defense("flame", label="FLAME")
def flame(updates: Updates, *, noise: float = 0.001) -> Decision:
    """Average the admitted models, no farther from the global model than the median S_t.

    HDBSCAN on the cosine distances between the peers' models W_k (not their updates) admits one
    cluster of more than half of them. To each parameter of the average it adds noise of standard
    deviation `noise` S_t; 0.001 is the paper's choice for images and texts.
    """
    if not 0 <= noise < float("inf"):
        raise InputError(f"noise must be 0 or more, not {noise!r}")
    rows = torch.tensor(updates.peers, device=updates.weights.device).argsort(stable=True)
    models = updates.weights[:, : updates.layout.parameters]
    admitted = majority(1 - cosines(models[rows]))[rows.argsort()]
    gradients = updates.gradients
    bound = lengths(gradients).quantile(0.5).clamp(max=LARGEST)  # S_t / eta: of all peers
    average = mean(clipped(gradients[admitted], bound))
    generator = torch_generator(updates.seed, "noise", updates.round)
    drawn = torch.randn(len(average), generator=generator).to(average.device)
    return Decision(
        aggregate=step(updates, average + noise * bound.float() * drawn),
        weights=admitted / admitted.sum(),
        saw={"bound": bound.item() * updates.learning_rate},
    )


def majority(distances: Tensor) -> Tensor:
    """Which rows are in the one cluster of more than half of them; all, if there is none."""
    n = len(distances)
    if n < 3:
        return torch.ones(n, dtype=torch.bool, device=distances.device)
    from hdbscan import HDBSCAN  # takes a second or two to import

    model = HDBSCAN(
        metric="precomputed",
        min_cluster_size=n // 2 + 1,
        min_samples=1,
        allow_single_cluster=True,
    )
    inside = model.fit_predict(np.array(distances.cpu().numpy())) >= 0
    return torch.from_numpy(inside if inside.any() else ~inside).to(distances.device)
