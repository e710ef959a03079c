"""pandas: DataFrame, Series and Styler."""

from __future__ import annotations

from typing import Any

from .document import HASHED, NUMBERS, OBJECTS, Column, Index, Table, sample_step

#: Values of a column of objects whose types are told.
_LOOKED_AT = 100


def frame(value: Any) -> Table:
    """A DataFrame."""
    return _table(value, "frame", None)


def series(value: Any) -> Table:
    """A Series: a table of one column."""
    return _table(value.to_frame(), "series", [value.name])


def styler(value: Any) -> Table:
    """A Styler: what it styles."""
    return frame(value.data)


def _table(value: Any, kind: str, names: list[Any] | None) -> Table:
    rows, columns = value.shape

    def column(position: int) -> Column:
        # By position: names may occur twice.
        data = value.iloc[:, position]
        name = names[position] if names is not None else value.columns[position]
        path = name if isinstance(name, tuple) and names is None and value.columns.nlevels > 1 else None
        return Column(
            name=" / ".join(map(str, path)) if path else name,
            dtype=str(data.dtype),
            cells=lambda start, stop: data.iloc[start:stop].tolist(),
            summary=lambda found: _summary(data, columns, found),
            path=path,
        )

    return Table(
        library="pandas",
        kind=kind,
        rows=rows,
        columns=columns,
        column=column,
        index=lambda: _index(value.index),
        memory_bytes=lambda: int(value.memory_usage(index=True, deep=False).sum()),
    )


def _index(index: Any) -> Index:
    levels = getattr(index, "dtypes", None) if index.nlevels > 1 else None
    dtype = str(index.dtype) if levels is None else ", ".join(map(str, levels))
    return Index(list(index.names), dtype, lambda start, stop: index[start:stop].tolist())


def _summary(data: Any, columns: int, found: dict[str, Any]) -> None:
    rows, dtype = len(data), data.dtype
    kind = _kind(dtype)
    step = sample_step(rows, {"object": OBJECTS, "text": HASHED, "category": HASHED}.get(kind, NUMBERS), columns)
    sample = data.iloc[::step] if step > 1 else data
    cheap = kind in ("number", "bool", "time") or step == 1
    found["nulls"] = int((data if cheap else sample).isna().sum())
    if step > 1:
        found["summary_of_rows"] = len(sample)
        if not cheap:
            found["nulls_of_rows"] = len(sample)
    if kind in ("number", "time"):
        found.update(min=sample.min(), max=sample.max())
    if kind == "number" or dtype.kind == "m":
        found["mean"] = sample.mean()
    if kind == "bool":
        found["true"] = int(sample.sum())
    if kind == "object":
        values = sample.iloc[:_LOOKED_AT].dropna().tolist()
        found["holds"] = sorted({type(item).__name__ for item in values})
    if kind in ("text", "category") or (kind == "object" and all(type(item) is str for item in sample.dropna())):
        found.update(_most_frequent(sample))
    elif kind != "object" and sample_step(rows, HASHED, columns) == 1:
        found["unique"] = int(sample.nunique())


def _kind(dtype: Any) -> str:
    name = str(dtype)
    if name == "category":
        return "category"
    if name in ("str", "string") or name.startswith("string["):
        return "text"
    if dtype.kind in "iuf":
        return "number"
    if dtype.kind in "mM" or name.startswith("period["):
        return "time"
    return {"b": "bool", "O": "object"}.get(dtype.kind, "other")


def _most_frequent(sample: Any) -> dict[str, Any]:
    counts = sample.value_counts()
    found: dict[str, Any] = {"unique": int((counts > 0).sum())}
    if found["unique"]:
        found.update(top=counts.index[0], top_count=int(counts.iloc[0]))
    return found
