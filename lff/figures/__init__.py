"""One function per figure of the study; each takes a table and returns a matplotlib Figure.

The tables are what is saved as CSV beside each figure, so a figure can always be redrawn.
"""

from lff.figures.filtering import filtering
from lff.figures.gradients import components, components_extreme, magnitudes
from lff.figures.robustness import robustness
from lff.figures.runtime import runtime
from lff.figures.setup import class_shares
from lff.figures.stability import stability
from lff.figures.verdict import paper_vs_ours

__all__ = [
    "class_shares",
    "components",
    "components_extreme",
    "filtering",
    "magnitudes",
    "paper_vs_ours",
    "robustness",
    "runtime",
    "stability",
]
