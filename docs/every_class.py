"""What does LFighter do to the classes that nobody attacks? The accuracy of every class.

    python docs/every_class.py

plays three recorded runs of CIFAR10-Mild again, asserts that every round is the recorded one, and
writes the accuracy of each class over the last rounds to `docs/every_class.csv`. Records have
All-Acc and Src-Acc alone; LFighter drops honest holders of cats there (`docs/evidence.md`).
"""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pandas as pd
import torch

import lff
from lff.federation import Federation
from lff.metrics import averaged_rounds, outputs_of, predictions
from lff.processes import cores
from lff.records import find

RUNS = (("fedavg", 0), ("fedavg", 40), ("lfighter", 40))
TABLE = Path(__file__).with_suffix(".csv")
MEASURED = ("test_error", "all_acc", "src_acc", "asr", "dropped")


def class_accuracies(federation: Federation) -> torch.Tensor:
    """The share of each class's test examples that the current global model gets right."""
    examples, labels = federation.test
    federation.model.load(federation.global_weights)
    right = predictions(outputs_of(federation.model.module, examples)) == labels
    return torch.stack([right[labels == c].double().mean() for c in range(federation.classes)])


def replay(defense: str, attackers: int) -> dict[str, float]:
    """The accuracies (%) of a recorded run's classes, averaged over its last rounds."""
    e = lff.experiment("cifar10-mild", defense=defense, attackers=attackers, scale="laptop")
    recorded, federation, seen = find(e), Federation(e), []
    for then in recorded.history:
        now = federation.play_round()
        assert all(now[name] == then[name] for name in MEASURED), (e.id, now["round"])
        seen.append(class_accuracies(federation))
    means = 100 * torch.stack(seen[-averaged_rounds(e.rounds) :]).mean(dim=0)
    named = zip(federation.data.classes, means.tolist(), strict=True)
    return {"defense": defense, "attackers": attackers, **dict(named)}


if __name__ == "__main__":
    with ProcessPoolExecutor(min(cores(), len(RUNS))) as pool:
        rows = list(pool.map(replay, *zip(*RUNS, strict=True)))
    table = pd.DataFrame(rows).set_index(["defense", "attackers"])
    table.to_csv(TABLE, float_format="%.1f")
    print(table.round(1).to_string())
