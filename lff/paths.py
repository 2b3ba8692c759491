"""Where data, results and figures live; each overridable by an environment variable.

| what    | variable      | default                                            |
| ------- | ------------- | -------------------------------------------------- |
| data    | `LFF_DATA`    | `lff/` in the user's cache folder                  |
| results | `LFF_RESULTS` | `results/` in the checkout, else working directory |
| figures | `LFF_FIGURES` | `figures/` in the checkout, else working directory |
"""

import os
from pathlib import Path

from platformdirs import user_cache_path


def data_dir() -> Path:
    """The folder of verified data sets."""
    return _from_environment("LFF_DATA") or user_cache_path("lff", appauthor=False)


def results_dir() -> Path:
    """The folder of records, one subfolder per scale."""
    return _from_environment("LFF_RESULTS") or home_dir() / "results"


def figures_dir() -> Path:
    """The folder of figures and tables."""
    return _from_environment("LFF_FIGURES") or home_dir() / "figures"


def home_dir() -> Path:
    """The checkout `lff` is imported from, or the working directory if it is installed."""
    checkout = Path(__file__).resolve().parents[1]
    return checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()


def _from_environment(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value).expanduser().resolve() if value else None
