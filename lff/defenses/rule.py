"""What a defense is: a rule from a round's `Updates` to a `Decision`, registered by its name.

A rule with memory is a class whose instances are such rules, with `state_dict` and
`load_state_dict` for resumption. Keyword-only parameters are options that experiments can set.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeVar

from lff.errors import InputError, TrainingError, unknown
from lff.registry import Factory, Registry
from lff.updates import Decision, Updates, finite_rows

Rule = Callable[[Updates], Decision]
Registrable = TypeVar("Registrable", bound=Callable[..., Any])

NEEDS = ("attacker_count", "attackers")  # what no server can know


@dataclass(frozen=True)
class Defense(Factory):
    """A registered defense; `needs` is what its rule must be told."""

    needs: tuple[str, ...] = ()

    def create(self, **options: Any) -> Rule:
        """A fresh rule for one run, with these options."""
        rule = super().create(**options)
        rule.needs = self.needs
        return rule


DEFENSES: Registry[Defense] = Registry("defense")


def defense(
    name: str, *, label: str | None = None, needs: Sequence[str] = ()
) -> Callable[[Registrable], Registrable]:
    """Register a defense under `name`, shown in figures as `label`.

    `needs` names what the rule must be told though no server can know it; no other rule is told.
    Whoever calls the rule, updates that are not finite are refused, and so is its decision if the
    aggregate is no finite model.
    """
    for need in needs:
        if need not in NEEDS:
            raise unknown("need", need, NEEDS)

    def register(factory: Registrable) -> Registrable:
        memory = [hasattr(factory, method) for method in ("state_dict", "load_state_dict")]
        if inspect.isclass(factory) and not all(memory):
            raise InputError(
                f"the class of defense {name!r} needs state_dict() and load_state_dict(), of "
                "tensors by name: without them a resumed run would forget"
            )
        rule = checked(name)(factory)
        rule.needs = tuple(needs)  # type: ignore[attr-defined]
        DEFENSES.add(Defense(name, label or name, rule, tuple(needs)))
        return rule

    return register


def checked(name: str) -> Callable[[Registrable], Registrable]:
    """Check the updates and decisions of a function, or class of rules, of this name."""

    def wrap(factory: Registrable) -> Registrable:
        if inspect.isclass(factory):
            call = factory.__call__

            @wraps(call)
            def method(self: Any, updates: Updates) -> Decision:
                return _decide(name, partial(call, self), updates)

            factory.__call__ = method  # type: ignore[method-assign]
            return factory

        @wraps(factory)
        def function(updates: Updates, **options: Any) -> Decision:
            return _decide(name, partial(factory, **options), updates)

        return function  # type: ignore[return-value]  # the same signature, by `wraps`

    return wrap


def _decide(name: str, rule: Rule, updates: Updates) -> Decision:
    """What the rule makes of finite updates; anything but a finite model is an error."""
    broken = [
        peer for peer, finite in zip(updates.peers, updates.finite, strict=True) if not finite
    ]
    if broken:
        raise InputError(
            f"defense {name!r} got updates with NaN or infinities from peers {broken} in round "
            f"{updates.round}; exclude them first, as Federation.exclude does"
        )
    decision = rule(updates)
    if not isinstance(decision, Decision):
        raise TrainingError(f"defense {name!r} must return a Decision, not {decision!r}")
    if decision.aggregate.shape != updates.global_weights.shape:
        raise TrainingError(
            f"defense {name!r} must make an aggregate of {len(updates.global_weights)} entries, "
            f"not of shape {list(decision.aggregate.shape)}"
        )
    if not all(finite_rows(decision.aggregate.unsqueeze(0))):
        raise TrainingError(
            f"defense {name!r} made an aggregate with NaN or infinities of finite updates from "
            f"peers {list(updates.peers)} in round {updates.round}"
        )
    return decision
