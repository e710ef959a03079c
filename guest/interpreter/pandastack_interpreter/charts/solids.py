"""What stands in matplotlib's axes of three dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import notes
from .axis import AxisReader
from .encode import Column, Matrix, Side
from .panel import Panel, color_of


def read(panel: Panel, z: AxisReader) -> None:
    """Adds lines, points, surfaces and bars; their types begin with ``3d-``."""
    axes = panel.axes
    for line in panel.open(axes.lines):
        if hasattr(line, "get_data_3d"):
            kind = "3d-line" if line.get_linestyle() not in ("None", "none", "", " ") else "3d-scatter"
            panel.add(kind, line, color_of(line), **_places(panel, z, *line.get_data_3d()))
    for artist in panel.open(axes.collections):
        note = notes.of(artist) or {}
        if hasattr(artist, "_offsets3d"):
            _read_points(panel, z, artist)
        elif note.get("kind") == "surface":
            _read_surface(panel, artist, note)
        elif note.get("kind") == "bar3d":
            values = {name: Column(note[name]) for name in ("x", "y", "z", "dx", "dy", "dz")}
            panel.add("3d-bar", artist, color_of(artist), **values)
        elif note.get("kind") == "trisurf":
            panel.add("3d-mesh", artist, color_of(artist), **_places(panel, z, note["x"], note["y"], note["z"]))
        elif note.get("kind") == "contour":
            panel.add("3d-contour", artist, levels=Column(artist.levels), z=Matrix(note["z"]))
        else:
            panel.add("3d-mesh", artist, color_of(artist))


def _places(panel: Panel, z: AxisReader, *places: Any) -> dict[str, Column]:
    return {name: axis.column(values) for name, axis, values in zip("xyz", (panel.x, panel.y, z), places, strict=True)}


def _read_points(panel: Panel, z: AxisReader, artist: Any) -> None:
    values = artist.get_array()
    colored = {}
    if values is not None:
        panel.set_color_scale(artist)
        colored["color_values"] = Column(values)
    color = None if colored else color_of(artist)
    panel.add("3d-scatter", artist, color, **_places(panel, z, *(np.ma.asanyarray(part) for part in artist._offsets3d)), **colored)


def _read_surface(panel: Panel, artist: Any, note: dict[str, Any]) -> None:
    shape = note["z"].shape
    sides = {
        name: Side(Column(note[name]), shape, level) if note[name].ndim == 1 else Matrix(note[name]) for name, level in (("x", 1), ("y", 0))
    }
    total = {"shape_total": note["shape"]} if note["shape"] != list(shape) else {}
    kind = "3d-wireframe" if type(artist).__name__ == "Line3DCollection" else "3d-surface"
    panel.add(kind, artist, color_of(artist), z=Matrix(note["z"]), **sides, **total)
