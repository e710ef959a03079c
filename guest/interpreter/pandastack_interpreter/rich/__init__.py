"""Charts of plotly, altair, bokeh and matplotlib, and images of Pillow, in every form that a reader may want.

A library that is not loaded costs nothing here and is not loaded for this.
"""

from __future__ import annotations

from typing import Any

from . import altair, bokeh, imports, matplotlib, pictures, pillow, plotly


def register(shell: Any) -> None:
    """Teaches a shell these forms."""
    pictures.register(shell)
    for library in (plotly, altair, bokeh, matplotlib, pillow):
        library.register(shell)
    imports.install()
