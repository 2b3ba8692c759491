"""What a defense is: a rule from a round's `Updates` to a `Decision`, registered by its name.

A rule with memory is a class whose instances are such rules, with `state_dict` and
`load_state_dict` for resumption. Keyword-only parameters are options that experiments can set;
every defense has those of `lff.defenses.mixing` besides.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, TypeVar

from torch import Tensor

from lff.defenses.mixing import MIXING, mixed, mixture_of, unmixed
from lff.errors import InputError, TrainingError, unknown
from lff.registry import Factory, Registry
from lff.updates import Decision, Updates, finite_rows

Rule = Callable[[Updates], Decision]
Registrable = TypeVar("Registrable", bound=Callable[..., Any])

# What no server can know: how many attack, who does, and what clean examples would teach.
NEEDS = ("attacker_count", "attackers", "root_update")


@dataclass(frozen=True)
class Defense(Factory):
    """A registered defense; `needs` is what its rule must be told."""

    needs: tuple[str, ...] = ()

    def create(self, **options: Any) -> Rule:
        """A fresh rule for one run, with these options; mixing, if they ask for it, comes first."""
        self.check(options)
        mixing = {name: options.pop(name) for name in MIXING if name in options}
        rule = super().create(**options)
        rule.needs = self.needs
        return Mixed(self.name, rule, **mixing) if mixing.get("mixing", "none") != "none" else rule

    def options(self) -> dict[str, Any]:
        """Its own options and their defaults, without those of mixing."""
        return {name: p.default for name, p in super()._parameters().items()}

    def check(self, options: dict[str, Any]) -> None:
        """Refuse options that it does not have or lacks, and values that cannot be."""
        super().check(options)
        if "bucket_size" in options:
            if options.get("mixing") != "bucketing":
                raise InputError("bucket_size is an option of mixing='bucketing'")
            if options["bucket_size"] < 1:
                raise InputError(f"bucket_size must be 1 or more, not {options['bucket_size']!r}")

    def _parameters(self) -> dict[str, inspect.Parameter]:
        return super()._parameters() | MIXING


class Mixed:
    """A rule that gets mixtures of the updates in their place (`lff.defenses.mixing`).

    A peer has a share in the aggregate through every mixture that she is part of.
    """

    def __init__(self, name: str, rule: Any, **mixing: Any):
        self.name, self.rule, self.mixing = name, rule, mixing
        told = ("attacker_count",) if mixing["mixing"] == "nearest" else ()
        self.needs = tuple(dict.fromkeys((*rule.needs, *told)))

    def __call__(self, updates: Updates) -> Decision:
        return _decide(self.name, self.decide, updates)

    def decide(self, updates: Updates) -> Decision:
        """What the rule makes of the mixtures, in terms of the peers."""
        mixture = mixture_of(updates, **self.mixing)
        return unmixed(self.rule(mixed(updates, mixture)), mixture)

    def state_dict(self) -> dict[str, Tensor]:
        """The rule's memory, if it has any."""
        return self.rule.state_dict() if hasattr(self.rule, "state_dict") else {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from a checkpoint's memory."""
        self.rule.load_state_dict(state)


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
        taken = MIXING.keys() & inspect.signature(factory).parameters
        if taken:
            raise InputError(
                f"defense {name!r} cannot have the option {min(taken)}, which every defense has"
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
