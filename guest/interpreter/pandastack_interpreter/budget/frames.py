"""Frames: header, types and shape always, and as many columns and rows of both ends as fit. The code's own display limits hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from .text import shorten

#: How wide values may be, in characters, widest first.
_WIDTHS, _POLARS_WIDTHS = (1000, 200, 50, 25, 12), (25, 12)
#: Rows are few until columns and widths are found, then as many as fit.
_FEWEST_ROWS, _MOST_ROWS = 4, 400
#: The share of the text that the types of the columns may have.
_TYPES_SHARE = 4


def pandas_frame(frame: Any, limit: int) -> str:
    """A pandas DataFrame within ``limit`` characters."""
    import pandas

    if pandas.get_option("display.large_repr") != "truncate":
        return frame.__repr__()
    rows, columns = frame.shape
    shape = f"[{rows:,} rows x {columns:,} columns]"
    footer = f"{shape}\n{_types(frame, limit // _TYPES_SHARE)}"
    most = pandas.get_option("display.max_columns") or columns
    room = limit - len(footer) - 1
    for shown in _fewer(min(columns, most, 1 + room // 8)):
        table = _widest(lambda count, width, shown=shown: _pandas_table(frame, count, shown, width), rows, room)
        if table is not None:
            return f"{table}\n{footer}"
    return shorten(footer, limit)


def pandas_series(series: Any, limit: int) -> str:
    """A pandas Series within ``limit`` characters."""
    rows = len(series)
    name = "" if series.name is None else f"Name: {shorten(str(series.name), 100)}, "
    footer = f"{name}Length: {rows:,}, dtype: {series.dtype}"
    frame, room = series.to_frame(), limit - len(footer) - 1
    table = _widest(lambda count, width: _pandas_table(frame, count, 1, width, header=False), rows, room)
    return shorten(footer if table is None else f"{table}\n{footer}", limit)


def polars(frame: Any, limit: int) -> str:
    """A polars DataFrame or Series within ``limit`` characters."""
    import polars

    columns = frame.shape[1] if len(frame.shape) == 2 else 1
    most_rows = min(frame.shape[0], _user_limit("POLARS_FMT_MAX_ROWS", 10))
    most_columns = min(columns, _user_limit("POLARS_FMT_MAX_COLS", 8))
    for shown in _fewer(most_columns):
        for rows in _fewer(most_rows):
            for width in _POLARS_WIDTHS:
                with polars.Config(tbl_rows=rows, tbl_cols=shown, fmt_str_lengths=width, fmt_table_cell_list_len=2):
                    text = str(frame)
                if len(text) <= limit:
                    return text
            if rows < _FEWEST_ROWS:
                break
    schema = frame.schema.items() if columns > 1 or len(frame.shape) == 2 else [(frame.name, frame.dtype)]
    return _schema_only("shape: " + str(frame.shape), [f"{name}: {dtype}" for name, dtype in schema], limit)


def arrow(table: Any, limit: int) -> str:
    """A pyarrow Table or RecordBatch within ``limit`` characters."""
    shape = f"[{table.num_rows:,} rows x {table.num_columns:,} columns]"
    for shown in _fewer(min(table.num_columns, 10)):
        text = f"{table.to_string(preview_cols=shown)}\n{shape}"
        if len(text) <= limit:
            return text
    return _schema_only(shape, [f"{field.name}: {field.type}" for field in table.schema], limit)


def _schema_only(shape: str, fields: list[str], limit: int) -> str:
    return shorten(f"{shape}\n{_listed(fields, max(0, limit - len(shape) - 1))}", limit)


def _fewer(most: int) -> Iterator[int]:
    """Counts to try, largest first: a quarter less each time, then one less."""
    while most > 0:
        yield most
        most = min(most - 1, most * 3 // 4)


def _widest(draw: Callable[..., str], rows: int, room: int) -> str | None:
    """The drawing with the widest values, and then the most rows, that fits; None if even the smallest does not."""
    fewest = rows if rows <= _FEWEST_ROWS + 1 else _FEWEST_ROWS
    best = draw(fewest, _WIDTHS[-1])
    if len(best) > room:
        return None
    for width in _WIDTHS:
        wider = draw(fewest, width)
        if len(wider) <= room:
            return _grown(partial(draw, width=width), wider, fewest, rows, room)
    return best


def _grown(draw: Callable[[int], str], best: str, fewest: int, rows: int, room: int) -> str:
    line = max(map(len, best.split("\n"))) + 1
    more = min(rows, _MOST_ROWS, fewest + (room - len(best)) // line)
    while more > fewest:
        # An even number: half of them are the head.
        table = draw(more if more == rows else more - more % 2)
        if len(table) <= room:
            return table
        more = min(more - 2, more * 7 // 8)
    return best


def _pandas_table(frame: Any, count: int, columns: int, width: int, header: bool = True) -> str:
    import pandas

    own_width, own_rows = pandas.get_option("display.max_colwidth"), pandas.get_option("display.max_rows")
    count = min(count, own_rows or count)
    width = min(width, own_width or width)
    # Of a large frame pandas would look at every index label.
    rows = len(frame)
    ends = frame if rows <= 2 * _MOST_ROWS else pandas.concat([frame.iloc[:_MOST_ROWS], frame.iloc[-_MOST_ROWS:]])
    text = ends.to_string(max_rows=count, max_cols=columns, max_colwidth=width, line_width=None, show_dimensions=False, header=header)
    lines = [line.rstrip() for line in text.split("\n")]
    if count < rows:
        lines[-(count // 2) - 1] = f"... {rows - count:,} rows cut of {rows:,}"
    cut = len(frame.columns) - columns
    if cut > 0:
        lines.append(f"... {cut:,} columns cut of {len(frame.columns):,}")
    return "\n".join(lines)


def _types(frame: Any, room: int) -> str:
    if len(frame.columns) * 3 <= room:
        text = "dtypes: " + ", ".join(f"{name} {dtype}" for name, dtype in zip(frame.columns, frame.dtypes, strict=True))
        if len(text) <= room:
            return text
    counts = [f"{dtype}({count})" for dtype, count in frame.dtypes.astype(str).value_counts().items()]
    return shorten("dtypes: " + ", ".join(counts), max(room, 60))


def _listed(fields: list[str], room: int) -> str:
    """As many fields as fit, a line each, and how many there are more."""
    lines: list[str] = []
    for position, field in enumerate(fields):
        rest = f"... {len(fields) - position:,} more columns of {len(fields):,}"
        field = shorten(field, 60)
        last = position == len(fields) - 1
        if sum(map(len, lines)) + len(lines) + len(field) + (0 if last else len(rest) + 1) > room:
            return "\n".join([*lines, rest])
        lines.append(field)
    return "\n".join(lines)


def _user_limit(variable: str, usual: int) -> int:
    # Where polars keeps its settings. A negative one is no limit.
    value = os.environ.get(variable, "")
    limit = int(value) if value.lstrip("-").isdigit() else usual
    return limit if limit >= 0 else 10**6
