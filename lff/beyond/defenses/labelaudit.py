"""LabelAudit: who has examples that look like one class and calls them another?

The gradient of output neuron c is the sum of (p_c - y_c) h over a peer's examples, h being an
example's features and a 1 for the bias. An example of class c pushes it along -h if it is called c,
and along +h if it is called anything else. So LabelAudit learns from all peers together what the
examples of each class look like, and then asks who pushes them the other way. Only who calls some
examples c has a say in what c looks like. Label flippers call none of theirs the source class, and
so have no say in it, however many they are: no cluster, and no majority, decides who is bad.

Algorithm, in each round, with the output layer's gradients g_k,c of peer k and class c:
  1. Smooth. G_k,c <- FADING G_k,c + g_k,c; then cut to the peers' median length for class c.
  2. Look. Peer k calls some examples c if her bias gradient of c is negative and so is <G_k,c, h>,
     h being what all examples share: the sum of all G, each times the sign of its bias. H_c is the
     unit vector along the sum of -G_k,c over these peers; D = (H H' + RIDGE I)^-1 H tells the looks
     apart.
  3. Contrast each ordered pair of classes: x_k(s, t) = <G_k,s - G_k,t, D_s> is negative if peer k
     calls s what looks like s, positive if she calls it t, and about 0 if she has none of it.
  4. Suspect the peers whose x_k(s, t) is above MARGIN times the positive contrasts' mean (weighed
     by themselves), and repeat 2 and 3 for the pair with looks in which its suspects have no say.
  5. Remember. Two sums over the rounds, neither ever below 0: UP_k <- max(0, UP_k + x_k) and
     DOWN_k <- max(0, DOWN_k - x_k), for each (s, t). These are Page's cumulative sums
     (Biometrika 41, 1954): rounds in which a peer was honest do not make up for later ones.
  6. Wait for evidence. That of (s, t) is the share of UP in the sum of squares of UP and DOWN, that
     of s the largest over t. If the class with most of it has `threshold` more than the median
     class, in two rounds running, average without the suspects (as in 4, by UP) of its pair with
     most evidence; otherwise average all.

Where peers hold one class each there is no contrast within a peer: LFighter's FILTER_EXTREME. With
two classes one neuron's gradient mixes both looks: LFighter's FILTER_MILD of the smoothed
gradients, if its clusters' silhouette is above SILHOUETTE.
"""

import math
from typing import Any

import torch
from sklearn.metrics import silhouette_score
from torch import Tensor

from lff.defenses.lfighter import (
    discover_distribution,
    filter_extreme,
    filter_mild,
    held_classes,
)
from lff.defenses.rule import defense
from lff.errors import InputError
from lff.seeds import stream
from lff.updates import Decision, Updates, average_without

FADING = 0.7
RIDGE = 0.01  # beside looks of length 1
MARGIN = 0.4
SILHOUETTE = 0.5
NO_CLASS = -1


