"""Figures in the formats and for the window systems that code written elsewhere asks for, and what is displayed beside them."""

import json

import pytest
from harness import Context
from test_figures import PLT, assert_one_picture, size_of

SMALL = "plt.figure(figsize=(4,3), dpi=50); plt.plot([1,2]);"
FORMATS = [
    "%config InlineBackend.figure_format = {!r}",
    "from matplotlib_inline.backend_inline import set_matplotlib_formats as s\ns({!r})",
]


def forms(run: object) -> list[list[str]]:
    return [sorted(mime for mime in result if mime.startswith("image/")) for result in run.results]


@pytest.mark.parametrize("choose", FORMATS)
def test_o07_retina_has_twice_the_pixels(ctx: Context, choose: str) -> None:
    ctx.run("%config InlineBackend.print_figure_kwargs={'bbox_inches': None}\n" + PLT)
    assert ctx.run(choose.format("retina")).error is None
    run = ctx.run(SMALL)
    assert forms(run) == [["image/png"]] and size_of(run.pngs[0]) == (400, 300)
    run = ctx.run("f, a = plt.subplots(figsize=(4,3), dpi=50); a.plot([1]); f")
    assert forms(run) == [["image/png"]] and size_of(run.pngs[0]) == (400, 300)
    ctx.run(choose.format("png"))
    assert size_of(ctx.run(SMALL).pngs[0]) == (200, 150)


@pytest.mark.parametrize("choose", FORMATS)
def test_o07_svg_comes_beside_the_png(ctx: Context, choose: str) -> None:
    ctx.run(PLT + choose.format("svg"))
    for code in (SMALL, "f, a = plt.subplots(); a.plot([1]); f"):
        run = ctx.run(code)
        assert forms(run) == [["image/png", "image/svg+xml"]] and "<svg" in run.results[0]["image/svg+xml"]


def test_an_unknown_format_is_an_error_and_spoils_nothing(ctx: Context) -> None:
    run = ctx.run(PLT + FORMATS[1].format("nope"))
    assert run.error and run.error["name"] == "ValueError"
    assert_one_picture(ctx.run(SMALL))


@pytest.mark.parametrize("backend", ["TkAgg", "QtAgg", "GTK3Agg", "WebAgg", "nbAgg", "module://matplotlib_inline.backend_inline"])
@pytest.mark.parametrize("order", ["before", "after"])
def test_a_backend_with_windows_shows_in_the_cell(ctx: Context, backend: str, order: str) -> None:
    use = f"import matplotlib\nmatplotlib.use({backend!r})\n"
    run = ctx.run((use + PLT if order == "before" else PLT + use) + "plt.plot([1]); plt.show(block=False)")
    assert_one_picture(run)
    assert run.stderr == ""


def test_a_backend_that_does_not_exist_is_an_error(ctx: Context) -> None:
    assert ctx.run("import matplotlib\nmatplotlib.use('nope')").error["name"] == "ValueError"


@pytest.mark.parametrize("gui", ["widget", "notebook", "tk"])
def test_the_magics_of_notebooks(ctx: Context, gui: str) -> None:
    assert_one_picture(ctx.run(f"%matplotlib {gui}\n{PLT}plt.ioff(); plt.plot([1]); plt.ion(); plt.show();"))


def test_interactive_mode_draws_a_figure_once(ctx: Context) -> None:
    ctx.run(PLT + "from matplotlib.backends.backend_agg import FigureCanvasAgg as C\ndraw = C.draw; n = 0\n")
    ctx.run("def counted(self, *a):\n    global n; n += 1; return draw(self, *a)\nC.draw = counted\nplt.ion()")
    assert_one_picture(ctx.run("for i in range(9): plt.plot([i]);"))
    assert int(ctx.run("n").text) <= 2


def test_figures_in_a_loop_come_each_once_and_in_order(ctx: Context) -> None:
    code = PLT + "for i in range(3):\n    f, a = plt.subplots(1, 2, layout='constrained'); a[0].plot([i] * (i + 2)); plt.show()"
    run = ctx.run(code)
    assert forms(run) == [["image/png"]] * 3 and len(set(run.pngs)) == 3


def test_a_figure_of_an_earlier_cell_is_drawn_as_it_is_now(ctx: Context) -> None:
    first = ctx.run(PLT + "f, a = plt.subplots(); a.plot([1, 2])")
    again, changed = ctx.run("f"), ctx.run("a.plot([2, 1]); display(f)")
    assert first.pngs == again.pngs and len(changed.pngs) == 1 and changed.pngs != again.pngs


