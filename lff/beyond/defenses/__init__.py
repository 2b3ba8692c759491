"""Newer defenses, one file each."""

from lff.beyond.defenses.labelaudit import LabelAudit

__all__ = ["LabelAudit"]
