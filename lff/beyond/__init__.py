"""Attacks and defenses beyond the paper, registered as an outside package would."""
