"""A fingerprint of code that lives outside this package."""

import hashlib
import inspect
from collections.abc import Callable


def fingerprint(code: Callable) -> str:
    """A short hash of a user's function or class; empty for the code of this package.

    It makes a changed notebook cell a different experiment, so that no record of the earlier
    code is taken for the new one's.
    """
    if code.__module__.split(".")[0] == "lff":
        return ""
    try:
        source = inspect.getsource(code)
    except (OSError, TypeError):
        source = f"{code.__module__}.{code.__qualname__}"
        if hasattr(code, "__code__"):
            source += repr((code.__code__.co_code, code.__code__.co_consts))
    return hashlib.sha256(source.encode()).hexdigest()[:12]
