"""Charts as data: what a figure of matplotlib, plotly or altair shows, as plain values that JSON has a form for.

One pair of axes is one chart; several are the ``charts`` of one of the type ``multi``::

    {"version": 1, "library": "matplotlib", "type": "bar", "title": None, "width_px": 640, "height_px": 480,
     "x": {"label": "month", "unit": None, "scale": "category", "limits": [-0.5, 1.5], "ticks": ["May", "June"]},
     "y": {"label": "rain (mm)", "unit": "mm", "scale": "linear", "limits": [0, 84.0]},
     "series": [{"type": "bar", "name": "2024", "color": "#1f77b4", "x": ["May", "June"], "y": [71.5, 38]}],
     "legend": ["2024"]}

docs/charts-and-tables.md has every type of series. ``figure`` and the modules that it reads axes with are for matplotlib, ``notes`` keeps
what matplotlib forgets, ``encode`` bounds the result.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

#: What the data of a chart is called in a bundle.
MIME = "application/vnd.pandastack.chart+json"


def chart_of(value: Any) -> dict[str, Any] | None:
    """The data of a chart of matplotlib, plotly or altair. None of any other value and of a chart that cannot be read; never raises.

    What it has to say about failures it says to nobody: the picture is what was asked for.
    """
    try:
        read = _reader(value)
        if read is None:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read(value)
    except Exception:
        return None


def _reader(value: Any) -> Any:
    """What reads charts of this type. No library is imported that is not loaded already."""
    for base in type(value).__mro__:
        library = base.__module__.partition(".")[0]
        if library == "matplotlib" and base.__name__ == "FigureBase":
            from . import figure

            return figure.chart_of
        if library == "plotly" and base.__name__ == "BaseFigure":
            from . import plotly

            return plotly.chart_of
        if library == "altair" and base.__name__ == "TopLevelMixin":
            from . import vega

            return vega.chart_of
    return None


def prepare() -> None:
    """Lets matplotlib, as far as it is loaded, note what it will be asked about."""
    if "matplotlib.axes" in sys.modules:
        from . import notes

        notes.install()
