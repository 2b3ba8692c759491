"""The seven defenses of the paper, the oracle above them, and the registry for more."""

from lff.defenses.coordinatewise import median, repeated_median, trimmed_mean
from lff.defenses.fedavg import fedavg
from lff.defenses.foolsgold import FoolsGold
from lff.defenses.lfighter import lfighter
from lff.defenses.multi_krum import multi_krum
from lff.defenses.oracle import oracle
from lff.defenses.registry import Defense, defense, defenses, get_defense

__all__ = [
    "Defense",
    "FoolsGold",
    "defense",
    "defenses",
    "fedavg",
    "get_defense",
    "lfighter",
    "median",
    "multi_krum",
    "oracle",
    "repeated_median",
    "trimmed_mean",
]
