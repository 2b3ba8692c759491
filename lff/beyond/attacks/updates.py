"""Attacks on the update itself: it is not what training gave, whatever the labels were.

Names follow the papers: X is an attacker's trained model, W the global model of the round. The
attackers of `alie`, `ipm`, `mimic`, `min_max` and `min_sum` work together and all send one update.
"""

from abc import ABC, abstractmethod
from statistics import NormalDist
from typing import Literal, get_args

import torch
from torch import Tensor

from lff.attacks import Context, attack, label_flipping
from lff.defenses.geometry import squared_distances
from lff.errors import unknown
from lff.seeds import torch_generator
from lff.training import Examples

Direction = Literal["mean", "sign", "deviation"]


class LabelFlipper:
    """An attacker who flips labels as in the paper, and does more than that."""

    def poison(self, data: Examples, context: Context) -> Examples:
        """The source examples as the target class."""
        return label_flipping(data, context)


@attack("boosted", label="Boosted flip")
class Boosted(LabelFlipper):
    """W + boost (X - W): flipped labels, and the update exaggerated so that it replaces the model.

    E. Bagdasaryan et al., "How To Backdoor Federated Learning", AISTATS 2020.
    """

    def __init__(self, *, boost: float = 10.0):
        self.boost = boost

    def craft(self, update: Tensor, context: Context) -> Tensor:
        """The exaggerated update."""
        boosted = context.global_weights + self.boost * (update - context.global_weights)
        return with_statistics_of(context, boosted, update)


class Together(ABC):
    """Attackers who all send the same update, worked out once a round."""

    known: Tensor | None = None
    crafted: Tensor

    def craft(self, update: Tensor, context: Context) -> Tensor:
        """The common update."""
        if self.known is not context.updates:
            self.known, self.crafted = context.updates, self.common(context)
        return with_statistics_of(context, self.crafted, update)

    @abstractmethod
    def common(self, context: Context) -> Tensor:
        """What all of them send, from what they know."""


