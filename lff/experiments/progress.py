"""One progress bar, where somebody is watching."""

import os
import sys

from tqdm.auto import tqdm


def watched() -> bool:
    """Whether a person sees a bar: at a terminal or in JupyterLab, but not in a batch run.

    The Jupyter server names its session to the kernels it starts; papermill and nbval do not.
    """
    return sys.stderr.isatty() or "JPY_SESSION_NAME" in os.environ


def bar(*, show: bool | None = None, **settings) -> tqdm:
    """A progress bar, shown always, never, or (None) if somebody is watching."""
    return tqdm(disable=not (watched() if show is None else show), **settings)
