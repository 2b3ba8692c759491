"""Faults on purpose: kills, interrupts, full and read-only disks, counted: `make chaos`."""
