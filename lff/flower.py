"""Every defense of `lff` as a strategy of Flower's message API (the extra `lff[flower]`).

    from lff.flower import DefendedFedAvg

    strategy = DefendedFedAvg("lfighter", fraction_train=0.5)  # was: FedAvg(fraction_train=0.5)

Flower's nodes are the peers: they need no change. What the defense dropped, excluded, weighed and
saw is logged, joins each round's metrics (`defense-dropped`, ...) and stands in `strategy.history`.
"""

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from torch import Tensor

from lff import fast
from lff.attacks import number_of_attackers
from lff.defenses import DEFENSES
from lff.errors import InputError, unknown
from lff.federation import compact
from lff.models import Layout
from lff.registry import parse_options
from lff.updates import LARGEST, Decision, Updates

logger = logging.getLogger("flwr")  # Flower's own: `flwr run --stream` shows what it says

STATISTICS = ("running_mean", "running_var")  # of BatchNorm: no parameters, though floating-point
LOWEST = -(2**63)  # Flower's node ids are unsigned 64-bit numbers, and torch's integers signed


class DefendedFedAvg(FedAvg):  # type: ignore[misc]  # untyped where Flower is not installed
    """Flower's `FedAvg` with a defense in the place of the average.

    `defense` names a registered defense, `defense_options` sets its options. `output_layer` names
    the output layer (`fc2` for `fc2.weight` and `fc2.bias`); without it the last linear layer with
    a bias is taken. `attacker_ratio` (a fraction), `attackers` (node ids) and `root_update` are
    for the defenses that must be told; the last gets the global arrays and a number of examples,
    and gives the arrays after training on so many clean ones. Gradients are
    (W^t - W_k) / `learning_rate`; of our defenses only centered clipping depends on it. The number
    of examples is a peer's own word: with `count_examples=False` all weigh the same. All other
    options are `FedAvg`'s.
    """

    def __init__(
        self,
        defense: str = "lfighter",
        *,
        defense_options: Mapping[str, Any] | str = "",
        output_layer: str = "",
        attacker_ratio: float | None = None,
        attackers: Collection[int] | None = None,
        root_update: Callable[[ArrayRecord, int], ArrayRecord] | None = None,
        learning_rate: float = 1.0,
        count_examples: bool = True,
        seed: int = 0,
        **options: Any,
    ):
        super().__init__(**options)
        options_of_rule = parse_options(defense_options)
        self.rule = fast.make_rule(DEFENSES[defense], options_of_rule)
        self.defense, self.needs = defense, self.rule.needs  # type: ignore[attr-defined]
        self.attacker_ratio, self.attackers = attacker_ratio, attackers
        self.root_update = root_update
        for need in self.needs:
            option = "attacker_ratio" if need == "attacker_count" else need
            if getattr(self, option) is None:
                raise InputError(f"defense {defense!r} must be told {need}: give {option}=...")
        if options_of_rule.get("distribution") == "declared":
            raise InputError("nodes have no way to declare their classes: choose a distribution")
        if attacker_ratio is not None and not 0 <= attacker_ratio <= 1:
            raise InputError(f"attacker_ratio must be between 0 and 1, not {attacker_ratio!r}")
        self.output_layer = output_layer
        self.learning_rate, self.count_examples, self.seed = learning_rate, count_examples, seed
        self.global_arrays: ArrayRecord | None = None
        self.layout: Layout
        self.keys: list[str]  # of the arrays in the flat vector, in its order
        self.history: list[dict[str, Any]] = []  # JSON values of each round

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send W^t to the sampled nodes, and keep it: `aggregate_train` is not given it."""
        layout, keys = layout_of(arrays, self.output_layer)
        if self.global_arrays is None:
            logger.info("%s takes %s for the output layer", self.defense, layout.output_layer)
        self.global_arrays, self.layout, self.keys = arrays, layout, keys
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """W^{t+1}, as the defense decides, and the round's metrics.

        A reply that cannot be used (an error, arrays of other shapes, NaN, a number of examples
        that is none) is left out, so that no peer can end the run. Without any, W^t stays.
        """
        if self.global_arrays is None:
            raise InputError("aggregate_train needs the global model: call configure_train first")
        messages = sorted(replies, key=node_of)  # they come in any order
        weights = torch.empty(len(messages), self.layout.size)
        usable: list[Message] = []
        examples: list[float] = []
        excluded: dict[int, str] = {}
        for message in messages:
            try:
                examples.append(self.read(message, weights[len(usable)]))
                usable.append(message)
            except Exception as error:  # whatever a peer may have sent
                excluded[node_of(message)] = str(error)
                logger.warning("The reply of node %d is left out: %s", node_of(message), error)
        if not usable:
            logger.warning("Round %d brought no reply that can be used", server_round)
            return None, None
        nodes = [node_of(message) for message in usable]
        updates = Updates(
            weights=weights[: len(usable)],
            global_weights=self.flatten(self.global_arrays, torch.empty(self.layout.size)),
            layout=self.layout,
            learning_rate=self.learning_rate,
            examples=torch.tensor(examples),
            peers=tuple(node + LOWEST for node in nodes),
            round=server_round - 1,  # Flower counts from 1, and random streams go by the round
            seed=self.seed,
            **self.told(len(usable)),
        )
        decision = self.rule(updates)
        entry = self.describe(server_round, nodes, decision, excluded)
        self.history.append(entry)
        return self.arrays_of(decision.aggregate), self.metrics_of(usable, entry)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The metrics of the peers' own evaluation, of those replies that can be averaged."""
        usable = []
        for message in replies:
            try:
                if self.examples_of(message) > 0:
                    usable.append(message)
            except Exception as error:  # whatever a peer may have sent
                name = node_of(message)
                logger.warning("The evaluation of node %d is left out: %s", name, error)
        return super().aggregate_evaluate(server_round, alike(usable))

    def read(self, message: Message, row: Tensor) -> float:
        """Put a reply's update into a row of the stack, and give her number of examples.

        An error says why it cannot be used.
        """
        examples = self.examples_of(message)
        records = list(message.content.array_records.values())
        if len(records) != 1:
            raise InputError(f"it must hold one ArrayRecord, not {len(records)}")
        if not self.flatten(records[0], row).isfinite().all():
            raise InputError("its arrays hold NaN or infinities")
        return examples if self.count_examples else 1.0

    def examples_of(self, message: Message) -> float:
        """How many examples a peer says she has; an error if her reply does not say it."""
        if message.has_error():
            raise InputError(f"error {message.error.code}: {message.error.reason}")
        records = list(message.content.metric_records.values())
        if len(records) != 1:
            raise InputError(f"it must hold one MetricRecord, not {len(records)}")
        examples = records[0].get(self.weighted_by_key)
        if not isinstance(examples, int | float) or not 0 <= examples <= LARGEST:
            raise InputError(f"{self.weighted_by_key} must be 0 or more, not {examples!r}")
        return float(examples)

    def flatten(self, arrays: ArrayRecord, vector: Tensor) -> Tensor:
        """Fill a flat vector with the floating-point arrays, whose shapes must be the layout's."""
        for key, view in zip(self.keys, self.layout.views(vector).values(), strict=True):
            if key not in arrays:
                raise InputError(f"array {key} is missing")
            array = arrays[key].numpy()
            if array.shape != view.shape or array.dtype.kind != "f":
                raise InputError(
                    f"array {key} must be floating-point of shape {tuple(view.shape)}, not "
                    f"{array.dtype} of shape {array.shape}"
                )
            view.copy_(torch.from_numpy(array))
        return vector

    def arrays_of(self, vector: Tensor) -> ArrayRecord:
        """A flat vector as arrays of the global model's names, order and types.

        What is not floating-point (BatchNorm's number of batches) is carried through as it was.
        """
        arrays = dict(self.global_arrays or {})
        for key, view in zip(self.keys, self.layout.views(vector).values(), strict=True):
            arrays[key] = Array(view.numpy().astype(arrays[key].dtype))
        return ArrayRecord(arrays)

    def told(self, peers: int) -> dict[str, Any]:
        """What the defense must be told though no server can know it."""
        told = {
            "attacker_count": number_of_attackers(self.attacker_ratio or 0, peers),
            "attackers": tuple(node + LOWEST for node in self.attackers or ()),
            "root_update": self.root,
        }
        return {need: told[need] for need in self.needs}

    def root(self, examples: int) -> Tensor:
        """The update of the server's own training on so many clean examples."""
        arrays = self.root_update(self.global_arrays, examples)  # type: ignore[misc, arg-type]
        return self.flatten(arrays, torch.empty(self.layout.size))

    def describe(
        self, server_round: int, nodes: list[int], decision: Decision, excluded: dict[int, str]
    ) -> dict[str, Any]:
        """The round in JSON values, by node ids; and a line of it in the log."""
        dropped = decision.dropped(nodes)
        saw = compact(decision.saw)
        logger.info(
            "%s dropped %d of %d peers: %s; saw %s",
            self.defense,
            len(dropped),
            len(nodes),
            dropped,
            saw,
        )
        return {
            "round": server_round,
            "peers": nodes,
            "dropped": dropped,
            "excluded": excluded,
            "weights": compact(decision.weights),
            "scores": compact(decision.scores),
            "saw": saw,
        }

    def metrics_of(self, usable: list[Message], entry: dict[str, Any]) -> MetricRecord:
        """The metrics of the peers who were not dropped, as FedAvg aggregates them.

        The round's own join them. A record holds numbers and lists of numbers; what is neither is
        in `history` only.
        """
        kept = [message for message in usable if node_of(message) not in entry["dropped"]]
        contents = [message.content for message in alike(kept)]
        metrics = MetricRecord()
        with contextlib.suppress(ZeroDivisionError):  # nobody has examples
            metrics = self.train_metrics_aggr_fn(contents, self.weighted_by_key)
        told = {name: entry[name] for name in ("peers", "dropped", "weights", "scores")}
        told |= {"excluded": list(entry["excluded"]), **entry["saw"]}
        for name, value in told.items():
            with contextlib.suppress(TypeError):
                metrics[f"defense-{name}"] = value
        return metrics