@attack("alie", label="ALIE", knows="attackers' updates")
class ALIE(Together):
    """mean - z std of each coordinate: as far off as a few honest updates are, and no further.

    G. Baruch et al., "A Little Is Enough: Circumventing Defenses For Distributed Learning", NeurIPS
    2019. Mean and deviation are those of the attackers' own honest training. Of n peers, f attack:
    with s = floor(n/2 + 1) - f honest supporters they are a majority, so z = Phi^-1((n - f - s) /
    (n - f)), unless it is given.
    """

    def __init__(self, *, z: float = 0.0):
        self.z = z

    def common(self, context: Context) -> Tensor:
        """The mean less z standard deviations."""
        known = context.honest
        z = self.z or self.largest_z(context.peers, len(context.attackers))
        return known.mean(dim=0) - z * known.std(dim=0, unbiased=False)

    @staticmethod
    def largest_z(n: int, f: int) -> float:
        """z, at least 0: from half on, where they need no supporters, that of one supporter."""
        honest, supporters = max(n - f, 2), max(n // 2 + 1 - f, 1)
        return max(NormalDist().inv_cdf(max(1 - supporters / honest, 0.5)), 0.0)


@attack("ipm", label="IPM", knows="all updates")
class IPM(Together):
    """W - epsilon (mean honest - W): the inner product with the honest step becomes negative.

    C. Xie et al., "Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation",
    UAI 2019.
    """

    def __init__(self, *, epsilon: float = 2.0):
        self.epsilon = epsilon

    def common(self, context: Context) -> Tensor:
        """The honest step backwards."""
        w = context.global_weights
        return w - self.epsilon * (context.honest.mean(dim=0) - w)


@attack("mimic", label="Mimic", knows="all updates")
class Mimic(Together):
    """All send the update of one honest peer, who then weighs more than she should.

    S. P. Karimireddy et al., "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing",
    ICLR 2022. The paper picks her in a first phase; here she is the one at place `victim` among the
    honest.
    """

    def __init__(self, *, victim: int = 0):
        self.victim = victim

    def common(self, context: Context) -> Tensor:
        """The victim's update."""
        return context.honest[self.victim % len(context.honest)]


class Farthest(Together):
    """mean + gamma p, with the largest gamma at which it still looks like an honest update.

    V. Shejwalkar, A. Houmansadr, "Manipulating the Byzantine: Optimizing Model Poisoning Attacks
    and Defenses for Federated Learning", NDSS 2021. p is against the honest mean step: its unit
    vector (`mean`), its signs (`sign`), or the honest standard deviations (`deviation`).
    """

    def __init__(self, *, direction: Direction = "deviation"):
        if direction not in get_args(Direction):
            raise unknown("direction", direction, get_args(Direction))
        self.direction = direction

    def common(self, context: Context) -> Tensor:
        """The honest mean, pushed."""
        honest = (context.honest - context.global_weights).double()
        mean = honest.mean(dim=0)
        p = {
            "mean": -mean / mean.norm().clamp(min=torch.finfo(torch.float64).tiny),
            "sign": -mean.sign(),
            "deviation": -honest.std(dim=0, unbiased=False),
        }[self.direction]
        offsets = mean - honest
        square, cross, length = offsets.square().sum(dim=1), offsets @ p, p @ p
        gamma = self.gamma(square, cross, length, squared_distances(honest))
        return (context.global_weights + mean + gamma * p).float()

    @abstractmethod
    def gamma(self, square: Tensor, cross: Tensor, length: Tensor, distances: Tensor) -> Tensor:
        """The largest gamma, where ||mean + gamma p - x_i||^2 is square_i + 2 gamma cross_i +
        gamma^2 length, from the honest updates' squared distances."""


def larger_root(square: Tensor, cross: Tensor, length: Tensor, bound: Tensor) -> Tensor:
    """The largest gamma with square + 2 gamma cross + gamma^2 length <= bound; 0 if length is."""
    root = (cross.square() + length * (bound - square)).clamp(min=0).sqrt() - cross
    return torch.where(length > 0, root / torch.where(length > 0, length, 1), 0)


@attack("min_max", label="Min-Max", knows="all updates")
class MinMax(Farthest):
    __doc__ = Farthest.__doc__

    def gamma(self, square: Tensor, cross: Tensor, length: Tensor, distances: Tensor) -> Tensor:
        """No honest update is farther from it than two honest ones are from each other."""
        return larger_root(square, cross, length, distances.max()).min()


@attack("min_sum", label="Min-Sum", knows="all updates")
class MinSum(Farthest):
    __doc__ = Farthest.__doc__

    def gamma(self, square: Tensor, cross: Tensor, length: Tensor, distances: Tensor) -> Tensor:
        """Its squared distances from the honest updates sum to no more than any honest one's."""
        n, bound = len(square), distances.sum(dim=1).max()
        return larger_root(square.sum(), cross.sum(), n * length, bound)


@attack("sybil_noise", label="Sybil noise", knows="attackers' updates")
class SybilNoise(LabelFlipper):
    """Flipped labels, and noise in the output layer that cancels between two attackers.

    C. Fung et al., "The Limitations of Federated Learning in Sybil Settings", RAID 2020, Section 7,
    against FoolsGold, which looks for updates that resemble each other. Each pair has noise of its
    own, the same in every round, `scale` times as long as the attackers' output layers have moved
    on average. An attacker without a partner adds none.
    """

    def __init__(self, *, scale: float = 1.0):
        self.scale = scale

    def craft(self, update: Tensor, context: Context) -> Tensor:
        """Plus the noise of her pair, or minus it."""
        pair, second = divmod(context.attackers.index(context.peer), 2)
        if not second and 2 * pair + 1 == len(context.attackers):
            return update
        moved = output_layer(context, context.honest - context.global_weights)
        drawn = torch.randn(moved.shape[1:], generator=torch_generator(pair, "sybil noise"))
        noise = drawn.to(update.device) / drawn.norm() * moved.flatten(1).norm(dim=1).mean()
        sign = -self.scale if second else self.scale
        return with_output_layer(
            context, update, output_layer(context, update.unsqueeze(0))[0] + sign * noise
        )


def with_statistics_of(context: Context, crafted: Tensor, update: Tensor) -> Tensor:
    """BatchNorm's running statistics are as her training left them: crafted, a variance could fall
    below zero, which is no longer an attack but a broken model."""
    n = context.model.layout.parameters
    return torch.cat([crafted[:n], update[n:]])


def output_layer(context: Context, updates: Tensor) -> Tensor:
    """The output layer in each row, `[*, neurons, features + 1]`, the bias last."""
    return context.model.layout.output_layer_of(updates)


def with_output_layer(context: Context, update: Tensor, layer: Tensor) -> Tensor:
    """The update with this output layer."""
    layout, changed = context.model.layout, update.clone()
    views = layout.views(changed)
    views[f"{layout.output_layer}.weight"].copy_(layer[:, :-1])
    views[f"{layout.output_layer}.bias"].copy_(layer[:, -1])
    return changed
