"""Centered clipping: what is far from the last rounds' direction counts only so far.

S. P. Karimireddy, L. He, M. Jaggi, "Learning from History for Byzantine Robust Optimization",
ICML 2021, Equation 2 (CCLIP).
"""

import torch
from torch import Tensor

from lff.beyond.defenses.gradients import clipped, lengths, mean, step
from lff.defenses import defense
from lff.errors import InputError
from lff.updates import Decision, Updates, within_range


@defense("centered_clipping", label="CClip")
class CenteredClipping:
    """v <- v + mean_k clip(g_k - v, tau), from the v of the round before; W^{t+1} = W^t - eta v.

    g_k = (W^t - W_k) / eta. The `radius` tau is 10 / (1 - beta) in the paper: 100 for local
    training with momentum 0.9. Every peer weighs the same.
    """

    def __init__(self, *, radius: float = 100.0, iterations: int = 1):
        if iterations < 1 or not radius > 0:
            raise InputError(
                "iterations must be 1 or more and radius above 0, "
                f"not {iterations!r} and {radius!r}"
            )
        self.radius, self.iterations = radius, iterations
        self.center: Tensor | None = None

    def __call__(self, updates: Updates) -> Decision:
        gradients = updates.gradients
        v = torch.zeros_like(gradients[0]) if self.center is None else self.center
        distances = lengths(within_range(gradients - v))
        for _ in range(self.iterations):
            v = within_range(v + mean(clipped(within_range(gradients - v), self.radius)))
        self.center = v
        far = int((distances > self.radius).sum())
        return Decision(step(updates, v), scores=distances, saw={"clipped": far})

    def state_dict(self) -> dict[str, Tensor]:
        """The center, for a checkpoint."""
        return {} if self.center is None else {"center": self.center}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from a checkpoint's center."""
        self.center = state["center"]
