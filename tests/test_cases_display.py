"""O-01 to O-16: display rules, charts, tables. Each test is named after its case in the field."""

import json

import pytest

from cells import Cell, Context, picture, strict_json

pytestmark = pytest.mark.usefixtures("long_cells")

PYPLOT = "import matplotlib.pyplot as plt\n"

# Display rules


def test_o01_semicolon(ctx: Context):
    assert ctx.run("x = 41\nx + 1;  # quiet").quiet
    b = ctx.run("x + 1  # left; right;")
    assert [result["text/plain"] for result in b.results] == ["42"]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("3  # a\n# b", "3"),
        ("3\n\n\n# b", "3"),
        ("'a;b'", "'a;b'"),
        ("'a;b';", None),
        ("'a;b'  # ;", "'a;b'"),
        ("'#';", None),
        ("'#'", "'#'"),
        ('"""x\n;"""', r"'x\n;'"),
        ('"""x\n;""";', None),
        ("f'{3};'", "'3;'"),
        ("[1,\n2];", None),
        ("5 ;  # a # b", None),
        ("5;\n\n", None),
        ("x = 5; x", "5"),
        ("x = 5; x;", None),
        ("1,", "(1,)"),
        ("*range(3),", "(0, 1, 2)"),
        ("...", "Ellipsis"),
        ("(w := 5)", "5"),
        ("w = 1; w += 1", None),
        ("a: int = 3", None),
        ("if True:\n    8", None),
        ("def d(f): return f\n@d\ndef g(): pass", None),
        ("class A: 1", None),
        ("# only a comment", None),
        ("lambda: 1", "<function __main__.<lambda>()>"),
        ("async def f(): return 1\nawait f()", "1"),
        ("async def f(): return 1\nawait f();", None),
    ],
)
def test_o01_o02_which_value_is_shown(shared_ctx: Context, code: str, text: str | None):
    assert shared_ctx.run(code).text == text


def test_o02_last_value(ctx: Context):
    r1 = ctx.run("print('a')\nprint('b')\n1 + 2")
    assert (r1.stdout, r1.text) == ("a\nb\n", "3")
    for code in ("y = 5", "None", "for i in range(3):\n    i"):
        assert ctx.run(code).quiet, code


def test_o02_names_of_earlier_values(ctx: Context):
    """`_`, `__` and `Out` are what IPython makes them, and an own `_` stays one's own."""
    ctx.run("7")
    ctx.run("8")
    assert ctx.run("(_, __, sorted(Out.values()))").text == "(8, 7, [7, 8])"
    ctx.run("_ = 'mine'")
    ctx.run("9")
    assert ctx.run("_").text == "'mine'"


def test_o03_update_display(ctx: Context):
    r = ctx.run("h = display('before', display_id=True)\nh.update('after')")
    assert [result["text/plain"] for result in r.results] == ["'after'"]


def test_o03_update_of_an_earlier_cell(ctx: Context):
    ctx.run("h = display('a', display_id='one')")
    assert [result["text/plain"] for result in ctx.run("h.update('b'); h.update('c')").results] == ["'c'"]


def test_o03_clear_output(ctx: Context):
    r = ctx.run(
        "from IPython.display import clear_output\ndisplay(1); display(2)\nclear_output(wait=True)\ndisplay(3)\n4"
    )
    assert [result["text/plain"] for result in r.results] == ["4", "3"]


@pytest.mark.parametrize(
    ("body", "results", "error"),
    [
        ("def __repr__(self): raise ValueError('bad')", 0, "ValueError"),
        ("def __repr__(self): return 5", 0, "TypeError"),
        ("def __repr__(self): raise SystemExit(4)", 0, "SystemExit"),
        ("def __repr__(self): return '\\ud800'", 1, None),
        ("def _repr_html_(self): raise ValueError('bad')", 1, None),
        ("def _repr_html_(self): return 5", 1, None),
        ("def _repr_mimebundle_(self, **_): raise KeyError('bad')", 1, None),
        ("def _ipython_display_(self): raise OSError('bad')", 1, None),
        ("def __getattr__(self, name): return self", 1, None),
    ],
)
def test_o02_broken_forms_of_a_value(shared_ctx: Context, body: str, results: int, error: str | None):
    """A form that fails takes neither the other forms nor what was printed with it."""
    r = shared_ctx.run(f"class Broken:\n    {body}\nprint('before')\nBroken()")
    assert (r.stdout, len(r.results), r.error_name) == ("before\n", results, error)


# Matplotlib


def test_o04_each_run_its_own_picture(ctx: Context):
    p1 = ctx.run(PYPLOT + "plt.plot([1,2]); plt.show()")
    p2 = ctx.run("print('no plot here')")
    p3 = ctx.run("plt.bar(['a','b'],[2,1]); plt.show()")
    assert [len(p.pngs) for p in (p1, p2, p3)] == [1, 0, 1]
    assert p1.pngs != p3.pngs
    picture(p1.pngs[0])
    picture(p3.pngs[0])


def test_o05_returned_figure_once(ctx: Context):
    ctx.run(PYPLOT)
    r = ctx.run("def mk():\n    f, a = plt.subplots(); a.plot([1,2]); return f\nmk()")
    s = ctx.run("g = mk()")
    assert (len(r.pngs), len(s.pngs)) == (1, 1)


