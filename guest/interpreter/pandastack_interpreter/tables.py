"""How data frames are cut."""

from __future__ import annotations

import sys

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
