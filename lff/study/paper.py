"""What the paper reports, as tidy tables; `lff.study.comparison` puts them beside ours.

The numbers are in `reported.json`: the paper's two tables, the running times of the authors'
notebook, and accuracies read off the authors' plots by eye (good to about 2 points; only for
CIFAR10-Mild, MNIST-Extreme and IMDB). Rates are fractions in [0, 1], attacker ratios percents,
as in our own tables of results.
"""

import json
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd

from lff.experiments.scales import ATTACKER_RATIOS

_GRADIENTS = {  # the file's names, and those of `lff.analysis.compare_updates`
    "whole": "whole, with BatchNorm statistics",  # too large for parameters alone
    "output_layer": "output layer",
    "relevant_neurons": "relevant neurons",
    "non_relevant_neurons": "non-relevant neurons",
}
_TASKS = {
    "mnist": "image classification",
    "cifar10": "image classification",
    "imdb": "sentiment analysis",
}


# Who the last peer of MNIST-iid is under FoolsGold: with the released partition she is odd.
ODD_ATTACKS, ODD_HONEST, ODD_IN_PEACE = (
    "odd peer attacks", "odd peer is honest", "odd peer, nobody attacks",
)  # fmt: skip
EQUAL, EQUAL_IN_PEACE = "equal shares", "equal shares, nobody attacks"

_REPORTED, _AUTHORS = (
    json.loads(files("lff.study").joinpath(name).read_text(encoding="utf-8"))
    for name in ("reported.json", "authors.json")
)


def datasets() -> pd.DataFrame:
    """Data sets and models: dataset, task, examples, model, parameters (as text: "~22K")."""
    rows = _REPORTED["table_datasets"].items()
    return pd.DataFrame([{"dataset": name, "task": _TASKS[name], **row} for name, row in rows])


def norm_angle() -> pd.DataFrame:
    """A good and a bad update of one peer: gradients, good, bad (magnitudes), angle (degrees)."""
    table = pd.DataFrame.from_dict(_REPORTED["table_norm_angle"], orient="index", dtype=float)
    table = table.rename(index=_GRADIENTS, columns={"angle_degrees": "angle"})
    return table.rename_axis("gradients").reset_index()


def cv() -> pd.DataFrame:
    """CV of Src-Acc: benchmark, attackers, defense, cv.

    The paper prints NaN where Src-Acc was zero in every round.
    """
    table = pd.DataFrame(
        {"benchmark": benchmark, "attackers": float(ratio), "defense": defense, "cv": value}
        for benchmark, by_ratio in _REPORTED["table_cv"].items()
        for ratio, by_defense in by_ratio.items()
        for defense, value in by_defense.items()
    )
    return table.astype({"cv": float})


def robustness() -> pd.DataFrame:
    """Averages of the last ten rounds: benchmark, defense, attackers, all_acc, src_acc, asr.

    Read off the authors' plots, good to about 2 points; TE and the repeated median are not shown.
    """
    tables = [
        pd.DataFrame({"attackers": [float(ratio) for ratio in ATTACKER_RATIOS]})
        .assign(**{metric: [v / 100 for v in values] for metric, values in metrics.items()})
        .assign(benchmark=benchmark, defense=defense)
        for benchmark, by_defense in _tables("robustness_read_off_figures")
        for defense, metrics in by_defense.items()
    ]
    columns = ["benchmark", "defense", "attackers", "all_acc", "src_acc", "asr"]
    return pd.concat(tables, ignore_index=True)[columns]


def runtime() -> pd.DataFrame:
    """CPU seconds of aggregation: benchmark, defense, per_round (mean), total, rounds."""
    table = pd.DataFrame(
        {
            "benchmark": benchmark,
            "defense": defense,
            "per_round": sum(seconds) / len(seconds),
            "rounds": by_defense["rounds"],
        }
        for benchmark, by_defense in _tables("runtime_seconds_per_round")
        for defense, seconds in by_defense.items()
        if defense != "rounds"
    )
    table.insert(3, "total", table["per_round"] * table["rounds"])
    return table


def released_foolsgold() -> dict[str, dict[str, list[float]]]:
    """The authors' own program on MNIST-iid at 40% attackers, round by round, in two cases.

    `src_acc` in percent, and `weighing`, how many peers have any weight (`authors.json`).
    """
    told = _AUTHORS["foolsgold_mnist_iid"]
    cases = {ODD_ATTACKS: told["as_released_40"], EQUAL: told["equal_shares_40"]}
    return {
        case: {"src_acc": own["src_acc"], "weighing": own["peers_with_weight_above_0"]}
        for case, own in cases.items()
    }


def released_lfighter() -> pd.DataFrame:
    """The authors' own program with LFighter on MNIST-Mild at 40%, by seed (`authors.json`)."""
    told = _AUTHORS["lfighter_mnist_mild_40"]["per_seed"]
    rows = {int(seed): row for seed, row in told.items()}
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("seed")
    return table.drop(columns="note")


def foolsgold_cases(rounds: pd.DataFrame) -> pd.Series:
    """Who the last peer is in each of these rounds, by its run's partition and attackers."""
    attacks = [n - 1 in ids for n, ids in zip(rounds["peers"], rounds["attacker_ids"], strict=True)]
    odd, peace = rounds["distribution"] == "iid-released", rounds["attackers"] == 0
    cases = [odd & peace, odd & np.array(attacks, dtype=bool), odd, peace]
    names = [ODD_IN_PEACE, ODD_ATTACKS, ODD_HONEST, EQUAL_IN_PEACE]
    return pd.Series(np.select(cases, names, EQUAL), rounds.index)


def _tables(name: str) -> list[tuple[str, dict[str, Any]]]:
    """The entries of a part of the file, without the remark `about` it."""
    return [(key, value) for key, value in _REPORTED[name].items() if key != "about"]
