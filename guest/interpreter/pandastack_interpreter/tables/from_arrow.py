"""pyarrow: Table, RecordBatch, ChunkedArray and Array."""

from __future__ import annotations

from typing import Any

from .document import HASHED, MOST_NESTED, NUMBERS, Column, Table, sample_step


def table(value: Any) -> Table:
    """A Table or RecordBatch."""
    names, columns = value.schema.names, value.num_columns

    def column(at: int) -> Column:
        return _column(names[at], value.column(at), columns)

    return Table("pyarrow", "frame", value.num_rows, columns, column, memory_bytes=lambda: value.nbytes)


def array(value: Any) -> Table:
    """A ChunkedArray or Array: a table of one column."""
    return Table("pyarrow", "series", len(value), 1, lambda _at: _column(None, value, 1), memory_bytes=lambda: value.nbytes)


def _column(name: Any, data: Any, columns: int) -> Column:
    return Column(
        name, str(data.type), lambda start, stop: _cells(data.slice(start, stop - start)), lambda found: _summary(data, columns, found)
    )


def _cells(data: Any) -> list[Any]:
    if data.type.num_fields and data.nbytes > MOST_NESTED:
        raise ValueError("too large to read")
    return list(data.to_pylist())


def _summary(data: Any, columns: int, found: dict[str, Any]) -> None:
    import pyarrow
    from pyarrow import compute, types

    kind = data.type
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    time = types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind) or types.is_duration(kind)
    text = types.is_string(kind) or types.is_large_string(kind)
    found["nulls"] = data.null_count
    if not (number or time or text or types.is_boolean(kind)):
        return
    step = sample_step(len(data), HASHED if text else NUMBERS, columns)
    sample = data.take(pyarrow.array(range(0, len(data), step))) if step > 1 else data
    if step > 1:
        found["summary_of_rows"] = len(sample)
    if number or time:
        found.update(compute.min_max(sample).as_py())
    if number:
        found["mean"] = compute.mean(sample).as_py()
    if types.is_boolean(kind):
        found["true"] = compute.sum(sample).as_py()
    elif sample_step(len(data), HASHED, columns) == 1 or text:
        found["unique"] = compute.count_distinct(sample).as_py()
