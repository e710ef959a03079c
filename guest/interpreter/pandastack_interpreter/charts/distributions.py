"""Boxes and violins of matplotlib, from the statistics that they were drawn from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import notes
from .encode import Column, scalar
from .panel import Panel, Series, color_of, hex_color


def read(panel: Panel) -> None:
    """Adds every group of boxes and of violins."""
    seen: dict[int, dict[str, Any]] = {}
    for artist in _parts(panel):
        note = notes.of(artist)
        if note is None or note["kind"] not in ("box", "violin"):
            continue
        panel.claim(artist)
        if id(note) in seen:
            continue
        seen[id(note)] = note
        if note["kind"] == "box":
            _add(panel, note, hex_color(note["color"]), "boxes", _box)
        else:
            _add(panel, note, color_of(artist), "violins", _violin)


def _parts(panel: Panel) -> Iterator[Any]:
    # Bodies of violins before their lines: the series has the colour of the first.
    yield from panel.open(panel.axes.collections)
    yield from panel.open(panel.axes.patches)
    yield from panel.open(panel.axes.lines)


def _add(panel: Panel, note: dict[str, Any], color: str | None, member: str, describe: Any) -> None:
    across = panel.y if note["horizontal"] else panel.x
    values = panel.x if note["horizontal"] else panel.y
    described = [describe(stats, across.name(float(place)), values) for stats, place in zip(note["stats"], note["positions"], strict=False)]
    before = _same_group(panel, note["kind"], panel.legend.name(color), color)
    if before is not None:
        before[member] += described
        return
    orientation = "horizontal" if note["horizontal"] else None
    panel.add(note["kind"], None, color, orientation=orientation, **{member: described})


def _same_group(panel: Panel, kind: str, name: str | None, color: str | None) -> Series | None:
    """seaborn draws the boxes of one group by one."""
    for series in panel.series:
        if series["type"] == kind and series["name"] == name and (name is not None or color == series["color"] or not panel.legend.names):
            return series
    return None


def _box(stats: dict[str, Any], place: Any, values: Any) -> dict[str, Any]:
    label = place if isinstance(place, str) else stats.get("label") or place
    box = {"label": str(label) if not isinstance(label, (int, float)) else label}
    for name, key in (("min", "whislo"), ("q1", "q1"), ("median", "med"), ("q3", "q3"), ("max", "whishi"), ("mean", "mean")):
        if key in stats:
            box[name] = scalar(stats[key])
    box["outliers"] = values.column(stats.get("fliers", ()))
    return box


def _violin(stats: dict[str, Any], place: Any, values: Any) -> dict[str, Any]:
    violin = {"label": place}
    violin.update({name: scalar(stats[name]) for name in ("min", "max", "mean", "median") if name in stats})
    quantiles = stats.get("quantiles")
    if quantiles is not None and len(quantiles):
        violin["quantiles"] = Column(quantiles)
    return {**violin, "coords": values.column(stats["coords"]), "density": Column(stats["vals"])}
