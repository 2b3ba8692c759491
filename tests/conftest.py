"""Fixtures of several tests."""

import pytest


@pytest.fixture
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