def node_of(message: Message) -> int:
    """Who replied, by the SuperLink's word; an id inside the content is the peer's own."""
    return int(message.metadata.src_node_id)


def alike(messages: list[Message]) -> list[Message]:
    """Those whose metrics have the most frequent names and lengths: these can be averaged."""
    forms = []
    for message in messages:
        ((record, metrics),) = message.content.metric_records.items()
        lengths = {name: len(v) if isinstance(v, list) else -1 for name, v in metrics.items()}
        forms.append((record, *sorted(lengths.items())))
    frequent = Counter(forms).most_common(1)
    return [m for m, form in zip(messages, forms, strict=True) if form == frequent[0][0]]


def layout_of(arrays: ArrayRecord, output_layer: str = "") -> tuple[Layout, list[str]]:
    """Where each floating-point array lies in the flat vector, and the arrays' names in its order.

    Parameters come first and BatchNorm's statistics last, as in `Layout.of`.
    """
    shapes = {key: tuple(a.shape) for key, a in arrays.items() if np.dtype(a.dtype).kind == "f"}
    weight, bias = find_output_layer(shapes, output_layer)
    layer = weight.removesuffix(".weight")
    keys = sorted(shapes, key=lambda key: key.endswith(STATISTICS))
    sizes = [prod(shapes[key]) for key in keys]
    parameters = [s for s, key in zip(sizes, keys, strict=True) if not key.endswith(STATISTICS)]
    names = {weight: f"{layer}.weight", bias: f"{layer}.bias"}
    layout = Layout(
        names=tuple(names.get(key, key) for key in keys),
        shapes=tuple(shapes[key] for key in keys),
        offsets=tuple(int(o) for o in np.cumsum([0, *sizes[:-1]])),
        parameters=sum(parameters),
        size=sum(sizes),
        output_layer=layer,
    )
    return layout, keys


