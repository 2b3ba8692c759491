"""What an attack is: up to four things an attacker may do, registered by name.

| method                          | what it changes                                            |
| ------------------------------- | ---------------------------------------------------------- |
| `poison(data, context)`         | her examples, features and labels, anew in each round      |
| `loss(model, batch, context)`   | what she descends in local training                        |
| `craft(update, context)`        | the update she uploads                                     |
| `trigger(x)`                    | what a patched test image looks like, for ASR              |

A plain function registered as an attack is its `poison`. Keyword-only parameters (of the function,
or of the class) are options that experiments can set.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from lff.errors import InputError, unknown
from lff.models import FlatModel
from lff.registry import Factory, Registry

Registrable = TypeVar("Registrable", bound=Callable[..., Any])

METHODS = ("poison", "loss", "craft", "trigger")
KNOWS = ("own data", "attackers' updates", "all updates")


@dataclass(frozen=True, kw_only=True)
class Context:
    """What an attacker has before her in a round.

    `updates` are this round's updates as far as she knows them, `[*, d]`, before anybody crafts:
    none, the attackers' own, or all peers'. `theirs` says which of these rows are attackers'.
    """

    peer: int
    peers: int  # how many train in this round
    attackers: tuple[int, ...]  # the ids of those among them who attack together with her
    round: int
    source_class: int
    target_class: int
    classes: int
    model: FlatModel  # the global model W^t
    global_weights: Tensor
    generator: torch.Generator | None  # her own random stream of this round
    learning_rate: float
    updates: Tensor | None = None
    theirs: Tensor | None = None

    @property
    def honest(self) -> Tensor:
        """The honest peers' updates; the attackers' own in their place if she knows no others."""
        if self.updates is None or self.theirs is None:
            raise InputError("to see updates, an attack must declare that it knows them")
        return self.updates if self.theirs.all() else self.updates[~self.theirs]


@dataclass(frozen=True)
class Attack(Factory):
    """A registered attack; `knows` is what an attacker knows beside her own data."""

    knows: str = KNOWS[0]

    def create(self, **options: Any) -> Any:
        """A fresh attack for one run: an object with any of `METHODS`, and what it `knows`."""
        return as_attack(super().create(**options), self.knows)


@dataclass(frozen=True)
class Poison:
    """An attack that is one function."""

    poison: Callable[..., Any]
    knows: str = KNOWS[0]


ATTACKS: Registry[Attack] = Registry("attack")


def attack(
    name: str, *, label: str | None = None, knows: str = KNOWS[0]
) -> Callable[[Registrable], Registrable]:
    """Register an attack under `name`; `knows` declares what its attackers know."""
    if knows not in KNOWS:
        raise unknown("knowledge", knows, KNOWS)

    def register(factory: Registrable) -> Registrable:
        if inspect.isclass(factory) and not any(hasattr(factory, m) for m in METHODS):
            raise InputError(f"the class of attack {name!r} needs one of {', '.join(METHODS)}")
        ATTACKS.add(Attack(name, label or name, factory, knows))
        return factory

    return register


def as_attack(attack: Any, knows: str = KNOWS[0]) -> Any:
    """A function as the attack it is; an object with some of `METHODS` as it is."""
    if any(hasattr(attack, method) for method in METHODS):
        if not hasattr(attack, "knows"):
            attack.knows = knows
        return attack
    if callable(attack):
        return Poison(attack, knows)
    raise InputError(f"an attack is a function or has one of {', '.join(METHODS)}, not {attack!r}")
