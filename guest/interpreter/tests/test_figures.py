"""matplotlib, plotly, altair, seaborn, Pillow, sympy."""

import base64
import json
import struct

import pytest
from harness import Context, Run

CHART = "application/vnd.pandastack.chart+json"
PLT = "import matplotlib.pyplot as plt\n"


def size_of(png: str) -> tuple[int, int]:
    data = base64.b64decode(png)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", data[16:24])


def assert_one_picture(run: Run) -> None:
    assert run.error is None and [sorted(r) for r in run.results] == [[CHART, "image/png"]], run


def test_o04_each_cell_has_its_own_pictures(ctx: Context) -> None:
    first = ctx.run(PLT + "plt.plot([1,2]); plt.show()")
    none = ctx.run("print('no plot here')")
    third = ctx.run("plt.bar(['a','b'],[2,1]); plt.show()")
    assert_one_picture(first)
    assert_one_picture(third)
    assert none.results == [] and first.pngs != third.pngs


@pytest.mark.parametrize("mode", ["", "%matplotlib inline\n", "plt.ion()\n"])
def test_o05_a_function_that_draws_and_returns_its_figure(ctx: Context, mode: str) -> None:
    ctx.run(PLT + mode)
    run = ctx.run("def mk():\n    f, a = plt.subplots(); a.plot([1,2]); return f\nmk()")
    assert_one_picture(run)
    assert run.events[0]["op"] == "result"
    assert_one_picture(ctx.run("g = mk()"))
    assert_one_picture(ctx.run("g"))
    assert_one_picture(ctx.run("f = mk(); plt.show(); f"))
    assert_one_picture(ctx.run("display(g); g"))


def test_o06_error_bars(ctx: Context) -> None:
    assert_one_picture(ctx.run(PLT + "plt.bar(['A','B','C'],[10,15,7], yerr=[1.5,2,.8], capsize=5); plt.title('t'); plt.show()"))


def test_o07_size_times_dpi(ctx: Context) -> None:
    draw = "plt.figure(figsize=(4,3), dpi=50); plt.plot([1,2]); plt.show()"
    width, height = size_of(ctx.run(PLT + draw).pngs[0])
    assert 160 <= width <= 200 and 120 <= height <= 150
    ctx.run("%config InlineBackend.print_figure_kwargs={'bbox_inches': None}")
    assert size_of(ctx.run(draw).pngs[0]) == (200, 150)


def test_o08_signs_of_other_scripts(ctx: Context) -> None:
    fonts = ctx.run("from matplotlib import font_manager as f\nany('CJK' in e.name for e in f.fontManager.ttflist)").text
    if fonts != "True":
        pytest.skip("skipped: no font with Chinese, Japanese and Korean signs is installed")
    for style in ("", "plt.style.use('ggplot')\n", "plt.rcParams['font.family'] = 'serif'\n"):
        run = ctx.run(PLT + style + "plt.title('売上 数量 매출 ∑ é', weight='bold'); plt.plot([1,2]); plt.show()")
        assert_one_picture(run)
        assert run.stderr == ""


def test_warnings_of_a_picture_name_no_path_of_ours(ctx: Context) -> None:
    run = ctx.run(PLT + "plt.title('\\U000F0000'); plt.plot([1,2]);")
    assert_one_picture(run)
    assert "missing from" in run.stderr and "pandastack" not in run.stderr and run.stderr.count("\n") == 1


def test_o09_an_animation_is_html(ctx: Context) -> None:
    run = ctx.run(
        PLT + "from matplotlib.animation import FuncAnimation\nfrom IPython.display import HTML\nf,a=plt.subplots(); l,=a.plot([0,1])\n"
        "HTML(FuncAnimation(f, lambda i: l.set_ydata([0,i]) or (l,), frames=3).to_jshtml())"
    )
    html = run.results[0]["text/html"]
    assert len(html) > 10_000 and "<script" in html and len(run.pngs) <= 1


def test_o10_plotly(ctx: Context) -> None:
    pytest.importorskip("plotly")
    for code in ("import plotly.graph_objects as go\nfig = go.Figure(go.Bar(x=['a'], y=[1]))\nfig", "fig.show()"):
        run = ctx.run(code)
        assert run.error is None and len(run.results) == 1
        assert json.loads(run.results[0]["application/vnd.plotly.v1+json"])["data"][0]["y"] == [1]


