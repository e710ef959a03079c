"""The data of charts, over the corpus and at its bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import chart_corpus
import harness  # noqa: F401  (puts the package on the path)
import numpy as np
import pytest

plt = pytest.importorskip("matplotlib.pyplot")
pd = pytest.importorskip("pandas")

from pandastack_interpreter import charts  # noqa: E402
from pandastack_interpreter.charts import encode, labels, notes  # noqa: E402


@pytest.fixture(autouse=True)
def figures() -> Iterator[None]:
    plt.switch_backend("agg")
    charts.prepare()
    plt.rcdefaults()
    yield
    plt.close("all")


def run(code: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs the code of a chart and reads it as a cell would."""
    names: dict[str, Any] = {"np": np, "pd": pd, "plt": plt, "rng": np.random.default_rng(1)}
    for library, short in (("seaborn", "sns"), ("plotly.express", "px"), ("plotly.graph_objects", "go"), ("altair", "alt")):
        if f"{short}." in code:
            names[short] = pytest.importorskip(library)
    exec(code, names)
    figure = names.get("fig") or plt.gcf()
    if hasattr(figure, "savefig"):
        figure.canvas.draw()
    chart = charts.chart_of(figure)
    assert chart is not None
    assert json.loads(json.dumps(chart, allow_nan=False)) == chart
    return chart, names


def plain(value: Any) -> Any:
    if isinstance(value, np.ma.MaskedArray):
        value = value.filled(np.nan)
    if isinstance(value, (np.ndarray, range, list)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def difference(actual: Any, expected: Any, path: str = "chart") -> str | None:
    """Where the actual value lacks what is expected; mappings inside sequences are compared as mappings."""
    if isinstance(expected, dict):
        if not isinstance(actual, dict):
            return f"{path} is {actual!r}"
        found = (difference(actual.get(key), item, f"{path}.{key}") for key, item in expected.items())
        return next(filter(None, found), None)
    expected = expected if isinstance(expected, list) and any(isinstance(item, dict) for item in expected) else plain(expected)
    if isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            return f"{path} is {actual!r}, not {expected!r}"
        found = (difference(one, other, f"{path}[{i}]") for i, (one, other) in enumerate(zip(actual, expected, strict=True)))
        return next(filter(None, found), None)
    return None if actual == expected else f"{path} is {actual!r}, not {expected!r}"


ALL = [*chart_corpus.MATPLOTLIB, *chart_corpus.PANDAS, *chart_corpus.SEABORN, *chart_corpus.PLOTLY, *chart_corpus.ALTAIR]


@pytest.mark.parametrize(("code", "expected"), [case[1:] for case in ALL], ids=[case[0] for case in ALL])
def test_corpus(code: str, expected: str) -> None:
    chart, names = run(code)
    assert difference(chart, eval(expected, names)) is None, chart


@pytest.mark.parametrize(("code", "expected"), [case[1:] for case in chart_corpus.MATPLOTLIB[:40]])
def test_figures_without_notes_are_read_too(code: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "of", lambda _artist: None)
    run(code)


def test_samples_are_even_and_counted() -> None:
    chart, _names = run("plt.plot(np.arange(20_001.0) * 2)")
    (line,) = chart["series"]
    assert (line["points_total"], line["sampled"], len(line["x"])) == (20_001, True, 5_000)
    assert line["x"][0] == 0 and line["x"][-1] == 20_000 and line["y"] == [2 * x for x in line["x"]]


def test_a_large_matrix_is_sampled_with_its_sides() -> None:
    chart, names = run("z = rng.random((700, 300)); plt.imshow(z)")
    (series,) = chart["series"]
    assert series["shape_total"] == [700, 300] and series["sampled"]
    assert len(series["z"]) == len(series["y"]) and len(series["z"][0]) == len(series["x"])
    assert series["z"][5][7] == names["z"][series["y"][5], series["x"][7]]


@pytest.mark.parametrize(
    "code",
    [
        "[plt.plot(rng.random(9000)) for _ in range(60)]",
        "plt.bar([f'{\"long\" * 100}{i}' for i in range(900)], range(900))",
        "fig, axes = plt.subplots(9, 9); [ax.plot(rng.random(900)) for ax in axes.flat]",
        "[plt.plot([1, 2], label='x' * 5000) for _ in range(300)]; plt.title('t' * 100_000); plt.xlabel('t' * 100_000)",
    ],
)
def test_no_chart_is_larger_than_its_bound(code: str) -> None:
    names: dict[str, Any] = {"np": np, "plt": plt, "rng": np.random.default_rng(1)}
    exec(code, names)
    chart = charts.chart_of(plt.gcf())
    assert chart is not None and len(json.dumps(chart, ensure_ascii=False, separators=(",", ":")).encode()) <= encode.MAX_BYTES


def test_what_has_no_chart() -> None:
    for value in (None, 1, "x", pd.DataFrame({"a": [1]}), plt.figure(), plt):
        assert charts.chart_of(value) is None


def test_types_that_claim_to_be_charts() -> None:
    class BaseFigure:
        __module__ = "plotly.basedatatypes"

        @property
        def layout(self) -> Any:
            raise RuntimeError("no")

    assert charts.chart_of(BaseFigure()) is None


def test_the_methods_are_wrapped_once() -> None:
    before = plt.Axes.hist
    charts.prepare()
    assert plt.Axes.hist is before and before.__name__ == "hist" and before.__wrapped__.__qualname__ == "Axes.hist"


@pytest.mark.parametrize(
    ("label", "unit"),
    [
        ("Temperature (°C)", "°C"),
        ("speed [m/s]", "m/s"),
        ("Speed ($m/s$)", "m/s"),
        ("Revenue (in million USD)", "million USD"),
        ("Share (%)", "%"),
        ("Concentration (mol/(L s))", "mol/(L s)"),
        ("f(x)", None),
        ("Samples (n=20)", None),
        ("Year (2020)", None),
        ("Price (log scale)", None),
        ("Accuracy (higher is better)", None),
        ("(m)", None),
        ("plain", None),
        (None, None),
    ],
)
def test_units(label: str | None, unit: str | None) -> None:
    assert labels.unit(label) == unit
