"""Defenses beyond the paper, one file each."""
