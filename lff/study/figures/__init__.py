"""One function per figure of the study; each takes a table and returns a matplotlib Figure.

The tables are what is saved as CSV beside each figure, so a figure can always be redrawn.
"""

from lff.study.figures.filtering import filtering
from lff.study.figures.gradients import components, components_extreme, magnitudes
from lff.study.figures.robustness import robustness
from lff.study.figures.runtime import runtime
from lff.study.figures.setup import class_shares
from lff.study.figures.stability import stability
from lff.study.figures.verdict import paper_vs_ours

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
