"""matplotlib: the backend whose ``show`` hands figures to the cell, each figure once a cell, closed after, with its data beside it.

Code that asks for Agg itself gets its figures at the end of the cell all the same.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from IPython.core.formatters import BaseFormatter
from traitlets import ObjectName, Unicode

from . import charts

#: Fonts for what the chosen one has no signs for, as far as they are installed. Without them such text becomes boxes.
_INDIC_AND_THAI = ("Bengali", "Devanagari", "Gujarati", "Gurmukhi", "Kannada", "Malayalam", "Oriya", "Sinhala", "Tamil", "Telugu", "Thai")
_FALLBACK_FONTS = (
    "Noto Sans CJK SC",
    *(f"Noto Sans {script} UI" for script in (*_INDIC_AND_THAI, "Khmer", "Myanmar")),
    "Abyssinica SIL",
    "Symbola",
)

#: A figure with more pixels is not drawn: a context has not the memory.
MAX_PIXELS = 32 * 1024 * 1024
_OF_TWICE_THE_PIXELS = {"retina", "png2x"}

BACKEND = f"module://{__name__}"
_VARIABLE = "MPLBACKEND"
#: What is loaded before the first figure is drawn upon, whatever backend the code chooses.
_EVERY_BACKEND = "matplotlib.backends.backend_agg"

#: Shows one picture: a bundle. Set by the context.
_emit: Callable[[dict[str, Any]], None] = lambda _bundle: None  # noqa: E731
#: Figures that the running cell has shown. Kept alive, so that an id is not used again within the cell.
_shown: dict[int, Any] = {}


class _BackendChooser:
    """Names our backend when matplotlib is first imported.

    The variable is not simply left in the environment: a script that user code starts could not import this module.
    """

    def find_spec(self, name: str, *_args: object) -> None:
        """Finds nothing; only notices."""
        if name == "matplotlib":
            os.environ.setdefault(_VARIABLE, BACKEND)
        elif name == _EVERY_BACKEND:
            charts.prepare()


def choose_backend() -> None:
    """Makes ours the backend of the matplotlib that is imported from now on."""
    sys.meta_path.insert(0, _BackendChooser())  # type: ignore[arg-type]


def select_backend() -> None:
    """Makes ours the backend now."""
    import matplotlib.pyplot as plt

    plt.switch_backend(BACKEND)


def begin(emit: Callable[[dict[str, Any]], None]) -> None:
    """A cell starts."""
    global _emit
    _emit = emit
    _shown.clear()
    hide_backend_variable()
    charts.prepare()
    _install_show()
    _install_fallback_fonts()


def hide_backend_variable() -> None:
    """Takes our backend out of the environment once matplotlib has read it."""
    if os.environ.get(_VARIABLE) == BACKEND:
        del os.environ[_VARIABLE]


def was_shown(value: Any) -> bool:
    """Whether the value is a figure that the running cell has shown."""
    return _shown.get(id(value)) is value and value is not None


def flush() -> None:
    """Shows every open figure that the cell has not shown, and closes all. Raises the first failure after trying all."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if not hasattr(pyplot, "get_fignums"):
        return
    failures = []
    try:
        for number in pyplot.get_fignums():
            try:
                _show_once(pyplot.figure(number))
            except Exception as failure:
                failures.append(failure)
    finally:
        pyplot.close("all")
    if failures:
        raise failures[0]


def format_png(figure: Any) -> bytes | None:
    """The PNG formatter for figures that are displayed or are a cell's value."""
    _shown[id(figure)] = figure
    return _png(figure)


def format_svg(figure: Any) -> str | None:
    """The SVG formatter, for code that has chosen this format. The PNG comes beside it."""
    if "svg" not in _settings()[0] or _is_empty(figure):
        return None
    return _draw(figure, "svg").decode()


class ChartFormatter(BaseFormatter):
    """The data of charts that are displayed or are a cell's value."""

    format_type = Unicode(charts.MIME)
    print_method = ObjectName("_repr_pandastack_chart_")
    _return_type = dict

    def __call__(self, value: Any) -> dict[str, Any] | None:
        """The chart; None of any other value."""
        return charts.chart_of(value) if self.enabled else None


def register(shell: Any) -> None:
    """Teaches a shell to show figures, and ``%config InlineBackend`` to change how."""
    # The last of the formatters: a picture lays its figure out.
    shell.display_formatter.formatters[charts.MIME] = ChartFormatter(parent=shell.display_formatter)
    shell.display_formatter.formatters["image/png"].for_type_by_name("matplotlib.figure", "Figure", format_png)
    shell.display_formatter.formatters["image/svg+xml"].for_type_by_name("matplotlib.figure", "Figure", format_svg)
    warnings.filterwarnings("ignore", message=".*is non-interactive, and thus cannot be shown")
    try:
        from matplotlib_inline.config import InlineBackend
    except ImportError:
        return
    shell.configurables.append(InlineBackend.instance(parent=shell))


