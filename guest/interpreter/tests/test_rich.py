"""Charts that are more than a picture, in all their forms, and what remains when their picture cannot be had."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_renderer import PIXEL, FakeRenderer, drawn
from harness import Context, Run, Zygote

from pandastack_interpreter.channel import Message

PLOTLY_JSON = "application/vnd.plotly.v1+json"
BAR = "import plotly.graph_objects as go\nfig = go.Figure(go.Bar(x=['a'], y=[1]))\n"
CHART = "import altair as alt, pandas as pd\nc = alt.Chart(pd.DataFrame({'a':[1,2],'b':[2,1]})).mark_point().encode(x='a', y='b')\n"
LINE = "from bokeh.plotting import figure, show, output_file, output_notebook\np = figure(title='t'); p.line([1,2],[3,4]);\n"

Renderer = Callable[[Callable[[Message], Message | None]], FakeRenderer]


@pytest.fixture
def renderer(tmp_path: Path) -> Iterator[Renderer]:
    running: list[FakeRenderer] = []

    def start(answer: Callable[[Message], Message | None]) -> FakeRenderer:
        running.append(FakeRenderer(tmp_path / "renderer.sock", answer))
        return running[-1]

    yield start
    for fake in running:
        fake.close()


@pytest.fixture
def rendered(zygote: Zygote, renderer: Renderer) -> Iterator[tuple[Context, FakeRenderer]]:
    fake = renderer(drawn)
    context = zygote.fork(fake.environment)
    yield context, fake
    context.close()


def only(run: Run) -> dict[str, str]:
    assert run.error is None and run.stderr == "" and len(run.results) == 1, run
    return run.results[0]


def assert_all_forms_of_plotly(form: dict[str, str]) -> None:
    spec = json.loads(form[PLOTLY_JSON])
    assert spec["data"][0]["y"] == [1] and "layout" in spec
    assert form["image/png"] == PIXEL
    assert "<html>" in form["text/html"] and "cdn.plot.ly" in form["text/html"] and len(form["text/html"]) < 50_000
    assert len(form["text/plain"]) < 300


@pytest.mark.parametrize(
    "show",
    ["fig", "fig.show()", "display(fig)", "import plotly.io as pio\npio.show(fig)", "fig.show('browser')", "pio.show(fig.to_dict())"],
)
def test_o10_a_plotly_figure_has_all_its_forms_however_it_is_shown(rendered: tuple[Context, FakeRenderer], show: str) -> None:
    pytest.importorskip("plotly")
    context, fake = rendered
    assert context.run(BAR + "import plotly.io as pio").error is None
    run = context.run(show)
    assert_all_forms_of_plotly(only(run))
    assert run.events[0]["op"] == ("result" if show == "fig" else "display")
    (request,) = [r for r in fake.requests if r["op"] == "render"]
    assert {name: request[name] for name in ("kind", "width", "height", "scale", "format")} == {
        "kind": "plotly",
        "width": 700,
        "height": 500,
        "scale": 1,
        "format": "png",
    }


def test_a_default_renderer_of_a_notebook_changes_nothing(rendered: tuple[Context, FakeRenderer]) -> None:
    pytest.importorskip("plotly")
    run = rendered[0].run(BAR + "import plotly.io as pio\npio.renderers.default = 'notebook'\nfig.show()")
    assert_all_forms_of_plotly(only(run))


def test_a_plotly_figure_is_drawn_at_its_own_size(rendered: tuple[Context, FakeRenderer]) -> None:
    pytest.importorskip("plotly")
    context, fake = rendered
    context.run(BAR + "fig.update_layout(width=321, height=123, title='Sales')")
    assert only(context.run("fig"))["text/plain"] == "plotly figure 'Sales': 1 trace (bar)"
    only(context.run("fig.show(width=222)"))
    sizes = [(r["width"], r["height"]) for r in fake.requests if r["op"] == "render"]
    assert sizes == [(321, 123), (321, 123), (222, 123)]


def test_plotly_shows_nothing_of_a_muted_value_and_obeys_capture(rendered: tuple[Context, FakeRenderer]) -> None:
    pytest.importorskip("plotly")
    assert rendered[0].run(BAR + "fig;").results == []
    assert rendered[0].run("%%capture c\nfig.show()").results == []


def test_write_image_needs_no_browser_in_the_context(rendered: tuple[Context, FakeRenderer]) -> None:
    pytest.importorskip("kaleido")
    context, fake = rendered
    run = context.run(BAR + "fig.write_image('/tmp/f.jpg', scale=2); fig.to_image('svg')[:4]")
    assert run.text == repr(b"\x89PNG"), run
    assert [(r["format"], r.get("scale")) for r in fake.requests if r["op"] == "render"] == [("jpeg", 2), ("svg", 1)]
    run = context.run("fig.write_image('/tmp/f.pdf')")
    assert run.error and "png, jpeg, webp, svg" in run.error["value"]


def test_the_browser_is_started_when_a_cell_speaks_of_plotly_once(rendered: tuple[Context, FakeRenderer]) -> None:
    pytest.importorskip("plotly")
    context, fake = rendered
    context.run("1")
    assert fake.requests == []
    context.run("import plotly")
    context.run("import plotly\ngo = 1")
    context.run(BAR + "fig")
    assert [r["op"] for r in fake.requests] == ["warm", "render"]


def test_without_a_renderer_the_other_forms_stay_and_one_note_is_written(ctx: Context) -> None:
    pytest.importorskip("plotly")
    ctx.run("import os; os.environ['PANDASTACK_RENDERER_SOCKET'] = '/nonexistent/socket'")
    first, second = ctx.run(BAR + "fig"), ctx.run("fig.show()")
    for run in (first, second):
        assert run.error is None and {PLOTLY_JSON, "text/html", "text/plain"} <= set(run.results[0]) and run.pngs == []
    assert first.stderr.count("\n") == 1 and first.stderr.startswith("note: no picture") and second.stderr == ""


def test_a_chart_that_the_renderer_refuses_keeps_its_other_forms(zygote: Zygote, renderer: Renderer) -> None:
    pytest.importorskip("plotly")
    fake = renderer(lambda _request: {"op": "failed", "message": "no\nsuch\ntrace"})
    context = zygote.fork(fake.environment)
    run = context.run(BAR + "fig")
    assert PLOTLY_JSON in run.results[0] and run.pngs == []
    assert run.stderr == "note: no picture of a chart, only its other forms: no\n"
    context.close()


def test_a_silent_renderer_holds_a_cell_for_its_limit_only(zygote: Zygote, renderer: Renderer) -> None:
    pytest.importorskip("plotly")
    context = zygote.fork(renderer(lambda _request: None).environment)
    context.run("from pandastack_interpreter.rich import pictures\npictures.MAX_SECONDS = 0.2")
    run = context.run(BAR + "display(fig, fig)\nfig")
    assert len(run.results) == 3 and all(PLOTLY_JSON in result for result in run.results) and run.pngs == []
    assert "too long" in run.stderr and run.stderr.count("\n") == 1
    context.close()


def test_waiting_for_a_picture_can_be_interrupted(zygote: Zygote, renderer: Renderer) -> None:
    pytest.importorskip("plotly")
    context = zygote.fork(renderer(lambda _request: None).environment)
    context.run(BAR)
    for show in ("fig.show()", "fig"):
        run = context.run(show, interrupt_after=0.3)
        assert run.error and run.error["name"] == "KeyboardInterrupt"
        (form,) = run.results
        assert "text/html" in form and "image/png" not in form
    assert context.run("1 + 1").text == "2"
    context.close()


@pytest.mark.parametrize("show", ["c", "c.show()", "display(c)"])
def test_o12_an_altair_chart_has_all_its_forms(rendered: tuple[Context, FakeRenderer], show: str) -> None:
    pytest.importorskip("altair")
    context, fake = rendered
    assert context.run(CHART).results == []
    form = only(context.run(show))
    (mime,) = [name for name in form if name.startswith("application/vnd.vegalite.v")]
    spec = json.loads(form[mime])
    assert spec["mark"]["type"] == "point" and form["image/png"] == PIXEL and "vega-embed" in form["text/html"]
    assert fake.requests[0]["kind"] == "vega" and fake.requests[0]["spec"] == spec


def test_an_altair_chart_of_many_rows(rendered: tuple[Context, FakeRenderer]) -> None:
    pytest.importorskip("altair")
    run = rendered[0].run("import altair as alt, pandas as pd\nalt.Chart(pd.DataFrame({'a': range(6000)})).mark_point().encode(x='a')")
    assert "image/png" in only(run)
    failing = rendered[0].run("alt.Chart(pd.DataFrame({'a': range(3)})).mark_point().encode(x='nope')")
    assert "nope" in failing.stderr and failing.end["status"] == "ok"


@pytest.mark.parametrize("show", ["p", "show(p)", "output_notebook(); show(p)", "display(p)"])
def test_a_bokeh_plot_is_html_and_opens_no_browser(ctx: Context, show: str) -> None:
    pytest.importorskip("bokeh")
    ctx.run(LINE + "import webbrowser\nwebbrowser.get = None")
    form = only(ctx.run(show))
    assert "cdn.bokeh.org" in form["text/html"] and form["text/plain"] == "bokeh figure 't'"


def test_bokeh_writes_the_file_that_the_code_named(ctx: Context, tmp_path: Path) -> None:
    pytest.importorskip("bokeh")
    run = ctx.run(LINE + f"from bokeh.layouts import row\noutput_file({str(tmp_path / 'x.html')!r}); show(row(p))")
    assert "text/html" in only(run) and (tmp_path / "x.html").stat().st_size > 1000


@pytest.mark.parametrize("mode", ["RGBA", "P", "I;16", "F", "CMYK", "1", "L", "LA", "I", "YCbCr", "HSV", "LAB", "RGBX", "RGBa", "La", "PA"])
def test_o11_images_of_every_mode(ctx: Context, mode: str) -> None:
    form = only(ctx.run(f"from PIL import Image\nImage.new({mode!r}, (8, 6))"))
    assert set(form) == {"text/plain", "image/png"}


def test_an_image_of_floats_is_spread_from_black_to_white(ctx: Context) -> None:
    image = "Image.fromarray(np.array([[-1.0, 0.0, 1.0]], 'f4'))"
    show = "Image.open(io.BytesIO(get_ipython().display_formatter.formatters['image/png']({})))"
    run = ctx.run(f"import io, numpy as np\nfrom PIL import Image\nnp.asarray({show.format(image)}).tolist()")
    assert run.text == "[[0, 127, 255]]"


def test_a_huge_image_is_shown_smaller(ctx: Context) -> None:
    for mode in ("RGB", "1"):
        run = ctx.run(f"from PIL import Image\nImage.new({mode!r}, (20000, 3000))")
        assert "size=20000x3000" in only(run)["text/plain"] and len(run.pngs[0]) < 1_000_000
    assert set(only(ctx.run("Image.new('RGB', (0, 5))"))) == {"text/plain"}


def test_modules_are_changed_after_their_import_and_only_then() -> None:
    from pandastack_interpreter.rich import imports

    seen = []
    sys.modules.pop("colorsys", None)
    imports.after_import("json", lambda module: seen.append(module.__name__))
    imports.after_import("colorsys", lambda module: seen.append(module.hls_to_rgb.__name__))
    imports.after_import("this_is_no_module", lambda _module: seen.append("never"))
    imports.install()
    assert seen == ["json"]
    with pytest.raises(ModuleNotFoundError):
        __import__("this_is_no_module")
    __import__("colorsys")
    assert seen == ["json", "hls_to_rgb"]
