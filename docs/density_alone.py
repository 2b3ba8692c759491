"""Is the attackers' cluster less dense after a lock-on only because honest peers are in it?

    python docs/density_alone.py

LFighter's inverse density is the mean of the peers' largest angles, so a few strangers widen a
whole cluster. This plays the first rounds of MNIST-Mild at 40%, where LFighter locks on in seeds 0
and 2 and not in 1 (`docs/evidence.md`), decides as LFighter does, and measures the cluster that
most attackers are in with and without the honest peers in it, and the other one with and without
the attackers. The angles (degrees), means of the rounds from the third on, go to
`docs/density_alone.csv`.
"""

from math import degrees
from pathlib import Path

import pandas as pd
import torch

import lff
from lff.defenses.lfighter import cluster_inverse_density, lfighter
from lff.experiments.records import find

SEEDS, FIRST = (0, 1, 2), 3
TABLE = Path(__file__).with_suffix(".csv")
CELL = {"benchmark": "mnist-mild", "attackers": 40, "scale": "laptop"}


@lff.defense("lfighter_measured", label="LFighter, measured")
def lfighter_measured(updates: lff.Updates, *, seed: int) -> lff.Decision:
    """LFighter, with the inverse densities of its two clusters, whole and of one kind alone."""
    decision = lfighter(updates)
    known = find(lff.experiment(**CELL, defense="lfighter", seed=seed)).attackers
    bad = torch.tensor([peer in known for peer in updates.peers])
    second = torch.tensor(decision.saw["clusters"]) == 1
    theirs = second if (second & bad).sum() > (~second & bad).sum() else ~second
    data = updates.output_layer[:, decision.saw["neurons"]].double().flatten(1)
    groups = {
        "attackers' cluster": theirs,
        "its attackers alone": theirs & bad,
        "other cluster": ~theirs,
        "its honest peers alone": ~theirs & ~bad,
    }
    angles = {name: degrees(cluster_inverse_density(data[who])) for name, who in groups.items()}
    sizes = {f"peers: {name}": int(who.sum()) for name, who in groups.items()}
    decision.saw.update(angles | sizes)
    return decision


def measured(seed: int) -> dict[str, float]:
    """A run's angles and sizes, averaged over its rounds from the third on."""
    options = {"defense_options": {"seed": seed}, "rounds": 6}
    record = lff.run(**CELL, seed=seed, defense="lfighter_measured", **options)
    rounds = pd.DataFrame([entry["saw"] for entry in record.history[FIRST - 1 :]])
    return {"seed": seed, **rounds.select_dtypes("number").mean()}


if __name__ == "__main__":
    table = pd.DataFrame(map(measured, SEEDS)).set_index("seed")
    table.to_csv(TABLE, float_format="%.1f")
    print(table.round(1).T.to_string())
