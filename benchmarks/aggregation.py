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

from benchmarks import authors
from benchmarks.common import Report, Timing, peak_extra_memory, side_by_side, threads
from lff.defenses import (
    FoolsGold,
    fedavg,
    lfighter,
    median,
    multi_krum,
    repeated_median,
    trimmed_mean,
)
from lff.models import OUTPUT_LAYER, Layout, build
from lff.updates import Decision, Updates, finite_rows
from lff.vision import import_torchvision

LEARNING_RATE = 0.01
ATTACKERS = 0.3  # of the peers
CHEAP = 1.0  # seconds up to which a contestant is also measured with two threads
# Model, peers, coordinates of the authors' repeated median, passes.
SIZES = {
    "ResNet18, 20 updates of 11.2M": ("resnet18", 20, 200_000, 9),
    "CNN, 100 updates of 21,840": ("cnn", 100, 2_184, 40),
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
        "ms: processor time on one thread, the least of several runs in turn; "
        "2 threads: elapsed time in ms, likewise, for what takes less than a second.",
        "x lff: times the time of lff for the same rule. MiB: peak extra memory, result included.",
    ]
    if byzfl_aggregators() is None:
        report.notes.append("byzfl is not installed and was left out: `pip install lff[bench]`.")
    for title, (model, peers, part, passes) in (QUICK if quick else SIZES).items():
        updates = a_round(model, peers)
        report.tables[title] = measure(updates, contestants(updates, part), passes)
        report.notes.append(
            f"{title.split(',')[0]}: the authors' repeated median ran on {part:,} coordinates; "
            f"its time is scaled to all {updates.layout.size:,}, its memory is not."
        )
    return report


def a_round(model: str, peers: int) -> Updates:
    """A round whose last 30% are attackers, with a clear answer for every rule.

    The further down a peer, the noisier her update, so that Krum's choice does not depend on how
    it counts neighbours. Honest peers and attackers pull two output neurons in different
    directions, the attackers more alike.
    """
    layout = Layout.of(build(model), OUTPUT_LAYER[model])
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
    )


def contestants(updates: Updates, part: int) -> list[Contestant]:
    """Every rule of lff, each followed by the other ways to compute it."""
    matrix, told = updates.weights, updates.told("attacker_count")
    states, examples = authors.states(updates), updates.examples.tolist()
    before = updates.layout.views(updates.global_weights)
    head = updates.layout.output_layer
    first = [{"slice": row[:part]} for row in matrix]
    n = len(matrix)

    def lff(rule: Callable[[Updates], Decision]) -> Callable[[], Decision]:
        return lambda: rule(handed(updates))

    def sorted_mean(trimmed: int) -> Tensor:
        return matrix.sort(dim=0).values[trimmed : n - trimmed].mean(dim=0)

    def theirs(rule: Callable, *arguments: Any) -> Callable[[], authors.State]:
        return partial(rule, *arguments)

    ways = [
        Contestant("plain mean", "torch", lambda: matrix.mean(dim=0)),
        Contestant("finite?", "lff", lambda: finite_rows(matrix)),
        Contestant("fedavg", "lff", lff(fedavg)),
        Contestant("fedavg", "authors", theirs(authors.average, states, examples)),
        Contestant("lfighter", "lff", lff(lfighter)),
        Contestant("lfighter", "authors", theirs(authors.lfighter, states, before, head, examples)),
        Contestant("foolsgold", "lff", lambda: FoolsGold()(handed(updates))),
        Contestant("foolsgold", "authors", theirs(authors.foolsgold, states, before, head)),
        Contestant("multi_krum", "lff", lff(multi_krum)),
        Contestant("multi_krum", "authors", theirs(authors.multi_krum, states, told)),
        Contestant("median", "lff", lff(median)),
        Contestant("median", "torch.sort", lambda: sorted_mean((n - 1) // 2)),
        Contestant("median", "authors", theirs(authors.median, states)),
        Contestant("trimmed_mean", "lff", lff(trimmed_mean)),
        Contestant("trimmed_mean", "torch.sort", lambda: sorted_mean(told)),
        Contestant("trimmed_mean", "authors", theirs(authors.trimmed_mean, states, told)),
        Contestant("repeated_median", "lff", lff(repeated_median)),
        Contestant("repeated_median", "authors", theirs(authors.repeated_median, first), part),
    ]
    byzfl = byzfl_aggregators()
    if byzfl is not None:
        arrays = matrix.numpy()
        krum = byzfl.MultiKrum(told + 2)  # it keeps n - f, we n - f - 2
        ways += [
            Contestant("multi_krum", "byzfl", lambda: krum(matrix)),
            Contestant("median", "byzfl", lambda: byzfl.Median()(matrix)),
            Contestant("trimmed_mean", "byzfl", lambda: byzfl.TrMean(told)(matrix)),
            Contestant("trimmed_mean", "byzfl, NumPy", lambda: byzfl.TrMean(told)(arrays)),
        ]
    rules = list(dict.fromkeys(way.rule for way in ways))
    return sorted(ways, key=lambda way: rules.index(way.rule))


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
    """One row for each contestant."""
    runs = {(way.rule, way.way): way.run for way in ways}
    with threads(1):
        one = side_by_side(runs, passes=passes)
        memory = {name: peak_extra_memory(run) for name, run in runs.items()}
    cheap = {name: run for name, run in runs.items() if one[name].processor < CHEAP}
    with threads(2):
        two = side_by_side(cheap, passes=passes)
    mean = one["plain mean", "torch"].processor
    return [row(way, updates.layout.size, one, two, mean) | mib(memory, way) for way in ways]


def row(
    way: Contestant,
    coordinates: int,
    one: dict[tuple[str, str], Timing],
    two: dict[tuple[str, str], Timing],
    mean: float,
) -> dict[str, Any]:
    """A contestant's times, scaled to all coordinates, and ratios."""
    name, scale = (way.rule, way.way), coordinates / (way.slice or coordinates)
    seconds = one[name].processor * scale
    ours = one.get((way.rule, "lff"), one[name]).processor
    return {
        "rule": way.rule,
        "way": way.way,
        "ms": seconds * 1e3,
        "x plain mean": seconds / mean,
        "x lff": seconds / ours,
        "ms, 2 threads": two[name].seconds * scale * 1e3 if name in two else None,
    }


def mib(memory: dict[tuple[str, str], int | None], way: Contestant) -> dict[str, float | None]:
    """A contestant's peak extra memory."""
    peak = memory[way.rule, way.way]
    return {"MiB": None if peak is None else peak / 2**20}


def flat(result: Any) -> Tensor:
    """The aggregate as one vector, whichever way it was computed."""
    if isinstance(result, Decision):
        return result.aggregate
    if isinstance(result, dict):
        return torch.cat([entry.reshape(-1) for entry in result.values()])
    return torch.as_tensor(result)
