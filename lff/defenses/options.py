"""A defense's options as one canonical text: `density=cosine,distribution=mild`."""

import json
from typing import Any

from lff.errors import InputError


def parse_options(options: dict[str, Any] | str) -> dict[str, Any]:
    """Options from `name=value,...`; values are JSON scalars, anything else is a text."""
    if isinstance(options, dict):
        return options
    parsed = {}
    for part in filter(None, options.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise InputError(f"an option is written name=value, not {part!r}")
        try:
            parsed[name] = json.loads(value)
        except ValueError:
            parsed[name] = value
    return parsed


def format_options(options: dict[str, Any]) -> str:
    """The canonical text of options: sorted by name."""
    parts = []
    for name, value in sorted(options.items()):
        if not isinstance(value, str | int | float | bool):
            raise InputError(f"option {name} must be a text, a number or a bool, not {value!r}")
        parts.append(f"{name}={value if isinstance(value, str) else json.dumps(value)}")
    return ",".join(parts)
