"""One function per figure of the study; each takes a frame and a caption and returns a Figure.

The frame is what is saved as CSV beside the figure, so that it can always be redrawn.
"""

from lff.study.figures.results import (
    PANEL_ORDER,
    attack_map,
    odd_peer,
    paper_against_ours,
    profiles,
    robustness,
    runtime,
)
from lff.study.figures.style import journal
from lff.study.figures.training import dropped_by_round, magnitudes, saved_and_lost, stability
from lff.study.figures.updates import class_shares, components, components_extreme

__all__ = [
    "PANEL_ORDER",
    "attack_map",
    "class_shares",
    "components",
    "components_extreme",
    "dropped_by_round",
    "journal",
    "magnitudes",
    "odd_peer",
    "paper_against_ours",
    "profiles",
    "robustness",
    "runtime",
    "saved_and_lost",
    "stability",
]
