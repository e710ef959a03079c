"""Texts that fit a budget of characters, with as much of what a reader wants to know as it holds.

Whatever is cut is said, and no text is ever longer than its budget. One that fits is left as it is.
"""

from __future__ import annotations

import warnings
from typing import Any

from . import arrays, frames
from .errors import shorten_traceback
from .text import shorten
from .values import Writer, parts_of

__all__ = ["render", "shorten", "shorten_traceback"]

#: Fitting each item of a container into more than this would take seconds.
_MOST_STRUCTURED = 50_000
#: Who writes what, by the package and the name of a type.
_WRITERS = {
    ("pandas", "DataFrame"): frames.pandas_frame,
    ("pandas", "Series"): frames.pandas_series,
    ("polars", "DataFrame"): frames.polars,
    ("polars", "Series"): frames.polars,
    ("pyarrow", "Table"): frames.arrow,
    ("pyarrow", "RecordBatch"): frames.arrow,
    ("numpy", "ndarray"): arrays.array,
}


def render(value: Any, text: str, max_chars: int) -> str:
    """``text``, the plain form of ``value``, within ``max_chars`` characters; 0 is no limit. Never raises an Exception."""
    if max_chars <= 0 or len(text) <= max_chars:
        return text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            text = _brief(value, text, max_chars)
        except Exception:
            # A value that cannot be looked into still has its text.
            pass
    return shorten(text, max_chars)


def _brief(value: Any, text: str, max_chars: int) -> str:
    for base in type(value).__mro__:
        write = _WRITERS.get((str(base.__module__).partition(".")[0], base.__name__))
        if write is not None:
            # A subclass with a text of its own means that one.
            return write(value, max_chars) if type(value).__repr__ is base.__repr__ else text
    if max_chars > _MOST_STRUCTURED or parts_of(value) is None:
        return text
    return Writer().fit(value, max_chars)
