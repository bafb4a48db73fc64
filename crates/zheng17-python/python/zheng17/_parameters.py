"""Parameters that can't be right are refused here, by name and before any work, for all functions alike. Knows no matrix."""

from __future__ import annotations

import operator
import os

import numpy as np

#: The native half starts no more threads.
_MOST_THREADS = 1024


def whole(name: str, value, least: int = 1, most: int | None = None) -> int:
    """A whole number of Python or numpy, within limits.

    Raises
    ------
    TypeError
        For anything else.
    ValueError
        Beyond the limits.
    """
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if number < least or number > (2**63 - 1 if most is None else most):
        limits = f"{least} or more" if most is None or number < least else f"at most {most}"
        raise ValueError(f"{name} must be {limits}, not {number}")
    return number


def whole_or_none(name: str, value, least: int = 1, most: int | None = None) -> int | None:
    """A whole number within limits, or ``None``."""
    return None if value is None else whole(name, value, least, most)


def number_or_none(name: str, value) -> float | None:
    """A number, or ``None``."""
    if value is None:
        return None
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, not {value!r}")
    return float(value)


def flag(name: str, value) -> bool:
    """``True`` or ``False``."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def text(name: str, value) -> str:
    """A string."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {value!r}")
    return str(value)


def text_or_none(name: str, value) -> str | None:
    """A string, or ``None``."""
    return None if value is None else text(name, value)


def path(name: str, value) -> str:
    """A path as a string."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path, not {value!r}")
    return os.fsdecode(value)


def threads(value) -> int | None:
    """A number of threads, or ``None``."""
    return whole_or_none("threads", value, 1, _MOST_THREADS)


def recipe(*, n_top_genes, log, version, n_comps=None, max_value=None) -> dict:
    """The parameters that say what the recipe does, by name."""
    return {
        "version": text("version", version),
        "n_top_genes": whole("n_top_genes", n_top_genes),
        "log": flag("log", log),
        "max_value": number_or_none("max_value", max_value),
        "n_comps": whole_or_none("n_comps", n_comps),
    }
