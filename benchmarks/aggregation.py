"""Aggregation: time and peak extra memory of every defense beside other ways to compute it."""

from benchmarks.common import Report


def run(quick: bool = False) -> Report:
    """Measure."""
    return Report("aggregation")
