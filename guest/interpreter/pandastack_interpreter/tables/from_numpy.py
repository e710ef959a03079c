"""numpy: arrays of records, which are tables by another name."""

from __future__ import annotations

from typing import Any

from .document import NUMBERS, Column, Table, sample_step


def records(value: Any) -> Table | None:
    """A one-dimensional array of records; None of any other array, and of one with a mask."""
    names = value.dtype.names
    if not names or value.ndim != 1 or hasattr(value, "mask"):
        return None

    def column(at: int) -> Column:
        data = value[names[at]]
        return Column(
            names[at], str(value.dtype[at]), lambda start, stop: list(data[start:stop]), lambda found: _summary(data, len(names), found)
        )

    return Table("numpy", "frame", len(value), len(names), column, memory_bytes=lambda: value.nbytes)


def _summary(data: Any, columns: int, found: dict[str, Any]) -> None:
    import numpy

    kind = data.dtype.kind
    if data.ndim > 1 or kind not in "iufbmM" or not len(data):
        return
    step = sample_step(len(data), NUMBERS, columns)
    sample = data[::step]
    found["nulls"] = int(numpy.isnat(data).sum() if kind in "mM" else numpy.isnan(data).sum())
    if step > 1:
        found["summary_of_rows"] = len(sample)
    if kind == "b":
        found["true"] = int(sample.sum())
    else:
        found.update(min=numpy.fmin.reduce(sample), max=numpy.fmax.reduce(sample))
    if kind in "iuf":
        found["mean"] = numpy.nanmean(sample)
