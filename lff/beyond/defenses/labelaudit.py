"""LabelAudit: who has examples that look like one class and calls them another?

The gradient of output neuron c is the sum of (p_c - y_c) h over a peer's examples, h being an
example's features and a 1 for the bias. An example of class c pushes it along -h if it is called c,
and along +h if it is called anything else. So LabelAudit learns from all peers together what the
examples of each class look like, and then asks who pushes them the other way. Only who calls some
examples c has a say in what c looks like. Label flippers call none of theirs the source class, and
so have no say in it, however many they are: no cluster, and no majority, decides who is bad.

Algorithm, in each round, with the output layer's gradients g_k,c of peer k and class c:
  1. Remember. G_k,c is the sum of g_k,c over the rounds so far, cut to the peers' median length.
  2. Look. H_c is the unit vector along the sum of -G_k,c over the peers whose bias gradient of c is
     negative: they call some examples c. D = (H H' + RIDGE I)^-1 H tells the looks apart.
  3. Contrast each ordered pair of classes: x_k(s, t) = <G_k,s - G_k,t, D_s> is negative if peer k
     calls s what looks like s, positive if she calls it t, and about 0 if she has none of it.
  4. Suspect the peers whose x_k(s, t) is above MARGIN times the positive contrasts' mean (weighed
     by themselves), and repeat 2 to 4 for the pair with looks in which its suspects have no say.
  5. Wait for evidence. That of (s, t) is the share of the positive contrasts in the sum of squares
     of x(s, t), that of s the largest over t. If the class with most of it has `threshold` more
     than the median class, in two rounds running, average without the suspects of its pair with
     most evidence; otherwise average all.

Where peers hold one class each there is no contrast within a peer: LFighter's FILTER_EXTREME. With
two classes one neuron's gradient mixes both looks: LFighter's FILTER_MILD of what is remembered, if
its clusters' silhouette is above SILHOUETTE.
"""

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

RIDGE = 0.01  # beside looks of length 1
MARGIN = 0.3
SILHOUETTE = 0.5
NO_CLASS = -1


@defense("labelaudit", label="LabelAudit")
class LabelAudit:
    """Average without the peers who call what looks like one class another, once that is evident.

    `threshold`, between 0 and 1, is how much more evidence that takes than the median class has.
    """

    def __init__(self, *, threshold: float = 0.15) -> None:
        if not 0 < threshold < 1:
            raise InputError(f"threshold must be between 0 and 1, not {threshold!r}")
        self.threshold = threshold
        self.memory: dict[int, Tensor] = {}
        self.source_class = NO_CLASS  # the s that was evident in the round before

    def __call__(self, updates: Updates) -> Decision:
        # Peers come by their ids: the order of rows must not change the last bits of a sum.
        rows = torch.tensor(updates.peers, device=updates.weights.device).argsort(stable=True)
        gradients = updates.output_layer[rows].double()
        peers = sorted(updates.peers)
        for peer, gradient in zip(peers, gradients, strict=True):
            self.memory[peer] = self.memory.get(peer, 0) + gradient
        memory = torch.stack([self.memory[peer] for peer in peers])
        saw: dict[str, Any] = {}
        if memory.shape[1] <= 2:
            bad, evidence = filter_two_classes(
                memory.flatten(1), seed=stream(updates.seed, "k-means", updates.round)
            )
        elif discover_distribution(held_classes(gradients)) == "extreme":
            bad, saw = filter_extreme(gradients)
            saw["clusters"] = [saw["clusters"][row] for row in rows.argsort().tolist()]
            evidence = None
        else:
            contrasts = audit(cut_to_median(memory))
            shares = positive_shares(contrasts)
            of_class = shares.amax(dim=1)
            s = int(of_class.argmax())
            t = int(shares[s].argmax())
            evidence = (of_class[s] - of_class.median()).item()
            evident = s if evidence > self.threshold else NO_CLASS
            bad = suspects(contrasts[s, t]) & (evident == self.source_class != NO_CLASS)
            self.source_class = evident
            saw = {"neurons": [s, t]}
        return average_without(updates, bad[rows.argsort()], {**saw, "evidence": evidence})

    def state_dict(self) -> dict[str, Tensor]:
        """What is remembered, for a checkpoint."""
        memory = {str(peer): gradients for peer, gradients in self.memory.items()}
        return memory | {"source_class": torch.tensor(self.source_class)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from what a checkpoint remembers."""
        memory = dict(state)
        self.source_class = int(memory.pop("source_class"))
        self.memory = {int(peer): gradients for peer, gradients in memory.items()}


def cut_to_median(memory: Tensor) -> Tensor:
    """G: no gradient of a neuron is longer than the peers' median, so that nobody outweighs all."""
    lengths = memory.norm(dim=2, keepdim=True)
    return memory * (lengths.quantile(0.5, dim=0) / at_least_tiny(lengths)).clamp(max=1)


def audit(gradients: Tensor) -> Tensor:
    """x_k(s, t) of all ordered pairs and peers, `[s, t, k]`, by looks without the suspects' say."""
    classes = gradients.shape[1]
    up = -gradients * held_classes(gradients).unsqueeze(2)  # -G_k,c of who calls some examples c
    everyone = telling_apart(up.sum(dim=0))
    contrasts = []
    for s in range(classes):
        first = contrast(gradients, s, everyone[s].expand(classes, -1))
        trusted = (~suspects(first)).double()  # [t, k]
        directions = telling_apart(torch.einsum("tk,kcf->tcf", trusted, up))
        contrasts.append(contrast(gradients, s, directions[:, s]))
    return torch.stack(contrasts)


def telling_apart(sums: Tensor) -> Tensor:
    """D, whose row c is along what sets the look of class c apart; `[..., classes, features]`."""
    looks = sums / at_least_tiny(sums.norm(dim=-1, keepdim=True))
    ridge = RIDGE * torch.eye(looks.shape[-2], dtype=looks.dtype, device=looks.device)
    return torch.linalg.solve(looks @ looks.mT + ridge, looks)


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


def positive_shares(x: Tensor) -> Tensor:
    """The evidence of each pair: the share of the positive contrasts in the sum of squares."""
    return x.clamp(min=0).square().sum(dim=-1) / at_least_tiny(x.square().sum(dim=-1))


def filter_two_classes(memory: Tensor, *, seed: int) -> tuple[Tensor, float]:
    """FILTER_MILD of what is remembered, if its two clusters lie clearly apart."""
    bad, saw = filter_mild(memory, seed=seed)
    clusters = saw["clusters"]
    if not 1 < len(set(clusters)) < len(clusters):
        return torch.zeros_like(bad), 0.0
    silhouette = float(silhouette_score(memory.cpu().numpy(), clusters))
    return bad & (silhouette > SILHOUETTE), silhouette


def at_least_tiny(tensor: Tensor) -> Tensor:
    """The same, but never 0, to divide by."""
    return tensor.clamp(min=torch.finfo(tensor.dtype).tiny)
