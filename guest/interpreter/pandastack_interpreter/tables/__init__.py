"""Data frames: how they are cut as text, and what is in them as data."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

from IPython.core.formatters import BaseFormatter
from traitlets import Unicode

from . import from_arrow, from_numpy, from_pandas, from_polars
from .document import Table, document

MIME = "application/vnd.pandastack.table+json"

#: What reads the values of a type, by the type's module and name: nothing is imported that the code has not imported.
_READERS: dict[tuple[str, str], Callable[[Any], Table | None]] = {
    ("pandas", "DataFrame"): from_pandas.frame,
    ("pandas", "Series"): from_pandas.series,
    # Before pandas 3.
    ("pandas.core.frame", "DataFrame"): from_pandas.frame,
    ("pandas.core.series", "Series"): from_pandas.series,
    ("pandas.io.formats.style", "Styler"): from_pandas.styler,
    ("polars.dataframe.frame", "DataFrame"): from_polars.frame,
    ("polars.series.series", "Series"): from_polars.series,
    ("polars.lazyframe.frame", "LazyFrame"): from_polars.lazy,
    ("pyarrow.lib", "Table"): from_arrow.table,
    ("pyarrow.lib", "RecordBatch"): from_arrow.table,
    ("pyarrow.lib", "ChunkedArray"): from_arrow.array,
    ("pyarrow.lib", "Array"): from_arrow.array,
    ("numpy", "ndarray"): from_numpy.records,
}

_prepared = False


def prepare() -> None:
    """Gives pandas the limits that it has in a notebook. It takes a shell without a kernel for a terminal of 80 columns."""
    global _prepared
    pandas = sys.modules.get("pandas")
    if _prepared or not hasattr(pandas, "set_option"):
        return
    _prepared = True
    if pandas.get_option("display.max_columns") == 0:
        pandas.set_option("display.max_columns", 20)


def register(shell: Any) -> None:
    """Teaches a shell the form of tables."""
    formatter = TableFormatter(parent=shell.display_formatter)
    for (module, name), read in _READERS.items():
        formatter.for_type_by_name(module, name, read)
    shell.display_formatter.formatters[MIME] = formatter


class TableFormatter(BaseFormatter):
    """Tables as JSON. One that cannot be read has its other forms, and not a word is said."""

    format_type = Unicode(MIME)
    _return_type = dict

    def __call__(self, obj: Any) -> dict[str, Any] | None:
        """The document of a table; None of any other value."""
        if not self.enabled:
            return None
        try:
            read = self.lookup(obj)
        except Exception:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                table = read(obj)
                return None if table is None else document(table)
            except Exception:
                return None
