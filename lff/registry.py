"""One registry for benchmarks, attacks, defenses, metrics and hooks.

A name means one thing. What is registered in a notebook cell, a script or an installed package
(entry points `lff.benchmarks`, `lff.attacks`, `lff.defenses`, `lff.metrics`, `lff.hooks`) works by
that name everywhere. Options of a registered function or class are its keyword-only parameters.
"""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from typing import Any, Literal, Protocol, TypeVar, get_args, get_origin

from lff.errors import InputError, unknown


class Registered(Protocol):
    """What a registry holds: something with a name, of which `code` says who wrote it."""

    @property
    def name(self) -> str: ...

    @property
    def code(self) -> tuple[Callable[..., Any], ...]:
        """The functions and classes behind it."""


Entry = TypeVar("Entry", bound=Registered)


class Registry(Mapping[str, Entry]):
    """Entries by name, in the order in which they came; installed ones join when asked for."""

    def __init__(self, kind: str):
        self.kind = kind
        self.entries: dict[str, Entry] = {}
        self.complete = False

    def add(self, entry: Entry) -> None:
        """Register an entry; running a cell again replaces its own, never another module's."""
        if not entry.name.replace("-", "_").isidentifier():
            raise InputError(
                f"the name of a {self.kind} must be made of letters, digits, _ and -, "
                f"not {entry.name!r}"
            )
        if any(module.split(".")[0] != "lff" for module in _modules(entry)):
            self._load_installed()  # whoever takes a name of theirs hears of it now, not later
        present = self.entries.get(entry.name)
        if present is not None and _modules(present) != _modules(entry):
            raise InputError(
                f"a {self.kind} named {entry.name!r} exists already; choose another name"
            )
        self.entries[entry.name] = entry

    def __getitem__(self, name: str) -> Entry:
        if name not in self:
            raise unknown(self.kind, name, self.entries)
        return self.entries[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The entry of that name, or the default."""
        return self.entries[name] if name in self else default

    def label(self, name: str) -> str:
        """The name that figures use; a name that nobody registered here stands for itself."""
        return getattr(self.get(name), "label", name)

    def __contains__(self, name: object) -> bool:
        if name not in list(self.entries):  # whatever it is, also what has no hash
            self._load_installed()
        return name in list(self.entries)

    def __iter__(self) -> Iterator[str]:
        self._load_installed()
        return iter(list(self.entries))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _load_installed(self) -> None:
        """Import the modules that installed packages name in the entry points of this kind."""
        if not self.complete:
            self.complete = True
            for entry in entry_points(group=f"lff.{self.kind}s"):
                entry.load()


def _modules(entry: Registered) -> list[str]:
    return [code.__module__ for code in entry.code]


@dataclass(frozen=True)
class Factory:
    """A registered function or class: its names, and how to make what a run uses of it."""

    name: str
    label: str
    factory: Callable[..., Any]

    @property
    def code(self) -> tuple[Callable[..., Any], ...]:
        """The functions and classes behind it."""
        return (self.factory,)

    def create(self, **options: Any) -> Any:
        """A fresh one for one run, with these options."""
        self.check(options)
        if inspect.isclass(self.factory):
            return self.factory(**options)
        return partial(self.factory, **options) if options else self.factory

    def options(self) -> dict[str, Any]:
        """The options and their defaults."""
        return {name: parameter.default for name, parameter in self._parameters().items()}

    def check(self, options: dict[str, Any]) -> None:
        """Refuse options that it does not have, lacks, or whose annotations rule the value out."""
        parameters = self._parameters()
        for name, value in options.items():
            if name not in parameters:
                raise unknown(f"option of {self.name}", name, parameters)
            _check_value(f"{name} of {self.name}", value, parameters[name].annotation)
        for name, parameter in parameters.items():
            if parameter.default is parameter.empty and name not in options:
                raise InputError(f"{self.name!r} needs the option {name}")

    def _parameters(self) -> dict[str, inspect.Parameter]:
        parameters = inspect.signature(self.factory).parameters
        return {name: p for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}


def _check_value(what: str, value: Any, kind: Any) -> None:
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    if choices and value not in choices:
        raise unknown(what, value, map(str, choices))
    types = (int, float) if kind is float else (kind,)
    if kind in (bool, int, float, str) and type(value) not in types:
        raise InputError(f"option {what} must be of type {kind.__name__}, not {value!r}")


def parse_options(options: Mapping[str, Any] | str) -> dict[str, Any]:
    """Options from `name=value,...`; values are JSON scalars, anything else is a text."""
    if isinstance(options, Mapping):
        return dict(options)
    if not isinstance(options, str):
        raise InputError(f"options are a dict or a text name=value,..., not {options!r}")
    return dict(parse_pair("option", part) for part in filter(None, options.split(",")))


def parse_pair(kind: str, text: str) -> tuple[str, Any]:
    """`name=value` as a name and a value: JSON, or else a text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"{kind}s are written name=value, not {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def format_options(options: Mapping[str, Any]) -> str:
    """The canonical text of options, `density=cosine,distribution=mild`: sorted by name.

    What would not be read back as it is cannot be part of an experiment's name.
    """
    parts = []
    for name, value in sorted(options.items()):
        if not isinstance(value, str | int | float | bool):
            raise InputError(f"option {name} must be a text, a number or a bool, not {value!r}")
        text = f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        if parse_options(text) != {name: value}:
            raise InputError(
                f"option {name} cannot be {value!r}: a text must hold no comma and must not read "
                "as a number or another JSON value"
            )
        parts.append(text)
    return ",".join(parts)
