"""Tests and notebooks work in folders of their own and never touch the user's data or results."""

import os
import shutil
import tempfile

import pytest

FOLDERS = ("LFF_DATA", "LFF_RESULTS", "LFF_FIGURES", "LFF_STUDY")
_session_folder = ""


def pytest_configure(config):
    """Give the notebooks that nbval runs one common folder for the session."""
    global _session_folder
    _session_folder = tempfile.mkdtemp(prefix="lff-tests-")
    for variable in FOLDERS:
        os.environ[variable] = os.path.join(_session_folder, variable.lower())


def pytest_unconfigure(config):
    shutil.rmtree(_session_folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory, monkeypatch):
    """Give every test folders of its own."""
    folder = tmp_path_factory.mktemp("lff")
    for variable in FOLDERS:
        monkeypatch.setenv(variable, str(folder / variable.lower()))
    monkeypatch.delenv("LFF_DATA_FROM", raising=False)
    return folder


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
