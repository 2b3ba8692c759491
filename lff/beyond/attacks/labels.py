"""Other ways to flip labels. Features and training stay honest, as in the paper's attack."""

import re

import torch
from torch import Tensor

from lff.attacks import Context, attack
from lff.errors import InputError
from lff.metrics import outputs_of
from lff.training import Examples


@attack("partial", label="Partial flip")
def partial_flip(data: Examples, context: Context, *, share: float = 0.5) -> Examples:
    """Relabel a share of the source examples as the target class, the same ones in each round."""
    source = (data.y == context.source_class).nonzero().flatten()
    y = data.y.clone()
    y[source[every(share, len(source))]] = context.target_class
    return Examples(data.x, y)


def every(share: float, count: int) -> Tensor:
    """Which of so many examples a share is, spread evenly over their order."""
    if not 0 <= share <= 1:
        raise InputError(f"share must be between 0 and 1, not {share!r}")
    return (torch.arange(count + 1, dtype=torch.float64) * share + 1e-9).floor().diff() > 0


@attack("several_pairs", label="Several pairs")
class SeveralPairs:
    """Flip the labels of several source classes, each to a target class of its own.

    `pairs` are written `7-1 4-9`; without them they are the experiment's own pair and the next two,
    counted on by one (modulo the classes). With `own` each attacker has one pair, in turn, instead
    of all.
    """

    def __init__(self, *, pairs: str = "", own: bool = False):
        if not re.fullmatch(r"(\d+-\d+( \d+-\d+)*)?", pairs):
            raise InputError(f"pairs are written 7-1 4-9, not {pairs!r}")
        self.own = own
        self.pairs = [tuple(map(int, pair.split("-"))) for pair in pairs.split()]
        sources = [source for source, _ in self.pairs]
        if len(set(sources)) < len(sources):
            raise InputError(f"a source class has one target class, but pairs are {pairs!r}")

    def poison(self, data: Examples, context: Context) -> Examples:
        """The labels by the map of all pairs, or by the attacker's own."""
        a, b, classes = context.source_class, context.target_class, context.classes
        pairs = self.pairs or [((a + i) % classes, (b + i) % classes) for i in range(3)]
        if max(map(max, pairs)) >= classes:
            raise InputError(f"there are {classes} classes, counted from 0, but pairs are {pairs}")
        if self.own:
            pairs = [pairs[context.attackers.index(context.peer) % len(pairs)]]
        new = torch.arange(classes, device=data.y.device)
        for source, target in pairs:
            new[source] = target
        return Examples(data.x, new[data.y])


@attack("all_to_one", label="All to one")
def all_to_one(data: Examples, context: Context) -> Examples:
    """Every label becomes the target class."""
    return Examples(data.x, torch.full_like(data.y, context.target_class))


@attack("random_labels", label="Random labels")
def random_labels(data: Examples, context: Context) -> Examples:
    """Every label becomes another class, drawn anew in each round."""
    step = torch.randint(1, context.classes, data.y.shape, generator=context.generator)
    return Examples(data.x, (data.y + step.to(data.y.device)) % context.classes)


@attack("inverse_labels", label="Inverse labels")
def inverse_labels(data: Examples, context: Context) -> Examples:
    """y becomes L - 1 - y."""
    return Examples(data.x, context.classes - 1 - data.y)


@attack("dynamic_labels", label="Dynamic labels")
def dynamic_labels(data: Examples, context: Context) -> Examples:
    """Every label becomes the class that the global model of the round finds least likely."""
    return Examples(data.x, least_likely(outputs_of(context.model.module, data.x)))


def least_likely(outputs: Tensor) -> Tensor:
    """The class of the lowest output; for a single logit, the one it speaks against."""
    return (outputs <= 0).long() if outputs.dim() == 1 else outputs.argmin(dim=1)
