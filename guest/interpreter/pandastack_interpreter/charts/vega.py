"""A chart of altair as data: the rows that are drawn. Aggregates and bins, which the browser computes, are named beside them."""

from __future__ import annotations

from typing import Any

from . import labels
from .encode import Column, Matrix, Side, finish, scalar

#: Most rows that are read of one view, most views, and how deep these may be nested.
MAX_ROWS = 100_000
MAX_VIEWS = 64
_DEEPEST = 20
_TYPES = {
    "point": "scatter", "circle": "scatter", "square": "scatter", "tick": "scatter", "trail": "line", "rect": "heatmap", "arc": "pie",
    "boxplot": "box",
}  # fmt: skip
#: Channels that tell series apart.
_GROUPING = ("color", "fill", "stroke", "shape", "strokeDash", "detail", "opacity")
_PLACES = ("x", "y", "x2", "y2", "theta", "radius", "longitude", "latitude", "size", "text", "xError", "yError")
_AIDS = {"rule", "text"}

Spec = dict[str, Any]


def chart_of(chart: Any) -> dict[str, Any] | None:
    """The chart that an altair chart shows. None of one with too many rows to write them out a second time."""
    rows = getattr(chart, "data", None)
    if hasattr(rows, "__len__") and len(rows) > MAX_ROWS:
        return None
    return chart_of_spec(chart.to_dict(validate=False))


def chart_of_spec(spec: Spec) -> dict[str, Any] | None:
    """The chart that a specification of Vega-Lite with inline data describes. None of one without a mark."""
    views = [view for view in _views(spec, spec.get("datasets") or {}, {}, 0) if view["units"]]
    if not views:
        return None
    charts = [_chart(view) for view in views[:MAX_VIEWS]]
    head: dict[str, Any] = {"version": 1, "library": "altair"}
    if len(charts) == 1:
        chart = charts[0]
        return finish({**head, "type": chart.pop("type"), "title": chart.pop("title"), **_size(views[0]), **chart})
    total = {"charts_total": len(views)} if len(views) > MAX_VIEWS else {}
    for view, chart in zip(views, charts, strict=False):
        chart["position"] = view["position"]
    return finish({**head, "type": "multi", "title": _title(spec), **_size({}), "charts": charts, **total})


def _size(view: Spec) -> Spec:
    return {f"{name}_px": view[name] if isinstance(view.get(name), (int, float)) else None for name in ("width", "height")}


def _title(spec: Spec) -> str | None:
    title = spec.get("title")
    title = title.get("text") if isinstance(title, dict) else title
    return labels.text(" ".join(map(str, title)) if isinstance(title, list) else title)


def _views(spec: Spec, datasets: Spec, outer: Spec, depth: int) -> list[Spec]:
    """The views of a specification: each with its units, which are marks over rows."""
    rows = _rows(spec.get("data"), datasets)
    here = {**outer, **({"rows": rows} if rows is not None else {})}
    here["transform"] = [*outer.get("transform", []), *(next(iter(step), "") for step in spec.get("transform", ()))]
    if depth > _DEEPEST:
        return []
    for name, step in (("hconcat", (0, 1)), ("vconcat", (1, 0)), ("concat", None)):
        if name in spec:
            return _side_by_side(spec[name], spec.get("columns"), step, datasets, here, depth)
    if "repeat" in spec and "spec" in spec:
        return _repeated(spec, datasets, here, depth)
    if "facet" in spec and "spec" in spec:
        return _faceted(spec["spec"], _facets(spec["facet"]), datasets, here, depth)
    encoding = {**outer.get("encoding", {}), **spec.get("encoding", {})}
    facets = {name: encoding[name] for name in ("facet", "row", "column") if name in encoding}
    if facets:
        kept = {name: channel for name, channel in spec.get("encoding", {}).items() if name not in facets}
        return _faceted({**spec, "encoding": kept, "data": None, "transform": ()}, facets, datasets, here, depth)
    here["encoding"] = encoding
    units = _layers(spec, datasets, here, depth)
    return [{"units": units, "title": _title(spec), "width": spec.get("width"), "height": spec.get("height"), "position": {}}]


