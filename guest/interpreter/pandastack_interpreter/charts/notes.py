"""What matplotlib forgets of what it was given: bins, statistics of boxes, shares of pies.

Its plotting methods are wrapped once. Each leaves a note, a dict of plain values and arrays, on the artists that it made, so that a note
is copied, pickled and removed with them. Notes only sharpen what the artists say; a figure without any is read all the same.
"""

from __future__ import annotations

import functools
import itertools
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

_NOTE = "_pandastack_note"
#: Most values that one note copies.
_MOST_VALUES = 20_000
_Note = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], None]


def of(artist: Any) -> dict[str, Any] | None:
    """The note on an artist."""
    note = getattr(artist, _NOTE, None)
    return note if isinstance(note, dict) else None


def install() -> None:
    """Wraps the methods of the axes of matplotlib as far as it is loaded."""
    for module, name, notes in (("matplotlib.axes", "Axes", _FLAT), ("mpl_toolkits.mplot3d", "Axes3D", _SOLID)):
        axes = getattr(sys.modules.get(module), name, None)
        if axes is None or "_pandastack_noted" in vars(axes):
            continue
        axes._pandastack_noted = True
        for method, note in notes.items():
            if callable(getattr(axes, method, None)):
                setattr(axes, method, _noting(getattr(axes, method), note))


def _noting(method: Any, note: _Note) -> Any:
    keep = _keep

    def noted(axes: Any, *args: Any, **kwargs: Any) -> Any:
        made = method(axes, *args, **kwargs)
        keep(note, axes, made, args, kwargs)
        return made

    return functools.wraps(method)(_as_part_of(method, noted))


def _as_part_of(method: Any, function: Any) -> Any:
    # matplotlib's warnings name the first frame outside of its own files (its own modules before Python 3.12): the user's, not this one.
    code = method.__code__
    code = function.__code__.replace(co_filename=code.co_filename, co_firstlineno=code.co_firstlineno, co_name=code.co_name)
    return types.FunctionType(code, {"__name__": "matplotlib"}, function.__name__, None, function.__closure__)


def _keep(note: _Note, axes: Any, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        note(axes, made, args, kwargs)
    except Exception:
        # Arguments of whatever kind; the artists still say the most.
        return


def _put(artists: Iterable[Any], note: dict[str, Any]) -> None:
    for artist in artists:
        setattr(artist, _NOTE, note)


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], index: int, name: str) -> Any:
    value = args[index] if len(args) > index else kwargs.get(name)
    data = kwargs.get("data")
    return data[value] if data is not None and isinstance(value, str) else value


def _few(values: Any) -> Any:
    array = np.array(values, dtype=float)
    if array.size > _MOST_VALUES:
        raise ValueError("too large for a note")
    return array


