"""Every test works in folders of its own and never touches the user's data or results."""

import pytest


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    for variable in ("LFF_DATA", "LFF_RESULTS", "LFF_FIGURES"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    monkeypatch.delenv("LFF_DATA_FROM", raising=False)
    return tmp_path


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