def _rows(data: Any, datasets: Spec) -> list[Spec] | None:
    if not isinstance(data, dict):
        return None
    values = datasets.get(data["name"]) if "name" in data and "values" not in data else data.get("values")
    return [row if isinstance(row, dict) else {"data": row} for row in values[:MAX_ROWS]] if isinstance(values, list) else []


def _layers(spec: Spec, datasets: Spec, here: Spec, depth: int) -> list[Spec]:
    if "layer" not in spec:
        return [{**here, "mark": spec["mark"]}] if "mark" in spec else []
    units = []
    for layer in spec["layer"]:
        for view in _views({**layer, "title": None}, datasets, here, depth + 1):
            units += view["units"]
    return units


def _side_by_side(children: list[Spec], columns: Any, step: tuple[int, int] | None, datasets: Spec, here: Spec, depth: int) -> list[Spec]:
    views = []
    wide = columns if isinstance(columns, int) and columns > 0 else len(children)
    for index, child in enumerate(children):
        row, column = (index * step[0], index * step[1]) if step == (1, 0) or step == (0, 1) else divmod(index, wide)
        for view in _views(child, datasets, here, depth + 1):
            inner = {"inner": view["position"]} if view["position"] else {}
            views.append({**view, "position": {"row": row, "column": column, **inner}})
    return views


def _repeated(spec: Spec, datasets: Spec, here: Spec, depth: int) -> list[Spec]:
    repeat = spec["repeat"] if isinstance(spec["repeat"], dict) else {"repeat": spec["repeat"]}
    choices: list[Spec] = [{}]
    for name in ("row", "column", "repeat", "layer"):
        if name in repeat:
            choices = [{**choice, name: field} for choice in choices for field in repeat[name]][:MAX_VIEWS]
    views = []
    for index, choice in enumerate(choices):
        place = {name: repeat[name].index(choice[name]) for name in ("row", "column") if name in choice} or {"column": index}
        for view in _views(_with_fields(spec["spec"], choice), datasets, here, depth + 1):
            views.append({**view, "position": place})
    return views


def _with_fields(node: Any, choice: Spec) -> Any:
    """A specification whose fields ``{"repeat": name}`` are those of one choice."""
    if isinstance(node, list):
        return [_with_fields(item, choice) for item in node]
    if not isinstance(node, dict):
        return node
    if set(node) == {"repeat"} and node["repeat"] in choice:
        return choice[node["repeat"]]
    return {key: item if key in ("data", "datasets") else _with_fields(item, choice) for key, item in node.items()}


def _facets(facet: Spec) -> Spec:
    return {name: facet[name] for name in ("row", "column") if name in facet} or {"facet": facet}


def _faceted(spec: Spec, facets: Spec, datasets: Spec, here: Spec, depth: int) -> list[Spec]:
    """One view for each value of what the views are told apart by."""
    fields = [channel.get("field") for channel in facets.values()]
    groups: dict[tuple[Any, ...], list[Spec]] = {}
    for row in here.get("rows") or []:
        groups.setdefault(tuple(_key(row.get(field)) for field in fields), []).append(row)
    views = []
    for index, values in enumerate(sorted(groups, key=str)):
        position = {"column": index} if list(facets) == ["facet"] else _grid_place(facets, values, list(groups))
        title = labels.text(", ".join(f"{field} = {value}" for field, value in zip(fields, values, strict=True)))
        for view in _views(spec, datasets, {**here, "rows": groups[values]}, depth + 1):
            views.append({**view, "title": title, "position": position})
    return views


def _grid_place(facets: Spec, values: tuple[Any, ...], keys: list[tuple[Any, ...]]) -> Spec:
    return {name: sorted({str(key[i]) for key in keys}).index(str(values[i])) for i, name in enumerate(facets)}


