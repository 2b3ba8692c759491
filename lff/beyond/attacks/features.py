"""Backdoors: a patch in the image that the model learns to take for the target class."""

import torch
from torch import Tensor

from lff.attacks import Context, attack
from lff.beyond.attacks.labels import every
from lff.errors import InputError
from lff.training import Examples


@attack("badnets", label="BadNets")
class BadNets:
    """T. Gu et al., "BadNets: Identifying Vulnerabilities in the Machine Learning Model Supply
    Chain", 2017: a bright square in the lower right corner.

    A `share` of an attacker's examples carry it and are labeled as the target class. ASR is then
    the share of patched test images of other classes that are told the target class.
    """

    def __init__(self, *, share: float = 0.5, size: int = 3):
        if size < 1:
            raise InputError(f"size must be 1 or more, not {size!r}")
        every(share, 0)
        self.share, self.size = share, size

    def poison(self, data: Examples, context: Context) -> Examples:
        """Some examples with the patch and the target class, the same ones in each round."""
        chosen = every(self.share, len(data.y)).to(data.y.device)
        shape = (-1,) + (1,) * (data.x.dim() - 1)
        return Examples(
            torch.where(chosen.view(shape), self.trigger(data.x), data.x),
            torch.where(chosen, context.target_class, data.y),
        )

    def trigger(self, x: Tensor) -> Tensor:
        """Images with a square as bright as the brightest pixel there is, in every channel."""
        if x.dim() != 4:
            raise InputError("the patch of badnets is for images only")
        patched = x.clone()
        if len(x):
            brightest = x.amax(dim=(0, 2, 3)).view(1, -1, 1, 1)
            patched[:, :, -self.size :, -self.size :] = brightest
        return patched
