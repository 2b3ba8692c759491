"""Attacks and defenses of today, beyond the paper.

They are registered as an outside package would do it: by `@lff.defense` and `@lff.attack`, in
modules that the entry points `lff.defenses` and `lff.attacks` of `pyproject.toml` name. Nothing
else in `lff` imports this room. Where a paper leaves something open, `docs/decisions.md` says what
we do.
"""
