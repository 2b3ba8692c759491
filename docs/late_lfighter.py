"""LFighter from the fourth round on: does MNIST-Mild at 40% lock on because of the first rounds?

    python docs/late_lfighter.py

runs seeds 0 to 3, of which 0 and 2 lock on (`docs/evidence.md`), or those given, with FedAvg in the
first three rounds.
"""

import sys

import torch

import lff
from lff.defenses.registry import get_defense

AS_FEDAVG = 3


@lff.defense("late_lfighter", label="LFighter from round 4")
class LateLFighter:
    """FedAvg in the first rounds, LFighter in all others."""

    def __init__(self):
        self.seen = 0

    def __call__(self, updates: lff.Updates) -> lff.Decision:
        self.seen += 1
        rule = get_defense("fedavg" if self.seen <= AS_FEDAVG else "lfighter")
        return rule.create()(updates)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"seen": torch.tensor(self.seen)}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.seen = int(state["seen"])


if __name__ == "__main__":
    for seed in map(int, sys.argv[1:] or range(4)):
        options = {"attackers": 40, "scale": "laptop", "seed": seed}
        record = lff.run("mnist-mild", defense="late_lfighter", **options)
        row = record.summary()
        rates = ("src_acc", "asr", "all_acc", "true_positive_rate", "false_positive_rate")
        print(f"seed {seed}: " + ", ".join(f"{name} {row[name]:.3f}" for name in rates))
