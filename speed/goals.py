"""The goals of speed: each is a ratio of two ways that are measured in turn."""

from dataclasses import replace
from typing import Any

from speed import aggregation, training
from speed.common import Report, side_by_side, threads

PASSES = 5
PEERS = 20  # of the 100 of a round: shorter turns, and more of them
FOREVER = float("inf")


def run(quick: bool = False) -> Report:
    """Measure the goals, and say whether each is met; `quick` only tries every step."""
    passes = 1 if quick else PASSES
    report = Report("goals")
    report.tables["Goals"] = [training_goal(passes, quick), *aggregation_goals(passes, quick)]
    report.notes += [
        "ratio: of the least times; lowest and highest: of one pass, which shows the noise.",
        f"The round of MNIST-iid is of {PEERS} peers, in elapsed time on {training.CORES} cores; "
        "the rules are measured in processor time on one thread.",
    ]
    return report


def training_goal(passes: int, quick: bool) -> dict[str, Any]:
    """A round in two processes, against the textbook loop on two threads."""
    size = {"peers": 2, "examples": 8} if quick else {"peers": PEERS}
    names = (training.TEXTBOOK, training.POOL)
    with training.competing(replace(training.MNIST, **size)) as ways:
        times = side_by_side({name: ways[name] for name in names}, passes=passes, budget=FOREVER)
    textbook, ours = (times[name].elapsed for name in names)
    return row("MNIST-iid round: textbook / two processes", textbook, ours, at_least=8)


def aggregation_goals(passes: int, quick: bool) -> list[dict[str, Any]]:
    """LFighter against FedAvg, and coordinate-wise rules against their plain form, torch's sort."""
    sizes = aggregation.QUICK if quick else aggregation.SIZES
    title, (model, peers, part, _) = next(iter(sizes.items()))
    ways = aggregation.contestants(aggregation.a_round(model, peers), part)
    runs = {(way.rule, way.way): way.run for way in ways}
    sorting = [(rule, way) for rule in ("median", "trimmed_mean") for way in ("plain", "lff")]
    names = [("fedavg", "lff"), ("lfighter", "lff"), *sorting]
    with threads(1):
        times = side_by_side({name: runs[name] for name in names}, passes=passes, budget=FOREVER)
    fedavg, lfighter, *sorts = (times[name].processor for name in names)
    return [
        row(f"{title}: LFighter / FedAvg", lfighter, fedavg, at_most=1.3),
        row(f"{title}: torch's sort / Median", *sorts[:2], at_least=10),
        row(f"{title}: torch's sort / TMean", *sorts[2:], at_least=10),
    ]


def row(
    goal: str,
    above: list[float],
    below: list[float],
    *,
    at_least: float = 0,
    at_most: float = FOREVER,
) -> dict[str, Any]:
    """A goal with the ratio of these times, and whether it is met."""
    ratio = min(above) / min(below)
    passes = [a / b for a, b in zip(above, below, strict=True)]
    return {
        "goal": goal,
        "aim": f"at least {at_least:g}" if at_least else f"at most {at_most:g}",
        "ratio": ratio,
        "lowest": min(passes),
        "highest": max(passes),
        "met": "yes" if at_least <= ratio <= at_most else "NO",
    }
