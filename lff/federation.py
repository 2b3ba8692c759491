"""The loop of Algorithm 1 from plain objects: peers, model, attack, rule -> rounds.

    federation = Federation(peers, test, model, rule=lfighter, attack=label_flipping,
                            attackers=[0, 3], source_class=7, target_class=1,
                            training=LocalTraining(local_epochs=3, learning_rate=0.01))
    for _ in range(12):
        entry = federation.play_round()

It knows nothing of experiments, files or benchmarks.
"""

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lff.attacks import Context, as_attack, label_flipping, number_of_attackers
from lff.attacks.attack import KNOWS
from lff.defenses import Rule, fedavg
from lff.errors import InputError, TrainingError
from lff.metrics import PAPER_METRICS, Evaluation, caught, confusion_matrix, evaluate, outputs_of
from lff.models import FlatModel
from lff.registry import Factory, Registry
from lff.seeds import numpy_generator, torch_generator
from lff.training import Examples, LocalTraining, Loop, Peer, Trainer, one_thread
from lff.updates import Decision, Updates

Entry = dict[str, Any]
Hook = Callable[["Federation", Entry], Entry | None]

HOOKS: Registry[Factory] = Registry("hook")


def hook(name: str) -> Callable[[Hook], Hook]:
    """Register a hook: called after each round with the federation and the round's entry.

    What it returns joins the entry, and so the record.
    """

    def register(function: Hook) -> Hook:
        HOOKS.add(Factory(name, name, function))
        return function

    return register