def test_o11_an_image_with_transparency(ctx: Context) -> None:
    run = ctx.run("from PIL import Image\nImage.new('RGBA', (8, 6))")
    assert run.error is None and size_of(run.pngs[0]) == (8, 6)


def test_o12_altair(ctx: Context) -> None:
    pytest.importorskip("altair")
    kept = ctx.run(
        "import altair as alt, pandas as pd\nc = alt.Chart(pd.DataFrame({'a':[1,2],'b':[2,1]})).mark_point().encode(x='a', y='b')"
    )
    assert kept.results == []
    (shown,) = ctx.run("c").results
    assert "text/html" in shown and "text/plain" in shown


def test_o13_seaborn_value_and_picture(ctx: Context) -> None:
    pytest.importorskip("seaborn")
    run = ctx.run("import seaborn as sns, pandas as pd\nsns.scatterplot(data=pd.DataFrame({'a':[1,2],'b':[3,1]}), x='a', y='b')")
    assert len(run.results) == 2 and run.results[0]["text/plain"].startswith("<Axes:")
    assert sorted(run.results[1]) == [CHART, "image/png"]


def test_several_figures_come_in_order(ctx: Context) -> None:
    run = ctx.run(PLT + "for i in range(3): plt.figure(figsize=(2 + i, 2)); plt.plot([i])")
    widths = [size_of(png)[0] for png in run.pngs]
    assert len(widths) == 3 and widths == sorted(widths)


def test_a_failing_cell_keeps_its_figures(ctx: Context) -> None:
    run = ctx.run(PLT + "plt.plot([1]); 1/0")
    assert len(run.pngs) == 1 and run.error and run.error["name"] == "ZeroDivisionError"
    assert ctx.run("1").pngs == []


def test_a_figure_that_cannot_be_drawn_fails_the_cell_and_spares_the_others(ctx: Context) -> None:
    run = ctx.run(PLT + "plt.plot([1]); plt.figure(); plt.title('$\\\\frac{$');")
    assert len(run.pngs) == 1 and run.error and run.error["name"] == "ValueError" and run.end["status"] == "error"
    assert "pandastack_interpreter" not in run.error["traceback"]
    assert ctx.run("1").end["status"] == "ok"


def test_an_empty_figure_is_text(ctx: Context) -> None:
    run = ctx.run(PLT + "plt.figure()")
    assert run.pngs == [] and (run.text or "").startswith("<Figure size")


def test_agg_chosen_by_the_code(ctx: Context) -> None:
    run = ctx.run("import matplotlib\nmatplotlib.use('Agg')\n" + PLT + "plt.plot([1]); plt.show(); print('x')")
    assert_one_picture(run)
    assert (run.stdout, run.stderr) == ("x\n", "")


@pytest.mark.parametrize("gui", ["", "inline", "qt", "notebook"])
def test_the_matplotlib_magic_with_whatever_argument(ctx: Context, gui: str) -> None:
    run = ctx.run(f"%matplotlib {gui}\n{PLT}plt.plot([1]);")
    assert_one_picture(run)


def test_figures_obey_capture(ctx: Context) -> None:
    assert ctx.run(f"%%capture c\n{PLT}plt.plot([1]); print(2)").results == []
    assert ctx.run("len(c.outputs), c.stdout").text == "(1, '2\\n')"


def test_savefig_and_close_show_nothing(ctx: Context) -> None:
    code = (
        PLT
        + "import io\nfig, ax = plt.subplots(); ax.plot([1]); b = io.BytesIO(); fig.savefig(b); plt.close(fig); len(b.getvalue()) > 1000"
    )
    run = ctx.run(code)
    assert (run.text, run.pngs) == ("True", [])


def test_a_figure_drawn_by_a_thread(ctx: Context) -> None:
    assert_one_picture(ctx.run(PLT + "import threading\nt = threading.Thread(target=lambda: plt.plot([1])); t.start(); t.join()"))


def test_scripts_do_not_inherit_our_backend(ctx: Context) -> None:
    run = ctx.run(PLT + "import os\nos.environ.get('MPLBACKEND'), os.environ.get('PYTHONPATH')")
    assert run.text == "(None, None)"


def test_sympy_is_latex(ctx: Context) -> None:
    pytest.importorskip("sympy")
    assert "\\int" in ctx.run("import sympy\nx = sympy.symbols('x')\nsympy.Integral(x**2, x)").results[0]["text/latex"]
