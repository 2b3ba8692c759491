"""Fixtures of several tests."""

import warnings

import pytest

from lff.attacks import ATTACKS
from lff.defenses import DEFENSES
from lff.experiments.benchmarks import BENCHMARKS
from lff.experiments.hooks import HOOKS
from lff.metrics import METRICS
from speed.aggregation import byzfl_aggregators


@pytest.fixture(autouse=True)
def own_registries(monkeypatch):
    """What a test registers is gone after it."""
    for registry in (ATTACKS, BENCHMARKS, DEFENSES, HOOKS, METRICS):
        monkeypatch.setattr(registry, "entries", dict(registry))  # with those of lff.beyond


@pytest.fixture(scope="session")
def tiny():
    """Settings of a run of about a tenth of a second on embedded data."""
    return {
        "scale": "smoke",
        "peers": 10,
        "examples": 200,
        "test_examples": 100,
        "rounds": 3,
        "local_epochs": 1,
    }


@pytest.fixture(scope="session")
def byzfl():
    """byzfl's rules, for comparison; what it imports may warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return byzfl_aggregators() or pytest.skip("byzfl is not installed")
