"""numpy arrays: shape, type, range and the items at the edges."""

from __future__ import annotations

from typing import Any

from .text import shorten

#: Items shown at each edge of each axis, most first.
_EDGES = (100, 50, 25, 12, 6, 3, 2, 1)
#: Largest array whose range is worth the time.
_MOST_ITEMS = 20_000_000


def array(value: Any, limit: int) -> str:
    """An array within ``limit`` characters."""
    import numpy

    facts = f"array of shape {value.shape}, dtype {value.dtype}" + _range(value)
    room = limit - len(facts) - 1
    options = numpy.get_printoptions()
    # An array that would have been shown whole may have wider edges than one that would not.
    most = options["edgeitems"] if value.size > options["threshold"] else _EDGES[0]
    for edge in _EDGES:
        if edge > most or (2 * edge + 1) ** value.ndim > limit:
            continue
        with numpy.printoptions(edgeitems=edge, threshold=0):
            text = repr(value)
        if len(text) <= room:
            return f"{facts}\n{text}"
    return shorten(facts, limit)


def _range(value: Any) -> str:
    if value.dtype.kind not in "iufbmM" or not 0 < value.size <= _MOST_ITEMS:
        return ""
    if value.dtype.kind != "f":
        return f", min {value.min()}, max {value.max()}"
    import numpy

    low, high = numpy.fmin.reduce(value, axis=None), numpy.fmax.reduce(value, axis=None)
    missing = int(numpy.isnan(value).sum())
    return f", min {low}, max {high}" + (f", {missing:,} NaN" if missing else "")
