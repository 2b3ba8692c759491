"""RFA: the geometric median of the updates, by smoothed Weiszfeld iterations.

K. Pillutla, S. M. Kakade, Z. Harchaoui, "Robust Aggregation for Federated Learning", IEEE
Transactions on Signal Processing 2022, Algorithm 2.
"""

from lff.beyond.defenses.gradients import lengths
from lff.defenses import defense
from lff.errors import InputError
from lff.updates import Decision, Updates, weighted_mean, within_range


@defense("rfa", label="RFA")
def rfa(updates: Updates, *, iterations: int = 4, smoothing: float = 1e-5) -> Decision:
    """Weighted means z of the updates, by their examples over their distances to the last z.

    beta_k = alpha_k / max(nu, ||z - W_k||), z = sum_k beta_k W_k / sum_k beta_k, with nu the
    `smoothing` and z = W^t to begin with.
    """
    if iterations < 1 or not smoothing > 0:
        raise InputError(
            "iterations must be 1 or more and smoothing above 0, "
            f"not {iterations!r} and {smoothing!r}"
        )
    z = updates.global_weights
    for _ in range(iterations):
        distances = lengths(within_range(updates.weights - z))
        decision = weighted_mean(updates, updates.examples / distances.clamp(min=smoothing))
        z = decision.aggregate
    return decision
