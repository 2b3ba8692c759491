"""The seven defenses of the paper, in its order, and the oracle above them."""

from lff.defenses.fedavg import fedavg
from lff.defenses.median import median
from lff.defenses.repeated_median import repeated_median
from lff.defenses.trimmed_mean import trimmed_mean

from lff.defenses.multi_krum import multi_krum  # isort: skip
from lff.defenses.foolsgold import FoolsGold  # isort: skip
from lff.defenses.lfighter import lfighter  # isort: skip
from lff.defenses.oracle import oracle  # isort: skip
from lff.defenses.rule import DEFENSES, Defense, Rule, defense  # isort: skip

__all__ = [
    "DEFENSES",
    "Defense",
    "FoolsGold",
    "Rule",
    "defense",
    "fedavg",
    "lfighter",
    "median",
    "multi_krum",
    "oracle",
    "repeated_median",
    "trimmed_mean",
]
