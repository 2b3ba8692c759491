"""The goals of speed, judged by what the other parts have measured: `results/<part>.json`."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speed.common import RESULTS, Report
from speed.training import POOL

Row = dict[str, Any]
FOREVER = float("inf")


@dataclass(frozen=True)
class Goal:
    """What is judged, and where among a part's rows (those of all its tables) it is found."""

    title: str
    part: str
    find: Callable[[list[Row]], float]
    at_least: float = 0
    at_most: float = FOREVER


def first(rows: list[Row], column: str, **wanted: Any) -> float:
    """A column of the first row with these entries; "" is named `way` here."""
    entries = {"" if name == "way" else name: value for name, value in wanted.items()}
    return float(next(row for row in rows if entries.items() <= row.items())[column])


GOALS = (
    Goal(
        "MNIST-iid: textbook / two processes",
        "training",
        lambda rows: first(rows, "times the textbook", way=POOL),
        at_least=8,
    ),
    Goal(
        "MNIST-iid: Flower's simulation / two workers",
        "flower",
        lambda rows: first(rows, "x lff", way="Flower 1.41, simulation"),
        at_least=5,
    ),
    Goal(
        "LFighter / FedAvg, 20 updates of 11.2M",
        "aggregation",
        lambda rows: first(rows, "ms", rule="lfighter") / first(rows, "ms", rule="fedavg"),
        at_most=1.3,
    ),
    *(
        Goal(
            f"torch's sort / {label}, 20 updates of 11.2M",
            "aggregation",
            lambda rows, rule=rule: first(rows, "plain", rule=rule),
            at_least=10,
        )
        for rule, label in (("median", "Median"), ("trimmed_mean", "TMean"))
    ),
    Goal(
        "memory of a rule / of the updates, 20 to 200 of 11.2M",
        "growth",
        lambda rows: max(row["x own size"] for row in rows if row.get("x own size")),
        at_most=2,
    ),
    Goal(
        "seconds to load 1,000 records",
        "growth",
        lambda rows: first(rows, "seconds", records=1000),
        at_most=5,
    ),
)


def run(quick: bool = False, folder: Path = RESULTS) -> Report:
    """Judge the goals; nothing is measured."""
    report = Report("goals", machine={})
    report.tables["Goals"] = [judge(goal, folder) for goal in GOALS]
    return report


def judge(goal: Goal, folder: Path) -> Row:
    """What was found, whether that meets the goal, and on what it was measured."""
    aim = f"at least {goal.at_least:g}" if goal.at_least else f"at most {goal.at_most:g}"
    row: Row = {"goal": goal.title, "aim": aim, "found": None, "met": "not measured"}
    file = folder / f"{goal.part}.json"
    if not file.exists():
        return row
    content = json.loads(file.read_text(encoding="utf-8"))
    found = goal.find([row for rows in content["tables"].values() for row in rows])
    machine = content["machine"]
    return row | {
        "found": found,
        "met": "yes" if goal.at_least <= found <= goal.at_most else "NO",
        "processor": f"{machine['processor']}, {machine['vector_instructions']}",
        "load at start": machine["load_at_start"],
        "commit": machine["commit"][:7],
    }
