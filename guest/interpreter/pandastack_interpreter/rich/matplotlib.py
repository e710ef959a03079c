"""matplotlib: window systems that are not there, and the formats that ``%config InlineBackend`` and its like choose."""

from __future__ import annotations

from typing import Any

from .. import figures
from .imports import after_import

#: Backends of notebooks, which speak to a page that is not there.
_OF_NOTEBOOKS = frozenset(
    {"inline", "widget", "ipympl", "notebook", "module://matplotlib_inline.backend_inline", "module://ipympl.backend_nbagg"}
)
_FORMATS = frozenset({"png", "png2x", "retina", "jpg", "jpeg", "svg", "pdf"})


def register(_shell: Any) -> None:
    """Changes matplotlib and IPython's support for it."""
    after_import("matplotlib.pyplot", _stay_in_the_cell)
    after_import("IPython.core.pylabtools", _remember_formats)


def _stay_in_the_cell(pyplot: Any) -> None:
    """``matplotlib.use("TkAgg")`` and its like: code that was written for a window shows its figures in the cell."""
    from matplotlib.backends import BackendFilter, backend_registry

    interactive = {name.lower() for name in backend_registry.list_builtin(BackendFilter.INTERACTIVE)}
    switch = pyplot.switch_backend

    def switch_backend(newbackend: Any) -> None:
        """Chooses a backend."""
        name = newbackend.lower() if isinstance(newbackend, str) else ""
        switch(figures.BACKEND if name in interactive or name in _OF_NOTEBOOKS else newbackend)

    pyplot.switch_backend = switch_backend


def _remember_formats(pylabtools: Any) -> None:
    """IPython's own function would put its formatters in place of ours, and a figure would be shown twice."""

    def select_figure_formats(_shell: Any, formats: Any, **options: Any) -> None:
        """Chooses how figures are drawn."""
        from matplotlib_inline.config import InlineBackend

        formats = {formats} if isinstance(formats, str) else set(formats)
        if unknown := formats - _FORMATS:
            raise ValueError(f"supported formats are {sorted(_FORMATS)}, not {sorted(unknown)}")
        inline = InlineBackend.instance()
        for name, value in (("figure_formats", formats), ("print_figure_kwargs", options)):
            # Setting them calls this function again.
            if getattr(inline, name) != value:
                setattr(inline, name, value)

    pylabtools.select_figure_formats = select_figure_formats
