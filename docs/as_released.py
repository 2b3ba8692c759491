"""LFighter's Procedure 1 and FoolsGold as the authors released them: do our decisions matter?

    python docs/as_released.py

runs MNIST-Mild at 40% with the released filter of 2024 and of 2022 (ours locks on in seeds 0 and
2), and MNIST-iid with the released FoolsGold, which fails there in the paper and not here
(`docs/evidence.md`). The code is https://github.com/najeebjebreel/LFighter, read and written anew.
Training is ours: the released code leaves out an epoch's last, smaller batch.
"""

from collections import deque

import torch
from sklearn.cluster import KMeans
from torch import Tensor

import lff
from lff import training
from lff.defenses.foolsgold import foolsgold_weights
from lff.defenses.geometry import cosines
from lff.study.trials import PAPERS_RATE
from lff.updates import weighted_mean

make_optimizer = training.make_optimizer
SUMS: deque[Tensor] = deque()  # of the gradients of all batches, of each peer in turn

OF_2024 = {"defense_options": {"identity": True}}
RUNS = (
    *(("mnist-mild", "released_lfighter", 40, {"seed": seed, **OF_2024}) for seed in range(4)),
    *(("mnist-mild", "released_lfighter", 40, {"seed": seed}) for seed in range(4)),
    *(("mnist-iid", "released_foolsgold", attackers, {}) for attackers in (10, 40)),
    *(("mnist-iid", "released_foolsgold", attackers, PAPERS_RATE) for attackers in (10, 40)),
    ("mnist-mild", "released_lfighter", 40, {"seed": 2, "scale": "paper"}),
)


@lff.defense("released_lfighter", label="LFighter as released")
def released_lfighter(updates: lff.Updates, *, identity: bool = False) -> lff.Decision:
    """Procedure 1 as released; with `identity` as in 2024, which subtracts it from the cosines.

    Biases count in the choice of the two neurons, but are not clustered; clusters are measured by
    1 - cosine; those who remain weigh the same.
    """
    weights, biases = updates.output_layer[:, :, :-1].double(), updates.output_layer[:, :, -1]
    neurons = (weights.norm(dim=2) + biases.abs()).sum(dim=0).topk(2).indices.tolist()
    data = weights[:, neurons].flatten(1)
    points = data.cpu().numpy()
    cl = torch.from_numpy(KMeans(n_clusters=2, n_init=10, random_state=0).fit_predict(points))
    sizes = [int((cl == j).sum()) for j in (0, 1)]
    score = [n / len(data) * dissimilarity(data[cl == j], identity) for j, n in enumerate(sizes)]
    good = cl == (1 if score[0] < score[1] else 0)
    decision = weighted_mean(updates, good.to(updates.weights))
    saw = {"neurons": neurons, "clusters": cl.tolist(), "cluster_scores": score}
    return lff.Decision(aggregate=decision.aggregate, weights=decision.weights, saw=saw)


def dissimilarity(cluster: Tensor, identity: bool) -> float:
    """1 - the mean of the peers' smallest cosines; with the identity subtracted, no cosine of a
    peer with herself is above 0, and so none of the smallest is."""
    cosine = cosines(cluster)
    if identity:
        cosine = cosine - torch.eye(len(cluster)).to(cosine)
    return 1 - cosine.amin(dim=1).mean().item()


@lff.defense("released_foolsgold", label="FGold as released")
class ReleasedFoolsGold:
    """FoolsGold whose history sums the gradients of batches, without biases (see `summing`)."""

    def __init__(self):
        self.history: Tensor | None = None

    def __call__(self, updates: lff.Updates) -> lff.Decision:
        sums = torch.stack([SUMS.popleft() for _ in updates.peers])
        sums = updates.layout.output_layer_of(sums)[:, :, :-1].flatten(1)
        self.history = sums if self.history is None else self.history + sums
        weights = foolsgold_weights(cosines(self.history))
        decision = weighted_mean(updates, weights)
        return lff.Decision(
            aggregate=decision.aggregate, weights=decision.weights, saw={"weights": weights}
        )

    def state_dict(self) -> dict[str, Tensor]:
        return {} if self.history is None else {"history": self.history}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.history = state["history"]


def summing(model, settings) -> torch.optim.Optimizer:
    """The optimizer of a peer's training, which adds up in `SUMS` the gradients it is given."""
    total = torch.zeros_like(model.parameters)
    SUMS.append(total)
    optimizer = make_optimizer(model, settings)

    def add(*_) -> None:
        total.add_(model.parameters.grad)

    optimizer.register_step_pre_hook(add)
    return optimizer


if __name__ == "__main__":
    for benchmark, defense, attackers, settings in RUNS:
        training.make_optimizer = summing if defense == "released_foolsgold" else make_optimizer
        named = {"attackers": attackers, "scale": "laptop", **settings}
        record = lff.run(benchmark, defense=defense, **named)
        row = record.summary()
        rates = ("src_acc", "asr", "all_acc", "true_positive_rate", "false_positive_rate")
        numbers = ", ".join(f"{name} {row[name]:.3f}" for name in rates)
        print(f"{benchmark}, {defense}, {named}: {numbers}")