@defense("labelaudit", label="LabelAudit")
class LabelAudit:
    """Average without the peers who call what looks like one class another, once that is evident.

    `threshold`, between 0 and 1, is how much more evidence that takes than the median class has.
    """

    def __init__(self, *, threshold: float = 0.12) -> None:
        if not 0 < threshold < 1:
            raise InputError(f"threshold must be between 0 and 1, not {threshold!r}")
        self.threshold = threshold
        self.gradients: dict[int, Tensor] = {}  # G of each peer
        self.sums: dict[int, Tensor] = {}  # UP and DOWN of each peer
        self.source_class = NO_CLASS  # the s that was evident in the round before

    def __call__(self, updates: Updates) -> Decision:
        # Peers come by their ids: the order of rows must not change the last bits of a sum.
        rows = torch.tensor(updates.peers, device=updates.weights.device).argsort(stable=True)
        gradients = updates.output_layer[rows].double()
        peers = sorted(updates.peers)
        smoothed = remembered(self.gradients, peers, gradients, fading=FADING)
        saw: dict[str, Any] = {}
        if gradients.shape[1] <= 2:
            seed = stream(updates.seed, "k-means", updates.round)
            bad, evidence = filter_two_classes(smoothed.flatten(1), seed=seed)
            saw = {"evidence": evidence}
        elif discover_distribution(held_classes(gradients)) == "extreme":
            bad, saw = filter_extreme(gradients)
            saw["clusters"] = [saw["clusters"][row] for row in rows.argsort().tolist()]
        else:
            x = audit(cut_to_median(smoothed)).movedim(2, 0)  # [k, s, t]
            sums = remembered(self.sums, peers, torch.stack([x, -x], dim=1), floor=0.0)
            bad, saw = self.decide(*sums.permute(1, 2, 3, 0))
        return average_without(updates, bad[rows.argsort()], saw)

    def decide(self, up: Tensor, down: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Whom to drop, by UP and DOWN, `[s, t, k]`."""
        shares = positive_shares(up, down)
        of_class = shares.amax(dim=1)
        s = int(of_class.argmax())
        t = int(shares[s].argmax())
        evidence = (of_class[s] - of_class.median()).item()
        before, self.source_class = self.source_class, s if evidence > self.threshold else NO_CLASS
        evident = before == self.source_class != NO_CLASS
        return suspects(up[s, t]) & evident, {"neurons": [s, t], "evidence": evidence}

    def state_dict(self) -> dict[str, Tensor]:
        """What is remembered, for a checkpoint."""
        return {
            "source_class": torch.tensor(self.source_class),
            **{f"gradients.{peer}": tensor for peer, tensor in self.gradients.items()},
            **{f"sums.{peer}": tensor for peer, tensor in self.sums.items()},
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from what a checkpoint remembers."""
        self.source_class = int(state["source_class"])
        self.gradients, self.sums = (
            {int(name.removeprefix(kind)): state[name] for name in state if name.startswith(kind)}
            for kind in ("gradients.", "sums.")
        )


def remembered(
    memory: dict[int, Tensor],
    peers: list[int],
    news: Tensor,
    *,
    fading: float = 1.0,
    floor: float = -math.inf,
) -> Tensor:
    """What is remembered of these peers, one row each, when `news` has been added."""
    for peer, new in zip(peers, news, strict=True):
        memory[peer] = (fading * memory.get(peer, 0) + new).clamp(min=floor)
    return torch.stack([memory[peer] for peer in peers])


def cut_to_median(gradients: Tensor) -> Tensor:
    """G: no gradient of a neuron is longer than the peers' median, so that nobody outweighs all."""
    lengths = gradients.norm(dim=2, keepdim=True)
    return gradients * (lengths.quantile(0.5, dim=0) / at_least_tiny(lengths)).clamp(max=1)


def audit(gradients: Tensor) -> Tensor:
    """x_k(s, t) of all ordered pairs and peers, `[s, t, k]`, by looks without the suspects' say."""
    up = -gradients * callers(gradients).unsqueeze(2)
    everyone = gradients @ telling_apart(up.sum(dim=0)).T  # <G_k,c, D_s>, [k, c, s]
    contrasts = []
    for s in range(gradients.shape[1]):
        first = everyone[:, s, s] - everyone[:, :, s].T
        trusted = (~suspects(first)).double()  # [t, k]
        directions = telling_apart(torch.einsum("tk,kcf->tcf", trusted, up))
        contrasts.append(contrast(gradients, s, directions[:, s]))
    return torch.stack(contrasts)


def callers(gradients: Tensor) -> Tensor:
    """Whether each peer calls some of her examples c, `[k, c]`.

    The sign of the bias alone would be one number for an attacker to turn.
    """
    shared = (gradients * gradients[:, :, -1:].sign()).sum(dim=(0, 1))
    return held_classes(gradients) & (gradients @ shared < 0)


def telling_apart(sums: Tensor) -> Tensor:
    """D, whose row c is along what sets the look of class c apart; `[..., classes, features]`."""
    looks = sums / at_least_tiny(sums.norm(dim=-1, keepdim=True))
    ridge = RIDGE * torch.eye(looks.shape[-2], dtype=looks.dtype, device=looks.device)
    return torch.linalg.inv(looks @ looks.mT + ridge) @ looks


def contrast(gradients: Tensor, s: int, directions: Tensor) -> Tensor:
    """x_k(s, t) = <G_k,s - G_k,t, D_s> for each t, `[t, k]`; row t of `directions` is its D_s."""
    called_s = directions @ gradients[:, s].T
    called_t = torch.einsum("kcf,cf->ck", gradients, directions)
    x = called_s - called_t
    x[s] = 0  # s is no other class than itself
    return x


def suspects(x: Tensor) -> Tensor:
    """Whose contrast stands out among the positive ones."""
    positive = x.clamp(min=0)
    mean = positive.square().sum(dim=-1) / at_least_tiny(positive.sum(dim=-1))
    return x > MARGIN * mean.unsqueeze(-1)


def positive_shares(up: Tensor, down: Tensor) -> Tensor:
    """The evidence of each pair: the share of UP in the sum of squares of UP and DOWN."""
    positive, negative = up.square().sum(dim=-1), down.square().sum(dim=-1)
    return positive / at_least_tiny(positive + negative)


def filter_two_classes(gradients: Tensor, *, seed: int) -> tuple[Tensor, float]:
    """FILTER_MILD, if its two clusters lie clearly apart; and their silhouette."""
    bad, saw = filter_mild(gradients, seed=seed)
    clusters = saw["clusters"]
    if not 1 < len(set(clusters)) < len(clusters):
        return torch.zeros_like(bad), 0.0
    silhouette = float(silhouette_score(gradients.cpu().numpy(), clusters))
    return bad & (silhouette > SILHOUETTE), silhouette


def at_least_tiny(tensor: Tensor) -> Tensor:
    """The same, but never 0, to divide by."""
    return tensor.clamp(min=torch.finfo(tensor.dtype).tiny)
