"""A figure of matplotlib as a chart."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from . import bars, collections, distributions, grids, labels, lines, solids
from .axis import AxisReader
from .encode import Column, finish
from .panel import AIDS, MAX_SERIES, Deadline, Legend, OutOfTime, Panel, color_of

#: Most axes of one figure that are read, and how long reading one figure may take, in seconds.
MAX_AXES = 64
_PATIENCE = 1.0


def chart_of(figure: Any) -> dict[str, Any] | None:
    """The chart that a figure shows. None of a figure without axes."""
    axes = [one for one in _all_axes(figure) if one.get_visible() and not hasattr(one, "_colorbar") and (one.axison or one.has_data())]
    read = _read_all(figure, axes)
    if not read:
        return None
    head = {"version": 1, "library": "matplotlib"}
    width, height = (figure.get_size_inches() * figure.dpi).round().astype(int).tolist()
    size = {"width_px": width, "height_px": height}
    title = labels.text(figure.get_suptitle()) if hasattr(figure, "get_suptitle") else None
    if len(read) == 1:
        chart = read[0][1]
        own = chart.pop("title")
        above = {"suptitle": title} if title is not None and own is not None else {}
        return finish({**head, "type": chart.pop("type"), "title": own or title, **above, **size, **chart})
    for one, chart in read:
        chart["position"] = _position(one)
    total = {"charts_total": len(axes)} if len(axes) > MAX_AXES else {}
    return finish({**head, "type": "multi", "title": title, **size, "charts": [chart for _axes, chart in read], **total})


def _read_all(figure: Any, axes: list[Any]) -> list[tuple[Any, dict[str, Any]]]:
    """Axes with their charts; those with nothing in them only if all are."""
    deadline = Deadline(_PATIENCE)
    legends = [*figure.legends, *itertools.chain.from_iterable(part.legends for part in getattr(figure, "subfigs", ()))]
    read: list[tuple[Any, dict[str, Any]]] = []
    for one in axes[:MAX_AXES]:
        try:
            read.append((one, _read_axes(one, legends, deadline)))
        except OutOfTime:
            break
    for one, chart in read:
        _share_label(one, chart, read)
    full = [(one, chart) for one, chart in read if chart["series"]]
    for one, chart in full:
        _name_twin(one, chart, full)
    return full or read[:1]


def _all_axes(figure: Any) -> list[Any]:
    axes = []
    for one in figure.axes:
        axes.append(one)
        axes += [
            child for child in getattr(one, "child_axes", ()) if hasattr(child, "has_data") and type(child).__name__ != "SecondaryAxis"
        ]
    return axes


def _read_axes(axes: Any, legends: list[Any], deadline: Deadline) -> dict[str, Any]:
    own = axes.get_legend()
    panel = Panel(axes, Legend([*([own] if own is not None else []), *legends]), deadline)
    z = AxisReader(axes.zaxis) if axes.name == "3d" else None
    if z is not None:
        solids.read(panel, z)
    else:
        _read_flat(panel)
    panel.sort()
    panel.series = _without_empty(panel.series)
    panel.add_missing_names()
    title = next(filter(None, (labels.text(axes.get_title(loc=place)) for place in ("center", "left", "right"))), None)
    chart: dict[str, Any] = {"type": _type(panel), "title": title, "x": panel.x.describe(), "y": panel.y.describe()}
    if z is not None:
        chart["z"] = z.describe()
    if panel.color is not None:
        chart["color"] = panel.color
    if axes.name == "polar":
        chart["projection"] = "polar"
    chart["series"] = panel.series
    if panel.total > MAX_SERIES:
        chart["series_total"] = panel.total
    chart["legend"] = labels.bounded(panel.legend.names)
    if panel.legend.title is not None:
        chart["legend_title"] = panel.legend.title
    return chart


def _without_empty(series: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Artists without data, which seaborn makes to find its colours, count only if there is nothing else."""
    for one in series:
        one.pop("_points", None)
        del one["_place"]
    full = [one for one in series if not isinstance(one.get("x"), Column) or len(one["x"])]
    return full or series


