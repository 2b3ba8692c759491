"""LFighter told the attacked classes: does it miss attackers because it looks at other neurons?

    python docs/lfighter_told.py

runs CIFAR10 with the whole ResNet18 and few images, where the two most active neurons often are
those of other classes and most attackers stay in (`docs/evidence.md`). Here the two neurons are
those of the source and the target class in every round; all else is Procedure 1.
"""

import lff
from lff.defenses.lfighter import filter_mild
from lff.seeds import stream
from lff.study.trials import FEW_IMAGES
from lff.updates import average_without

RUNS = (("cifar10-iid", 30), ("cifar10-iid", 40), ("cifar10-mild", 30))


@lff.defense("lfighter_told", label="LFighter told the classes")
def lfighter_told(updates: lff.Updates, *, source: int, target: int) -> lff.Decision:
    """Procedure 1 on the gradients of the neurons of these two classes."""
    data = updates.output_layer[:, [source, target]].double().flatten(1)
    seed = stream(updates.seed, "k-means", updates.round)
    bad, saw = filter_mild(data, seed=seed)
    told = {"distribution": "mild", "neurons": [source, target]}
    return average_without(updates, bad, {**told, **saw})


if __name__ == "__main__":
    for benchmark, attackers in RUNS:
        named = {"attackers": attackers, "scale": "laptop", **FEW_IMAGES}
        e = lff.experiment(benchmark, **named)
        classes = {"source": e.source_class, "target": e.target_class}
        record = lff.run(benchmark, defense="lfighter_told", defense_options=classes, **named)
        row = record.summary()
        rates = ("src_acc", "asr", "all_acc", "true_positive_rate", "false_positive_rate")
        numbers = ", ".join(f"{name} {row[name]:.3f}" for name in rates)
        print(f"{benchmark}, {attackers}%: {numbers}")
