"""Aggregation: time and peak extra memory of every defense beside other ways to compute it.

The rounds are synthetic, of the shape of a ResNet18 and of a CNN round, and such that every way
to compute a rule gives the same aggregate. Times are of the rule alone, on updates that the
server has found finite; that check, which is made once a round, has a row of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lff.defenses import DEFENSES, Rule
from lff.defenses.mixing import mixed, mixture_of
from lff.defenses.repeated_median import coordinate_repeated_median
from lff.fast import RULES
from lff.models import OUTPUT_LAYER, Layout, build_model
from lff.updates import Decision, Updates, finite_rows
from lff.vision import import_torchvision
from speed import authors
from speed.common import Report, peak_extra_memory, side_by_side, threads

LEARNING_RATE = 0.01
ATTACKERS = 0.3  # of the peers
BUDGET = 5.0  # seconds after which a contestant sits out the remaining passes
# Model, peers, coordinates of the slow forms of the repeated median, passes.
SIZES = {
    "ResNet18, 20 updates of 11.2M": ("resnet18", 20, 200_000, 5),
    "CNN, 100 updates of 21,840": ("cnn", 100, 2_184, 20),
}
QUICK = {"CNN, 12 updates": ("cnn", 12, 500, 1), "CNN, 40 updates": ("cnn", 40, 200, 1)}


@dataclass(frozen=True)
class Contestant:
    """One way to compute a rule, maybe on the first `slice` coordinates only."""

    rule: str
    way: str
    run: Callable[[], Any]
    slice: int | None = None


def run(quick: bool = False) -> Report:
    """Measure both sizes; `quick` is for trying out the code."""
    report = Report("aggregation")
    report.notes += [
        "ms: lff's processor time on one thread, the least of several runs in turn. MiB: its peak "
        "extra memory, result included. Others: times the time of lff for the same rule.",
        "fltrust: without the training on the server's clean examples. nearest and bucketing: the "
        "mixing alone, before any rule.",
        "lff: as experiments compute it; plain: as `lff.defenses` states it, where `lff.fast` has "
        "another form. Of median and trimmed_mean the plain form is torch's sort over the peers.",
    ]
    if byzfl_aggregators() is None:
        report.notes.append("byzfl is not installed and was left out: `pip install lff[speed]`.")
    for title, (model, peers, part, passes) in (QUICK if quick else SIZES).items():
        updates = a_round(model, peers)
        report.tables[title] = measure(updates, contestants(updates, part), passes)
        report.notes.append(
            f"{title.split(',')[0]}: the plain and the authors' repeated median ran on {part:,} "
            f"coordinates; their time is scaled to all {updates.layout.size:,}."
        )
    return report


def a_round(model: str, peers: int) -> Updates:
    """A round whose last 30% are attackers, with a clear answer for every rule.

    The further down a peer, the noisier her update, so that Krum's choice does not depend on how
    it counts neighbours. Honest peers and attackers pull two output neurons in different
    directions, the attackers more alike.
    """
    layout = layout_of(model)
    generator = torch.Generator().manual_seed(0)
    start = torch.empty(layout.size).normal_(0, 0.02, generator=generator)
    weights = torch.empty(peers, layout.size)
    attackers = int(ATTACKERS * peers)
    columns = layout.slice(f"{layout.output_layer}.weight")
    features = (columns.stop - columns.start) // 10
    honest_pull, attackers_pull = torch.randn(2, 2 * features, generator=generator).mul_(0.05)
    for k, row in enumerate(weights):
        row.normal_(0, 5e-3 * (1 + k / peers), generator=generator).add_(start)
        attacks = k >= peers - attackers
        row[columns][: 2 * features] += attackers_pull if attacks else honest_pull
        row[columns][: 2 * features] += torch.randn(2 * features, generator=generator).mul_(
            0.01 if attacks else 0.05
        )
    return Updates(
        weights=weights,
        global_weights=start,
        layout=layout,
        learning_rate=LEARNING_RATE,
        examples=torch.arange(1.0, peers + 1).mul_(10),
        peers=tuple(range(peers)),
        attacker_count=attackers,
        attackers=tuple(range(peers - attackers, peers)),
        root_update=lambda examples: weights[0],
    )


def layout_of(model: str) -> Layout:
    """The layout of a model's updates."""
    return Layout.of(build_model(model), OUTPUT_LAYER[model])


