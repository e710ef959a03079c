"""Error bars, attached to the series whose values they are of."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import notes
from .encode import Column
from .panel import Panel, Series

_LEVELS = (("x", 0), ("y", 1))


def attach(panel: Panel, series: Series, container: Any, x: Any, y: Any) -> None:
    """Gives a series the error bars of an ErrorbarContainer; x and y are the points that these belong to, as numbers."""
    line, caps, bars = container.lines
    panel.claim(*(part for part in (line, *caps, *bars) if part is not None))
    note = notes.of(container) or {}
    spans = [np.array([path.vertices for path in bar.get_paths()]) for bar in bars]
    spans = [span for span in spans if span.ndim == 3 and span.shape[1:] == (2, 2)]
    for name, level in _LEVELS:
        if not getattr(container, f"has_{name}err") or not spans:
            continue
        # Horizontal ones are drawn first.
        span = spans[0] if name == "x" or not container.has_xerr else spans[-1]
        ends = _ends(span[:, :, level], span[:, 0, 1 - level], y if name == "x" else x)
        at = x if name == "x" else y
        series[f"{name}_error"] = error(at - ends[0], ends[1] - at, note.get(f"{name}err"))


def error(minus: Any, plus: Any, given: Any = None) -> dict[str, Column]:
    """Lengths downwards and upwards; as they were given, if what is drawn agrees."""
    if given is not None and given.ndim <= 2 and (given.ndim < 2 or given.shape[0] == 2):
        low, high = np.broadcast_to(given, (2, len(minus)))
        drawn = np.isfinite(minus)
        if np.allclose(low[drawn], minus[drawn]) and np.allclose(high[drawn], plus[drawn]):
            minus, plus = np.where(drawn, low, np.nan), np.where(drawn, high, np.nan)
    return {"minus": Column(minus), "plus": Column(plus)}


def _ends(spans: Any, at: Any, places: Any) -> Any:
    """Both ends of the bar at each place; not a number where there is none, as with ``errorevery``."""
    if len(spans) == len(places):
        return spans.T
    found = {place: index for index, place in enumerate(at.tolist())}
    ends = np.full((2, len(places)), np.nan)
    for index, place in enumerate(np.asarray(places).tolist()):
        if place in found:
            ends[:, index] = spans[found[place]]
    return ends


def attach_strokes(panel: Panel, strokes: list[Any]) -> list[Any]:
    """Attaches short straight lines at the places of bars and points, as seaborn draws error bars. Returns those that belong to none."""
    found: dict[tuple[int, bool], dict[int, tuple[Any, float, float]]] = {}
    hosts = [series for series in panel.series if "_points" in series]
    left = []
    for line in strokes:
        panel.deadline.check()
        stroke = straight(line)
        place = _host(hosts, found, *stroke) if stroke is not None else None
        if stroke is None or place is None:
            left.append(line)
        else:
            host, upright, index = place
            found.setdefault((host, upright), {})[index] = (line, *stroke[2:])
    for (host, upright), ends in found.items():
        values = hosts[host]["_points"][upright]
        if len(ends) < np.isfinite(values).sum():
            # A line of its own that happens to run through a point.
            left += [line for line, _low, _high in ends.values()]
            continue
        low, high = np.full(len(values), np.nan), np.full(len(values), np.nan)
        for index, (line, start, end) in ends.items():
            panel.claim(line)
            low[index], high[index] = start, end
        if not np.isnan(low).all():
            hosts[host]["y_error" if upright else "x_error"] = error(values - low, high - values)
    return left


def straight(line: Any) -> tuple[bool, float, float, float] | None:
    """Whether a line is one stroke along an axis, with or without caps: upright or not, where it stands, its two ends."""
    x, y = (np.asarray(values, dtype=float) for values in line.get_data(orig=False))
    if len(x) == 8 and np.isnan(x[[2, 5]]).all():
        x, y = x[3:5], y[3:5]
    if len(x) != 2:
        return None
    for upright, at, ends in ((True, x, y), (False, y, x)):
        if at[0] == at[1]:
            return upright, float(at[0]), float(ends.min()), float(ends.max())
    return None


def _host(hosts: list[Series], found: dict[tuple[int, bool], Any], upright: bool, at: float, low: float, high: float) -> Any:
    """The series and the point that a stroke runs through."""
    for number, series in enumerate(hosts):
        places, values = series["_points"] if upright else series["_points"][::-1]
        if series["type"] == "bar" and (series.get("orientation") == "horizontal") == upright:
            continue
        near = np.flatnonzero(np.abs(places - at) <= 1e-9 * max(1.0, abs(at)))
        for index in near.tolist():
            inside = np.isnan(low) or np.isnan(high) or low - 1e-12 <= values[index] <= high + 1e-12
            if inside and index not in found.get((number, upright), {}):
                return number, upright, index
    return None
