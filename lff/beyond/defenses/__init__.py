"""Newer defenses, one file each, as their papers state them.

Mixing before a rule is an option of every rule (`lff.defenses.mixing`).
"""

from lff.beyond.defenses.centered_clipping import CenteredClipping
from lff.beyond.defenses.dnc import dnc
from lff.beyond.defenses.fl_defender import FLDefender
from lff.beyond.defenses.flame import flame
from lff.beyond.defenses.fltrust import fltrust
from lff.beyond.defenses.labelaudit import LabelAudit
from lff.beyond.defenses.rfa import rfa
from lff.beyond.defenses.signguard import signguard
from lff.beyond.defenses.tolpegin import tolpegin

__all__ = [
    "CenteredClipping",
    "FLDefender",
    "LabelAudit",
    "dnc",
    "flame",
    "fltrust",
    "rfa",
    "signguard",
    "tolpegin",
]
