"""Charts as data, beside the pictures of a cell."""

import json
from typing import Any

import pytest
from harness import Context, Run

MIME = "application/vnd.pandastack.chart+json"
PLT = "import matplotlib.pyplot as plt\n"


def charts_of(run: Run) -> list[dict[str, Any]]:
    assert run.error is None and run.stderr == "", run
    return [json.loads(result[MIME]) for result in run.results if MIME in result]


def test_o06_a_bar_chart_with_error_bars(ctx: Context) -> None:
    run = ctx.run(PLT + "plt.bar(['A','B','C'],[10,15,7], yerr=[1.5,2,.8], capsize=5); plt.title('t'); plt.show()")
    (chart,) = charts_of(run)
    assert (chart["type"], chart["title"]) == ("bar", "t")
    (bars,) = chart["series"]
    assert dict(zip(bars["x"], bars["y"], strict=True)) == {"A": 10, "B": 15, "C": 7}
    assert bars["y_error"] == {"minus": [1.5, 2, 0.8], "plus": [1.5, 2, 0.8]}


@pytest.mark.parametrize("show", ["", "plt.show()", "fig", "display(fig)", "display(fig); fig", "fig.show()"])
def test_every_way_to_show_a_figure_has_the_data_once(ctx: Context, show: str) -> None:
    run = ctx.run(f"{PLT}fig, ax = plt.subplots(); ax.plot([1, 2], [3, 4.5]);\n{show}")
    (chart,) = charts_of(run)
    assert len(run.pngs) == 1 and chart["series"][0]["y"] == [3, 4.5]


def test_agg_chosen_in_a_context_that_had_no_matplotlib(ctx: Context) -> None:
    code = "import sys\nfor name in [n for n in sys.modules if n.split('.')[0] in ('matplotlib', 'mpl_toolkits')]: del sys.modules[name]\n"
    run = ctx.run(code + "import matplotlib\nmatplotlib.use('Agg')\n" + PLT + "plt.boxplot([[1, 2, 3]]); plt.show()")
    assert charts_of(run)[0]["series"][0]["boxes"][0]["median"] == 2


@pytest.mark.parametrize(
    "broken",
    [
        "ax.get_legend = lambda: 1 / 0",
        "ax.get_title = lambda loc: 1 / 0",
        "class Odd(type(ax.lines[0])):\n    def get_data(self, orig=True): raise SystemError('x')\nax.lines[0].__class__ = Odd",
    ],
)
def test_a_chart_that_cannot_be_read_costs_neither_the_picture_nor_a_word(ctx: Context, broken: str) -> None:
    run = ctx.run(f"{PLT}fig, ax = plt.subplots(); ax.plot([1, 2])\n{broken}\nplt.show()")
    assert run.error is None and run.stderr == "" and len(run.pngs) == 1


def test_warnings_and_errors_of_matplotlib_name_the_users_line(ctx: Context) -> None:
    warned = ctx.run(PLT + "plt.contourf([[0, 1], [0, 1]], linewidths=2); plt.show()")
    assert "UserWarning: linewidths" in warned.stderr and "plt.contourf([[0, 1]" in warned.stderr
    failed = ctx.run(PLT + "plt.hist([1], bins=[2, 1])")
    for text in (warned.stderr, (failed.error or {})["traceback"]):
        assert "pandastack_interpreter" not in text and "noted" not in text


def test_figures_are_pickled_and_copied_with_what_was_noted(ctx: Context) -> None:
    made = "fig, ax = plt.subplots(); ax.hist([1, 2, 2, 3], bins=3); ax.boxplot([[1, 2, 3]])\n"
    run = ctx.run(
        f"import pickle, copy\n{PLT}{made}text = pickle.dumps(fig); plt.close('all'); again = pickle.loads(text); plt.close('all'); again"
    )
    (chart,) = charts_of(run)
    assert sorted(series["type"] for series in chart["series"]) == ["box", "histogram"]
    assert ctx.run("b'pandastack_interpreter' in text").text == "False"


def test_a_million_points_are_sampled(ctx: Context) -> None:
    (chart,) = charts_of(ctx.run(PLT + "import numpy as np\nplt.plot(np.arange(1_000_000) / 3); plt.show()"))
    (line,) = chart["series"]
    assert line["points_total"] == 1_000_000 and line["sampled"] and len(line["x"]) == len(line["y"]) == 5000
    assert line["x"][-1] == 999_999 and line["y"][1] == line["x"][1] / 3