def _key(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _chart(view: Spec) -> Spec:
    series = [one for unit in view["units"] for one in _unit_series(unit)]
    kinds = list(dict.fromkeys(one["type"] for one in series))
    main = [kind for kind in kinds if kind not in _AIDS] or kinds
    chart: Spec = {"type": main[0] if len(main) == 1 else "mixed" if main else "unknown", "title": view["title"]}
    for name in ("x", "y"):
        unit = next((unit for unit in view["units"] if name in unit["encoding"]), None)
        if unit is not None:
            chart[name] = _axis(unit, name)
    color = next((unit["encoding"]["color"] for unit in view["units"] if _is_number(unit["encoding"].get("color"))), None)
    if color is not None:
        label = _label(color)
        chart["color"] = {"label": label, "unit": labels.unit(label), "scale": _scale(color), "limits": None}
    chart["series"] = series
    chart["legend"] = [one["name"] for one in series if one["name"] is not None]
    return chart


def _unit_series(unit: Spec) -> list[Spec]:
    mark = unit["mark"] if isinstance(unit["mark"], dict) else {"type": unit["mark"]}
    encoding = {name: channel for name, channel in unit["encoding"].items() if isinstance(channel, dict)}
    rows = unit.get("rows") or []
    kind = _TYPES.get(mark.get("type", ""), mark.get("type") or "unknown")
    common: Spec = {"transform": unit["transform"]} if unit["transform"] else {}
    if kind == "bar" and any(encoding.get(name, {}).get("bin") for name in ("x", "y")):
        kind = "histogram"
    if kind == "box":
        common["aggregate"] = "quartiles"
    if kind == "line" and str(mark.get("interpolate", "")).startswith("step"):
        kind = "step"
    if kind == "pie":
        return [_slices(encoding, rows, common)]
    if kind == "heatmap":
        return [_cells(encoding, rows, common)]
    if kind in ("bar", "histogram", "box") and _is_number(encoding.get("x")) and not _is_number(encoding.get("y")):
        common["orientation"] = "horizontal"
    field = next((encoding[name].get("field") for name in _GROUPING if name in encoding and not _is_number(encoding[name])), None)
    groups: dict[Any, list[Spec]] = {}
    for row in rows:
        groups.setdefault(_key(row.get(field)) if isinstance(field, str) else None, []).append(row)
    color = mark.get("color") if isinstance(mark.get("color"), str) else None
    return [
        {"type": kind, "name": labels.text(name), "color": color, **_columns(encoding, members), **common}
        for name, members in groups.items()
    ] or [{"type": kind, "name": None, "color": color, **_columns(encoding, []), **common}]


def _columns(encoding: Spec, rows: list[Spec]) -> Spec:
    columns: Spec = {}
    for name in _PLACES:
        if name in encoding:
            columns.update(_channel(name, encoding[name], rows))
    if _is_number(encoding.get("color")):
        columns.update(_channel("color_values", encoding["color"], rows))
    return columns


def _channel(name: str, channel: Spec, rows: list[Spec]) -> Spec:
    """What one channel shows: the values of its field, or a constant; and what the browser makes of them."""
    shown: Spec = {}
    field = channel.get("field")
    if isinstance(field, str):
        shown[name] = Column([_key(row.get(field)) for row in rows])
    elif "datum" in channel or "value" in channel:
        shown[name] = scalar(_key(channel.get("datum", channel.get("value"))))
    if channel.get("aggregate"):
        shown["aggregate"], shown["aggregate_of"] = _plain(channel["aggregate"]), name
    if channel.get("bin"):
        shown["binned"], shown["bins"] = name, _plain(channel["bin"])
    if channel.get("timeUnit"):
        shown["time_unit"] = _plain(channel["timeUnit"])
    return shown


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, bool, int, float)) else {str(key): str(item) for key, item in dict(value).items()}


