"""Lines, points, stems and areas of matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import errors
from .encode import Column
from .panel import Panel, Series, color_of, label_of

_NO_LINE = ("None", "none", "", " ")
_NO_MARKER = ("None", "none", "", " ", None)


def read(panel: Panel) -> None:
    """Adds lines with their error bars, lines of reference, and stems."""
    for container in list(panel.axes.containers):
        kind = type(container).__name__
        panel.deadline.check()
        if kind == "ErrorbarContainer":
            _read_errorbar(panel, container)
        elif kind == "StemContainer":
            _read_stem(panel, container)
    lines = list(panel.open(panel.axes.lines))
    strokes = [line for line in lines if label_of(line) is None and line.get_marker() in _NO_MARKER and errors.straight(line)]
    anchored = any("_points" in series for series in panel.series) or len(strokes) < len(lines)
    waiting = {id(line) for line in strokes} if anchored else set()
    for line in lines:
        if id(line) not in waiting:
            _read_line(panel, line)
    if waiting:
        for line in errors.attach_strokes(panel, strokes):
            _read_line(panel, line)


def _read_line(panel: Panel, line: Any) -> None:
    panel.claim(line)
    if hasattr(line, "get_slope") and hasattr(line, "get_xy1"):
        x, y = line.get_xy1()
        panel.add("reference_line", line, color_of(line), x=Column([x]), y=Column([y]), slope=_slope(line))
        return
    x_is_data, y_is_data = panel.places(line.get_transform())
    if x_is_data != y_is_data:
        _add_reference(panel, line, x_is_data)
    elif x_is_data:
        _add_line(panel, line)


def _slope(line: Any) -> float | None:
    slope = line.get_slope()
    if slope is None:
        (x1, y1), (x2, y2) = line.get_xy1(), line.get_xy2()
        slope = (y2 - y1) / (x2 - x1) if x2 != x1 else None
    return None if slope is None else float(slope)


def _add_reference(panel: Panel, line: Any, upright: bool) -> None:
    x, y = line.get_data(orig=False)
    at = np.asarray(x if upright else y)
    if not len(at) or not np.all(at == at[0]):
        return
    axis, name = (panel.x, "x") if upright else (panel.y, "y")
    orientation = "vertical" if upright else "horizontal"
    panel.add("reference_line", line, color_of(line), orientation=orientation, **{name: axis.column(at[:1])})


def _add_line(panel: Panel, line: Any) -> Series | None:
    x, y = line.get_data(orig=False)
    drawn = line.get_linestyle() not in _NO_LINE
    marked = line.get_marker() not in _NO_MARKER
    if not (drawn or marked):
        return None
    style = line.get_drawstyle()
    kind = "scatter" if not drawn else "step" if style.startswith("steps") else "line"
    series = panel.add(
        kind,
        line,
        color_of(line),
        x=panel.x.column(x),
        y=panel.y.column(y),
        where=(style.partition("-")[2] or "pre") if kind == "step" else None,
    )
    series["_points"] = (np.asarray(x, dtype=float), np.asarray(y, dtype=float))
    return series


def _read_errorbar(panel: Panel, container: Any) -> None:
    line = container.lines[0]
    if line is None:
        _read_bare_errors(panel, container)
        return
    if any(part.axes is not panel.axes for part in (line,)) or not len(line.get_xdata(orig=False)):
        return
    panel.claim(line)
    x, y = (np.asarray(values, dtype=float) for values in line.get_data(orig=False))
    series = panel.add("errorbar", container, color_of(line), x=panel.x.column(x), y=panel.y.column(y))
    errors.attach(panel, series, container, x, y)


def _read_bare_errors(panel: Panel, container: Any) -> None:
    # Those of bars are claimed by their bars. What stands alone, without points, is in the middle of what is drawn.
    _line, caps, bars = container.lines
    free = [bar for bar in panel.open(bars)]
    panel.claim(*caps, *bars)
    if not free:
        return
    spans = np.array([path.vertices for path in free[0].get_paths()])
    if spans.ndim != 3 or spans.shape[1:] != (2, 2):
        return
    x, y = spans.mean(axis=1).T
    # The points that they are of may be those of bars or of a line that were drawn before.
    host = next((one for one in panel.series if _same_places(one, x if container.has_yerr else y, 0 if container.has_yerr else 1)), None)
    if host is not None:
        errors.attach(panel, host, container, *host["_points"])
        return
    host = panel.add("errorbar", container, color_of(free[0]), x=panel.x.column(x), y=panel.y.column(y))
    errors.attach(panel, host, container, x, y)


def _same_places(series: Series, places: Any, level: int) -> bool:
    points = series.get("_points")
    return points is not None and points[level].shape == places.shape and np.allclose(points[level], places)


def _read_stem(panel: Panel, container: Any) -> None:
    marker, stems, baseline = container.markerline, container.stemlines, container.baseline
    panel.claim(marker, stems, baseline, *(stems if isinstance(stems, (list, tuple)) else ()))
    x, y = marker.get_data(orig=False)
    level = np.asarray(baseline.get_ydata(orig=False), dtype=float)
    base = float(level[0]) if len(level) and level[0] != 0 else None
    panel.add("stem", container, color_of(marker), x=panel.x.column(x), y=panel.y.column(y), base=base)
