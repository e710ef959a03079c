"""plotly: a figure is its JSON, a page of HTML, a PNG and the data of its chart, however it is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

from .. import charts
from ..renderer import client
from ..renderer.engine import NotRendered
from . import pictures
from .imports import after_import

JSON_MIME = "application/vnd.plotly.v1+json"
#: Pixels of a figure that does not say how large it is; plotly's own.
_WIDTH, _HEIGHT = 700, 500
_FILE_FORMATS = ("png", "jpeg", "webp", "svg")
#: A picture has as many pixels as the figure says.
_SCALE = 1


def register(shell: Any) -> None:
    """Gives figures these forms, and changes what in plotly would open a browser or start one."""
    formatter = shell.display_formatter
    base = ("plotly.basedatatypes", "BaseFigure")
    formatter.mimebundle_formatter.for_type_by_name(*base, forms_of)
    # Its own method would show it beside the value of the cell instead of as the value.
    formatter.ipython_display_formatter.for_type_by_name(*base, _decline)
    show = _shower(shell)
    after_import("plotly.basedatatypes", lambda module: setattr(module.BaseFigure, "show", show))
    # Only if the code uses it: this module imports nbformat, which takes as long as several pictures.
    after_import("plotly.io._renderers", lambda module: setattr(module, "show", show))
    after_import("kaleido", _use_renderer)


def forms_of(figure: Any, config: dict[str, Any] | None = None) -> dict[str, Any]:
    """Every form of a figure."""
    import plotly.io

    text = plotly.io.to_json(figure, validate=False)
    spec = json.loads(text)
    width, height = _size(spec)
    forms = {
        "text/plain": _summary(spec),
        "image/png": pictures.picture("plotly", spec, len(text), width=width, height=height, scale=_SCALE),
        JSON_MIME: {**spec, "config": {"responsive": True, **(config or {})}},
        "text/html": plotly.io.to_html(figure, config=config, include_plotlyjs="cdn", full_html=True, validate=False),
        charts.MIME: charts.chart_of(figure),
    }
    return {mime: form for mime, form in forms.items() if form is not None}


def _decline(_figure: Any) -> NoReturn:
    raise NotImplementedError


def _size(spec: dict[str, Any]) -> tuple[float, float]:
    layout = spec.get("layout") or {}
    template = (layout.get("template") or {}).get("layout") or {}
    return (layout.get("width") or template.get("width") or _WIDTH, layout.get("height") or template.get("height") or _HEIGHT)


def _summary(spec: dict[str, Any]) -> str:
    """plotly's own text of a figure is all of its data."""
    kinds = [str(trace.get("type", "scatter")) for trace in spec.get("data", ())]
    title = (spec.get("layout") or {}).get("title") or {}
    title = title.get("text") if isinstance(title, dict) else title
    traces = f"{len(kinds)} trace{'s' if len(kinds) != 1 else ''}"
    listed = f" ({', '.join(dict.fromkeys(kinds))})" if kinds else ""
    return f"plotly figure{f' {str(title)[:200]!r}' if title else ''}: {traces}{listed}"


def _shower(shell: Any) -> Callable[..., None]:
    """``fig.show()`` and ``pio.show(fig)``, whatever renderer was chosen: there is neither a browser nor a notebook's page."""

    def show(fig: Any, renderer: str | None = None, validate: bool = True, **options: Any) -> None:
        """Shows a figure as a result of the cell."""
        import plotly.graph_objects as go

        config = options.pop("config", None)
        size = {name: options[name] for name in ("width", "height") if options.get(name)}
        if isinstance(fig, dict):
            fig = go.Figure(fig, skip_invalid=not validate)
        if size:
            fig = go.Figure(fig).update_layout(**size)
        shell.display_pub.publish(forms_of(fig, config))

    return show


def _use_renderer(kaleido: Any) -> None:
    """``fig.to_image()`` and ``fig.write_image()``: a browser does not fit into the address space of a context."""

    def calc_fig_sync(fig: Any, opts: dict[str, Any] | None = None, **_options: Any) -> bytes:
        """The picture of a figure."""
        import base64

        import plotly.io

        wanted = {"format": "png", **{name: value for name, value in (opts or {}).items() if value is not None}}
        wanted["format"] = {"jpg": "jpeg"}.get(wanted["format"], wanted["format"])
        if wanted["format"] not in _FILE_FORMATS:
            raise ValueError(f"a figure can be saved as {', '.join(_FILE_FORMATS)}, and by write_html, but not as {wanted['format']}")
        try:
            data = client.render("plotly", json.loads(plotly.io.to_json(fig, validate=False)), pictures.MAX_SECONDS, **wanted)
        except NotRendered as error:
            raise RuntimeError(f"no picture of this figure: {error}") from None
        return base64.b64decode(data)

    kaleido.calc_fig_sync = calc_fig_sync
