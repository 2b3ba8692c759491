"""Small experiments: a condition changed at a time, to see why a run went as it did.

`CONDITIONS` ask when LFighter locks on, MNIST-Mild with 40% attackers, over several seeds;
`VARIATIONS` repeat single cells of the `laptop` grid, to learn what sizes do. They are no part
of the study's grid; the notebook of the verdict shows those that are recorded.
`lff.run_all(trials.experiments("quick"))` and `lff.run_all(trials.variations())` run them.
"""

from typing import Any

import pandas as pd

from lff.experiments.benchmarks import PAPER_WIDTH, Experiment
from lff.study.claims.registry import Cell
from lff.study.filtering import ALONE, ENDS, episodes, filtered_rounds
from lff.experiments.records import find, results
from lff.experiments.runs import experiment
from lff.study.spread import Spread, over_known_seeds
from lff.study.tables import labelled

BENCHMARK, ATTACKERS = "mnist-mild", 40
AS_IT_IS = "as the study runs it"
COSINE = {"defense_options": {"density": "cosine"}}

# At `quick` everything may vary; at `laptop` what the paper and its released code do otherwise; at
# `paper` nothing is left to change.
CONDITIONS: dict[str, dict[str, dict[str, Any]]] = {
    "quick": {
        AS_IT_IS: {},
        "stronger heterogeneity, alpha 0.3": {"alpha": 0.3},
        "weaker heterogeneity, alpha 5": {"alpha": 5.0},
        "20 peers instead of 50": {"peers": 20},
        "100 peers": {"peers": 100},
        "1,000 examples instead of 4,000": {"examples": 1000},
        "batches of 64 instead of 16": {"batch_size": 64},
        "a tenth of the learning rate": {"learning_rate": 0.002},
        "density by 1 - cosine": COSINE,
    },
    "laptop": {
        AS_IT_IS: {},
        "the paper's learning rate, 0.001": {"learning_rate": 0.001},
        "the same for 48 rounds": {"learning_rate": 0.001, "rounds": 48},
        "density by 1 - cosine": COSINE,
    },
    "paper": {AS_IT_IS: {}},
}
SEEDS = {"quick": range(5), "laptop": range(4), "paper": range(3)}

PAPERS_RATE = {"learning_rate": 0.001, "rounds": 36}
# As long a step in the long run; (W^t - W_k)/eta becomes the sum of the gradients of the batches.
NO_MOMENTUM = {"momentum": 0.0, "learning_rate": 0.1}
WHOLE_RESNET18 = {"width": 0, "batch_size": 16, "test_examples": 2000}
FEW_IMAGES = {**WHOLE_RESNET18, "examples": 5000, "rounds": 12}
THE_PAPERS = {"scale": "paper"}

# Cells of the `laptop` grid, each with what is changed in it; those of one cell stand together.
VARIATIONS: tuple[tuple[Cell, dict[str, Any]], ...] = (
    (("mnist-iid", "multi_krum", 50), PAPERS_RATE),
    (("mnist-iid", "foolsgold", 10), PAPERS_RATE),
    (("mnist-iid", "foolsgold", 30), PAPERS_RATE),
    (("mnist-iid", "foolsgold", 40), NO_MOMENTUM),
    (("mnist-iid", "foolsgold", 40), THE_PAPERS),
    (("mnist-mild", "fedavg", 40), THE_PAPERS),
    (("mnist-mild", "lfighter", 40), THE_PAPERS),
    (("mnist-extreme", "fedavg", 50), {"rounds": 120}),
    (("mnist-extreme", "lfighter", 50), {"rounds": 120}),
    (("mnist-extreme", "lfighter", 50), THE_PAPERS),
    (("cifar10-iid", "fedavg", 0), FEW_IMAGES),
    (("cifar10-iid", "fedavg", 30), FEW_IMAGES),
    (("cifar10-iid", "lfighter", 30), FEW_IMAGES),
    (("cifar10-iid", "lfighter", 30), {**FEW_IMAGES, "rounds": 36}),
    (("cifar10-iid", "lfighter", 40), FEW_IMAGES),
    (("cifar10-iid", "lfighter", 40), {**WHOLE_RESNET18, "examples": 25_000, "rounds": 16}),
    (("cifar10-iid", "lfighter", 40), {**WHOLE_RESNET18, "rounds": 16}),
    (("cifar10-iid", "foolsgold", 50), {"rounds": 40}),
    (("cifar10-mild", "fedavg", 40), {"rounds": 60}),
    (("cifar10-mild", "lfighter", 30), FEW_IMAGES),
)
AS_THE_GRID = "as in the grid"


