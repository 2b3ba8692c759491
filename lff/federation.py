"""The loop of Algorithm 1: select peers, train, defend, aggregate, evaluate."""

import contextlib
import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lff.analysis import principal_components, views
from lff.attacks import (
    choose_attackers,
    get_attack,
    number_of_attackers,
    source_class_holders,
)
from lff.data import load
from lff.defenses import get_defense
from lff.defenses.options import parse_options
from lff.errors import InputError, TrainingError
from lff.experiments.benchmarks import BENCHMARKS, Experiment
from lff.experiments.checkpoints import Checkpoint
from lff.experiments.provenance import origin, provenance
from lff.experiments.records import Record
from lff.fast.engines import choose_engine
from lff.metrics import Metrics, caught, confusion_matrix, evaluate, outputs_of
from lff.models import OUTPUT_LAYER, FlatModel, build
from lff.partition import partition
from lff.seeds import numpy_generator, stream
from lff.threads import one_thread
from lff.training import LocalTraining, Peer
from lff.updates import Updates

SHOWN_ROUNDS = 12


class Federation:
    """The server and its peers, set up for one experiment; `play_round` is one iteration t.

    Everything random (partition, attackers, initial model, selection) depends on the seed alone,
    so that defenses are compared on the same peers, attackers and starting point.
    """

    def __init__(
        self,
        experiment: Experiment,
        device: torch.device | str = "cpu",
        *,
        engine: str = "auto",
        workers: int = 1,
    ):
        self.experiment = e = experiment
        self.device = torch.device(device)
        benchmark = BENCHMARKS[e.benchmark]
        self.data = load(benchmark.dataset, data=e.data, vocabulary=e.vocabulary).to(device)
        self.classes = len(self.data.classes)
        self.test = self._test_examples()
        self.peers, self.attackers = self._make_peers()
        self.training = LocalTraining(
            local_epochs=e.local_epochs,
            batch_size=e.batch_size,
            learning_rate=e.learning_rate,
            optimizer=e.optimizer,
            momentum=e.momentum,
            weight_decay=e.weight_decay,
        )
        model = {
            "name": benchmark.model,
            "classes": self.classes,
            "vocabulary": self.data.vocabulary,
            "width": e.width,
            "seed": stream(e.seed, "model"),
        }
        self.model = FlatModel(build(**model), OUTPUT_LAYER[benchmark.model], device)
        self.engine = choose_engine(
            engine,
            workers,
            model=model,
            flat=self.model,
            train_x=self.data.train_x,
            training=self.training,
        )
        self.provenance = provenance(self.data, self.device, self.engine.name)
        self.global_weights = self.model.vector.detach().clone()  # W^0
        self.defense = get_defense(e.defense)
        self.rule = self.defense.create(**parse_options(e.defense_options))
        self.history: list[dict[str, Any]] = []
        self.seconds: dict[str, list[float]] = {
            "training": [],
            "aggregation": [],
            "evaluation": [],
        }

    def play_round(self) -> dict[str, Any]:
        """One iteration of Algorithm 1 and the evaluation of W^{t+1}; returns the round's entry."""
        with one_thread(self.device):
            return self._play_round()

    def _play_round(self) -> dict[str, Any]:
        with self._timed("training"):
            updates = self.collect_updates()
        updates, excluded = self.exclude(updates)
        with self._timed("aggregation"):
            decision = self.rule(updates)
        self.global_weights = decision.aggregate
        with self._timed("evaluation"):
            metrics, confusion = self.evaluate()
        dropped = decision.dropped(updates.peers)
        entry = {
            "round": len(self.history),
            **{name: _json(value) for name, value in asdict(metrics).items()},
            "confusion": confusion.tolist(),
            "peers": list(updates.peers),
            "excluded": excluded,
            "weights": _compact(decision.weights, digits=3),
            "scores": _compact(decision.scores, digits=3),
            "dropped": dropped,
            "caught": asdict(caught(dropped, self.attackers, updates.peers)),
            "magnitudes": _compact(updates.magnitudes.mean(dim=0)),
            "saw": {name: _compact(value) for name, value in decision.saw.items()},
        }
        if len(self.history) in rounds_shown(self.experiment.rounds):
            entry["components"] = self._components(updates, decision.saw.get("neurons", ()))
        if len(updates) == self.experiment.peers:
            del entry["peers"], entry["excluded"]  # everybody, as in the paper
        self.history.append(entry)
        return entry

    def collect_updates(self) -> Updates:
        """The updates {W_k^{t+1} | k in S} of the coming round's selected peers."""
        e, t = self.experiment, len(self.history)
        selected = self.select(t)
        weights = self.engine.train(self.global_weights, selected, seed=e.seed, round=t)
        told = {
            "attacker_count": number_of_attackers(e.attackers / 100, len(selected)),
            "attackers": tuple(self.attackers),
        }
        held = [torch.bincount(p.labels, minlength=self.classes) > 0 for p in selected]
        return Updates(
            weights=weights,
            global_weights=self.global_weights,
            layout=self.model.layout,
            learning_rate=e.learning_rate,
            examples=torch.tensor([float(len(p.examples)) for p in selected], device=self.device),
            peers=tuple(p.id for p in selected),
            round=t,
            seed=e.seed,
            declared_classes=torch.stack(held),
            **{need: told[need] for need in self.defense.needs},
        )

    def exclude(self, updates: Updates) -> tuple[Updates, list[int]]:
        """The round without the updates that are not finite, and whose they were.

        No rule can make anything of NaN or infinity, and one such peer would spoil the model.
        """
        rows = [row for row, finite in enumerate(updates.finite) if finite]
        if len(rows) == len(updates):
            return updates, []
        excluded = [peer for row, peer in enumerate(updates.peers) if not updates.finite[row]]
        if not rows:
            raise TrainingError(
                f"no peer sent a finite update in round {updates.round} of {self.experiment.id}; "
                f"the training diverged (learning_rate {self.experiment.learning_rate:g})"
            )
        return updates.select(rows), excluded

    def select(self, t: int) -> list[Peer]:
        """S: a random set of m = max(C K, 1) peers, in the order of their ids."""
        peers, fraction = self.experiment.peers, self.experiment.fraction
        m = max(round(fraction * peers), 1)
        if m == peers:
            return self.peers
        rng = numpy_generator(self.experiment.seed, "select", t)
        return [self.peers[k] for k in sorted(rng.choice(peers, size=m, replace=False))]

    def evaluate(self) -> tuple[Metrics, Tensor]:
        """TE, All-Acc, Src-Acc and ASR of the current global model on the test examples, and their
        confusion matrix."""
        self.model.load(self.global_weights)
        examples, labels = self.test
        outputs = outputs_of(self.model.module, examples)
        e = self.experiment
        metrics = evaluate(outputs, labels, e.source_class, e.target_class)
        return metrics, confusion_matrix(outputs, labels, self.classes)

    def _components(self, updates: Updates, neurons: Sequence[int]) -> list[dict[str, Any]]:
        """Two principal components of the peers' gradients of the source and the target neuron,
        and of the neurons that the rule looked at if they are others; too few peers have none."""
        e = self.experiment
        pairs = [sorted((e.source_class, e.target_class))]
        if len(neurons) == 2 and sorted(neurons) not in pairs:
            pairs.append(sorted(neurons))
        bad = np.isin(updates.peers, self.attackers)
        shown = []
        for i, j in pairs if len(updates) > 2 else []:
            gradients = views(updates, i, j)["relevant neurons"]
            found = principal_components(gradients, bad)
            shown.append(
                {
                    "neurons": [i, j],
                    "points": _compact(found.points.tolist(), digits=3),
                    "explained": _compact(found.explained, digits=3),
                    "silhouette": _compact(found.silhouette, digits=3),
                }
            )
        return shown

    def close(self) -> None:
        """End what trains the peers."""
        self.engine.close()

    def checkpoint(self) -> Checkpoint:
        """The state from which `restore` goes on; later rounds leave it as it is."""
        memory = self.rule.state_dict() if hasattr(self.rule, "state_dict") else {}
        return Checkpoint(
            global_weights=self.global_weights,
            defense={name: tensor.clone() for name, tensor in memory.items()},
            history=list(self.history),
            seconds={part: list(times) for part, times in self.seconds.items()},
            origin=origin(self.provenance),
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Become the run that wrote this checkpoint."""
        self.global_weights = checkpoint.global_weights.to(self.device)
        self.history, self.seconds = checkpoint.history, checkpoint.seconds
        if checkpoint.defense:
            memory = {name: tensor.to(self.device) for name, tensor in checkpoint.defense.items()}
            self.rule.load_state_dict(memory)

    def record(self) -> Record:
        """The record of the rounds played so far."""
        return Record(
            experiment=self.experiment,
            attackers=self.attackers,
            told=list(self.defense.needs),
            class_counts=self._class_counts(),
            history=self.history,
            model=self._fingerprint(),
            seconds=self.seconds,
            provenance=self.provenance,
        )

    def _class_counts(self) -> list[list[int]]:
        """How many examples of each class every peer holds, by their true labels."""
        truth = [self.data.train_y[peer.examples] for peer in self.peers]
        return [torch.bincount(own, minlength=self.classes).tolist() for own in truth]

    def _fingerprint(self) -> dict[str, Any]:
        """The global model's checksum, for the same bits, and its length, for nearly the same."""
        weights = self.global_weights.cpu()
        checksum = hashlib.sha256(weights.numpy().tobytes()).hexdigest()
        return {"sha256": checksum, "norm": weights.double().norm().item()}

    def _test_examples(self) -> tuple[Tensor, Tensor]:
        """The test examples, the same for every seed."""
        size = _size("test_examples", self.experiment.test_examples, len(self.data.test_y))
        chosen = numpy_generator(0, "test examples").permutation(len(self.data.test_y))[:size]
        rows = torch.from_numpy(np.sort(chosen)).to(self.device)
        return self.data.test_x[rows], self.data.test_y[rows]

    def _make_peers(self) -> tuple[list[Peer], list[int]]:
        """Divide the training examples, choose the attackers and poison their labels."""
        e = self.experiment
        labels = self.data.train_y.cpu().numpy()
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
        poison = get_attack(e.attack)
        peers = []
        for k, own in enumerate(held):
            y = labels[own]
            if k in attackers:
                y = poison(y, e.source_class, e.target_class)
            peers.append(
                Peer(k, torch.from_numpy(own).to(self.device), torch.from_numpy(y).to(self.device))
            )
        return peers, attackers

    @contextlib.contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds[part].append(float(f"{time.perf_counter() - start:.4g}"))


def _size(name: str, asked: int, there: int) -> int:
    if asked > there:
        raise InputError(f"{name} must be between 1 and {there} (or 0 for all), not {asked}")
    return asked or there


def _json(value: float) -> float | None:
    return value if np.isfinite(value) else None


def rounds_shown(rounds: int) -> list[int]:
    """The rounds, counted from 0, whose components a record keeps: all of twelve or fewer, else
    twelve that lie denser at the start, when defenses decide whom to trust."""
    if rounds <= SHOWN_ROUNDS:
        return list(range(rounds))
    spread = np.geomspace(1, rounds, SHOWN_ROUNDS)
    chosen = np.maximum(np.round(spread).astype(int), np.arange(1, SHOWN_ROUNDS + 1))
    return (chosen - 1).tolist()


def _compact(value: Any, digits: int = 6) -> Any:
    """A JSON value for a record: tensors as lists, numbers to six digits, NaN as null."""
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_compact(item, digits) for item in value]
    if isinstance(value, float):
        return _json(float(f"{value:.{digits}g}"))
    return value
