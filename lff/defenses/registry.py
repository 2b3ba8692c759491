"""The defenses by name: one decorator to add one, one function to get one.

A defense is a callable from a round's `Updates` to a `Decision`. Its keyword-only parameters
are its options; experiments can set them. A rule with memory is a class whose instances are
such callables, with `state_dict` and `load_state_dict` for resumption.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from importlib.metadata import entry_points
from typing import Any, Literal, get_args, get_origin

from lff.errors import InputError, TrainingError, unknown
from lff.experiments.scales import PAPER_DEFENSES
from lff.updates import Decision, Updates, finite_rows

Rule = Callable[[Updates], Decision]

ENTRY_POINTS = "lff.defenses"
NEEDS = ("attacker_count", "attackers")


@dataclass(frozen=True)
class Defense:
    """A registered defense: its names, and how to make one for a run."""

    name: str
    label: str
    factory: Callable[..., Any]
    needs: tuple[str, ...]

    def create(self, **options: Any) -> Rule:
        """A fresh rule for one run, with these options."""
        self.check(options)
        if inspect.isclass(self.factory):
            return self.factory(**options)
        return partial(self.factory, **options) if options else self.factory

    def options(self) -> dict[str, Any]:
        """The options and their defaults."""
        parameters = inspect.signature(self.factory).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def check(self, options: dict[str, Any]) -> None:
        """Refuse options this defense does not have, and values its annotations rule out."""
        parameters = inspect.signature(self.factory).parameters
        for option, value in options.items():
            if option not in self.options():
                raise unknown(f"option of {self.name}", option, self.options())
            kind = parameters[option].annotation
            choices = get_args(kind) if get_origin(kind) is Literal else ()
            if choices and value not in choices:
                raise unknown(f"{option} of {self.name}", value, map(str, choices))
            types = (int, float) if kind is float else (kind,)
            if kind in (bool, int, float, str) and type(value) not in types:
                raise InputError(
                    f"option {option} of {self.name} must be of type {kind.__name__}, not {value!r}"
                )


_defenses: dict[str, Defense] = {}
_entry_points_loaded = False


def defense(
    name: str, *, label: str | None = None, needs: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a defense under `name`, shown in figures as `label`.

    `needs` names what the rule must be told though no server can know it (`NEEDS`); no other rule
    is told. Whoever calls the rule, updates that are not finite are refused, and so is its
    decision if the aggregate is no finite model.
    """
    if not name.isidentifier():
        raise InputError(f"a defense's name must be a Python identifier, not {name!r}")
    for need in needs:
        if need not in NEEDS:
            raise unknown("need", need, NEEDS)

    def register(factory: Callable[..., Any]) -> Callable[..., Any]:
        memory = [hasattr(factory, method) for method in ("state_dict", "load_state_dict")]
        if inspect.isclass(factory) and not all(memory):
            raise InputError(
                f"the class of defense {name!r} needs state_dict() and load_state_dict(), of "
                "tensors by name: without them a resumed run would forget"
            )
        present = _defenses.get(name)
        if present is not None and present.factory.__module__ != factory.__module__:
            raise InputError(f"a defense named {name!r} exists already; choose another name")
        checked = _checked(name, factory)
        _defenses[name] = Defense(name, label or name, checked, tuple(needs))
        return checked

    return register


def get_defense(name: str) -> Defense:
    """The defense of that name."""
    if name not in _defenses:
        _load_entry_points()
    if name not in _defenses:
        raise unknown("defense", name, defenses())
    return _defenses[name]


def defenses() -> dict[str, Defense]:
    """All registered defenses by name: the paper's in its order, then the others."""
    _load_entry_points()
    return {name: _defenses[name] for name in dict.fromkeys([*PAPER_DEFENSES, *_defenses])}


def _checked(name: str, factory: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, or class of rules, with `_decide` around every call."""
    if inspect.isclass(factory):
        call = factory.__call__

        @wraps(call)
        def method(self, updates: Updates) -> Decision:
            return _decide(name, partial(call, self), updates)

        factory.__call__ = method
        return factory

    @wraps(factory)
    def function(updates: Updates, **options: Any) -> Decision:
        return _decide(name, partial(factory, **options), updates)

    return function


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


def _load_entry_points() -> None:
    """Import installed packages that register defenses (entry-point group `lff.defenses`)."""
    global _entry_points_loaded
    if not _entry_points_loaded:
        _entry_points_loaded = True
        for entry in entry_points(group=ENTRY_POINTS):
            entry.load()
