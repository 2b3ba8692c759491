"""`lff`: a study of "Defending against the Label-flipping Attack in Federated Learning".

    import lff
    record = lff.run("mnist-mild", defense="lfighter", attackers=40, scale="quick")
    table = lff.load_runs()

A defense of one's own is one function:

    @lff.defense("mine", label="Mine")
    def mine(updates: lff.Updates) -> lff.Decision:
        return lff.Decision(aggregate=updates.weights.mean(dim=0))

Names are imported when first used, so that `import lff` and `lff --help` stay quick.
"""

from importlib import import_module
from importlib.metadata import version
from typing import Any

_HOMES = {
    "Context": "lff.attacks",
    "Decision": "lff.updates",
    "Evaluation": "lff.metrics",
    "Examples": "lff.training",
    "Experiment": "lff.experiments.experiment",
    "Federation": "lff.federation",
    "LocalTraining": "lff.training",
    "Record": "lff.experiments.records",
    "Updates": "lff.updates",
    "attack": "lff.attacks",
    "benchmark": "lff.experiments.benchmarks",
    "build": "lff.experiments.build",
    "defense": "lff.defenses",
    "experiment": "lff.experiments.scales",
    "grid": "lff.experiments.scales",
    "hook": "lff.federation",
    "load_rounds": "lff.study.frame",
    "load_runs": "lff.study.frame",
    "metric": "lff.metrics",
    "run": "lff.experiments.run",
    "run_all": "lff.experiments.sweep",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("lff")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'lff' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
