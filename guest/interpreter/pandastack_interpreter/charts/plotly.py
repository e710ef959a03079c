"""A figure of plotly as data. What only the browser computes, such as bins and quartiles, is named; the source rows stand for it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from . import labels
from .encode import Column, Matrix, Side, finish, scalar

#: Most traces that are read, and most points of a line that plotly marks by itself.
MAX_TRACES = 200
_MARKED = 20
_POLAR = ("scatterpolar", "scatterpolargl", "barpolar")
_SHAPES = {"hv": "post", "vh": "pre", "hvh": "mid", "vhv": "mid"}
#: What a trace of a kind that is not read closer may hold.
_COLUMNS = (
    "x", "y", "z", "r", "theta", "a", "b", "c", "u", "v", "w", "i", "j", "k", "lat", "lon", "locations", "labels", "parents", "values",
    "open", "high", "low", "close", "measure", "value",
)  # fmt: skip
_DATE = re.compile(r"\d{4}-\d\d?(-\d\d?([T ]\d\d?(:\d\d){0,2}(\.\d+)?(Z|[+-]\d\d:?\d\d)?)?)?")
_TAG = re.compile(r"<[^>]{0,100}>")


def chart_of(figure: Any) -> dict[str, Any] | None:
    """The chart that a plotly figure shows. None of a figure without traces."""
    layout = _properties(figure.layout)
    visible = [trace for trace in figure.data if trace.visible not in (False, "legendonly")]
    traces = []
    groups: dict[Any, list[Any]] = {}
    for trace in visible[:MAX_TRACES]:
        traces.append({**_properties(trace), "type": trace.type})
        groups.setdefault(_subplot(trace), []).append(traces[-1])
    if not groups:
        return None
    charts = [_chart(layout, key, members, traces) for key, members in groups.items()]
    head = {"version": 1, "library": "plotly"}
    size = {"width_px": scalar(_get(layout, "width")), "height_px": scalar(_get(layout, "height"))}
    title = _text(_get(layout, "title.text"))
    if len(visible) > MAX_TRACES:
        size["series_total"] = len(visible)
    if len(charts) == 1:
        chart = charts[0]
        own = chart.pop("title")
        return finish({**head, "type": chart.pop("type"), "title": title or own, **size, **chart})
    for key, chart in zip(groups, charts, strict=True):
        _place(layout, key, chart, list(groups))
    return finish({**head, "type": "multi", "title": title, **size, "charts": charts})


def _properties(node: Any) -> dict[str, Any]:
    """What was set of a trace or a layout. Its attributes would each make an object of plotly, which takes longer than all the rest."""
    properties = getattr(node, "_props", None)
    return properties if isinstance(properties, dict) else node.to_plotly_json()


def _get(node: Any, path: str) -> Any:
    """A property, None if it is not set."""
    for name in path.split("."):
        if not isinstance(node, dict):
            return None
        node = node.get(name)
    return node


def _text(value: Any) -> str | None:
    return labels.text(_TAG.sub(" ", str(value)).strip()) if value is not None else None


def _subplot(trace: Any) -> tuple[str, ...]:
    """What tells the place of a trace: its axes, its scene, or itself if it has a place of its own."""
    properties = _properties(trace)
    if "xaxis" in trace:
        return ("xy", _get(properties, "xaxis") or "x", _get(properties, "yaxis") or "y")
    for name in ("scene", "subplot", "geo"):
        if name in trace:
            default = "polar" if name == "subplot" and trace.type in _POLAR else name
            return (name, _get(properties, name) or default)
    return ("domain", str(_get(properties, "domain.x")), str(_get(properties, "domain.y")))


def _chart(layout: Any, key: tuple[str, ...], traces: list[Any], all_traces: list[Any]) -> dict[str, Any]:
    series = [_series(trace) for trace in traces]
    kinds = list(dict.fromkeys(one["type"] for one in series))
    chart: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else "mixed", "title": _facet_title(layout, key)}
    if key[0] == "xy":
        chart["x"] = _axis(_layout_axis(layout, key[1]), [one.get("x", one.get("bin_source")) for one in series])
        chart["y"] = _axis(_layout_axis(layout, key[2]), [one.get("y") for one in series])
    elif key[0] == "scene":
        scene = _get(layout, key[1])
        for name in ("x", "y", "z"):
            chart[name] = _axis(_get(scene, f"{name}axis"), [one.get(name) for one in series])
    elif key[0] == "subplot" and traces[0]["type"] in _POLAR:
        chart["projection"] = "polar"
    color = _color_scale(layout, traces, all_traces)
    if color is not None:
        chart["color"] = color
    modes = {"bar": "barmode", "histogram": "barmode", "box": "boxmode", "violin": "violinmode"}
    mode = _get(layout, modes[kinds[0]]) if kinds[0] in modes else None
    if mode is not None:
        chart["mode"] = mode
    chart["series"] = series
    chart["legend"] = [one["name"] for trace, one in zip(traces, series, strict=True) if one["name"] and _in_legend(trace, traces)]
    legend_title = _text(_get(layout, "legend.title.text"))
    if legend_title is not None:
        chart["legend_title"] = legend_title
    return chart


def _in_legend(trace: Any, traces: list[Any]) -> bool:
    shown = _get(trace, "showlegend")
    return bool(shown) if shown is not None else len(traces) > 1 and not _is_matrix(trace)


def _is_matrix(trace: Any) -> bool:
    z = _get(trace, "z")
    return z is not None and np.ndim(z) == 2


def _layout_axis(layout: Any, name: str) -> Any:
    return _get(layout, f"{name[0]}axis{name[1:]}")


def _axis(axis: Any, columns: list[Any]) -> dict[str, Any]:
    label = _text(_get(axis, "title.text"))
    scale = _get(axis, "type")
    if scale in (None, "-"):
        scale = next((_scale(column) for column in columns if isinstance(column, (Column, Side))), "linear")
    limits = _get(axis, "range")
    if limits is not None and scale == "log":
        limits = [None if limit is None else 10.0 ** float(limit) for limit in limits]
    described: dict[str, Any] = {
        "label": label,
        "unit": labels.unit(label),
        "scale": scale,
        "limits": list(limits) if limits is not None else None,
    }
    if _get(axis, "autorange") == "reversed":
        described["inverted"] = True
    ticks = _get(axis, "ticktext")
    if ticks is not None:
        described["ticks"] = labels.bounded(list(ticks))
    elif scale == "category":
        names = [item for column in columns if isinstance(column, (Column, Side)) for item in _values(column)]
        described["ticks"] = labels.bounded(list(dict.fromkeys(str(item) for item in names if item is not None)))
    return described


def _values(column: Any) -> list[Any]:
    return column.plain(2000)


def _scale(column: Any) -> str:
    values = [value for value in _values(column)[:200] if value is not None]
    if not values or not all(isinstance(value, str) for value in values):
        return "linear"
    return "date" if all(_DATE.fullmatch(value) for value in values) else "category"


def _series(trace: Any) -> dict[str, Any]:
    kind = trace["type"]
    series: dict[str, Any] = {"type": kind, "name": _text(_get(trace, "name")), "color": _color(trace)}
    read = _READERS.get(kind, _read_columns)
    read(trace, series)
    for name in ("x", "y", "z"):
        error = _error(_get(trace, f"error_{name}"), series.get(name))
        if error is not None:
            series[f"{name}_error"] = error
    return {key: value for key, value in series.items() if value is not None or key in ("name", "color")}


def _color(trace: Any) -> str | None:
    for path in ("line.color", "marker.color", "fillcolor"):
        color = _get(trace, path)
        if isinstance(color, str):
            return color
    return None


def _column(trace: Any, name: str) -> Column | None:
    values = _get(trace, name)
    if values is None or isinstance(values, str) or np.ndim(values) == 0:
        return None
    if np.ndim(values) == 2 and len(values) == 2:
        return Column([f"{outer} / {inner}" for outer, inner in zip(*values, strict=False)])
    return Column(values)


def _read_columns(trace: Any, series: dict[str, Any]) -> None:
    for name in _COLUMNS:
        series[name] = _column(trace, name)
        if isinstance(trace.get(name), (int, float)):
            series[name] = scalar(trace[name])


def _read_points(trace: Any, series: dict[str, Any]) -> None:
    for name in ("x", "y", "z", "r", "theta", "lat", "lon", "locations"):
        series[name] = _column(trace, name)
    for name, other in (("x", "y"), ("y", "x")):
        # Places that are not given count up.
        if series[name] is None and series[other] is not None and series["r"] is None:
            start, step = (_get(trace, f"{part}{name}" if part == "d" else f"{name}0") for part in ("0", "d"))
            start, step = (value if isinstance(value, (int, float)) else default for value, default in ((start, 0), (step, 1)))
            series[name] = Column(start + step * np.arange(len(series[other])))
    count = max((len(series[name]) for name in ("x", "r", "lat", "locations") if series[name] is not None), default=0)
    mode = _get(trace, "mode") or ("lines+markers" if count < _MARKED else "lines")
    shape = _get(trace, "line.shape")
    kind = "line" if "lines" in mode else "text" if mode == "text" else "scatter"
    if _get(trace, "stackgroup") or _get(trace, "fill") not in (None, "none"):
        kind = "area"
    elif kind == "line" and shape in _SHAPES:
        kind, series["where"] = "step", _SHAPES[shape]
    series["type"] = f"3d-{kind}" if series["z"] is not None else kind
    series["stack"] = _get(trace, "stackgroup") or None
    series["fill"] = _get(trace, "fill") if kind == "area" else None
    _read_marks(trace, series)


def _read_marks(trace: Any, series: dict[str, Any]) -> None:
    series["sizes"] = _column(trace, "marker.size")
    shades = _column(trace, "marker.color")
    if shades is not None:
        series["color_values" if shades.values.dtype.kind in "fiub" else "colors"] = shades


def _read_bars(trace: Any, series: dict[str, Any]) -> None:
    series["orientation"] = "horizontal" if _get(trace, "orientation") == "h" else None
    series["x"], series["y"] = _column(trace, "x"), _column(trace, "y")
    for name, other in (("x", "y"), ("y", "x")):
        if series[name] is None and series[other] is not None:
            series[name] = Column(np.arange(len(series[other])))
    base = _get(trace, "base")
    length = series["x"] if series["orientation"] else series["y"]
    if base is not None and length is not None:
        series["base"] = Column(np.broadcast_to(np.asarray(base), (len(length),)))
    _read_marks(trace, series)


def _read_histogram(trace: Any, series: dict[str, Any]) -> None:
    x, y = _column(trace, "x"), _column(trace, "y")
    horizontal = _get(trace, "orientation") == "h" or x is None
    series.update(x=x, y=y, orientation="horizontal" if horizontal else None)
    series["aggregate"] = _get(trace, "histfunc") or "count"
    series["normalized"] = _get(trace, "histnorm") or None
    along = "y" if horizontal else "x"
    series["bins"] = _get(trace, f"nbins{along}")
    bins = _get(trace, f"{along}bins")
    if _get(bins, "size") is not None:
        series["bin_start"], series["bin_end"], series["bin_size"] = (scalar(_get(bins, name)) for name in ("start", "end", "size"))


def _read_boxes(trace: Any, series: dict[str, Any]) -> None:
    series["orientation"] = "horizontal" if _get(trace, "orientation") == "h" else None
    q1, median, q3 = (_get(trace, name) for name in ("q1", "median", "q3"))
    if q1 is None or median is None or q3 is None:
        series.update(x=_column(trace, "x"), y=_column(trace, "y"), aggregate="quartiles" if trace["type"] == "box" else "density")
        return
    low, high, mean = (_get(trace, name) for name in ("lowerfence", "upperfence", "mean"))
    places = _get(trace, "y" if series["orientation"] else "x")
    parts = {"label": places, "min": low, "q1": q1, "median": median, "q3": q3, "max": high, "mean": mean}
    given = {name: list(values) for name, values in parts.items() if values is not None and np.ndim(values) == 1}
    series["boxes"] = [dict(zip(given, map(scalar, values), strict=True)) for values in zip(*given.values(), strict=False)][:1000]


def _read_pie(trace: Any, series: dict[str, Any]) -> None:
    names, values = _get(trace, "labels"), _get(trace, "values")
    count = len(names if names is not None else values)
    names = list(names)[:5000] if names is not None else list(range(count))
    values = [float(value) for value in values][:5000] if values is not None else [1.0] * count
    sums: dict[Any, float] = {}
    for name, value in zip(names, values, strict=False):
        sums[scalar(name)] = sums.get(scalar(name), 0.0) + value
    total = sum(sums.values())
    series["labels"], series["values"] = Column(np.array(list(sums), dtype=object)), Column(list(sums.values()))
    series["fractions"] = Column([value / total for value in sums.values()]) if total else None
    series["hole"] = _get(trace, "hole") or None
    series["explode"] = _column(trace, "pull")


def _read_matrix(trace: Any, series: dict[str, Any]) -> None:
    z = _get(trace, "z")
    kinds = {"heatmapgl": "heatmap", "histogram2d": "heatmap", "surface": "3d-surface", "histogram2dcontour": "contour"}
    series["type"] = kinds.get(trace["type"], trace["type"])
    if z is None or np.ndim(z) != 2:
        _read_columns(trace, series)
        if trace["type"].startswith("histogram2d"):
            series["aggregate"] = _get(trace, "histfunc") or "count"
        return
    matrix = np.asarray(z, dtype=float) if np.asarray(z).dtype.kind == "O" else np.asarray(z)
    series["z"] = Matrix(matrix)
    for name, dimension in (("x", 1), ("y", 0)):
        side = _get(trace, name)
        if side is None:
            side = np.arange(matrix.shape[dimension])
        elif np.ndim(side) == 2:
            series[name] = Matrix(side)
            continue
        column = Column(side)
        fits = len(column) == matrix.shape[dimension]
        series[name if fits else f"{name}_edges"] = Side(column, matrix.shape, dimension) if fits else column


def _read_image(trace: Any, series: dict[str, Any]) -> None:
    z = _get(trace, "z")
    if z is not None:
        series["height"], series["width"] = (int(size) for size in np.shape(z)[:2])


def _error(error: Any, values: Any) -> dict[str, Column] | None:
    if error is None or values is None or _get(error, "visible") is False:
        return None
    plus, minus = _get(error, "array"), _get(error, "arrayminus")
    if plus is None:
        amount = _get(error, "value")
        if amount is None or not isinstance(values, Column) or values.values.dtype.kind not in "fiu":
            return None
        share = np.abs(values.values) * (amount / 100)
        plus = share if _get(error, "type") in (None, "percent") else np.full(len(values), amount)
    return {"minus": Column(plus if minus is None else minus), "plus": Column(plus)}


def _color_scale(layout: Any, traces: list[Any], all_traces: list[Any]) -> dict[str, Any] | None:
    for trace in traces:
        holder = _colored(trace)
        if holder is None:
            continue
        shared = _get(holder, "coloraxis")
        scale = _get(layout, shared) if shared is not None else holder
        label = _text(_get(scale, "colorbar.title.text"))
        holders = [holder] if shared is None else [one for one in map(_colored, all_traces) if _get(one, "coloraxis") == shared]
        low, high = (_get(scale, name) for name in (("zmin", "zmax") if scale is trace else ("cmin", "cmax")))
        numbers = np.concatenate([np.asarray(_get(one, "z" if "z" in one else "color"), dtype=float).ravel() for one in holders])
        if numbers.size and not np.isnan(numbers).all():
            low = float(np.nanmin(numbers)) if low is None else low
            high = float(np.nanmax(numbers)) if high is None else high
        return {"label": label, "unit": labels.unit(label), "scale": "linear", "limits": [scalar(low), scalar(high)]}
    return None


def _colored(trace: Any) -> Any:
    """What holds the numbers that the colours of a trace stand for: the trace or its marker."""
    if _is_matrix(trace):
        return trace
    marker = _get(trace, "marker")
    color = _get(marker, "color")
    return marker if color is not None and np.ndim(color) == 1 and np.asarray(color).dtype.kind in "fiu" else None


def _domain(layout: Any, key: tuple[str, ...]) -> tuple[Any, Any]:
    if key[0] == "xy":
        x, y = _layout_axis(layout, key[1]), _layout_axis(layout, key[2])
        y = _layout_axis(layout, _get(y, "overlaying")) if _get(y, "overlaying") else y
        return _get(x, "domain") or (0, 1), _get(y, "domain") or (0, 1)
    if key[0] == "domain":
        return tuple(_pair(part) for part in key[1:])  # type: ignore[return-value]
    place = _get(layout, key[1])
    return _get(place, "domain.x") or (0, 1), _get(place, "domain.y") or (0, 1)


def _pair(text: str) -> tuple[float, float]:
    found = re.findall(r"[0-9.]+", text)
    return (float(found[0]), float(found[1])) if len(found) == 2 else (0.0, 1.0)


def _facet_title(layout: Any, key: tuple[str, ...]) -> str | None:
    """The note above a subplot that plotly makes its title of."""
    (left, right), (_bottom, top) = _domain(layout, key)
    for note in _get(layout, "annotations") or ():
        x, y = _get(note, "x"), _get(note, "y")
        if _get(note, "showarrow") is not False or not isinstance(x, (int, float)) or not isinstance(y, (int, float)):
            continue
        if abs(x - (left + right) / 2) < 1e-6 and abs(y - top) < 1e-6:
            return _text(_get(note, "text"))
    return None


def _place(layout: Any, key: tuple[str, ...], chart: dict[str, Any], keys: list[tuple[str, ...]]) -> None:
    (left, right), (bottom, top) = _domain(layout, key)
    chart["position"] = {name: scalar(float(value)) for name, value in _box(left, right, bottom, top).items()}
    if key[0] != "xy":
        return
    over = _get(_layout_axis(layout, key[2]), "overlaying")
    first = next((index for index, other in enumerate(keys) if other[0] == "xy" and other != key and other[2] == over), None)
    if first is not None:
        chart.update(twin_of=first, shares="x")
        chart["y"]["side"] = _get(_layout_axis(layout, key[2]), "side") or "left"


def _box(left: float, right: float, bottom: float, top: float) -> dict[str, float]:
    return {"left": left, "bottom": bottom, "width": right - left, "height": top - bottom}


_READERS: dict[str, Any] = {
    **dict.fromkeys(("scatter", "scattergl", "scatter3d", "scattergeo", "scattermap", "scattermapbox", *_POLAR[:2]), _read_points),
    **dict.fromkeys(("bar", "funnel", "waterfall"), _read_bars),
    **dict.fromkeys(("box", "violin"), _read_boxes),
    **dict.fromkeys(("heatmap", "heatmapgl", "contour", "surface", "histogram2d", "histogram2dcontour"), _read_matrix),
    **dict.fromkeys(("pie", "funnelarea"), _read_pie),
    "histogram": _read_histogram,
    "image": _read_image,
}
