"""LFighter without clusters of one: does it fail because of a peer alone in her cluster?

    python docs/lfighter_in_company.py

runs MNIST-Mild at 50%, where seed 2 locks on in round 6 and seed 0 does not, and CIFAR10 with the
whole ResNet18 and few images, where most attackers stay in (`docs/evidence.md`). A cluster of one
has an inverse density of 0, so that Procedure 1 drops her and nobody else. Here she is set aside,
and the others are clustered again.
"""

import torch

import lff
from lff.defenses.registry import get_defense
from lff.study.trials import FEW_IMAGES
from lff.updates import average_without

RUNS = (
    ("mnist-mild", 50, {"seed": 2}),
    ("mnist-mild", 50, {"seed": 0}),
    ("cifar10-iid", 30, FEW_IMAGES),
    ("cifar10-iid", 40, FEW_IMAGES),
    ("cifar10-mild", 30, FEW_IMAGES),
)


@lff.defense("lfighter_in_company", label="LFighter without clusters of one")
def lfighter_in_company(updates: lff.Updates) -> lff.Decision:
    """LFighter, again without whoever it drops alone, until it drops several peers or nobody."""
    rule = get_defense("lfighter").create()
    rows, dropped = list(range(len(updates))), [0]
    while len(dropped) == 1 and len(rows) > 2:
        among = updates.select(rows)
        decision = rule(among)
        dropped = decision.dropped(among.peers)
        rows = [row for row in rows if updates.peers[row] not in dropped]
    bad = torch.ones(len(updates), dtype=torch.bool, device=updates.weights.device)
    bad[rows] = False
    saw = {
        name: decision.saw[name] for name in ("neurons", "cluster_scores") if name in decision.saw
    }
    return average_without(updates, bad, {"distribution": decision.saw["distribution"], **saw})


if __name__ == "__main__":
    for benchmark, attackers, changed in RUNS:
        options = {"attackers": attackers, "scale": "laptop", **changed}
        record = lff.run(benchmark, defense="lfighter_in_company", **options)
        row = record.summary()
        rates = ("src_acc", "asr", "all_acc", "true_positive_rate", "false_positive_rate")
        numbers = ", ".join(f"{name} {row[name]:.3f}" for name in rates)
        print(f"{benchmark}, {attackers}%, seed {record.experiment.seed}: {numbers}")
