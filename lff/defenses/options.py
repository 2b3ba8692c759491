"""A defense's options as one canonical text: `density=cosine,distribution=mild`."""

import json
from typing import Any

from lff.errors import InputError


def parse_options(options: dict[str, Any] | str) -> dict[str, Any]:
    """Options from `name=value,...`; values are JSON scalars, anything else is a text."""
    if isinstance(options, dict):
        return options
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


def format_options(options: dict[str, Any]) -> str:
    """The canonical text of options: sorted by name."""
    parts = []
    for name, value in sorted(options.items()):
        if not isinstance(value, str | int | float | bool):
            raise InputError(f"option {name} must be a text, a number or a bool, not {value!r}")
        parts.append(f"{name}={value if isinstance(value, str) else json.dumps(value)}")
    return ",".join(parts)
