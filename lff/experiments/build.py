"""The federation of an experiment: data, peers, model, attack and rule put together."""

import copy
from functools import partial

import numpy as np
import torch
from torch import nn

from lff import fast
from lff.attacks import ATTACKS, choose_attackers, number_of_attackers, source_class_holders
from lff.data import Dataset, as_dataset, load
from lff.defenses import DEFENSES
from lff.errors import InputError, unknown
from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.experiment import Experiment
from lff.experiments.hooks import HOOKS, components, rounds_shown
from lff.federation import Federation
from lff.models import FlatModel, build_model
from lff.partition import partition
from lff.registry import parse_options
from lff.seeds import numpy_generator, seeded, stream
from lff.training import Examples, LocalTraining

DEVICES = ("auto", "cpu", "cuda")


def build(
    e: Experiment,
    device: torch.device | str = "cpu",
    data: Dataset | None = None,
    *,
    engine: str = "auto",
    workers: int = 1,
) -> Federation:
    """The federation of an experiment, before its first round; `data` is its data set if loaded.

    Everything random (partition, attackers, initial model, selection) depends on the seed alone,
    so that defenses are compared on the same peers, attackers and starting point.
    """
    device = torch.device(device)
    data = (data or dataset(e)).to(device)
    peers, attackers = make_peers(e, data)
    plain = make_model(e, data).to(device)
    module = fast.accelerate(copy.deepcopy(plain), device)
    model = FlatModel(module, BENCHMARKS[e.benchmark].output_layer, device)
    attack = ATTACKS[e.attack].create(**parse_options(e.attack_options))
    training = LocalTraining(
        local_epochs=e.local_epochs,
        batch_size=e.batch_size,
        learning_rate=e.learning_rate,
        optimizer=e.optimizer,
        momentum=e.momentum,
        weight_decay=e.weight_decay,
    )
    federation = Federation(
        peers,
        test_examples(e, data),
        model,
        source_class=e.source_class,
        target_class=e.target_class,
        training=training,
        rule=fast.make_rule(DEFENSES[e.defense], parse_options(e.defense_options)),
        attack=attack,
        attackers=attackers,
        attacker_ratio=e.attackers / 100,
        fraction=e.fraction,
        seed=e.seed,
        hooks=[
            partial(components, rounds=rounds_shown(e.rounds)),
            *(HOOKS[name].factory for name in e.hooks.split(",") if name),
        ],
    )
    federation.trainer = fast.choose_trainer(
        engine,
        workers,
        model=model,
        plain=plain,
        training=training,
        peers=federation.peers,
        own_loss=bool(attackers) and hasattr(attack, "loss"),
    )
    return federation


def dataset(e: Experiment) -> Dataset:
    """The data set of an experiment's benchmark."""
    known = BENCHMARKS[e.benchmark]
    if isinstance(known.data, str):
        return load(known.data, data=e.data, vocabulary=e.vocabulary)
    return as_dataset(known.data(), name=known.name)


def make_model(e: Experiment, data: Dataset) -> nn.Module:
    """The freshly initialized model of an experiment; the same seed gives the same weights."""
    known = BENCHMARKS[e.benchmark]
    seed = stream(e.seed, "model")
    if isinstance(known.model, str):
        sizes = {"classes": len(data.classes), "vocabulary": data.vocabulary, "width": e.width}
        return build_model(known.model, **sizes, seed=seed)
    with seeded(seed):
        return known.model()


def test_examples(e: Experiment, data: Dataset) -> Examples:
    """The test examples, the same for every seed."""
    size = _size("test_examples", e.test_examples, len(data.test_y))
    chosen = numpy_generator(0, "test examples").permutation(len(data.test_y))[:size]
    rows = torch.from_numpy(np.sort(chosen)).to(data.test_y.device)
    return Examples(data.test_x[rows], data.test_y[rows])


def make_peers(e: Experiment, data: Dataset) -> tuple[list[Examples], list[int]]:
    """The training examples divided among the peers, and which of these attack."""
    labels = data.train_y.cpu().numpy()
    size = _size("examples", e.examples, len(labels))
    if e.batch_size > size:
        raise InputError(
            f"batch_size must be between 1 and {size}, the number of training examples, "
            f"not {e.batch_size}"
        )
    used = numpy_generator(e.seed, "examples").permutation(len(labels))[:size]
    rng = numpy_generator(e.seed, "partition")
    shares = partition(labels[used], e.peers, e.distribution, rng, alpha=e.alpha)
    held = [used[share] for share in shares]
    peer_labels = [labels[own] for own in held]
    # In Extreme the ratio counts among the holders of the source class: 4 of 10 are 40%.
    holders = len(source_class_holders(peer_labels, e.source_class))
    among = holders if e.distribution == "extreme" else e.peers
    count = number_of_attackers(e.attackers / 100, among)
    rng = numpy_generator(e.seed, "attackers")
    attackers = choose_attackers(peer_labels, e.source_class, count, rng)
    rows = [torch.from_numpy(own).to(data.train_y.device) for own in held]
    return [Examples(data.train_x[own], data.train_y[own]) for own in rows], attackers


def _size(name: str, asked: int, there: int) -> int:
    if asked > there:
        raise InputError(f"{name} must be between 1 and {there} (or 0 for all), not {asked}")
    return asked or there


def choose_device(name: str) -> torch.device:
    """The device of that name; `auto` is a GPU if there is one."""
    if name not in DEVICES:
        raise unknown("device", name, DEVICES)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device 'cuda' asked for, but torch finds no GPU; choose 'cpu' or 'auto'")
    return torch.device(name)
