"""A user's own code: fingerprinted, so that a changed cell is another experiment, and carried to
other processes."""

import dis
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import packages_distributions
from types import CodeType, FunctionType
from typing import Any

import cloudpickle
import numpy as np
import torch

from lff.attacks import ATTACKS
from lff.defenses import DEFENSES
from lff.errors import InputError
from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.experiment import Experiment
from lff.experiments.hooks import HOOKS
from lff.registry import Registered, Registry


def named(e: Experiment) -> list[tuple[Registry[Any], Registered]]:
    """All that an experiment names, each with the registry it is in."""
    hooks = [(HOOKS, HOOKS[name]) for name in e.hooks.split(",") if name]
    return [
        (DEFENSES, DEFENSES[e.defense]),
        (ATTACKS, ATTACKS[e.attack]),
        (BENCHMARKS, BENCHMARKS[e.benchmark]),
        *hooks,
    ]


def user_code(e: Experiment) -> str:
    """The fingerprints of all code that an experiment names and that is not part of `lff`."""
    code = [function for _, entry in named(e) for function in entry.code]
    return "+".join(filter(None, map(fingerprint, code)))


def packed(e: Experiment) -> bytes:
    """What an experiment names that is not part of `lff`, as bytes; empty if nothing.

    The code itself travels, by cloudpickle and inside Dask's own messages, if it is of a notebook
    cell, a script or a module that is not installed; that of an installed package is imported at
    the other end.
    """
    carried = [
        (registry.kind, entry)
        for registry, entry in named(e)
        if any(_package(code) != "lff" for code in entry.code)
    ]
    if not carried:
        return b""
    packages = {_package(code) for _, entry in carried for code in entry.code}
    loose = packages - {"__main__", *packages_distributions()}
    modules = [sys.modules[name] for name in loose if name in sys.modules]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps(carried)
    except Exception as error:
        names = " and ".join(f"{kind} {entry.name!r}" for kind, entry in carried)
        raise InputError(
            f"{names} cannot be sent to a worker ({error}); run it in this process, with jobs=1"
        ) from error
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def unpack(content: bytes) -> None:
    """Register what was packed elsewhere. It can run code: only for what came through Dask."""
    registries = {r.kind: r for r in (DEFENSES, ATTACKS, BENCHMARKS, HOOKS)}
    for kind, entry in cloudpickle.loads(content) if content else []:
        registries[kind].entries[entry.name] = entry


def fingerprint(code: Callable[..., Any]) -> str:
    """A short hash of a user's function or class; empty for the code of this package.

    It makes a changed notebook cell a different experiment, so that no record of the earlier
    code is taken for the new one's. It covers the compiled code with its constants and what it
    refers to by name: plain values, tensors and arrays, and the functions and classes of the
    same module (with their bases). Other objects, and other modules, are not looked into.
    """
    if _package(code) == "lff":
        return ""
    digest = hashlib.sha256()
    for part in _parts(code, code.__module__, set()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:12]


def _package(code: Callable[..., Any]) -> str:
    """The top-level package of a function or class."""
    return str(code.__module__).split(".")[0]


def _parts(value: Any, module: str, seen: set[int]) -> Iterator[str]:
    """Texts that change when a value does: a plain one, a tensor, or code of this module with what
    it refers to."""
    value = inspect.unwrap(value) if callable(value) else value
    if isinstance(value, str | bytes | int | float | bool | tuple | list | dict | None):
        yield repr(value)
    elif isinstance(value, set | frozenset):  # strings are hashed anew in every process
        yield repr(sorted(value, key=repr))
    elif isinstance(value, torch.Tensor | np.ndarray):
        array = np.asarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value)
        yield repr((array.dtype.str, array.shape, array.tolist()))
    elif isinstance(value, CodeType):
        yield repr((value.co_code, value.co_names, value.co_varnames))
        for constant in value.co_consts:
            yield from _parts(constant, module, seen)
    elif isinstance(value, partial):
        yield repr((value.args, value.keywords))
        yield from _parts(value.func, module, seen)
    elif getattr(value, "__module__", None) == module and id(value) not in seen:
        seen.add(id(value))
        for name, part in _referred(value):
            yield name
            yield from _parts(part, module, seen)


def _referred(code: Any) -> Iterator[tuple[str, Any]]:
    """What a class or function is made of and refers to, by name."""
    if inspect.isclass(code):
        for name, member in sorted(vars(code).items()):
            plain = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if isinstance(plain, FunctionType) or not name.startswith("__"):
                yield name, plain
        yield from ((base.__name__, base) for base in code.__bases__)
    elif isinstance(code, FunctionType):
        yield "code", code.__code__
        yield "defaults", (code.__defaults__, code.__kwdefaults__)
        known = {**code.__globals__, **inspect.getclosurevars(code).nonlocals}
        yield from ((name, known[name]) for name in sorted(_names(code.__code__) & known.keys()))


def _names(code: CodeType) -> set[str]:
    """The names beyond its own that a function, or one within it, looks up."""
    steps = dis.get_instructions(code)
    loads = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF")
    own = {step.argval for step in steps if step.opname in loads}
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return own.union(*map(_names, inner))
