"""Labels of axes and the units that they name."""

from __future__ import annotations

import re
from typing import Any

#: Longest text of a label, in characters.
MAX_LABEL = 500
#: Most names in one list, in number and in characters.
MAX_NAMES = 1_000
_MOST_CHARACTERS = 16_000
_LONGEST_UNIT = 24
_TRAILING = re.compile(r"\s*(?:\s\(([^()]*(?:\([^()]*\)[^()]*)*)\)|\[([^\[\]]+)\])\s*$")
#: Words in brackets that say something else than a unit.
_NO_UNIT = re.compile(r"\b(scale|scaled|log|log10|ln|index|higher|lower|better|normali[sz]ed|avg|mean|median|sum|count|rank|n)\b", re.I)


def text(value: Any) -> str | None:
    """A label; None if there is none."""
    label = str(value).strip() if value is not None else ""
    return label[:MAX_LABEL] or None


def bounded(names: list[Any]) -> list[str]:
    """As many of the names as there is room for."""
    kept, room = [], _MOST_CHARACTERS
    for name in names[:MAX_NAMES]:
        kept.append(str(name)[:MAX_LABEL])
        room -= len(kept[-1])
        if room < 0:
            break
    return kept


def unit(label: str | None) -> str | None:
    """The unit that a label ends with: ``Temperature (°C)`` or ``speed [m/s]``."""
    found = _TRAILING.search(label or "")
    if found is None or found.start() == 0:
        return None
    name = (found[1] or found[2] or "").strip()
    name = name.removeprefix("in ").replace("$", "").strip() if "$" in name[1:] else name.removeprefix("in ").strip()
    too_long = len(name) > _LONGEST_UNIT or len(name.split()) > 3
    if not name or too_long or "=" in name or name.isdigit() or _NO_UNIT.search(name):
        return None
    return name
