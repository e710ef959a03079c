"""polars: DataFrame, Series and LazyFrame."""

from __future__ import annotations

from typing import Any

from .document import HASHED, MOST_NESTED, NUMBERS, Column, Table, sample_step


def frame(value: Any) -> Table:
    """A DataFrame."""
    rows, columns = value.shape
    return Table("polars", "frame", rows, columns, lambda at: _column(value.to_series(at), columns), memory_bytes=value.estimated_size)


def series(value: Any) -> Table:
    """A Series: a table of one column."""
    return Table("polars", "series", len(value), 1, lambda _at: _column(value, 1), memory_bytes=value.estimated_size)


def lazy(value: Any) -> Table:
    """A LazyFrame: its columns. It is not computed."""
    schema = list(value.collect_schema().items())

    def column(at: int) -> Column:
        name, dtype = schema[at]
        return Column(name, str(dtype), lambda _start, _stop: [], lambda _found: None)

    return Table("polars", "lazy", None, len(schema), column)


def _column(data: Any, columns: int) -> Column:
    return Column(data.name, str(data.dtype), lambda start, stop: _cells(data[start:stop]), lambda found: _summary(data, columns, found))


def _cells(data: Any) -> list[Any]:
    if data.dtype.is_nested() and data.estimated_size() > MOST_NESTED:
        raise ValueError("too large to read")
    return list(data.to_list())


def _summary(data: Any, columns: int, found: dict[str, Any]) -> None:
    import polars

    dtype = data.dtype
    number, time = dtype.is_numeric(), dtype.is_temporal()
    text = dtype in (polars.String, polars.Categorical, polars.Enum)
    found["nulls"] = data.null_count()
    if not (number or time or text or dtype == polars.Boolean):
        return
    step = sample_step(len(data), HASHED if text else NUMBERS, columns)
    sample = data.gather_every(step) if step > 1 else data
    if step > 1:
        found["summary_of_rows"] = len(sample)
    if number or time:
        found.update(min=sample.min(), max=sample.max())
    if number or dtype == polars.Duration:
        found["mean"] = sample.mean()
    if dtype == polars.Boolean:
        found["true"] = sample.sum()
    if text:
        found.update(_most_frequent(sample))
    elif sample_step(len(data), HASHED, columns) == 1:
        found["unique"] = sample.drop_nulls().n_unique()


def _most_frequent(sample: Any) -> dict[str, Any]:
    counts = sample.drop_nulls().value_counts(sort=True)
    if not len(counts):
        return {"unique": 0}
    top, count = counts.row(0)
    return {"unique": len(counts), "top": top, "top_count": count}