def _slices(encoding: Spec, rows: list[Spec], common: Spec) -> Spec:
    theta = encoding.get("theta", {})
    field = next((encoding[name].get("field") for name in ("color", "fill", "detail", "order") if name in encoding), None)
    series: Spec = {"type": "pie", "name": None, "color": None, "labels": Column([_key(row.get(field)) for row in rows])}
    series.update(_channel("values", theta, rows))
    values = series["values"].plain(len(rows)) if isinstance(series.get("values"), Column) and "aggregate" not in series else []
    if values and all(isinstance(value, (int, float)) for value in values) and sum(values) > 0:
        series["fractions"] = Column([value / sum(values) for value in values])
    return {**series, **common}


def _cells(encoding: Spec, rows: list[Spec], common: Spec) -> Spec:
    """A matrix if each place has one value, else the rows."""
    columns = _columns(encoding, rows)
    x, y, values = (columns.get(name) for name in ("x", "y", "color_values"))
    series: Spec = {"type": "heatmap", "name": None, "color": None}
    if "aggregate" not in columns and "binned" not in columns and all(isinstance(column, Column) for column in (x, y, values)):
        across, along = (list(dict.fromkeys(column.values.tolist())) for column in (x, y))  # type: ignore[union-attr]
        cells = dict(zip(zip(y.values.tolist(), x.values.tolist(), strict=True), values.values.tolist(), strict=True))  # type: ignore[union-attr]
        if len(cells) == len(rows) and len(across) * len(along) <= 4 * len(rows):
            matrix = [[_number(cells.get((row, column))) for column in across] for row in along]
            shape = (len(along), len(across))
            return {**series, "x": Side(Column(across), shape, 1), "y": Side(Column(along), shape, 0), "z": Matrix(matrix), **common}
    return {**series, **columns, **common}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")


def _is_number(channel: Any) -> bool:
    if not isinstance(channel, dict):
        return False
    if channel.get("aggregate") in ("count", "distinct"):
        return True
    return channel.get("type") in ("quantitative", "temporal") and ("field" in channel or "aggregate" in channel)


def _label(channel: Spec) -> str | None:
    for holder in (channel, channel.get("axis") or {}, channel.get("legend") or {}):
        if isinstance(holder, dict) and "title" in holder:
            title = holder["title"]
            return labels.text(" ".join(map(str, title)) if isinstance(title, list) else title)
    field = channel.get("field")
    if channel.get("aggregate") == "count":
        return "Count of Records"
    aggregate = channel.get("aggregate")
    name = field if isinstance(field, str) else None
    if isinstance(aggregate, str) and name is not None:
        return labels.text(f"{aggregate.capitalize()} of {name}")
    return labels.text(name)


def _scale(channel: Spec) -> str:
    given = channel["scale"].get("type") if isinstance(channel.get("scale"), dict) else None
    if given is not None:
        return str(given)
    return {"temporal": "date", "nominal": "category", "ordinal": "category"}.get(channel.get("type", ""), "linear")


def _axis(unit: Spec, name: str) -> Spec:
    channel = unit["encoding"][name]
    label = _label(channel)
    scale = channel.get("scale") if isinstance(channel.get("scale"), dict) else {}
    domain = scale.get("domain")
    axis: Spec = {"label": label, "unit": labels.unit(label), "scale": _scale(channel), "limits": None}
    if isinstance(domain, list) and axis["scale"] != "category":
        axis["limits"] = [scalar(_key(limit)) for limit in domain[:2]]
    if scale.get("reverse"):
        axis["inverted"] = True
    field = channel.get("field")
    if axis["scale"] == "category" and isinstance(field, str):
        names = {str(_key(row.get(field))) for row in unit.get("rows") or [] if row.get(field) is not None}
        axis["ticks"] = labels.bounded(domain if isinstance(domain, list) else sorted(names))
    return axis
