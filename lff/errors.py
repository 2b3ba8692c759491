"""Errors that name the offending value and the valid choices."""

import difflib
from collections.abc import Iterable


class LffError(Exception):
    """Anything `lff` reports to its user; the command line prints it and exits with 2."""


class InputError(LffError, ValueError):
    """A value that cannot be used, found before any work is done."""


class DataError(LffError):
    """A data set that cannot be had, or whose files are not the canonical ones."""


class TrainingError(LffError):
    """A run that cannot go on."""


class ClusterError(LffError):
    """A cluster that cannot go on with a sweep."""


class RecordError(LffError):
    """A record or checkpoint that is broken, outdated, or not what its name says."""


def unknown(kind: str, value: object, choices: Iterable[str]) -> InputError:
    """The error for a name that is none of `choices`, with the nearest one suggested."""
    choices = list(choices)
    near = difflib.get_close_matches(str(value), choices, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return InputError(f"unknown {kind} {value!r}; choose from: {', '.join(choices)}.{hint}")