def test_saving_a_figure_does_not_hide_it_and_closing_does(ctx: Context) -> None:
    assert_one_picture(ctx.run(PLT + "plt.plot([1]); plt.savefig('/tmp/x.png')"))
    assert ctx.run("plt.plot([1]); plt.savefig('/tmp/x.png'); plt.close()").pngs == []


@pytest.mark.parametrize("size", ["dpi=5000", "figsize=(300, 300)"])
def test_a_figure_that_is_too_large_says_so(ctx: Context, size: str) -> None:
    run = ctx.run(PLT + f"plt.figure({size}); plt.plot([1]);")
    assert run.error and run.error["name"] == "ValueError" and "too large to show" in run.error["value"]
    assert_one_picture(ctx.run(SMALL))


@pytest.mark.parametrize("plot", ["relplot(data=d, x='a', y='b', col='c')", "jointplot(data=d, x='a', y='b')", "pairplot(d)"])
def test_a_grid_of_seaborn_is_one_picture(ctx: Context, plot: str) -> None:
    pytest.importorskip("seaborn")
    ctx.run("import seaborn as sns, pandas as pd\nd = pd.DataFrame({'a': [1, 2, 3], 'b': [3, 1, 2], 'c': list('xyx')})")
    run = ctx.run(f"sns.{plot}")
    assert len(run.pngs) == 1 and (run.text or "").startswith("<seaborn.axisgrid.") and run.stderr == ""


def test_a_plot_of_seaborn_objects_is_one_picture(ctx: Context) -> None:
    pytest.importorskip("seaborn")
    ctx.run("import seaborn.objects as so, pandas as pd\np = so.Plot(pd.DataFrame({'a': [1, 2]}), x='a', y='a').add(so.Dot())")
    assert forms(ctx.run("p")) == forms(ctx.run("p.show()")) == [["image/png"]]


def test_o09_a_video_without_ffmpeg_is_a_clear_error(ctx: Context) -> None:
    code = PLT + "from matplotlib.animation import FuncAnimation, writers\nf, a = plt.subplots(); l, = a.plot([0, 1])\n"
    code += "an = FuncAnimation(f, lambda i: l.set_ydata([0, i]) or (l,), frames=2); an._draw_was_started = True\n"
    if ctx.run(code + "writers.is_available('ffmpeg')").text == "True":
        pytest.skip("skipped: ffmpeg is installed")
    run = ctx.run("an.to_html5_video()")
    assert run.error and "ffmpeg" in run.error["value"]


@pytest.mark.parametrize(
    ("code", "mime"),
    [
        ("Audio([0, 1, 0], rate=8000)", "text/html"),
        ("Video('http://x/y.mp4')", "text/html"),
        ("IFrame('http://x', 10, 10)", "text/html"),
        ("HTML('<b>x</b>')", "text/html"),
        ("SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')", "image/svg+xml"),
        ("Markdown('# x')", "text/markdown"),
        ("Latex('$x$')", "text/latex"),
        ("Math('x')", "text/latex"),
        ("JSON({'a': 1})", "application/json"),
        ("GeoJSON({'type': 'Point'})", "application/geo+json"),
    ],
)
def test_objects_of_ipython_display(ctx: Context, code: str, mime: str) -> None:
    for show in (code, f"display({code})"):
        run = ctx.run(f"from IPython.display import *\n{show}")
        assert run.error is None and len(run.results) == 1 and mime in run.results[0], run


def test_o16_json_that_is_not_strict(ctx: Context) -> None:
    run = ctx.run("from IPython.display import JSON, display\ndisplay(JSON({'a': float('nan'), 'b': float('inf')}))")
    assert json.loads(run.results[0]["application/json"]) == {"a": None, "b": None} and run.stderr == ""


def test_objects_with_forms_of_their_own(ctx: Context) -> None:
    method = "def _repr_mimebundle_(self, include=None, exclude=None):"
    bundle = ctx.run(f"class A:\n    {method} return {{'text/plain': 'A', 'application/x+json': {{'a': 1}}}}\nA()")
    assert bundle.results == [{"text/plain": "A", "application/x+json": '{"a":1}'}]
    broken = ctx.run("class B:\n    def _repr_html_(self): return '<b>'\n    def _repr_png_(self): raise ValueError('no')\nB()")
    assert broken.results[0]["text/html"] == "<b>" and "ValueError: no" in broken.stderr and broken.end["status"] == "ok"


def test_sympy_has_text_and_latex(ctx: Context) -> None:
    pytest.importorskip("sympy")
    run = ctx.run("import sympy\nx = sympy.symbols('x')\nsympy.Matrix([[1, x]])")
    assert set(run.results[0]) == {"text/plain", "text/latex"} and run.text == "Matrix([[1, x]])"
