"""Folders of their own for the tests, and for the notebooks that nbval runs.

Neither ever touches the user's data, records or figures.
"""

import gc
import itertools
import os
import shutil
import signal
import tempfile

import pytest

# Two test processes on two cores, and more that they start: more threads only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
FOLDERS = ("LFF_DATA", "LFF_RESULTS", "LFF_FIGURES", "LFF_STUDY")


def pytest_configure(config):
    """Point every folder into one of this session, which its xdist workers share; and let
    Ctrl-C reach what tests start, also where a shell runs them with `&`, which ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):
        return
    folder = tempfile.mkdtemp(prefix="lff-tests-")
    os.environ["LFF_SCALE"] = "smoke"  # what a notebook starts at
    for variable in FOLDERS:
        os.environ[variable] = os.path.join(folder, variable.lower())
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_finish():
    """What is imported by now stays: nobody need look through it for garbage again and again."""
    gc.freeze()


@pytest.fixture(scope="session")
def new_folders(tmp_path_factory):
    """Paths of folders, one after another; `mktemp` would list all there are for each."""
    home = tmp_path_factory.mktemp("lff")
    return (home / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def own_folders(new_folders, monkeypatch):
    """Give every test folders of its own."""
    folder = next(new_folders)
    folder.mkdir()
    for variable in FOLDERS:
        monkeypatch.setenv(variable, str(folder / variable.lower()))
    return folder
