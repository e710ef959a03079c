"""One axes of matplotlib while it is read: which of its artists are accounted for, and the series that came of them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from . import labels
from .axis import AxisReader

#: Most series of one axes; those beyond are counted.
MAX_SERIES = 200
#: Series that only help to read the others; they do not make a chart one of their type.
AIDS = {"reference_line", "reference_band", "rug"}

Series = dict[str, Any]


class OutOfTime(Exception):
    """Reading a figure took longer than it may."""


class Deadline:
    """How long reading one figure may go on, in seconds."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        """Raises ``OutOfTime`` once it is over."""
        if time.monotonic() > self._end:
            raise OutOfTime


class Legend:
    """The names in a legend, and the colours that they stand for."""

    def __init__(self, legends: Iterable[Any]) -> None:
        self.names: list[str] = []
        self.title: str | None = None
        self._by_color: dict[str, list[str]] = {}
        for legend in legends:
            self.title = self.title or labels.text(legend.get_title().get_text())
            handles = getattr(legend, "legend_handles", None) or []
            for handle, text in zip(handles, legend.get_texts(), strict=False):
                name = labels.text(text.get_text())
                if name is None:
                    continue
                self.names.append(name)
                shade = color_of(handle)
                if shade is not None:
                    self._by_color.setdefault(shade, []).append(name)

    def name(self, color: str | None) -> str | None:
        """The only name that a colour stands for."""
        names = self._by_color.get(color or "", [])
        return names[0] if len(names) == 1 else None

    def order(self, color: str) -> int:
        """Where a colour's name stands in the legend."""
        name = self.name(color)
        return self.names.index(name) if name is not None else len(self.names)

    def tells_apart(self, colors: Iterable[str]) -> bool:
        """Whether each of these colours has a name."""
        return all(self.name(color) is not None for color in colors)


class Panel:
    """What is read from one axes."""

    def __init__(self, axes: Any, legend: Legend, deadline: Deadline) -> None:
        self.axes = axes
        self.legend = legend
        self.deadline = deadline
        self.x = AxisReader(axes.xaxis)
        self.y = AxisReader(axes.yaxis)
        self.color: dict[str, Any] | None = None
        self.series: list[Series] = []
        self.total = 0
        self._claimed: set[int] = set()
        self._latest: Any = None
        self._drawn = {id(artist): place for place, artist in enumerate(getattr(axes, "_children", ()))}

    def claim(self, *artists: Any) -> None:
        """These artists are accounted for; the series that is added next is theirs."""
        self._claimed.update(id(artist) for artist in artists)
        self._latest = artists[0] if artists else None

    def open(self, artists: Iterable[Any]) -> Iterable[Any]:
        """Those of the artists that are visible and not accounted for yet."""
        for artist in artists:
            self.deadline.check()
            if id(artist) not in self._claimed and artist.get_visible():
                yield artist

    def add(self, kind: str, artist: Any = None, color: str | None = None, **values: Any) -> Series:
        """Adds a series. Its name is its artist's label, else what its colour means in the legend."""
        name = label_of(artist) or self.legend.name(color)
        series: Series = {"type": kind, "name": name, "color": color, **{key: value for key, value in values.items() if value is not None}}
        series["_place"] = self._place(artist)
        self.total += 1
        if self.total <= MAX_SERIES:
            self.series.append(series)
        return series

    def _place(self, artist: Any) -> int:
        """When an artist, or the first of a container's, was drawn."""
        parts = artist.get_children() if isinstance(artist, tuple) else [artist]
        places = [self._drawn[id(part)] for part in (*parts, self._latest) if id(part) in self._drawn]
        return places[0] if places else len(self._drawn)

    def sort(self) -> None:
        """Puts the series into the order in which they were drawn."""
        self.series.sort(key=lambda series: series["_place"])

    def drop(self, series: Series) -> None:
        """Takes back a series that turned out to belong to another."""
        self.series = [one for one in self.series if one is not series]
        self.total -= 1

    def places(self, transform: Any) -> tuple[bool, bool]:
        """Whether the x and the y of an artist with this transform are in the units of the data."""
        if transform == self.axes.transData:
            return True, True
        return tuple(transform.contains_branch_seperately(self.axes.transData))  # type: ignore[return-value]

    def add_missing_names(self) -> None:
        """Names by their order what has no name, if the legend has as many."""
        unnamed = [series for series in self.series if series["type"] not in AIDS]
        if len(self.legend.names) == len(unnamed) and all(series["name"] is None for series in unnamed):
            for series, name in zip(unnamed, self.legend.names, strict=True):
                series["name"] = name

    def set_color_scale(self, mappable: Any) -> None:
        """Notes what the colours of an artist mean."""
        if self.color is not None or mappable.get_array() is None:
            return
        bar = getattr(mappable, "colorbar", None)
        label = labels.text(_colorbar_label(bar)) if bar is not None else None
        norm = mappable.norm
        scale = {"LogNorm": "log", "SymLogNorm": "symlog"}.get(type(norm).__name__, "linear")
        limits = [None if limit is None else float(limit) for limit in (norm.vmin, norm.vmax)]
        self.color = {"label": label, "unit": labels.unit(label), "scale": scale, "limits": limits, "map": mappable.get_cmap().name}


def _colorbar_label(bar: Any) -> str:
    axis = bar.ax.yaxis if getattr(bar, "orientation", "vertical") == "vertical" else bar.ax.xaxis
    return axis.get_label_text()


def label_of(artist: Any) -> str | None:
    """A label that the code gave."""
    label = artist.get_label() if hasattr(artist, "get_label") else None
    name = labels.text(label)
    return None if name is None or name.startswith("_") else name


def hex_color(color: Any) -> str | None:
    """A colour as ``#rrggbb``; None for none and for what is no colour."""
    from matplotlib import colors

    try:
        rgba = colors.to_rgba(color)
    except (ValueError, TypeError):
        return None
    return None if rgba[3] == 0 else colors.to_hex(rgba)


def hex_colors(rows: Any) -> list[str]:
    """Rows of red, green, blue and alpha as ``#rrggbb``."""
    parts = (np.clip(np.asarray(rows)[:, :3], 0, 1) * 255).round().astype(int)
    codes = (parts[:, 0] << 16) + (parts[:, 1] << 8) + parts[:, 2]
    return [f"#{code:06x}" for code in codes.tolist()]


def color_of(artist: Any) -> str | None:
    """The colour that an artist is known by."""
    if hasattr(artist, "get_color") and hasattr(artist, "get_marker"):
        line = artist.get_color() if artist.get_linestyle() not in ("None", "none", "", " ") else artist.get_markerfacecolor()
        return hex_color(line)
    for method in ("get_facecolor", "get_edgecolor", "get_color"):
        if not hasattr(artist, method):
            continue
        color = getattr(artist, method)()
        if np.ndim(color) == 2:
            color = color[0] if len(color) else "none"
        shade = hex_color(color)
        if shade is not None:
            return shade
    parts = getattr(artist, "patches", None) or (artist if isinstance(artist, tuple) else ())
    return next((color_of(part) for part in parts if part is not None and not isinstance(part, tuple)), None)
