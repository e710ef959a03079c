"""The JSON document of a table: its shape, its columns with what is in them, and both ends of its rows. Bounded whatever the table is."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .cells import Cells

VERSION = 1
#: Longest document, in bytes of UTF-8.
MAX_BYTES = 64 * 1024
#: A table of so many columns is not asked for its size in memory, which would look at each.
_MOST_MEASURED = 1000
#: Cells that a summary reads: those of numbers, of what must be hashed, and of arbitrary objects. Beyond, it is of a sample of rows.
NUMBERS, HASHED, OBJECTS = 20_000_000, 250_000, 50_000
#: Nested values of one column that are read, in bytes; a single one may hold millions.
MOST_NESTED = 1024 * 1024
#: No column's sample has fewer rows than this.
_LEAST_SAMPLE = 100
#: No sample takes every second row, nor every seventh: values often come round again after so many.
_LEAST_STEP = 11


@dataclass(frozen=True)
class Column:
    """One column. ``cells`` are the values of rows from one to before another. ``summary`` fills in what is known of all values; what it
    has filled in before it raises is kept.
    """

    name: Any
    dtype: str
    cells: Callable[[int, int], list[Any]]
    summary: Callable[[dict[str, Any]], None]
    #: The labels of a column with several levels.
    path: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Index:
    """The labels of the rows."""

    names: list[Any]
    dtype: str
    cells: Callable[[int, int], list[Any]]


@dataclass(frozen=True)
class Table:
    """What a library tells of a table. ``rows`` is None if that would have to be computed."""

    library: str
    kind: str
    rows: int | None
    columns: int
    column: Callable[[int], Column]
    index: Callable[[], Index | None] = lambda: None
    memory_bytes: Callable[[], int | None] = lambda: None


@dataclass(frozen=True)
class Limits:
    """How much of a table is told: columns of both ends, all rows or those of both ends, characters of one text."""

    columns: tuple[int, int]
    all_rows: int
    end_rows: int
    text: int


#: Tried one after another until the document is short enough.
_LIMITS = (
    Limits((50, 10), 60, 10, 200),
    Limits((50, 10), 20, 5, 80),
    Limits((24, 6), 10, 3, 40),
    Limits((8, 2), 2, 1, 24),
)


def sample_step(rows: int, cells: int, columns: int) -> int:
    """Every how many rows a sample takes one, so that all columns together read ``cells`` cells: 1, which is all rows, or a prime."""
    most = max(_LEAST_SAMPLE, cells // max(1, min(columns, sum(_LIMITS[0].columns))))
    if rows <= most:
        return 1
    step = max(_LEAST_STEP, -(-rows // most))
    while any(step % divisor == 0 for divisor in range(2, math.isqrt(step) + 1)):
        step += 1
    return step


def document(table: Table) -> dict[str, Any] | None:
    """The document of a table, at most ``MAX_BYTES`` long. None if even the shortest one is longer."""
    summaries: dict[int, dict[str, Any]] = {}
    for limits in _LIMITS:
        found = _Document(table, limits, summaries).build()
        if _size(found) <= MAX_BYTES:
            return found
    return None


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace"))


class _Document:
    def __init__(self, table: Table, limits: Limits, summaries: dict[int, dict[str, Any]]) -> None:
        self._table, self._limits, self._summaries = table, limits, summaries
        self._cells = Cells(limits.text)
        first, last = limits.columns
        if table.columns <= first + last:
            first, last = table.columns, 0
        self._unreadable = 0
        self._positions = [*range(first), *range(table.columns - last, table.columns)]
        self._first = first
        rows = table.rows or 0
        self._head, self._tail = (rows, 0) if rows <= limits.all_rows else (limits.end_rows, limits.end_rows)

    def build(self) -> dict[str, Any]:
        table, rows = self._table, self._table.rows
        columns = [table.column(position) for position in self._positions]
        found: dict[str, Any] = {
            "version": VERSION,
            "library": table.library,
            "kind": table.kind,
            "shape": [rows, table.columns],
            "columns": [self._column(at, column) for at, column in zip(self._positions, columns, strict=True)],
        }
        index = table.index()
        if index is not None:
            found["index"] = self._index(index)
        if rows is not None:
            found["head"] = self._rows(columns, 0, self._head)
            found["tail"] = self._rows(columns, rows - self._tail, rows)
        memory = table.memory_bytes() if table.columns <= _MOST_MEASURED else None
        if memory is not None:
            found["memory_bytes"] = int(memory)
        found["truncated"] = self._truncated()
        return found

    def _column(self, position: int, column: Column) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": None if column.name is None else self._cells.text(column.name),
            "dtype": self._cells.text(column.dtype),
        }
        if column.path is not None:
            found["path"] = [self._cells.plain(label) for label in column.path]
        for key, value in self._summary(position, column).items():
            found[key] = [self._cells.plain(item) for item in value] if isinstance(value, list) else self._cells.plain(value)
        return found

    def _summary(self, position: int, column: Column) -> dict[str, Any]:
        if position not in self._summaries:
            found = self._summaries[position] = {}
            try:
                column.summary(found)
            except Exception:
                # A column whose values cannot be compared or counted still has its cells.
                pass
        return self._summaries[position]

    def _index(self, index: Index) -> dict[str, Any]:
        rows = self._table.rows or 0
        return {
            "names": [None if name is None else self._cells.text(name) for name in index.names],
            "dtype": self._cells.text(index.dtype),
            "head": [self._label(label) for label in index.cells(0, self._head)],
            "tail": [self._label(label) for label in index.cells(rows - self._tail, rows)],
        }

    def _label(self, label: Any) -> Any:
        return [self._cells.plain(part) for part in label] if isinstance(label, tuple) else self._cells.plain(label)

    def _rows(self, columns: list[Column], start: int, stop: int) -> list[list[Any]]:
        by_column = [self._read(column, start, stop) for column in columns]
        return [list(row) for row in zip(*by_column, strict=True)] if columns else [[] for _ in range(stop - start)]

    def _read(self, column: Column, start: int, stop: int) -> list[Any]:
        try:
            return [self._cells.plain(cell) for cell in column.cells(start, stop)]
        except Exception:
            self._unreadable += stop - start
            return [None] * (stop - start)

    def _truncated(self) -> dict[str, int]:
        cut = {
            "rows": (self._table.rows or 0) - self._head - self._tail,
            "columns": self._table.columns - len(self._positions),
            "texts": self._cells.shortened,
            "unreadable": self._unreadable,
        }
        cut = {key: count for key, count in cut.items() if count}
        if "columns" in cut:
            cut["columns_before"] = self._first
        return cut
