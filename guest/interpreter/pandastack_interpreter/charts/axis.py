"""One axis of matplotlib: its scale, and what its numbers mean."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from . import labels
from .encode import Column, dates, numbers, scalar

_DATE_CONVERTERS = {"DateConverter", "_SwitchableDateConverter", "ConciseDateConverter", "DatetimeConverter"}
_MICROSECONDS_A_DAY = 86_400e6
#: Ticks are computed, so that they miss their places by this much.
_SAME_PLACE = 1e-9


class AxisReader:
    """Reads one axis. What it says of the scale depends on the columns that were taken before."""

    def __init__(self, axis: Any) -> None:
        self.axis = axis
        self.kind = self._kind()
        self._named: dict[float, str] = self._units() if self.kind == "category" else {}
        self._fixed: dict[float, str] | None = None

    def column(self, values: Any, near: bool = False) -> Column:
        """A variable along this axis. ``near``: its values may stand beside their ticks, as grouped bars do."""
        if self.kind == "category":
            return Column(values, lambda chosen: self._names(chosen))
        if self.kind in ("date", "period", "time"):
            return Column(values, getattr(self, f"_{self.kind}s"))
        fixed = self.fixed_labels()
        if fixed and _fits(values, fixed, near):
            self.kind, self._named = "category", fixed
            return Column(values, lambda chosen: self._names(chosen))
        return Column(values)

    def name(self, value: float) -> Any:
        """What one place on the axis is called; the number itself if it has no name."""
        return self.column([value], near=True).plain(1)[0]

    def fixed_labels(self) -> dict[float, str]:
        """Labels that were set for places, unless they only repeat the numbers."""
        if self._fixed is None:
            self._fixed = _fixed_labels(self.axis)
        return self._fixed

    def describe(self) -> dict[str, Any]:
        """Label, unit, scale and limits."""
        label = labels.text(self.axis.get_label_text())
        low, high = (float(limit) for limit in self.axis.get_view_interval())
        described = {
            "label": label,
            "unit": labels.unit(label),
            "scale": "date" if self.kind == "period" else self.kind,
            "limits": self._plain_limits(low, high),
        }
        if low > high:
            described["inverted"] = True
        if self.kind == "category":
            described["ticks"] = labels.bounded([name for _place, name in sorted(self._named.items())])
        elif self.fixed_labels():
            places = sorted(self.fixed_labels())
            described["ticks"] = labels.bounded([self.fixed_labels()[place] for place in places])
            described["tick_positions"] = places[: len(described["ticks"])]
        return described

    def _plain_limits(self, low: float, high: float) -> list[Any]:
        if self.kind in ("date", "period", "time"):
            return getattr(self, f"_{self.kind}s")(np.array([low, high]))
        return [scalar(low), scalar(high)]

    def _kind(self) -> str:
        converter = self.axis.get_converter() if hasattr(self.axis, "get_converter") else self.axis.converter
        names = {base.__name__ for base in type(converter).__mro__}
        if "StrCategoryConverter" in names and hasattr(self.axis.units, "_mapping"):
            return "category"
        if "PeriodConverter" in names or getattr(self.axis, "freq", None) is not None:
            return "period"
        if "TimeConverter" in names:
            return "time"
        if names & _DATE_CONVERTERS or "DateLocator" in {base.__name__ for base in type(self.axis.get_major_locator()).__mro__}:
            return "date"
        return str(self.axis.get_scale())

    def _units(self) -> dict[float, str]:
        return {float(place): str(name)[: labels.MAX_LABEL] for name, place in self.axis.units._mapping.items()}

    def _names(self, values: Any) -> list[Any]:
        nearest = _Nearest(self._named)
        return [nearest.name(value) for value in numbers(values)]

    def _dates(self, values: Any) -> list[Any]:
        from matplotlib.dates import get_epoch

        array = np.ma.filled(np.ma.asanyarray(values).astype(float), np.nan)
        return iso_dates(array, np.datetime64(get_epoch(), "us"), getattr(self.axis, "units", None))

    def _periods(self, values: Any) -> list[Any]:
        from pandas import Period

        freq = self.axis.freq
        plain = numbers(values)
        return [None if value is None else Period(ordinal=round(value), freq=freq).to_timestamp().isoformat() for value in plain]

    def _times(self, values: Any) -> list[Any]:
        midnight = np.datetime64("1970-01-01T00:00:00", "us")
        shown = iso_dates(np.asarray(values, dtype=float) / 86_400, midnight, None)
        return [None if value is None else value.partition("T")[2] for value in shown]


def iso_dates(days: Any, epoch: Any, timezone: Any) -> list[str | None]:
    """Days since an epoch in ISO 8601, with an offset if there is a time zone."""
    known = np.isfinite(days) & (np.abs(days) < 3.6e6)
    stamps = epoch + (np.where(known, days, 0) * _MICROSECONDS_A_DAY).round().astype("timedelta64[us]")
    if timezone is not None and hasattr(timezone, "utcoffset"):
        from datetime import UTC

        texts: list[str | None] = [stamp.replace(tzinfo=UTC).astimezone(timezone).isoformat() for stamp in stamps.tolist()]
    else:
        texts = dates(stamps)
    return [text if ok else None for text, ok in zip(texts, known.tolist(), strict=True)]


class _Nearest:
    """Names of places, found by the nearest."""

    def __init__(self, names: dict[float, str]) -> None:
        self._places = np.array(sorted(names))
        self._names = [names[place] for place in self._places]
        gaps = np.diff(self._places)
        self.reach = 0.5 * float(gaps.min()) + 1e-9 if len(gaps) else 0.5

    def name(self, value: float | None) -> Any:
        """The name, or the number if none is near."""
        if value is None or self.distance(value) > self.reach:
            return value
        return self._names[self._index(value)]

    def distance(self, value: float) -> float:
        """How far the nearest place is."""
        return abs(float(self._places[self._index(value)]) - value) if len(self._places) else math.inf

    def _index(self, value: float) -> int:
        after = int(np.searchsorted(self._places, value))
        return min((i for i in (after - 1, after) if 0 <= i < len(self._places)), key=lambda i: abs(self._places[i] - value))


def _fits(values: Any, names: dict[float, str], near: bool) -> bool:
    """Whether all values stand at named places, or near them."""
    values = np.ma.compressed(np.ma.masked_invalid(np.ma.asanyarray(values).astype(float).ravel()))
    if not 0 < len(values) <= labels.MAX_NAMES:
        return False
    nearest = _Nearest(names)
    reach = nearest.reach if near else _SAME_PLACE
    return all(nearest.distance(value) <= reach for value in values.tolist())


def _fixed_labels(axis: Any) -> dict[float, str]:
    places = getattr(axis.get_major_locator(), "locs", None)
    if type(axis.get_major_locator()).__name__ != "FixedLocator" or places is None or len(places) > labels.MAX_NAMES:
        return {}
    formatter = axis.get_major_formatter()
    texts: list[Any]
    if type(formatter).__name__ == "FixedFormatter":
        texts = list(formatter.seq)
    elif isinstance(getattr(formatter, "func", None), functools.partial) and formatter.func.func.__name__ == "_format_with_dict":
        texts = [formatter(place, index) for index, place in enumerate(places)]
    else:
        return {}
    named = {float(place): str(text)[: labels.MAX_LABEL] for place, text in zip(places, texts, strict=False) if str(text)}
    return {} if all(_is_number(text, place) for place, text in named.items()) else named


def _is_number(text: str, place: float) -> bool:
    try:
        return float(text.replace("\N{MINUS SIGN}", "-")) == place
    except ValueError:
        return False
