"""The paper's attack, who attacks, and the registry for more."""

from lff.attacks.attack import ATTACKS, Attack, Context, as_attack, attack
from lff.attacks.attackers import choose_attackers, number_of_attackers, source_class_holders
from lff.attacks.label_flipping import label_flipping

__all__ = [
    "ATTACKS",
    "Attack",
    "Context",
    "as_attack",
    "attack",
    "choose_attackers",
    "label_flipping",
    "number_of_attackers",
    "source_class_holders",
]
