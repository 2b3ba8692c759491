"""What does LFighter do to the classes that nobody attacks? The accuracy of every class.

    python docs/every_class.py

plays four runs of CIFAR10-Mild and writes the accuracy (%) of each class over the last rounds to
`docs/every_class.csv`. Records have All-Acc and Src-Acc alone, and LFighter drops honest holders of
cats there (`docs/evidence.md`). The fourth run is of a filter that drops the attackers and nobody
else: what is lost even by that? Beside them is the Src-Acc of the study's record, to be compared
with Dog: another processor than the one that made the record does not repeat it bit for bit.
"""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pandas as pd
import torch

import lff
from lff.experiments.processes import cores
from lff.experiments.records import find
from lff.federation import Federation
from lff.metrics import averaged_rounds, outputs_of, predictions
from lff.updates import average_without

RUNS = (("fedavg", 0), ("fedavg", 40), ("lfighter", 40), ("without_attackers", 40))
TABLE = Path(__file__).with_suffix(".csv")


def run_of(defense: str, attackers: int) -> lff.Experiment:
    """A run of CIFAR10-Mild at scale `laptop`, seed 0."""
    return lff.experiment("cifar10-mild", defense=defense, attackers=attackers, scale="laptop")


@lff.defense("without_attackers", label="Without the attackers")
def without_attackers(updates: lff.Updates) -> lff.Decision:
    """FedAvg of those who do not attack at 40%, as a record of the same seed tells."""
    attackers = find(run_of("fedavg", 40)).attackers
    return average_without(updates, torch.tensor([peer in attackers for peer in updates.peers]))


def class_accuracies(federation: Federation) -> torch.Tensor:
    """The share of each class's test examples that the current global model gets right."""
    examples, labels = federation.test
    federation.model.load(federation.global_weights)
    right = predictions(outputs_of(federation.model.module, examples)) == labels
    return torch.stack([right[labels == c].double().mean() for c in range(federation.classes)])


def play(defense: str, attackers: int) -> dict[str, float]:
    """The accuracies (%) of a run's classes, averaged over its last rounds."""
    e = run_of(defense, attackers)
    federation, seen = Federation(e), []
    for _ in range(e.rounds):
        federation.play_round()
        seen.append(class_accuracies(federation))
    means = 100 * torch.stack(seen[-averaged_rounds(e.rounds) :]).mean(dim=0)
    named = zip(federation.data.classes, means.tolist(), strict=True)
    recorded = find(e)
    src_acc = 100 * recorded.summary()["src_acc"] if recorded else None
    return {"defense": defense, "attackers": attackers, **dict(named), "Src-Acc recorded": src_acc}


if __name__ == "__main__":
    with ProcessPoolExecutor(min(cores(), len(RUNS))) as pool:
        rows = list(pool.map(play, *zip(*RUNS, strict=True)))
    table = pd.DataFrame(rows).set_index(["defense", "attackers"])
    table.to_csv(TABLE, float_format="%.1f")
    print(table.round(1).to_string())
