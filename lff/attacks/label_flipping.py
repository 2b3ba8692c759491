"""The label-flipping attack (paper, Section 3): attackers relabel, and train like honest peers."""

import torch

from lff.attacks.attack import Context, attack
from lff.training import Examples


@attack("label_flipping", label="Label flipping")
def label_flipping(data: Examples, context: Context) -> Examples:
    """Relabel every source-class example as the target class; features stay as they are."""
    flipped = torch.where(data.y == context.source_class, context.target_class, data.y)
    return Examples(data.x, flipped)