def find_output_layer(shapes: Mapping[str, tuple[int, ...]], output_layer: str) -> tuple[str, str]:
    """The names of the output layer's weight [classes, features] and bias [classes].

    It is the last linear layer unless it is named. In arrays without names (a list: "0", "1", ...)
    a bias is what follows its weight.
    """
    keys = list(shapes)
    biases = {k: f"{k.removesuffix('weight')}bias" for k in keys if k.split(".")[-1] == "weight"}
    biases |= {k: after for k, after in pairwise(keys) if k.isdigit()}
    linear = {
        weight.removesuffix(".weight"): (weight, bias)
        for weight, bias in biases.items()
        if len(shapes[weight]) == 2 and len(shapes.get(bias, ())) == 1
    }
    if not linear:
        raise InputError(
            "no array is the weight [classes, features] of a linear layer with a bias [classes], "
            f"so there is no output layer to look at; the arrays are {', '.join(keys)}"
        )
    if output_layer and output_layer not in linear:
        raise unknown("output_layer", output_layer, linear)
    weight, bias = linear[output_layer or list(linear)[-1]]
    if shapes[bias] != shapes[weight][:1]:
        raise InputError(
            f"output layer {weight} is of shape {shapes[weight]} and its bias of {shapes[bias]}: "
            "they must be (classes, features) and (classes,); Keras has weights transposed. "
            "If this is not the output layer, name it with output_layer=..."
        )
    return weight, bias