def bars(ctx: Context) -> Cell:
    return ctx.run(PYPLOT + "plt.bar(['A','B','C'],[10,15,7], yerr=[1.5,2,.8], capsize=5); plt.title('t'); plt.show()")


def test_o06_error_bars(ctx: Context):
    r = bars(ctx)
    assert r.error is None and len(r.pngs) == 1
    picture(r.pngs[0])


def test_o06_chart_data(ctx: Context):
    offered = [value for result in bars(ctx).results for kind, value in result.items() if "chart" in kind]
    if not offered:
        pytest.skip("skipped: waits for chart data beside pictures")
    assert len(offered) == 1
    text = json.dumps(strict_json(offered[0]))
    assert '"bar"' in text and '"t"' in text
    for label, value in (("A", 10), ("B", 15), ("C", 7)):
        assert f'"{label}"' in text and str(value) in text


def test_o07_size(ctx: Context):
    ctx.run(PYPLOT)
    draw = "plt.figure(figsize=(4,3), dpi=50); plt.plot([1,2]); plt.show()"
    width, height = picture(ctx.run(draw).pngs[0]).size
    assert 160 <= width <= 210 and 110 <= height <= 160, "the tight box of 200x150"
    ctx.run("%config InlineBackend.print_figure_kwargs={'bbox_inches': None}")
    assert picture(ctx.run(draw).pngs[0]).size == (200, 150)
    ctx.run("plt.figure(figsize=(4,3), dpi=50); plt.plot([1,2]); plt.savefig('saved.png')")
    assert ctx.run("from PIL import Image; Image.open('saved.png').size").text == "(200, 150)"


def test_o08_other_scripts(ctx: Context):
    r = ctx.run(PYPLOT + "plt.title('売上 数量 매출 ∑ é'); plt.plot([1,2]); plt.show()")
    assert (len(r.pngs), r.stderr, r.error) == (1, "", None)


def test_o09_animation(ctx: Context):
    r = ctx.run(
        PYPLOT + "from matplotlib.animation import FuncAnimation\nfrom IPython.display import HTML\n"
        "f,a=plt.subplots(); l,=a.plot([0,1])\n"
        "HTML(FuncAnimation(f, lambda i: l.set_ydata([0,i]) or (l,), frames=3).to_jshtml())",
        timeout=60,
    )
    html = r.results[0]["text/html"]
    assert "<script" in html and len(html) > 20_000 and "</script>" in html
    assert len(r.pngs) <= 1


# Plotly, altair, seaborn, Pillow


def test_o10_plotly(ctx: Context):
    a = ctx.run("import plotly.graph_objects as go\nfig = go.Figure(go.Bar(x=['a'], y=[1]))\nfig", timeout=60)
    b = ctx.run("fig.show()", timeout=60)
    for cell in (a, b):
        assert cell.error is None and len(cell.results) == 1
        figure = strict_json(cell.results[0]["application/vnd.plotly.v1+json"])
        assert (figure["data"][0]["type"], figure["data"][0]["x"]) == ("bar", ["a"])


def test_o11_transparent_picture(ctx: Context):
    r = ctx.run("from PIL import Image\nImage.new('RGBA', (8, 6))")
    assert r.error is None
    width, height = (int.from_bytes(r.pngs[0][start : start + 4], "big") for start in (16, 20))
    assert (width, height) == (8, 6)


def test_o12_altair(ctx: Context):
    a = ctx.run(
        "import altair as alt, pandas as pd\n"
        "c = alt.Chart(pd.DataFrame({'a':[1,2],'b':[2,1]})).mark_point().encode(x='a', y='b')",
        timeout=60,
    )
    assert a.quiet
    (b,) = ctx.run("c", timeout=60).results
    assert b["text/plain"]
    specification = next((value for kind, value in b.items() if kind.startswith("application/vnd.vegalite")), None)
    assert "vega" in b.get("text/html", "") or strict_json(specification)["mark"]


def test_o13_seaborn(ctx: Context):
    r = ctx.run(
        "import seaborn as sns, pandas as pd\nsns.scatterplot(data=pd.DataFrame({'a':[1,2],'b':[3,1]}), x='a', y='b')",
        timeout=60,
    )
    assert len(r.results) == 2 and r.text.startswith("<Axes:")
    picture(r.pngs[0])


# Tables and maths


def test_o14_wide_frame(ctx: Context):
    r = ctx.run("import pandas as pd\npd.DataFrame({f'col{i:02d}': range(3) for i in range(30)})")
    for form, shape in (("text/plain", "[3 rows x 30 columns]"), ("text/html", "3 rows × 30 columns")):
        text = r.results[0][form]
        assert "col00" in text and "col29" in text
        assert "..." not in text or shape in text


def test_o15_polars(ctx: Context):
    r = ctx.run("import polars as pl\npl.DataFrame({f'c{i}': list(range(20)) for i in range(12)})", timeout=60)
    text = r.text
    assert text.startswith("shape: (20, 12)")
    assert "�" not in text and "┌" in text and "…" in text
    assert "<table" in r.results[0]["text/html"]


def test_o16_nan_in_json(ctx: Context):
    r = ctx.run("from IPython.display import JSON, display\ndisplay(JSON({'a': float('nan'), 'b': float('inf')}))")
    value = strict_json(r.results[0]["application/json"])
    assert value["a"] in (None, "nan", "NaN") and value["b"] in (None, "inf", "Infinity")
    assert r.stderr == ""
