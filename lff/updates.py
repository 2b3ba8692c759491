"""The stacked updates of one round, views of them, and what a defense decides."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lff.errors import InputError
from lff.models import Layout

LARGEST = torch.finfo(torch.float32).max


@dataclass(frozen=True, kw_only=True, eq=False)
class Updates:
    """What the server holds after a round of local training: `m` updates, one per row.

    `weights` is one contiguous float32 matrix `[m, d]` of every floating-point entry of the
    models' state (see `Layout`), so that rules over whole updates are matrix operations and
    the output layer is a view of a few columns.
    """

    weights: Tensor  # W_k^{t+1}, one row per peer
    global_weights: Tensor  # W^t
    layout: Layout
    learning_rate: float  # eta
    examples: Tensor  # |D_k| of each peer
    peers: tuple[int, ...]  # the ids of the peers in S, in row order
    round: int = 0
    seed: int = 0  # for defenses that draw random numbers
    declared_classes: Tensor | None = None  # bool [m, classes]: what each peer says she holds
    # Told only to rules that declare the need; no server can know it.
    attacker_count: int | None = None
    attackers: tuple[int, ...] | None = None  # the ids of the peers who attack

    def __post_init__(self) -> None:
        if self.weights.dim() != 2:
            shape = list(self.weights.shape)
            raise InputError(f"updates must be stacked, one row per peer, not of shape {shape}")
        m, d = self.weights.shape
        if d != self.layout.size or self.global_weights.shape != (d,):
            raise InputError(
                f"updates of {d} entries and a global model of {len(self.global_weights)} "
                f"do not fit a layout of {self.layout.size}"
            )
        if len(self.peers) != m or len(self.examples) != m or m == 0:
            raise InputError(
                f"{m} updates, {len(self.peers)} peer ids and {len(self.examples)} example "
                "counts: there must be as many of each, and at least one"
            )
        if self.declared_classes is not None and len(self.declared_classes) != m:
            raise InputError(f"{m} updates, but {len(self.declared_classes)} peers declare classes")
        if not 0 < self.learning_rate < float("inf"):
            raise InputError(f"the learning rate must be above 0, not {self.learning_rate!r}")
        for peer, count in zip(self.peers, self.examples.tolist(), strict=True):
            if not 0 <= count < float("inf"):
                raise InputError(f"peer {peer} must have 0 examples or more, not {count!r}")

    def __len__(self) -> int:
        return len(self.weights)

    @cached_property
    def finite(self) -> list[bool]:
        """Whether each update holds neither NaN nor an infinity."""
        return finite_rows(self.weights)

    @cached_property
    def gradients(self) -> Tensor:
        """(W^t - W_k^{t+1}) / eta over all parameters, `[m, parameters]`."""
        n = self.layout.parameters
        return within_range(
            (self.global_weights[:n] - self.weights[:, :n]).div_(self.learning_rate)
        )

    @cached_property
    def output_layer(self) -> Tensor:
        """The output layer's gradients, `[m, classes, features + 1]`, the bias last."""
        before = self.layout.output_layer_of(self.global_weights.unsqueeze(0))
        after = self.layout.output_layer_of(self.weights)
        return within_range((before - after).div_(self.learning_rate))

    @cached_property
    def magnitudes(self) -> Tensor:
        """||nabla^{L,t}_{i,k}||: each output neuron's gradient magnitude, `[m, classes]`."""
        return self.output_layer.norm(dim=2)

    def relevant(self, i: int, j: int) -> Tensor:
        """The gradients connected to output neurons `i` and `j`, `[m, 2 * (features + 1)]`."""
        return self.output_layer[:, [i, j]].flatten(1)

    def told(self, need: str) -> Any:
        """What a rule must be told and declares with `needs`: `attacker_count` or `attackers`."""
        if (value := getattr(self, need)) is None:
            raise InputError(
                f"this defense must be told {need}: register it with needs=({need!r},), "
                f"or set {need}"
            )
        if need == "attacker_count" and value < 0:
            raise InputError(f"attacker_count must be 0 or more, not {value!r}")
        return value

    def select(self, rows: Sequence[int]) -> "Updates":
        """The same round with only these rows."""
        rows = list(rows)
        declared = self.declared_classes
        return Updates(
            weights=self.weights[rows],
            global_weights=self.global_weights,
            layout=self.layout,
            learning_rate=self.learning_rate,
            examples=self.examples[rows],
            peers=tuple(self.peers[row] for row in rows),
            round=self.round,
            seed=self.seed,
            declared_classes=None if declared is None else declared[rows],
            attacker_count=self.attacker_count,
            attackers=self.attackers,
        )


@dataclass(frozen=True, eq=False)
class Decision:
    """What a defense makes of a round.

    `weights` holds the share of each peer in the aggregate (0 = filtered out), for rules that
    filter or weigh whole updates; `scores` how suspicious each peer looked (the higher, the more),
    for rules that say so; `saw` what else the rule saw (JSON values or small tensors), so that a
    record or a notebook can show why.
    """

    aggregate: Tensor
    weights: Tensor | None = None
    scores: Tensor | None = None
    saw: dict[str, Any] = field(default_factory=dict)

    def dropped(self, peers: Sequence[int]) -> list[int]:
        """The ids of the peers whose update was filtered out."""
        if self.weights is None:
            return []
        shares = zip(peers, self.weights.tolist(), strict=True)
        return [peer for peer, share in shares if not share]


def finite_rows(matrix: Tensor) -> list[bool]:
    """Whether each row holds neither NaN nor an infinity."""
    finite = matrix.sum(dim=1).isfinite()  # one quick pass; large finite values may overflow
    doubtful = (~finite).nonzero().flatten()
    finite[doubtful] = matrix[doubtful].isfinite().all(dim=1)
    return finite.tolist()


def within_range(tensor: Tensor) -> Tensor:
    """The same tensor (changed in place) with what overflowed cut to the largest float32."""
    return tensor.clamp_(-LARGEST, LARGEST)


def without_overflow(rule: Callable[[Tensor], Tensor], matrix: Tensor) -> Tensor:
    """`rule(matrix)`, and again in float64 for the columns whose sums overflow float32."""
    result = rule(matrix)
    if not all(finite_rows(result.unsqueeze(0))):
        columns = (~result.isfinite()).nonzero().flatten()
        result[columns] = within_range(rule(matrix[:, columns].double())).to(result.dtype)
    return result


def weighted_mean(updates: Updates, weights: Tensor) -> Decision:
    """Average the updates with these non-negative weights, scaled to sum to one.

    If nobody has any weight, all weigh the same.
    """
    weights = weights.double()
    weights = torch.where(weights.sum() > 0, weights, 1)
    shares = (weights / weights.sum()).to(updates.weights.dtype)
    return Decision(aggregate=within_range(shares @ updates.weights), weights=shares)


def average_without(updates: Updates, bad: Tensor, saw: dict[str, Any] | None = None) -> Decision:
    """FedAvg({W_k | k not in bad}): the last line of Algorithm 1. If all are bad, none is.

    If those who remain have no examples, they weigh the same.
    """
    kept = ~bad if not bad.all() else torch.ones_like(bad)
    examples = updates.examples * kept
    decision = weighted_mean(updates, examples if examples.any() else kept)
    aggregate, shares = decision.aggregate, decision.weights
    if shares is not None and not all(finite_rows(aggregate.unsqueeze(0))):
        # 0 x NaN is NaN: a dropped update must leave no trace
        rows = kept.nonzero().flatten()
        aggregate = shares[rows] @ updates.weights[rows]
    return Decision(aggregate=aggregate, weights=shares, saw=saw or {})
