"""Bars, histograms and pies of matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import notes
from .encode import Column
from .labels import text
from .panel import Panel, Series, color_of, hex_color, hex_colors


def read(panel: Panel) -> None:
    """Adds what stands in the axes as containers of bars, as steps and as wedges."""
    for container in list(panel.axes.containers):
        if type(container).__name__ == "BarContainer":
            panel.deadline.check()
            _read_container(panel, container)
    wedges = [patch for patch in panel.open(panel.axes.patches) if type(patch).__name__ == "Wedge"]
    if wedges:
        _read_pies(panel, wedges)
    for patch in panel.open(panel.axes.patches):
        note = notes.of(patch) or {}
        if note.get("kind") == "hist" and "counts" in note:
            panel.claim(patch)
            _add_histogram(panel, patch, note, note["counts"], None, note["orientation"] == "horizontal", color_of(patch))
        elif type(patch).__name__ == "StepPatch":
            panel.claim(patch)
            _read_stairs(panel, patch)


def _read_container(panel: Panel, container: Any) -> None:
    patches = [patch for patch in container.patches if patch.axes is panel.axes and patch.get_visible()]
    panel.claim(*container.patches)
    if not patches or not hasattr(patches[0], "get_width"):
        return
    horizontal = container.orientation == "horizontal"
    x, y, width, height = np.array([(p.get_x(), p.get_y(), p.get_width(), p.get_height()) for p in patches], dtype=float).T
    start, thickness, base, length = (y, height, x, width) if horizontal else (x, width, y, height)
    note = notes.of(container) or {}
    place = panel.y if horizontal else panel.x
    color = color_of(patches[0])
    if note.get("kind") == "hist" or (_adjacent(start, thickness) and note.get("align") != "center" and place.kind != "category"):
        note = note if note.get("kind") == "hist" else {"edges": np.append(start, start[-1] + thickness[-1])}
        _add_histogram(panel, container, note, length, base, horizontal, color)
        return
    centers = _as_given(note.get("centers"), start + thickness / 2)
    length = _as_given(container.datavalues, length)
    thickness = _as_given(np.full(len(start), note.get("thickness", np.nan)), thickness)
    _add_bars(panel, container, centers, length, base, thickness, horizontal, patches)


def _as_given(given: Any, drawn: Any) -> Any:
    """What was given, free of the rounding of what is drawn, as long as both agree."""
    try:
        given = np.asarray(given, dtype=float)
    except (ValueError, TypeError):
        return drawn
    return given if given.shape == drawn.shape and np.allclose(given, drawn, equal_nan=True) else drawn


def _adjacent(start: Any, thickness: Any) -> bool:
    ends = start[:-1] + thickness[:-1]
    return len(start) > 1 and bool(np.allclose(ends, start[1:], rtol=1e-9, atol=1e-9 * float(np.abs(thickness).max() or 1)))


def _add_bars(
    panel: Panel, container: Any, centers: Any, length: Any, base: Any, thickness: Any, horizontal: bool, patches: list[Any]
) -> None:
    place, value = (panel.y, panel.x) if horizontal else (panel.x, panel.y)
    places = place.column(centers, near=True)
    shades = _shades(patches)
    dated = value.kind == "date"
    series = panel.add(
        "bar",
        container,
        color_of(patches[0]),
        orientation="horizontal" if horizontal else None,
        **{"y" if horizontal else "x": places},
        **{"x" if horizontal else "y": value.column(base + length) if dated else Column(length)},
        base=value.column(base) if dated or np.any(base != 0) else None,
        width=float(thickness[0]) if place.kind != "category" and np.allclose(thickness, thickness[0]) else None,
        colors=shades,
    )
    tops = base + length
    series["_points"] = (tops, centers) if horizontal else (centers, tops)
    if container.errorbar is not None:
        from .errors import attach

        attach(panel, series, container.errorbar, *series["_points"])


def _shades(patches: list[Any]) -> Column | None:
    """The colour of each bar, if they are not all of one."""
    faces = [patch.get_facecolor() for patch in patches]
    return None if all(face == faces[0] for face in faces) else Column(np.array(hex_colors(faces)))


def _add_histogram(panel: Panel, artist: Any, note: dict[str, Any], counts: Any, base: Any, horizontal: bool, color: str | None) -> Series:
    edges = note["edges"]
    along = panel.y if horizontal else panel.x
    return panel.add(
        "histogram",
        artist,
        color,
        orientation="horizontal" if horizontal else None,
        bin_edges=along.column(edges),
        counts=Column(counts),
        base=Column(base) if base is not None and np.any(base != 0) else None,
        **{name: True for name in ("density", "cumulative") if note.get(name)},
    )


def _read_stairs(panel: Panel, patch: Any) -> None:
    values, edges, baseline = patch.get_data()
    _add_histogram(panel, patch, {"edges": edges}, values, baseline, patch.orientation == "horizontal", color_of(patch))
    panel.series[-1]["type"] = "step"


def _read_pies(panel: Panel, wedges: list[Any]) -> None:
    panel.claim(*wedges)
    groups: dict[Any, list[Any]] = {}
    for wedge in wedges:
        note = notes.of(wedge)
        groups.setdefault(id(note) if note else (wedge.r, wedge.width), []).append(wedge)
    for group in groups.values():
        _add_pie(panel, group, notes.of(group[0]))


def _add_pie(panel: Panel, wedges: list[Any], note: dict[str, Any] | None) -> None:
    shares = np.array([(wedge.theta2 - wedge.theta1) / 360 for wedge in wedges])
    whole = note is not None and len(note["values"]) == len(wedges)
    names = [text(wedge.get_label()) for wedge in wedges]
    first = wedges[0]
    explode = note.get("explode") if whole and note else None
    panel.add(
        "pie",
        None,
        None,
        labels=[None if name is None or name.startswith("_") else name for name in names],
        values=Column(note["values"] if whole and note else np.abs(shares)),
        fractions=Column(note["fractions"] if whole and note else np.abs(shares)),
        colors=[hex_color(wedge.get_facecolor()) for wedge in wedges],
        explode=Column(explode) if explode is not None and np.any(explode) else None,
        hole=float((first.r - first.width) / first.r) if first.width is not None and first.r else None,
    )