def _show_once(figure: Any) -> None:
    if was_shown(figure):
        return
    _shown[id(figure)] = figure
    png = _png(figure)
    if png is None:
        return
    forms = {"image/png": png, "image/svg+xml": format_svg(figure), charts.MIME: charts.chart_of(figure)}
    _emit({mime: form for mime, form in forms.items() if form is not None})


def _is_empty(figure: Any) -> bool:
    return not any((figure.axes, figure.lines, figure.texts, figure.images, figure.patches, figure.artists, figure.legends))


def _png(figure: Any) -> bytes | None:
    """The picture; none of a figure with nothing in it, as in a notebook."""
    if _is_empty(figure):
        return None
    with warnings.catch_warnings(record=True) as caught:
        picture = _draw(figure)
    # Matplotlib blames the line that called it, which is ours, once for each time that it lays the figure out.
    for text in dict.fromkeys(f"{warning.category.__name__}: {warning.message}\n" for warning in caught):
        sys.stderr.write(text)
    return picture


def _draw(figure: Any, form: str = "png") -> bytes:
    from io import BytesIO

    formats, options = _settings()
    dpi = figure.dpi * (2 if form == "png" and formats & _OF_TWICE_THE_PIXELS else 1)
    options = {"dpi": dpi, "facecolor": figure.get_facecolor(), "edgecolor": figure.get_edgecolor(), **options}
    _check_size(figure, options["dpi"])
    buffer = BytesIO()
    canvas = figure.canvas
    if not hasattr(canvas, "print_png"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        canvas = FigureCanvasAgg(figure)
    canvas.print_figure(buffer, format=form, **options)
    return buffer.getvalue()


def _settings() -> tuple[set[str], dict[str, Any]]:
    """The formats and drawing options of ``%config InlineBackend``."""
    inline = sys.modules.get("matplotlib_inline.config")
    if inline is None or not inline.InlineBackend.initialized():
        return set(), {"bbox_inches": "tight"}
    chosen = inline.InlineBackend.instance()
    return set(chosen.figure_formats), dict(chosen.print_figure_kwargs)


def _check_size(figure: Any, dpi: Any) -> None:
    width, height = (side * (dpi if isinstance(dpi, (int, float)) else figure.dpi) for side in figure.get_size_inches())
    if width * height > MAX_PIXELS:
        raise ValueError(f"a figure of {width:.0f} x {height:.0f} pixels is too large to show; lower its figsize or dpi")


def _install_show() -> None:
    """``plt.show`` under Agg would do nothing."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if hasattr(pyplot, "show") and not getattr(pyplot.show, "_pandastack", False):
        pyplot.show = show


def _install_fallback_fonts() -> None:
    # Not through rcParams: styles, seaborn's themes and the code itself set the font families anew.
    fonts = sys.modules.get("matplotlib.font_manager")
    manager = getattr(fonts, "fontManager", None)
    if not hasattr(manager, "_find_fonts_by_props") or "_find_fonts_by_props" in vars(manager):
        return
    installed = {entry.name for entry in manager.ttflist}
    names = [name for name in _FALLBACK_FONTS if name in installed]
    find = manager._find_fonts_by_props
    others: dict[tuple[Any, ...], list[Any]] = {}

    def find_more(prop: Any, *args: Any, **options: Any) -> list[Any]:
        found = find(prop, *args, **options)
        like = fonts.FontProperties._from_any(prop).copy()
        # Every text of every layout asks; the size makes no difference to which font it is.
        style = (like.get_style(), like.get_variant(), like.get_weight(), like.get_stretch())
        if names and style not in others:
            like.set_family(names)
            others[style] = _without_log(fonts, lambda: find(like))
        return found + [font for font in others.get(style, ()) if font not in found]

    manager._find_fonts_by_props = find_more


def _without_log(fonts: Any, work: Callable[[], Any]) -> Any:
    # A font that stands in has not every weight, which is nobody's mistake.
    disabled, fonts._log.disabled = fonts._log.disabled, True
    try:
        return work()
    finally:
        fonts._log.disabled = disabled


def show(*_args: object, **_options: object) -> None:
    """Shows every open figure and closes it."""
    flush()


show._pandastack = True  # type: ignore[attr-defined]


def __getattr__(name: str) -> Any:
    # matplotlib looks these up when it loads the backend; importing it earlier would cost contexts that never draw.
    if name not in ("FigureCanvas", "FigureManager"):
        raise AttributeError(name)
    from matplotlib.backend_bases import FigureManagerBase
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    class FigureManager(FigureManagerBase):
        """Shows its figure in the cell."""

        def show(self) -> None:
            """``figure.show()``."""
            _show_once(self.canvas.figure)

    class FigureCanvas(FigureCanvasAgg):
        """Agg, with the manager above."""

        manager_class = FigureManager  # type: ignore[assignment]

        def draw_idle(self, *_args: object, **_options: object) -> None:
            """pyplot asks for this after each call once ``plt.ion()`` was called; nobody sees a figure before it is shown."""

    globals().update(FigureCanvas=FigureCanvas, FigureManager=FigureManager)
    _install_show()
    _install_fallback_fonts()
    return globals()[name]
