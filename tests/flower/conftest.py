"""These tests need an environment that has Flower (`make flower`); others skip them."""

import warnings
from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("flwr") else ["test_*.py"]

if find_spec("flwr"):
    with warnings.catch_warnings():  # of what Flower imports
        warnings.simplefilter("ignore")
        import flwr.serverapp.strategy  # noqa: F401
