"""The first round of MNIST-Mild at 40%: whom does LFighter drop with and without the biases?

    python docs/first_round.py

In the paper a neuron's gradients are those of its weights and its bias; the released code clusters
those of the weights alone (`docs/evidence.md`). Everything else is the same: the two neurons are
those of the source and the target class, and seeds 0 to 3 those of the study. Nothing is recorded.
"""

import torch

import lff
from lff.defenses.lfighter import filter_mild
from lff.federation import Federation
from lff.updates import Updates

KMEANS_SEEDS = range(10)


def dropped(updates: Updates, attackers: torch.Tensor, neurons: list[int], biases: bool) -> set:
    """How many attackers and honest peers Procedure 1 drops, with each of the seeds of k-means."""
    layer = updates.output_layer.double()
    data = (layer if biases else layer[:, :, :-1])[:, neurons].flatten(1)
    found = [filter_mild(data, seed=seed)[0] for seed in KMEANS_SEEDS]
    return {(int((bad & attackers).sum()), int((bad & ~attackers).sum())) for bad in found}


if __name__ == "__main__":
    for seed in range(4):
        e = lff.experiment("mnist-mild", attackers=40, scale="laptop", seed=seed)
        federation = Federation(e)
        updates = federation.collect_updates()
        attackers = torch.tensor([peer in federation.attackers for peer in updates.peers])
        neurons = [e.source_class, e.target_class]
        for biases in (True, False):
            counts = sorted(dropped(updates, attackers, neurons, biases))
            print(f"seed {seed}, {'with' if biases else 'without'} biases: {counts}")
