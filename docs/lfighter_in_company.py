"""LFighter without clusters of one: does MNIST-Mild at 50% lock on because of a peer alone?

    python docs/lfighter_in_company.py

runs seed 2, which locks on in round 6 (`docs/evidence.md`), or the seeds given. A cluster of one
has an inverse density of 0, so that Procedure 1 drops her and nobody else. Here she is set aside,
and the others are clustered again.
"""

import sys

import torch

import lff
from lff.defenses.registry import get_defense
from lff.updates import average_without


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
    saw = {name: decision.saw[name] for name in ("neurons", "scores") if name in decision.saw}
    return average_without(updates, bad, {"distribution": decision.saw["distribution"], **saw})


if __name__ == "__main__":
    for seed in map(int, sys.argv[1:] or [2]):
        options = {"attackers": 50, "scale": "laptop", "seed": seed}
        record = lff.run("mnist-mild", defense="lfighter_in_company", **options)
        row = record.summary()
        rates = ("src_acc", "asr", "all_acc", "true_positive_rate", "false_positive_rate")
        print(f"seed {seed}: " + ", ".join(f"{name} {row[name]:.3f}" for name in rates))
