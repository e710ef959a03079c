"""What matplotlib draws as collections: points, areas, violins of seaborn, hexagons, segments, arrows."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import notes
from .encode import Column
from .panel import MAX_SERIES, Panel, Series, color_of, hex_colors, label_of

#: Most segments that are read as lines of their own.
_MOST_SEGMENTS = 500


def read(panel: Panel) -> None:
    """Adds every collection that holds no matrix."""
    for artist in panel.open(panel.axes.collections):
        kinds = {base.__name__ for base in type(artist).__mro__}
        if "FillBetweenPolyCollection" in kinds:
            _read_area(panel, artist)
        elif "Quiver" in kinds or "Barbs" in kinds:
            _read_arrows(panel, artist)
        elif "EventCollection" in kinds:
            _read_events(panel, artist)
        elif "LineCollection" in kinds:
            _read_segments(panel, artist)
        elif "PolyCollection" in kinds and artist.get_array() is not None and len(artist.get_offsets()) > 1:
            _read_hexagons(panel, artist)
        elif kinds & {"PathCollection", "RegularPolyCollection", "CircleCollection"}:
            _read_points(panel, artist)
        elif "PolyCollection" in kinds:
            _read_spans(panel, artist)


def read_violins(panel: Panel) -> None:
    """Adds the violins that seaborn draws as areas, with the lines inside them."""
    for artist in panel.open(panel.axes.collections):
        if type(artist).__name__ != "FillBetweenPolyCollection" or label_of(artist) is not None or not artist.get_paths():
            continue
        t, first, second = _curves(artist)
        upright = artist.t_direction == "y"
        across = panel.x if upright else panel.y
        place = _violin_place(first, second)
        if place is not None and isinstance(across.name(place), str):
            panel.claim(artist)
            _add_violin(panel, color_of(artist), upright, _violin(panel, t, first, second, place, upright))


def _add_violin(panel: Panel, color: str | None, upright: bool, violin: dict[str, Any]) -> None:
    for series in panel.series:
        if series["type"] == "violin" and (series["color"] == color or not panel.legend.names):
            series["violins"].append(violin)
            return
    panel.add("violin", None, color, orientation=None if upright else "horizontal", violins=[violin])


def _read_points(panel: Panel, artist: Any) -> None:
    panel.claim(artist)
    offsets = np.ma.asanyarray(artist.get_offsets())
    if panel.places(artist.get_offset_transform()) != (True, True):
        return
    x, y = offsets[:, 0], offsets[:, 1]
    sizes = np.asarray(artist.get_sizes()) if hasattr(artist, "get_sizes") else np.empty(0)
    sizes = sizes if len(sizes) == len(offsets) and len(sizes) > 1 and not np.all(sizes == sizes[0]) else None
    values = artist.get_array()
    if values is not None and len(values) == len(offsets):
        panel.set_color_scale(artist)
        _add_points(panel, artist, None, x, y, sizes, color_values=Column(values))
        return
    shades = _shades(artist, len(offsets))
    groups = sorted(set(shades or ()), key=panel.legend.order)
    if shades is None or not 1 < len(groups) <= MAX_SERIES or not panel.legend.tells_apart(groups):
        series = _add_points(panel, artist, color_of(artist), x, y, sizes, colors=Column(np.array(shades)) if shades else None)
        if shades is None and label_of(artist) is None:
            _join_group(panel, series)
        return
    each = np.array(shades)
    for shade in groups:
        chosen = each == shade
        series = _add_points(panel, None, shade, x[chosen], y[chosen], None if sizes is None else sizes[chosen])
        _join_group(panel, series)


def _join_group(panel: Panel, series: Series) -> None:
    """seaborn draws the points of each category apart; those of one name are one series."""
    if "sizes" in series or (series["name"] is None and "category" not in (panel.x.kind, panel.y.kind)):
        return
    for other in panel.series:
        same = all(other.get(key) == series[key] for key in ("type", "name", "color"))
        if other is not series and same and "sizes" not in other:
            for key in ("x", "y"):
                other[key] = other[key].joined(series[key])
            panel.drop(series)
            return


def _shades(artist: Any, count: int) -> list[str] | None:
    """The colour of each point, if they are not all of one."""
    colors = np.asarray(artist.get_facecolor())
    if len(colors) != count:
        colors = np.asarray(artist.get_edgecolor())
    if len(colors) != count or count < 2 or (colors == colors[0]).all():
        return None
    return hex_colors(colors)


def _add_points(panel: Panel, artist: Any, color: str | None, x: Any, y: Any, sizes: Any, **values: Any) -> Series:
    return panel.add(
        "scatter", artist, color, x=panel.x.column(x), y=panel.y.column(y), sizes=None if sizes is None else Column(sizes), **values
    )


def _read_hexagons(panel: Panel, artist: Any) -> None:
    panel.claim(artist)
    panel.set_color_scale(artist)
    x, y = np.ma.asanyarray(artist.get_offsets()).T
    panel.add("hexbin", artist, x=panel.x.column(x), y=panel.y.column(y), values=Column(artist.get_array()))


def _read_arrows(panel: Panel, artist: Any) -> None:
    panel.claim(artist)
    x, y, u, v = (artist.X, artist.Y, artist.U, artist.V) if hasattr(artist, "X") else (*artist.get_offsets().T, artist.u, artist.v)
    panel.add("quiver", artist, color_of(artist), x=panel.x.column(x), y=panel.y.column(y), u=Column(u), v=Column(v))


def _read_events(panel: Panel, artist: Any) -> None:
    panel.claim(artist)
    level, across = float(artist.get_lineoffset()), artist.is_horizontal()
    along, beside = (panel.x, panel.y) if across else (panel.y, panel.x)
    panel.add(
        "event", artist, color_of(artist), **{"x" if across else "y": along.column(artist.get_positions())},
        **{"y" if across else "x": beside.column([level])}
    )  # fmt: skip


def _read_segments(panel: Panel, artist: Any) -> None:
    panel.claim(artist)
    places = panel.places(artist.get_transform())
    if places != (True, True):
        if any(places):
            panel.add("rug", artist, color_of(artist), **_rug(panel, artist, places[0]))
        return
    segments = [path.vertices for path in artist.get_paths()[:_MOST_SEGMENTS]]
    if not segments:
        return
    gap = np.full((1, 2), np.nan)
    joined = np.concatenate([part for segment in segments for part in (np.asarray(segment, dtype=float), gap)])[:-1]
    panel.add("segments", artist, color_of(artist), x=panel.x.column(joined[:, 0]), y=panel.y.column(joined[:, 1]))


def _rug(panel: Panel, artist: Any, along_x: bool) -> dict[str, Column]:
    level = 0 if along_x else 1
    values = [path.vertices[0][level] for path in artist.get_paths()]
    return {"x" if along_x else "y": (panel.x if along_x else panel.y).column(values)}


def _read_spans(panel: Panel, artist: Any) -> None:
    """Bars that ``broken_barh`` draws: each from ``base`` to ``x``."""
    corners = [path.vertices[:4] for path in artist.get_paths() if len(path.vertices) in (4, 5)]
    panel.claim(artist)
    if not corners or len(corners) != len(artist.get_paths()) or panel.places(artist.get_transform()) != (True, True):
        return
    low, high = np.min(corners, axis=1), np.max(corners, axis=1)
    if not all(np.isin(corner, (start, end)).all() for corner, start, end in zip(corners, low, high, strict=True)):
        return
    middle = (low[:, 1] + high[:, 1]) / 2
    ends = panel.x.column(high[:, 0]) if panel.x.kind == "date" else Column(high[:, 0] - low[:, 0])
    panel.add(
        "bar", artist, color_of(artist), orientation="horizontal", y=panel.y.column(middle, near=True), x=ends,
        base=panel.x.column(low[:, 0]),
    )  # fmt: skip


def _read_area(panel: Panel, artist: Any) -> None:
    panel.claim(artist)
    if panel.places(artist.get_transform()) != (True, True) or not artist.get_paths():
        return
    t, first, second = _curves(artist)
    upright = artist.t_direction == "y"
    along, across = (panel.y, panel.x) if upright else (panel.x, panel.y)
    color = color_of(artist)
    note = notes.of(artist) or {}
    if note.get("kind") == "stack" and len(note["y"]) == len(t):
        base = Column(first) if np.any(first != 0) else None
        panel.add("area", artist, color, x=panel.x.column(t), y=Column(note["y"]), base=base)
        return
    if not np.any(first > second) and np.nanmin(second) != np.nanmax(second):
        first, second = second, first
    if not upright and _attach_band(panel, label_of(artist), t, first, second, color):
        return
    names = ("y", "x", "x2") if upright else ("x", "y", "y2")
    columns = dict(zip(names, (along.column(t), across.column(first), across.column(second)), strict=True))
    panel.add("area", artist, color, where=artist._step, **columns)


def _curves(artist: Any) -> tuple[Any, Any, Any]:
    """The common coordinate and both curves; pieces that ``where`` separates have a gap between them."""
    pieces = []
    for path in artist.get_paths():
        vertices = np.asarray(path.vertices, dtype=float)
        if path.codes is not None and len(vertices) % 2:
            vertices = vertices[:-1]
        vertices = vertices[:, ::-1] if artist.t_direction == "y" else vertices
        half = len(vertices) // 2
        forth, back = vertices[1:half], vertices[half + 1 :][::-1]
        if artist._step in ("pre", "post"):
            forth, back = forth[::2], back[::2]
        pieces.append(np.column_stack([forth[:, 0], forth[:, 1], back[:, 1]]))
    gap = np.full((1, 3), np.nan)
    joined = np.concatenate([part for piece in pieces for part in (piece, gap)])[:-1]
    return joined[:, 0], joined[:, 1], joined[:, 2]


def _violin_place(first: Any, second: Any) -> float | None:
    """Where a violin stands whose outline these curves are."""
    if len(first) < 10 or np.isnan(first).any():
        return None
    middle, spread = (first + second) / 2, np.abs(second - first)
    if np.ptp(spread) == 0 or np.ptp(middle) > 1e-9:
        return None
    return float(np.median(middle))


def _violin(panel: Panel, t: Any, first: Any, second: Any, place: float, upright: bool) -> dict[str, Any]:
    """One violin of seaborn, with the box that it draws inside."""
    across, values = (panel.x, panel.y) if upright else (panel.y, panel.x)
    half = np.abs(second - first) / 2
    violin: dict[str, Any] = {"label": across.name(place), "coords": values.column(t), "density": Column(half)}
    inner = []
    for line in panel.open(panel.axes.lines):
        x, y = line.get_data(orig=False)
        at, ends = (x, y) if upright else (y, x)
        if 1 <= len(at) <= 2 and np.all(np.abs(np.asarray(at, dtype=float) - place) < 1e-9):
            inner.append((len(at), np.asarray(ends, dtype=float)))
            panel.claim(line)
    spans = sorted((ends for count, ends in inner if count == 2), key=np.ptp)
    if len(spans) == 2:
        (q1, q3), (low, high) = spans
        violin.update(min=float(low), q1=float(q1), q3=float(q3), max=float(high))
    points = [ends for count, ends in inner if count == 1]
    if points:
        violin["median"] = float(points[0][0])
    return violin


def _attach_band(panel: Panel, label: str | None, t: Any, high: Any, low: Any, color: str | None) -> bool:
    """Gives a band around a line of the same colour to that line, and a filled line its area."""
    for series in panel.series:
        points = series.get("_points")
        if points is None or series["type"] not in ("line", "step") or series["color"] != color or points[0].shape != t.shape:
            continue
        if label not in (None, series["name"]) or not np.array_equal(points[0], t):
            continue
        if np.array_equal(points[1], high):
            series.update(type="area", y2=panel.y.column(low))
            return True
        inside = (points[1] <= high) & (points[1] >= low)
        if "band" not in series and np.mean(inside) > 0.5:
            series["band"] = {"low": panel.y.column(low), "high": panel.y.column(high)}
            return True
    return False
