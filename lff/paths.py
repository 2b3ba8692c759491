"""Where data, results, figures and notebooks live; each overridable by an environment variable.

| what    | variable      | default                                            |
| ------- | ------------- | -------------------------------------------------- |
| data    | `LFF_DATA`    | `lff/` in the user's cache folder                  |
| results | `LFF_RESULTS` | `results/` in the checkout, else working directory |
| figures | `LFF_FIGURES` | `figures/` in the checkout, else working directory |
| study   | `LFF_STUDY`   | `study/` in the checkout, else working directory   |
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


def study_dir() -> Path:
    """The folder of executed notebooks and reports, one subfolder per scale."""
    return _from_environment("LFF_STUDY") or home_dir() / "study"


def notebooks_dir() -> Path:
    """The notebooks of the study, which come with a checkout."""
    return home_dir() / "notebooks"


def home_dir() -> Path:
    """The checkout `lff` is imported from, or the working directory if it is installed."""
    return checkout_dir() or Path.cwd()


def checkout_dir() -> Path | None:
    """The checkout `lff` is imported from; None if it is installed."""
    folder = Path(__file__).resolve().parents[1]
    return folder if (folder / "pyproject.toml").is_file() else None


def _from_environment(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value).expanduser().resolve() if value else None