class Federation:
    """The server and its peers; `play_round` is one iteration t of Algorithm 1.

    `peers` are the examples (x, y) that each peer holds, with their true labels; those of the
    `attackers` pass through the attack's `poison` before each training. Everything random draws
    from streams of the seed. `attacker_ratio` (a fraction) is what rules are told that need it.
    """

    def __init__(
        self,
        peers: Sequence[tuple[Tensor, Tensor]],
        test: tuple[Tensor, Tensor],
        model: nn.Module | FlatModel,
        *,
        source_class: int,
        target_class: int,
        training: LocalTraining,
        rule: Rule = fedavg,
        attack: Any = label_flipping,
        attackers: Collection[int] = (),
        attacker_ratio: float | None = None,
        fraction: float = 1.0,
        seed: int = 0,
        trainer: Trainer | None = None,
        hooks: Sequence[Hook] = (),
    ):
        self.peers = [Peer(k, Examples(*examples)) for k, examples in enumerate(peers)]
        self.test = Examples(*test)
        self.device = self.test.x.device
        self.model = model if isinstance(model, FlatModel) else FlatModel(model, "", self.device)
        self.source_class, self.target_class = source_class, target_class
        self.training = training
        self.rule = rule
        self.needs: tuple[str, ...] = getattr(rule, "needs", ())
        self.attack = as_attack(attack)
        self.attackers = sorted(attackers)
        if attacker_ratio is None:
            attacker_ratio = len(self.attackers) / len(self.peers)
        self.attacker_ratio = attacker_ratio
        self.fraction, self.seed = fraction, seed
        self.trainer = trainer or Loop(self.model, training)
        self.hooks = list(hooks)
        outputs = outputs_of(self.model.module, self.test.x[:1])
        self.classes = 2 if outputs.dim() == 1 else outputs.shape[1]
        self._check()
        self.global_weights = self.model.vector.detach().clone()  # W^0
        self.history: list[Entry] = []
        self.seconds: dict[str, list[float]] = {
            "training": [],
            "aggregation": [],
            "evaluation": [],
        }
        self.updates: Updates  # of the last round
        self.decision: Decision  # of the last round

    def _check(self) -> None:
        for name, c in (("source", self.source_class), ("target", self.target_class)):
            if not 0 <= c < self.classes:
                raise InputError(f"{name}_class must be between 0 and {self.classes - 1}, not {c}")
        strangers = [k for k in self.attackers if not 0 <= k < len(self.peers)]
        if strangers:
            raise InputError(f"attackers {strangers} are none of the {len(self.peers)} peers")

    def play_round(self) -> Entry:
        """One iteration of Algorithm 1 and the evaluation of W^{t+1}; returns the round's entry."""
        with one_thread(self.device):
            with self._timed("training"):
                updates = self.collect_updates()
            updates, excluded = self.exclude(updates)
            with self._timed("aggregation"):
                decision = self.rule(updates)
            self.global_weights = decision.aggregate
            with self._timed("evaluation"):
                evaluation = self.evaluate()
            self.updates, self.decision = updates, decision
            entry = self._entry(updates, excluded, decision, evaluation)
            for each in self.hooks:
                entry |= compact(each(self, entry) or {})
            self.history.append(entry)
            return entry

    def collect_updates(self) -> Updates:
        """The updates {W_k^{t+1} | k in S} of the coming round's selected peers."""
        t = len(self.history)
        selected = [self.poisoned(peer, t) for peer in self.select(t)]
        weights = self.trainer.train(self.global_weights, selected, seed=self.seed, round=t)
        weights = self.crafted(weights, selected, t)
        told: dict[str, Any] = {
            "attacker_count": number_of_attackers(self.attacker_ratio, len(selected)),
            "attackers": tuple(self.attackers),
            "root_update": self.root_update,
        }
        held = [torch.bincount(p.examples.y, minlength=self.classes) > 0 for p in selected]
        return Updates(
            weights=weights,
            global_weights=self.global_weights,
            layout=self.model.layout,
            learning_rate=self.training.learning_rate,
            examples=torch.tensor([float(len(p.examples.y)) for p in selected], device=self.device),
            peers=tuple(p.id for p in selected),
            round=t,
            seed=self.seed,
            declared_classes=torch.stack(held),
            **{need: told[need] for need in self.needs},
        )

    def root_update(self, examples: int) -> Tensor:
        """The update of one more peer with so many clean examples, such as a server may hold.

        They are drawn from all peers' examples with their true labels, the same ones in each round.
        """
        ends = np.cumsum([len(peer.examples.y) for peer in self.peers])
        chosen = numpy_generator(self.seed, "root").permutation(int(ends[-1]))[:examples]
        owners = np.searchsorted(ends, chosen, side="right")
        places = zip(owners, chosen - np.append(0, ends)[owners], strict=True)
        held = [[part[i] for part in self.peers[k].examples] for k, i in places]
        root = Peer(len(self.peers), Examples(*map(torch.stack, zip(*held, strict=True))))
        trainer, t = Loop(self.model, self.training), len(self.history)
        return trainer.train(self.global_weights, [root], seed=self.seed, round=t)[0]

    def select(self, t: int) -> list[Peer]:
        """S: a random set of m = max(C K, 1) peers, in the order of their ids."""
        m = max(round(self.fraction * len(self.peers)), 1)
        if m == len(self.peers):
            return self.peers
        rng = numpy_generator(self.seed, "select", t)
        return [self.peers[k] for k in sorted(rng.choice(len(self.peers), size=m, replace=False))]

    def poisoned(self, peer: Peer, t: int) -> Peer:
        """The peer as she trains in round t: an attacker with what her attack makes of her."""
        if peer.id not in self.attackers:
            return peer
        context = self.context(peer.id, t)
        if hasattr(self.attack, "poison"):
            x, y = peer.examples
            poisoned = Examples(*self.attack.poison(Examples(x.clone(), y.clone()), context))
            same = poisoned.x.shape == x.shape and torch.equal(poisoned.x, x)
            peer = replace(peer, examples=Examples(x, poisoned.y) if same else poisoned)
        if hasattr(self.attack, "loss"):
            loss = self.attack.loss
            peer = replace(peer, loss=lambda model, batch: loss(model, batch, context))
        return peer

    def crafted(self, weights: Tensor, selected: Sequence[Peer], t: int) -> Tensor:
        """The updates as they are uploaded: an attacker's may be what her attack crafts of hers."""
        if not hasattr(self.attack, "craft"):
            return weights
        theirs = torch.tensor([peer.id in self.attackers for peer in selected])
        known = {KNOWS[1]: theirs, KNOWS[2]: torch.ones_like(theirs)}.get(self.attack.knows)
        updates = None if known is None else weights[known]
        whose = None if known is None else theirs[known]
        crafted = weights.clone()
        for row in theirs.nonzero().flatten().tolist():
            context = replace(self.context(selected[row].id, t), updates=updates, theirs=whose)
            crafted[row] = self.attack.craft(weights[row], context)
        return crafted

    def context(self, peer: int, t: int) -> Context:
        """What an attacker has before her in round t."""
        self.model.load(self.global_weights)
        selected = [each.id for each in self.select(t)]
        return Context(
            peer=peer,
            peers=len(selected),
            attackers=tuple(k for k in selected if k in self.attackers),
            round=t,
            source_class=self.source_class,
            target_class=self.target_class,
            classes=self.classes,
            model=self.model,
            global_weights=self.global_weights,
            generator=torch_generator(self.seed, "attack", t, peer),
            learning_rate=self.training.learning_rate,
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
                f"no peer sent a finite update in round {updates.round}; the training diverged "
                f"(learning_rate {self.training.learning_rate:g})"
            )
        return updates.select(rows), excluded

    def evaluate(self) -> Evaluation:
        """What the current global model makes of the test examples."""
        self.model.load(self.global_weights)
        x, y = self.test
        outputs = outputs_of(self.model.module, x)
        evaluation = evaluate(outputs, y, self.source_class, self.target_class)
        if not hasattr(self.attack, "trigger"):
            return evaluation
        patched = outputs_of(self.model.module, self.attack.trigger(x.clone()))
        return replace(evaluation, patched=confusion_matrix(patched, y, self.classes))

    def _entry(
        self, updates: Updates, excluded: list[int], decision: Decision, evaluation: Evaluation
    ) -> Entry:
        """The round in JSON values."""
        dropped = decision.dropped(updates.peers)
        entry: Entry = {
            "round": len(self.history),
            **{name: _json(getattr(evaluation, name)) for name in PAPER_METRICS},
            "confusion": evaluation.confusion.tolist(),
            "weights": compact(decision.weights, digits=3),
            "scores": compact(decision.scores, digits=3),
            "dropped": dropped,
            "caught": asdict(caught(dropped, self.attackers, updates.peers)),
            "magnitudes": compact(updates.magnitudes.mean(dim=0)),
            "saw": compact(decision.saw),
        }
        if evaluation.patched is not None:
            entry["patched"] = evaluation.patched.tolist()
        if len(updates) < len(self.peers):
            entry |= {"peers": list(updates.peers), "excluded": excluded}
        return entry

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything the next round needs: tensors (W^t and the rule's memory), and JSON values."""
        memory = self.rule.state_dict() if hasattr(self.rule, "state_dict") else {}
        tensors = {f"defense.{name}": tensor.clone() for name, tensor in memory.items()}
        seconds = {part: list(times) for part, times in self.seconds.items()}
        return (
            {"global_weights": self.global_weights, **tensors},
            {"history": list(self.history), "seconds": seconds},
        )

    def load_state(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Become the federation that gave this state."""
        tensors = {name: tensor.to(self.device) for name, tensor in tensors.items()}
        self.global_weights = tensors.pop("global_weights")
        self.history, self.seconds = values["history"], values["seconds"]
        if tensors:
            memory = {name.removeprefix("defense."): tensor for name, tensor in tensors.items()}
            self.rule.load_state_dict(memory)  # type: ignore[attr-defined]

    def close(self) -> None:
        """End what trains the peers."""
        self.trainer.close()

    @contextlib.contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds[part].append(float(f"{time.perf_counter() - start:.4g}"))


def compact(value: Any, digits: int = 6) -> Any:
    """A JSON value for a record: tensors as lists, numbers to six digits, NaN as null."""
    if isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: compact(item, digits) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [compact(item, digits) for item in value]
    if isinstance(value, float):
        return _json(float(f"{value:.{digits}g}"))
    return value


def _json(value: float) -> float | None:
    return value if np.isfinite(value) else None
