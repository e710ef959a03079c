"""Data frames: cut parts are marked, and never more is cut than in a notebook."""

import pytest
from harness import Context


def test_o14_a_wide_frame(ctx: Context) -> None:
    (frame,) = ctx.run("import pandas as pd\npd.DataFrame({f'col{i:02d}': range(3) for i in range(30)})").results
    for form, shape in (("text/plain", "3 rows x 30 columns"), ("text/html", "3 rows \u00d7 30 columns")):
        assert all(part in frame[form] for part in ("col00", "col09", "col29", "...", shape)), frame[form]


def test_twenty_columns_are_not_cut(ctx: Context) -> None:
    (frame,) = ctx.run("import pandas as pd\npd.DataFrame({f'c{i}': [i] for i in range(20)})").results
    assert all(f"c{i}" in frame["text/plain"] for i in range(20)) and "..." not in frame["text/plain"]
    assert all(f"c{i}" in ctx.run("print(_)").stdout for i in range(20))


def test_limits_that_the_code_sets_hold(ctx: Context) -> None:
    ctx.run("import pandas as pd\npd.set_option('display.max_columns', None)")
    assert "c29" in (ctx.run("pd.DataFrame({f'c{i}': [i] for i in range(40)})").text or "")


def test_a_long_frame(ctx: Context) -> None:
    (frame,) = ctx.run("import pandas as pd\npd.DataFrame({'a': range(1000)})").results
    assert "[1000 rows x 1 columns]" in frame["text/plain"] and "999" in frame["text/html"]


def test_series_and_styler(ctx: Context) -> None:
    (series,) = ctx.run("import pandas as pd\npd.Series([1])").results
    assert series["text/plain"] == "0    1\ndtype: int64" and "text/html" not in series
    pytest.importorskip("jinja2")
    assert "<table" in ctx.run("pd.DataFrame({'a': [1]}).style").results[0]["text/html"]


def test_o15_polars(ctx: Context) -> None:
    pytest.importorskip("polars")
    (frame,) = ctx.run("import polars as pl\npl.DataFrame({f'c{i}': list(range(20)) for i in range(12)})").results
    lines = frame["text/plain"].splitlines()
    assert lines[0] == "shape: (20, 12)" and "…" in frame["text/plain"] and "text/html" in frame
    assert len({len(line) for line in lines[1:]}) == 1


def test_limits_that_the_code_sets_for_polars_hold(ctx: Context) -> None:
    pytest.importorskip("polars")
    code = "import polars as pl\npl.Config(tbl_rows=-1, tbl_cols=-1)\npl.DataFrame({f'c{i}': list(range(40)) for i in range(12)})"
    text = ctx.run(code).text or ""
    assert "c11" in text and "\u2026" not in text


def test_an_arrow_table(ctx: Context) -> None:
    pytest.importorskip("pyarrow")
    text = ctx.run("import pyarrow as pa\npa.table({'a': range(1000)})").text or ""
    assert text.startswith("pyarrow.Table\na: int64") and "..." in text


def test_a_large_array_is_summarised(ctx: Context) -> None:
    assert "..." in (ctx.run("import numpy as np\nnp.zeros((1000, 1000))").text or "")
