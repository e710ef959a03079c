"""From arrays to plain JSON values, within bounds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

#: Most points of one series, most cells of one matrix, and most values of a chart that is not sampled further, before its size is known.
MAX_POINTS = 5_000
CELLS_PER_POINT = 2
MAX_VALUES = 12_000
#: Longest chart as JSON, in bytes.
MAX_BYTES = 256 * 1024
#: Fewest points that a series is sampled to; a chart that is larger even so loses its series.
_FEWEST_POINTS = 8
_EXACT_INTEGERS = 2.0**53


class Column:
    """One variable of a series; ``show`` makes plain values of the numbers that are left after sampling."""

    def __init__(self, values: Any, show: Callable[[Any], list[Any]] | None = None) -> None:
        self.values = values.ravel() if np.ma.isMA(values) else _array(values).ravel()
        self._show = show or numbers

    def __len__(self) -> int:
        return len(self.values)

    def joined(self, other: Column) -> Column:
        """This column and, after it, another of the same variable."""
        return Column(np.ma.concatenate([self.values, other.values]), self._show)

    def plain(self, limit: int) -> list[Any]:
        """At most ``limit`` values, evenly chosen."""
        return self._show(self.values[_chosen(len(self.values), limit)])


def _array(values: Any) -> Any:
    array = np.asarray(values)
    if array.dtype.kind in "US" and not isinstance(values, np.ndarray):
        # numpy makes text of numbers that stand among text.
        array = np.array(values, dtype=object)
    return array


class Matrix:
    """Values of two dimensions."""

    def __init__(self, values: Any) -> None:
        self.values = np.ma.asanyarray(values)

    def __len__(self) -> int:
        return -(-self.values.size // CELLS_PER_POINT)

    def plain(self, limit: int) -> list[list[Any]]:
        """At most as many cells as ``limit`` points have, evenly chosen rows and columns."""
        rows, columns = sides(self.values.shape, limit)
        return [numbers(row) for row in self.values[rows][:, columns]]


class Side:
    """A column that describes the rows (0) or the columns (1) of a matrix and is sampled as they are."""

    def __init__(self, column: Column, shape: tuple[int, ...], dimension: int) -> None:
        self._column, self._shape, self._dimension = column, shape, dimension

    def __len__(self) -> int:
        return 0

    def plain(self, limit: int) -> list[Any]:
        """The values that belong to the chosen rows or columns."""
        chosen = sides(self._shape, limit)[self._dimension]
        return Column(self._column.values[chosen], self._column._show).plain(len(self._column))


def sides(shape: tuple[int, ...], limit: int) -> tuple[Any, Any]:
    """Which rows and columns of a matrix are chosen."""
    height, width = shape
    cells = limit * CELLS_PER_POINT
    if height * width <= cells:
        return _chosen(height, height), _chosen(width, width)
    shrink = math.sqrt(cells / (height * width))
    rows = min(height, max(1, int(height * shrink)), cells)
    columns = max(1, min(width, cells // rows))
    return _chosen(height, min(height, max(1, cells // columns))), _chosen(width, columns)


def _chosen(total: int, limit: int) -> Any:
    if total <= limit:
        return slice(None)
    return np.linspace(0, total - 1, limit).round().astype(np.intp)


def numbers(values: Any) -> list[Any]:
    """Plain numbers: whole ones as integers if all are, what is masked or not finite as null."""
    array = np.ma.asanyarray(values)
    if array.dtype.kind == "M":
        return dates(array)
    if array.dtype.kind not in "fiub":
        return [scalar(item) for item in array.tolist()]
    if array.dtype.kind != "f":
        return array.astype(np.int64).tolist() if array.dtype.kind == "b" else array.tolist()
    known = ~np.ma.getmaskarray(array) & np.isfinite(array.data)
    data = array.data
    kept = data[known]
    if np.all(kept == np.floor(kept)) and np.all(np.abs(kept) < _EXACT_INTEGERS):
        whole = np.where(known, data, 0).astype(np.int64)
        return whole.tolist() if known.all() else [value if ok else None for value, ok in zip(whole.tolist(), known.tolist(), strict=True)]
    plain = data.tolist()
    return plain if known.all() else [value if ok else None for value, ok in zip(plain, known.tolist(), strict=True)]


def dates(stamps: Any) -> list[str | None]:
    """Points in time in ISO 8601, to the second if none is finer."""
    stamps = np.asarray(stamps).astype("datetime64[us]")
    known = ~np.isnat(stamps)
    whole = bool((stamps[known] == stamps[known].astype("datetime64[s]")).all())
    texts = np.datetime_as_string(stamps, unit="s" if whole else "us").tolist()
    return texts if known.all() else [text if ok else None for text, ok in zip(texts, known.tolist(), strict=True)]


def scalar(value: Any) -> Any:
    """One value as JSON has it."""
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() and abs(value) < _EXACT_INTEGERS else value
    if value is np.ma.masked:
        return None
    for method in ("isoformat", "tolist"):
        convert = getattr(value, method, None)
        if callable(convert):
            plain = convert()
            return plain if isinstance(plain, str) else scalar(plain) if not isinstance(plain, list) else [scalar(item) for item in plain]
    return str(value)


def finish(chart: dict[str, Any]) -> dict[str, Any] | None:
    """The chart as plain values, sampled until it is within its bounds; in the end without its series. None if that is not enough."""
    lengths = sorted(len(column) for column in _columns(chart))
    limit = MAX_POINTS
    while limit > _FEWEST_POINTS and sum(min(length, limit) for length in lengths) > MAX_VALUES:
        limit //= 2
    while limit >= _FEWEST_POINTS:
        plain = _plain(chart, limit)
        if _size(plain) <= MAX_BYTES:
            return plain
        limit //= 2
    for part in (chart, *chart.get("charts", ())):
        if "series" in part:
            part.update(series_total=len(part["series"]), series=[], legend=[])
    plain = _plain(chart, _FEWEST_POINTS)
    return plain if _size(plain) <= MAX_BYTES else None


def _size(plain: Any) -> int:
    return len(json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def _columns(node: Any) -> Iterator[Any]:
    if isinstance(node, (Column, Matrix, Side)):
        yield node
    elif isinstance(node, dict):
        for item in node.values():
            yield from _columns(item)
    elif isinstance(node, list):
        for item in node:
            yield from _columns(item)


def _plain(node: Any, limit: int) -> Any:
    if isinstance(node, (Column, Matrix, Side)):
        return node.plain(limit)
    if isinstance(node, list):
        return [_plain(item, limit) for item in node]
    if not isinstance(node, dict):
        return scalar(node)
    plain = {key: _plain(item, limit) for key, item in node.items()}
    matrix = next((item for item in node.values() if isinstance(item, Matrix)), None)
    longest = max((len(item) for item in node.values() if isinstance(item, (Column, Matrix))), default=0)
    if longest > limit:
        plain["sampled"] = True
        if matrix is not None:
            plain["shape_total"] = list(matrix.values.shape)
        else:
            plain["points_total"] = longest
    return plain