def contestants(updates: Updates, part: int) -> list[Contestant]:
    """Every rule of lff, each followed by the other ways to compute it."""
    matrix = updates.weights
    ways = [
        Contestant("plain mean", "torch", lambda: matrix.mean(dim=0)),
        Contestant("finite?", "lff", lambda: finite_rows(matrix)),
        *(
            Contestant(n, "lff", partial(mixing_alone, updates, n))
            for n in ("nearest", "bucketing")
        ),
    ]
    others = {"authors": by_authors(updates, part), **by_byzfl(updates)}
    for name in DEFENSES:
        ways.append(Contestant(name, "lff", partial(ours, updates, name, RULES.get(name))))
        if name == "repeated_median":
            first = partial(coordinate_repeated_median, matrix[:, :part])
            ways.append(Contestant(name, "plain", first, part))
        elif name in RULES:
            ways.append(Contestant(name, "plain", partial(ours, updates, name)))
        for way, runs in others.items():
            if name in runs:
                first_only = part if name == "repeated_median" else None
                ways.append(Contestant(name, way, runs[name], first_only))
    return ways


def ours(updates: Updates, name: str, fast: Rule | None = None) -> Decision:
    """A defense's decision, by its fast form or by the plain one; a rule with memory is new."""
    return (fast or DEFENSES[name].create())(handed(updates))


def mixing_alone(updates: Updates, name: Any) -> Tensor:
    """The updates that a rule gets after mixing."""
    return mixed(updates, mixture_of(updates, mixing=name)).weights


def by_authors(updates: Updates, part: int) -> dict[str, Callable[[], authors.State]]:
    """The rules in the way of the released code."""
    states, examples = authors.states(updates), updates.examples.tolist()
    before = updates.layout.views(updates.global_weights)
    head, told = updates.layout.output_layer, updates.told("attacker_count")
    first = [{"slice": row[:part]} for row in updates.weights]
    return {
        "fedavg": partial(authors.average, states, examples),
        "median": partial(authors.median, states),
        "repeated_median": partial(authors.repeated_median, first),
        "trimmed_mean": partial(authors.trimmed_mean, states, told),
        "multi_krum": partial(authors.multi_krum, states, told),
        "foolsgold": partial(authors.foolsgold, states, before, head),
        "lfighter": partial(authors.lfighter, states, before, head, examples),
    }


def by_byzfl(updates: Updates) -> dict[str, dict[str, Callable[[], Any]]]:
    """The rules that byzfl has; none where it is not installed."""
    byzfl = byzfl_aggregators()
    if byzfl is None:
        return {}
    matrix, told = updates.weights, updates.told("attacker_count")
    trimmed_mean = byzfl.TrMean(told)
    return {
        "byzfl": {
            "median": partial(byzfl.Median(), matrix),
            "trimmed_mean": partial(trimmed_mean, matrix),
            "multi_krum": partial(byzfl.MultiKrum(told + 2), matrix),  # keeps n - f, we n - f - 2
        },
        "byzfl, NumPy": {"trimmed_mean": partial(trimmed_mean, matrix.numpy())},
    }


def handed(updates: Updates) -> Updates:
    """The round as the server hands it to a defense: found finite, no view computed yet."""
    again = replace(updates)
    vars(again)["finite"] = updates.finite
    return again


def byzfl_aggregators() -> Any:
    """byzfl (https://github.com/LPD-EPFL/byzfl), or None where it is not installed."""
    import_torchvision()
    try:
        import byzfl
    except ImportError:
        return None
    return byzfl


def measure(updates: Updates, ways: list[Contestant], passes: int) -> list[dict[str, Any]]:
    """One row for each rule, of which `ways` has our own first; times are of all coordinates."""
    rules: dict[str, list[Contestant]] = {}
    for way in ways:
        rules.setdefault(way.rule, []).append(way)
    runs = {(way.rule, way.way): way.run for way in ways}
    with threads(1):
        times = side_by_side(runs, passes=passes, budget=BUDGET)
        memory = {rule: peak_extra_memory(own.run) for rule, (own, *_) in rules.items()}

    def seconds(way: Contestant) -> float:
        scale = updates.layout.size / (way.slice or updates.layout.size)
        return min(times[way.rule, way.way].processor) * scale

    ((mean,), rows) = rules["plain mean"], []
    for rule, (own, *others) in rules.items():
        peak = memory[rule]
        row = {
            "rule": rule,
            "ms": seconds(own) * 1e3,
            "x plain mean": seconds(own) / seconds(mean),
            "MiB": None if peak is None else peak / 2**20,
        }
        rows.append(row | {other.way: seconds(other) / seconds(own) for other in others})
    return rows


def flat(result: Any) -> Tensor:
    """The aggregate as one vector, whichever way it was computed."""
    if isinstance(result, Decision):
        return result.aggregate
    if isinstance(result, dict):
        return torch.cat([entry.reshape(-1) for entry in result.values()])
    return torch.as_tensor(result)