def _read_flat(panel: Panel) -> None:
    distributions.read(panel)
    collections.read_violins(panel)
    bars.read(panel)
    lines.read(panel)
    grids.read(panel)
    collections.read(panel)
    for patch in panel.open(panel.axes.patches):
        _read_patch(panel, patch)


def _read_patch(panel: Panel, patch: Any) -> None:
    """Shaded bands of reference, and polygons of ``fill``."""
    kind = type(patch).__name__
    x_is_data, y_is_data = panel.places(patch.get_transform())
    if kind == "Rectangle" and x_is_data != y_is_data:
        axis, name, start, length = (
            (panel.x, "x", patch.get_x(), patch.get_width()) if x_is_data else (panel.y, "y", patch.get_y(), patch.get_height())
        )
        panel.add("reference_band", patch, color_of(patch), **{name: axis.column([start, start + length])})
    elif kind == "Polygon" and x_is_data and y_is_data:
        x, y = np.asarray(patch.get_xy(), dtype=float).T
        panel.add("polygon", patch, color_of(patch), x=panel.x.column(x), y=panel.y.column(y))


def _type(panel: Panel) -> str:
    kinds = list(dict.fromkeys(series["type"] for series in panel.series))
    main = [kind for kind in kinds if kind not in AIDS] or kinds
    if not main:
        return "unknown"
    return main[0] if len(main) == 1 else "mixed"


def _position(axes: Any) -> dict[str, Any]:
    """Where axes stand: in fractions of the figure from its lower left corner, and in the grid that they are part of."""
    whole, part = axes.get_figure(root=True).bbox, axes.bbox
    left, width = ((value / whole.width) for value in (part.x0 - whole.x0, part.width))
    bottom, height = ((value / whole.height) for value in (part.y0 - whole.y0, part.height))
    bounds = {"left": left, "bottom": bottom, "width": width, "height": height}
    position: dict[str, Any] = {name: round(float(value), 4) for name, value in bounds.items()}
    cell = axes.get_subplotspec()
    if cell is not None:
        rows, columns = cell.rowspan, cell.colspan
        position.update(row=rows.start, column=columns.start)
        if len(rows) > 1 or len(columns) > 1:
            position.update(rows=len(rows), columns=len(columns))
    if isinstance(axes.get_label(), str) and axes.get_label() and not axes.get_label().startswith(("_", "<")):
        position["name"] = axes.get_label()
    return position


def _twin(axes: Any, read: list[tuple[Any, dict[str, Any]]]) -> int | None:
    """The first of the axes that share their place with these."""
    twins = axes._twinned_axes.get_siblings(axes) if hasattr(axes, "_twinned_axes") and axes in axes._twinned_axes else ()
    first = next((index for index, (other, _chart) in enumerate(read) if other in twins), None)
    return None if first is None or read[first][0] is axes else first


def _shared(axes: Any, other: Any) -> str:
    return "x" if axes.get_shared_x_axes().joined(axes, other) else "y"


def _share_label(axes: Any, chart: dict[str, Any], read: list[tuple[Any, dict[str, Any]]]) -> None:
    """Twins have no label of their own at the axis that they share."""
    first = _twin(axes, read)
    if first is not None:
        other, base = read[first]
        shared = _shared(axes, other)
        if chart[shared]["label"] is None:
            chart[shared].update(label=base[shared]["label"], unit=base[shared]["unit"])


def _name_twin(axes: Any, chart: dict[str, Any], read: list[tuple[Any, dict[str, Any]]]) -> None:
    """Says of axes that share their place with earlier ones which these are, and on which side their own scale is."""
    first = _twin(axes, read)
    if first is None:
        return
    shared = _shared(axes, read[first][0])
    chart.update(twin_of=first, shares=shared)
    own, axis = ("y", axes.yaxis) if shared == "x" else ("x", axes.xaxis)
    chart[own]["side"] = axis.get_label_position()
