"""Speed, as ratios measured side by side in one process: `make speed`."""

# Modules of this package with run(quick) -> Report; the last one judges what the others measured.
PARTS = ("training", "aggregation", "checkpoint", "growth", "flower", "goals")
