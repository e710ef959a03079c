"""bokeh: a plot or layout is a page of HTML, and ``show`` shows it instead of opening a browser."""

from __future__ import annotations

from typing import Any

from .imports import after_import


def register(shell: Any) -> None:
    """Gives plots and layouts their form."""
    shell.display_formatter.mimebundle_formatter.for_type_by_name("bokeh.models.layouts", "LayoutDOM", forms_of)
    after_import("bokeh.io.showing", lambda showing: _show_here(showing, shell))
    after_import("bokeh.io.output", _need_no_notebook)


def forms_of(plot: Any) -> dict[str, Any]:
    """Every form of a plot, a layout or a list of them."""
    from bokeh.embed import file_html
    from bokeh.resources import CDN

    title = _title(plot)
    return {
        "text/plain": f"bokeh {type(plot).__name__}{f' {title!r}' if title else ''}",
        "text/html": file_html(plot, CDN, title or "Bokeh plot", suppress_callback_warning=True),
    }


def _title(plot: Any) -> str:
    title = getattr(plot, "title", None)
    return str(getattr(title, "text", title) or "")[:200]


def _show_here(showing: Any, shell: Any) -> None:
    def show_with_state(obj: Any, state: Any, *_args: object, **_options: object) -> None:
        if state.file:
            # The code may read the file that it named.
            showing.save(obj, state=state)
        shell.display_pub.publish(forms_of(obj))

    showing._show_with_state = show_with_state


def _need_no_notebook(output: Any) -> None:
    def output_notebook(*_args: object, **_options: object) -> None:
        """Plots are shown in the cell anyhow; the page that shows them loads what it needs."""

    output.output_notebook = output_notebook