def _bar(axes: Any, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    place = _argument(args, kwargs, 0, "x")
    align = kwargs.get("align", "center")
    horizontal = made.orientation == "horizontal"
    # barh says where its bars stand with `bottom`.
    place = kwargs.get("bottom", place) if horizontal else place
    axis = axes.yaxis if horizontal else axes.xaxis
    note: dict[str, Any] = {"kind": "bar", "align": align}
    thickness = kwargs.get("height") if horizontal else _argument(args, kwargs, 2, "width")
    if isinstance(thickness, (int, float)):
        note["thickness"] = float(thickness)
    if align == "center":
        note["centers"] = np.broadcast_to(_few(axis.convert_units(place)), (len(made.patches),)).copy()
    _put([made], note)


def _errorbar(_axes: Any, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    note = {}
    for index, name in ((2, "yerr"), (3, "xerr")):
        error = _argument(args, kwargs, index, name)
        if error is not None:
            note[name] = _few(error)
    _put([made], {"kind": "errorbar", **note})


def _hist(_axes: Any, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    counts, edges, patches = made
    orientation = kwargs.get("orientation", "vertical")
    note = {"kind": "hist", "edges": _few(edges), "orientation": orientation}
    note.update({name: True for name in ("density", "cumulative", "stacked") if kwargs.get(name)})
    several = np.ndim(counts) > 1
    for row, group in zip(counts if several else [counts], patches if several else [patches], strict=True):
        if type(group).__name__ == "BarContainer":
            _put([group], note)
        else:
            _put(group, {**note, "counts": _few(row)})


def _bxp(_axes: Any, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given = list(_argument(args, kwargs, 0, "bxpstats"))
    positions = _argument(args, kwargs, 1, "positions")
    positions = range(1, len(given) + 1) if positions is None else positions
    stats = [{key: _few(value) if key == "fliers" else value for key, value in one.items()} for one in given]
    horizontal = kwargs.get("vert") is False or kwargs.get("orientation") == "horizontal"
    note = {"kind": "box", "stats": stats, "positions": _few(positions), "horizontal": horizontal}
    first = (made["boxes"] or made["medians"])[0]
    note["color"] = first.get_facecolor() if hasattr(first, "get_facecolor") else first.get_color()
    _put(itertools.chain.from_iterable(made.values()), note)


def _violin(_axes: Any, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given = list(_argument(args, kwargs, 0, "vpstats"))
    positions = _argument(args, kwargs, 1, "positions")
    positions = range(1, len(given) + 1) if positions is None else positions
    stats = [{key: _few(value) for key, value in one.items()} for one in given]
    horizontal = kwargs.get("vert") is False or kwargs.get("orientation") == "horizontal"
    note = {"kind": "violin", "stats": stats, "positions": _few(positions), "horizontal": horizontal}
    for part in made.values():
        _put(part if isinstance(part, list) else [part], note)


def _pie(_axes: Any, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    wedges = made[0]
    values = _few(_argument(args, kwargs, 0, "x"))
    explode = _argument(args, kwargs, 1, "explode")
    share = values / values.sum() if kwargs.get("normalize", True) else values
    note = {"kind": "pie", "values": values, "fractions": share}
    if explode is not None:
        note["explode"] = _few(explode)
    if len(values) == len(wedges):
        _put(wedges, note)


def _stackplot(_axes: Any, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    data = kwargs.get("data")
    rows = np.vstack([data[row] if data is not None and isinstance(row, str) else row for row in args[1:]])
    for row, area in zip(rows, made, strict=True):
        _put([area], {"kind": "stack", "y": _few(row)})


def _contour(_axes: Any, made: Any, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
    arrays = [np.ma.masked_invalid(np.ma.asanyarray(arg, dtype=float)) for arg in args[:3]]
    if len(args) >= 3:
        x, y, z = arrays
    else:
        (z,), (x, y) = arrays[:1], (np.arange(arrays[0].shape[1]), np.arange(arrays[0].shape[0]))
    if z.ndim == 2:
        _put([made], {"kind": "contour", **_grid(x, y, z)})


def _surface(_axes: Any, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    x, y, z = (np.ma.asanyarray(_argument(args, kwargs, i, name), dtype=float) for i, name in enumerate("XYZ"))
    x, y, z = np.broadcast_arrays(x, y, z, subok=True)
    _put([made], {"kind": "surface", **_grid(x, y, z)})


def _grid(x: Any, y: Any, z: Any) -> dict[str, Any]:
    """A matrix with its sides, or with the places of its cells where these are not along the sides."""
    across = x[0] if x.ndim == 2 else x
    along = y[:, 0] if y.ndim == 2 else y
    straight = (x.ndim == 1 or bool((x == across).all())) and (y.ndim == 1 or bool((y == along[:, None]).all()))
    step = max(1, int(np.ceil(np.sqrt(z.size / _MOST_VALUES))))
    note: dict[str, Any] = {"z": z[::step, ::step].copy(), "shape": list(z.shape)}
    if straight:
        return {**note, "x": np.array(across[::step]), "y": np.array(along[::step])}
    return {**note, "x": np.array(x[::step, ::step]), "y": np.array(y[::step, ::step])}


def _bar3d(_axes: Any, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    names = ("x", "y", "z", "dx", "dy", "dz")
    given = np.broadcast_arrays(*(np.atleast_1d(_few(_argument(args, kwargs, i, name))) for i, name in enumerate(names)))
    _put([made], {"kind": "bar3d", **{name: array.copy() for name, array in zip(names, given, strict=True)}})


def _trisurf(_axes: Any, made: Any, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
    places = [_few(arg) for arg in args[:3] if np.ndim(arg) == 1]
    if len(places) == 3:
        _put([made], {"kind": "trisurf", **dict(zip("xyz", places, strict=True))})


_FLAT: dict[str, _Note] = {
    "bar": _bar,
    "errorbar": _errorbar,
    "hist": _hist,
    "bxp": _bxp,
    "violin": _violin,
    "pie": _pie,
    "stackplot": _stackplot,
    "contour": _contour,
    "contourf": _contour,
}
_SOLID: dict[str, _Note] = {"plot_surface": _surface, "plot_wireframe": _surface, "bar3d": _bar3d, "plot_trisurf": _trisurf}