def variations() -> list[Experiment]:
    """The changed cells of the `laptop` grid."""
    return [_cell(*cell, **changed) for cell, changed in VARIATIONS]


def _cell(benchmark: str, defense: str, attackers: float, **changed: Any) -> Experiment:
    settings = {"scale": "laptop"} | changed
    return experiment(benchmark, defense=defense, attackers=attackers, **settings)


def beside_grid() -> pd.DataFrame:
    """The recorded variations below their cell of the grid: Src-Acc, ASR, who was dropped.

    Those that are not recorded, or whose cell is not, are left out.
    """
    rows: dict[Experiment, str] = {}
    for cell, changed in VARIATIONS:
        usual, varied = _cell(*cell), _cell(*cell, **changed)
        if find(usual) is not None and find(varied) is not None:
            rows[usual] = AS_THE_GRID
            rows[varied] = ", ".join(SETTING_LABELS[name](value) for name, value in changed.items())
    key = ["benchmark", "attackers", "defense", "run"]
    if not rows:
        return pd.DataFrame(index=pd.MultiIndex.from_tuples([], names=key), columns=[*_SHARES])
    table = results(rows).assign(run=list(rows.values())).set_index(key)
    shares = {label: 100 * table[name] for label, name in _SHARES.items()}
    return labelled(pd.DataFrame(shares))


SETTING_LABELS = {
    "scale": lambda name: f"scale {name}",
    "momentum": lambda momentum: f"momentum {momentum:g}",
    "learning_rate": lambda rate: f"learning rate {rate:g}",
    "rounds": lambda count: f"{count} rounds",
    "examples": lambda count: f"{count:,} examples",
    "test_examples": lambda count: f"{count:,} test examples",
    "batch_size": lambda size: f"batches of {size}",
    "width": lambda channels: f"ResNet18 of {channels or PAPER_WIDTH} channels",
}
_SHARES = {
    "Src-Acc (%)": "src_acc",
    "ASR (%)": "asr",
    "All-Acc (%)": "all_acc",
    "attackers dropped (%)": "true_positive_rate",
    "honest peers dropped (%)": "false_positive_rate",
}


def experiments(scale: str) -> list[Experiment]:
    """Every condition of a scale, with every seed."""
    return [e for runs in by_condition(scale).values() for e in runs]


def by_condition(scale: str) -> dict[str, list[Experiment]]:
    """The experiments of each condition; none at a scale without trials."""
    fixed = {"defense": "lfighter", "attackers": ATTACKERS, "scale": scale}
    return {
        condition: [experiment(BENCHMARK, seed=seed, **fixed, **settings) for seed in SEEDS[scale]]
        for condition, settings in CONDITIONS.get(scale, {}).items()
    }


def table() -> pd.DataFrame:
    """How the recorded trials ended, per scale and condition; conditions without a record are left
    out, and seeds without one are not counted."""
    rows = []
    for scale in CONDITIONS:
        for condition, runs in by_condition(scale).items():
            recorded = [e for e in runs if find(e) is not None]
            if recorded:
                rows.append({"scale": scale, "condition": condition, **_outcome(recorded)})
    columns = ["scale", "condition", *_COLUMNS]
    return pd.DataFrame(rows, columns=columns).set_index(["scale", "condition"])


_COLUMNS = (
    "seeds", *ENDS, ALONE,
    "Src-Acc (%)", "attackers dropped (%)", "honest peers dropped (%)",
)  # fmt: skip


def _outcome(recorded: list[Experiment]) -> dict[str, Any]:
    seen = episodes(filtered_rounds(recorded))
    ends = seen["end"].value_counts()
    runs = results(recorded)
    shares = {label: 100 * runs[_SHARES[label]] for label in _COLUMNS if label in _SHARES}
    alone = Spread(tuple(100 * seen["alone"] / seen["rounds"]))
    means = over_known_seeds(runs.assign(**shares), ["benchmark"], list(shares)).iloc[0]
    counts = {end: int(ends.get(end, 0)) for end in ENDS}
    return {"seeds": len(recorded), **counts, ALONE: alone, **means}
