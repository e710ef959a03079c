"""What matplotlib draws from matrices: images, meshes, contours."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import notes
from .axis import AxisReader
from .encode import Column, Matrix, Side
from .panel import Panel


def read(panel: Panel) -> None:
    """Adds images, meshes and contours."""
    for image in panel.open(panel.axes.images):
        panel.claim(image)
        _read_image(panel, image)
    for artist in panel.open(panel.axes.collections):
        kinds = {base.__name__ for base in type(artist).__mro__}
        if kinds & {"QuadMesh", "PolyQuadMesh"}:
            panel.claim(artist)
            _read_mesh(panel, artist)
        elif "ContourSet" in kinds:
            panel.claim(artist)
            _read_contours(panel, artist)
        elif "TriMesh" in kinds:
            panel.claim(artist)
            panel.set_color_scale(artist)
            places = artist._triangulation
            panel.add("mesh", artist, x=panel.x.column(places.x), y=panel.y.column(places.y), values=Column(artist.get_array()))


def _read_image(panel: Panel, image: Any) -> None:
    values = image.get_array()
    if values is None:
        return
    if values.ndim != 2:
        panel.add("image", image, height=int(values.shape[0]), width=int(values.shape[1]), channels=int(values.shape[2]))
        return
    panel.set_color_scale(image)
    left, right, bottom, top = image.get_extent()
    first, last = (top, bottom) if image.origin == "upper" else (bottom, top)
    x, y = _centers(left, right, values.shape[1]), _centers(first, last, values.shape[0])
    _add_heatmap(panel, image, values, _names(panel.x, x), _names(panel.y, y))


def _centers(start: float, end: float, count: int) -> Any:
    return start + (np.arange(count) + 0.5) * ((end - start) / count)


def _read_mesh(panel: Panel, mesh: Any) -> None:
    panel.set_color_scale(mesh)
    corners = mesh.get_coordinates() if hasattr(mesh, "get_coordinates") else mesh._coordinates
    rows, columns = corners.shape[0] - 1, corners.shape[1] - 1
    values = np.ma.asanyarray(mesh.get_array())
    if values.size == (rows + 1) * (columns + 1):
        values = values.reshape(rows + 1, columns + 1)
        _add_heatmap(panel, mesh, values, panel.x.column(corners[0, :, 0]), panel.y.column(corners[:, 0, 1]))
        return
    if values.size != rows * columns:
        return
    values = values.reshape(rows, columns)
    x, y = corners[0, :, 0], corners[:, 0, 1]
    edges = {}
    if panel.x.kind != "category" and not panel.x.fixed_labels():
        edges["x_edges"] = panel.x.column(x)
    if panel.y.kind != "category" and not panel.y.fixed_labels():
        edges["y_edges"] = panel.y.column(y)
    _add_heatmap(panel, mesh, values, _names(panel.x, (x[:-1] + x[1:]) / 2), _names(panel.y, (y[:-1] + y[1:]) / 2), **edges)


def _names(axis: AxisReader, centers: Any) -> Column:
    """What stands beside the rows or columns; seaborn labels only some of them if they are many."""
    fixed = axis.fixed_labels()
    if fixed and len(fixed) < len(centers):
        return Column(centers)
    return axis.column(centers, near=True)


def _add_heatmap(panel: Panel, artist: Any, values: Any, x: Column, y: Column, **edges: Any) -> None:
    shape = values.shape
    panel.add("heatmap", artist, x=Side(x, shape, 1), y=Side(y, shape, 0), z=Matrix(values), **edges)


def _read_contours(panel: Panel, contours: Any) -> None:
    panel.set_color_scale(contours)
    grid: dict[str, Any] = {}
    note = notes.of(contours)
    if note is not None:
        shape = note["z"].shape
        grid["z"] = Matrix(note["z"])
        if note["shape"] != list(shape):
            grid["shape_total"] = note["shape"]
        for name, axis, dimension in (("x", panel.x, 1), ("y", panel.y, 0)):
            places = note[name]
            grid[name] = Side(axis.column(places), shape, dimension) if places.ndim == 1 else Matrix(places)
    panel.add("contour", None, levels=Column(contours.levels), filled=bool(contours.filled), **grid)
