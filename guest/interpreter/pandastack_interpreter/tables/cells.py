"""Single values of a table as plain JSON."""

from __future__ import annotations

import datetime
import decimal
import math
import numbers
import pathlib
import uuid
from typing import Any

from ..budget import shorten
from ..budget.values import Writer

#: Larger whole numbers are text: most readers of JSON have no others.
_LARGEST_INT = 2**53
#: Types of pandas whose text says all.
_TELLING = ("Period", "Interval", "Categorical", "DateOffset")


class Cells:
    """Makes values plain, texts no longer than ``longest`` characters, and counts what it shortened."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._writer = Writer()
        self.shortened = 0

    def plain(self, value: Any) -> Any:
        """A value as JSON has it: missing ones null, times in ISO 8601, others as their text. Never raises an Exception."""
        try:
            return self._plain(value)
        except Exception:
            return f"<{type(value).__name__}>"

    def text(self, value: Any) -> str:
        """A text, shortened if need be."""
        text = str.__str__(value) if isinstance(value, str) else str(value)
        if len(text) > self._longest:
            self.shortened += 1
        return shorten(text, self._longest)

    def _plain(self, value: Any) -> Any:
        module, _, _ = type(value).__module__.partition(".")
        if module == "numpy":
            value, module = _out_of_numpy(value), ""
        if value is None or type(value).__name__ in ("NAType", "NaTType"):
            return None
        if isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int):
            whole = int.__int__(value)
            return whole if abs(whole) <= _LARGEST_INT else self._large(whole)
        if isinstance(value, float):
            return _of_float(float.__float__(value))
        return self._of_object(value, module)

    def _large(self, whole: int) -> str:
        # Python refuses to write a number of many thousand digits.
        return self.text(whole) if whole.bit_length() < 10_000 else f"<int of {whole.bit_length():,} bits>"

    def _of_object(self, value: Any, module: str) -> Any:
        if isinstance(value, (datetime.date, datetime.time)):
            return self.text(value.isoformat())
        if isinstance(value, datetime.timedelta):
            return _duration(value)
        if isinstance(value, decimal.Decimal):
            return None if value.is_nan() else self.text(value)
        if isinstance(value, (uuid.UUID, pathlib.PurePath)) or (isinstance(value, numbers.Number) and module in ("", "builtins")):
            return self.text(value)
        if module == "pandas" and type(value).__name__ in _TELLING:
            return self.text(value)
        text = self._writer.fit(value, self._longest + 1)
        if len(text) > self._longest or " more of " in text:
            self.shortened += 1
        return shorten(text, self._longest)


def _out_of_numpy(value: Any) -> Any:
    import numpy

    if isinstance(value, numpy.timedelta64):
        # Months and years are of no fixed length.
        span = None if numpy.isnat(value) else value.astype("timedelta64[us]").item()
        return str(value) if isinstance(span, int) else span
    if isinstance(value, numpy.datetime64):
        # As a number it would have lost its unit.
        return None if numpy.isnat(value) else str(value)
    return value.item() if isinstance(value, numpy.generic) and not isinstance(value, numpy.void) else value


def _of_float(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else str(value)


def _duration(value: datetime.timedelta) -> str:
    """ISO 8601, as pandas writes it: whole days may be negative, the rest is not."""
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{value.microseconds:06}".rstrip("0") if value.microseconds else ""
    return f"P{value.days}DT{hours}H{minutes}M{seconds}{fraction}S"
