"""altair: a chart is its Vega-Lite JSON, a page of HTML, a PNG and its data, whatever renderer is enabled."""

from __future__ import annotations

import json
import sys
from typing import Any

from .. import charts
from . import pictures
from .imports import after_import

#: Charts are small, 300 pixels a side unless they say otherwise; at twice that their text can be read.
_SCALE = 2
_VERSIONS = (5, 6, 7)


def register(shell: Any) -> None:
    """Gives charts these forms."""

    def change(module: Any) -> None:
        shell.display_formatter.mimebundle_formatter.for_type(module.TopLevelMixin, forms_of)
        module.TopLevelMixin.show = _show

    for version in _VERSIONS:
        after_import(f"altair.vegalite.v{version}.api", change)


def forms_of(chart: Any) -> dict[str, Any]:
    """Every form of a chart. Raises as the chart does if it is not a valid one."""
    with sys.modules["altair"].data_transformers.disable_max_rows():
        # Its limit of 5000 rows spares notebooks; here a size in bytes does that.
        spec, page = chart.to_dict(), chart.to_html()
    forms = {
        "image/png": pictures.picture("vega", spec, len(json.dumps(spec, default=str)), scale=_SCALE),
        f"application/vnd.vegalite.v{_major_version()}+json": spec,
        "text/html": page,
        charts.MIME: charts.chart_of(chart),
    }
    return {mime: form for mime, form in forms.items() if form is not None}


def _major_version() -> str:
    return sys.modules["altair"].SCHEMA_VERSION.lstrip("v").partition(".")[0]


def _show(self: Any) -> None:
    """Shows the chart as a result of the cell."""
    from IPython.display import display

    display(self)
