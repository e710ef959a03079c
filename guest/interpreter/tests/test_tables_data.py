"""Tables as data: what is in a table, bounded whatever the table is."""

import datetime
import decimal
import json
import subprocess
import sys
import types
import uuid
from typing import Any

import pytest
from harness import PACKAGE_ROOT, Context
from IPython.core.formatters import DisplayFormatter

from pandastack_interpreter import tables
from pandastack_interpreter.tables.cells import Cells
from pandastack_interpreter.tables.document import MAX_BYTES, sample_step

pandas = pytest.importorskip("pandas")
numpy = pytest.importorskip("numpy")

MIME = "application/vnd.pandastack.table+json"


@pytest.fixture(scope="module")
def formatter() -> Any:
    shell = types.SimpleNamespace(display_formatter=DisplayFormatter())
    tables.register(shell)
    return shell.display_formatter.formatters[MIME]


@pytest.fixture
def read(formatter: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """Reads a table, within the bounds and without a word."""

    def read(value: Any) -> Any:
        found = formatter(value)
        text = json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        assert len(text.encode("utf-8", "backslashreplace")) <= MAX_BYTES
        assert capsys.readouterr() == ("", "")
        return found

    return read


def test_a_frame_of_a_cell_has_all_three_forms(ctx: Context) -> None:
    run = ctx.run("import pandas as pd\npd.DataFrame({'a': [1, 2, None]})")
    assert list(run.results[0]) == ["text/plain", "text/html", MIME] and run.stderr == ""
    assert json.loads(run.results[0][MIME]) == {
        "version": 1,
        "library": "pandas",
        "kind": "frame",
        "shape": [3, 1],
        "columns": [{"name": "a", "dtype": "float64", "nulls": 1, "min": 1.0, "max": 2.0, "mean": 1.5, "unique": 2}],
        "index": {"names": [None], "dtype": "int64", "head": [0, 1, 2], "tail": []},
        "head": [[1.0], [2.0], [None]],
        "tail": [],
        "memory_bytes": 156,
        "truncated": {},
    }


def test_a_displayed_frame_has_it_too(ctx: Context) -> None:
    run = ctx.run("import pandas as pd\ndisplay(pd.DataFrame({'a': [1]}), include=[]); display(pd.Series([1]))")
    assert [json.loads(result[MIME])["kind"] for result in run.results] == ["frame", "series"]


def test_values_that_are_no_tables_have_none(ctx: Context) -> None:
    for code in ("[1]", "import numpy as np\nnp.zeros((3, 3))", "'text'", "import pandas as pd\npd.DataFrame"):
        assert [list(result) for result in ctx.run(code).results] == [["text/plain"]]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (float("nan"), None),
        (float("-inf"), "-inf"),
        (pandas.NaT, None),
        (pandas.NA, None),
        (numpy.datetime64("NaT", "s"), None),
        (decimal.Decimal("NaN"), None),
        (numpy.float32(0.5), 0.5),
        (numpy.bool_(True), True),
        (numpy.int64(7), 7),
        (2**53, 2**53),
        (2**53 + 1, "9007199254740993"),
        pytest.param(10**5000, "<int of 16,610 bits>", id="large"),
        (numpy.datetime64("2020-01-02T03:04"), "2020-01-02T03:04"),
        (numpy.timedelta64(90, "s"), "P0DT0H1M30S"),
        (datetime.date(2020, 1, 2), "2020-01-02"),
        (datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC), "2020-01-02T00:00:00+00:00"),
        (pandas.Timestamp("2020-01-02 03:04:05.000000006", tz="Europe/Berlin"), "2020-01-02T03:04:05.000000006+01:00"),
        (datetime.timedelta(days=-1, hours=1, microseconds=500), "P-1DT1H0M0.0005S"),
        (pandas.Timedelta(days=1), "P1DT0H0M0S"),
        (pandas.Period("2020-03"), "2020-03"),
        (pandas.Interval(0, 1), "(0, 1]"),
        (decimal.Decimal("1.50"), "1.50"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (1 + 2j, "(1+2j)"),
        (b"x", "b'x'"),
        ({"a": [1]}, "{'a': [1]}"),
        ("t" * 90, "t" * 12 + "[... 67 characters cut ...]" + "t" * 11),
        ("a\ud800", "a\ud800"),
    ],
)
def test_cells_are_plain(value: Any, plain: Any) -> None:
    found = Cells(50).plain(value)
    assert found == plain and type(found) is type(plain)


def test_every_type_of_pandas(read: Any) -> None:
    found = read(
        pandas.DataFrame(
            {
                "time": pandas.to_datetime(["2020-01-01", None]).tz_localize("UTC"),
                "nullable": pandas.array([1, None], dtype="Int64"),
                "kind": pandas.Categorical(["q", "q"]),
                "text": ["x", None],
                "mixed": [[1, 2], b"xx"],
                "month": pandas.period_range("2020", periods=2, freq="M"),
                "yes": [True, False],
            }
        )
    )
    columns = {column.pop("name"): column for column in found["columns"]}
    assert columns["time"]["dtype"].endswith("UTC]") and columns["time"]["min"] == "2020-01-01T00:00:00+00:00"
    assert columns["nullable"] == {"dtype": "Int64", "nulls": 1, "min": 1, "max": 1, "mean": 1.0, "unique": 1}
    assert columns["kind"] == {"dtype": "category", "nulls": 0, "unique": 1, "top": "q", "top_count": 2}
    assert (columns["text"]["nulls"], columns["text"]["top"]) == (1, "x")
    assert columns["mixed"]["holds"] == ["bytes", "list"] and columns["yes"]["true"] == 1
    assert (columns["month"]["min"], columns["month"]["max"]) == ("2020-01", "2020-02")
    assert found["head"][1] == [None, None, "q", None, "b'xx'", "2020-02", False]


def test_labels_of_several_levels_and_names_that_occur_twice(read: Any) -> None:
    frame = pandas.DataFrame({"k": ["a", "a", "b"], "l": [1, 2, 1], "v": [1.0, 2.0, 3.0]})
    described = read(frame.groupby("k")[["v"]].describe())
    assert described["columns"][1]["name"] == "v / mean" and described["columns"][1]["path"] == ["v", "mean"]
    indexed = read(frame.set_index(["k", "l"]))
    assert indexed["index"]["names"] == ["k", "l"] and indexed["index"]["head"] == [["a", 1], ["a", 2], ["b", 1]]
    twice = read(pandas.DataFrame([[1, "x"]], columns=["a", "a"]))
    assert [column["name"] for column in twice["columns"]] == ["a", "a"] and twice["head"] == [[1, "x"]]


@pytest.mark.parametrize(("frame", "shape"), [({}, [0, 0]), ({"columns": ["a"]}, [0, 1]), ({"index": range(3)}, [3, 0])])
def test_empty_frames(read: Any, frame: Any, shape: list[int]) -> None:
    found = read(pandas.DataFrame(**frame))
    assert found["shape"] == shape and found["head"] == [[]] * shape[0] and len(found["columns"]) == shape[1]


def test_series_and_styler(read: Any) -> None:
    found = read(pandas.Series([1, 2], name="n", index=["a", "b"]))
    assert (found["kind"], found["columns"][0]["name"], found["index"]["head"]) == ("series", "n", ["a", "b"])
    assert read(pandas.Series([1]))["columns"][0]["name"] is None
    pytest.importorskip("jinja2")
    assert read(pandas.DataFrame({"a": [5]}).style.format("{:.3f}"))["head"] == [[5]]


def test_many_rows_are_told_by_both_ends_and_a_sample(read: Any) -> None:
    found = read(
        pandas.DataFrame({"n": numpy.arange(21_000_000), "text": pandas.Categorical.from_codes(numpy.zeros(21_000_000, "int8"), ["a"])})
    )
    number, text = found["columns"]
    assert found["shape"] == [21_000_000, 2] and number["nulls"] == 0 and 0 < number["summary_of_rows"] <= 10_000_000
    assert text["nulls_of_rows"] == text["summary_of_rows"] <= 125_000
    assert [row[0] for row in found["head"]] == list(range(10)) and found["tail"][-1][0] == 20_999_999
    assert found["truncated"] == {"rows": 21_000_000 - 20}


def test_a_sample_does_not_keep_step_with_the_values(read: Any) -> None:
    column = read(pandas.DataFrame({"o": numpy.array([None, "x"] * 500_000, dtype=object)}))["columns"][0]
    assert abs(column["nulls"] / column["nulls_of_rows"] - 0.5) < 0.01
    assert sample_step(60, 10**6, 1) == 1 and {sample_step(2 * 10**6, 10**6, 1), sample_step(24 * 10**6, 10**6, 1)} == {11, 29}


def test_many_columns_are_told_by_both_ends(read: Any) -> None:
    found = read(pandas.DataFrame(numpy.zeros((30, 10_000))))
    assert found["shape"] == [30, 10_000] and found["truncated"]["columns"] == 10_000 - len(found["columns"])
    before = found["truncated"]["columns_before"]
    assert [found["columns"][at]["name"] for at in (0, before - 1, -1)] == ["0", str(before - 1), "9999"]
    assert {len(row) for row in found["head"] + found["tail"]} == {len(found["columns"])}


@pytest.mark.parametrize("text", ["x" * 5000, "\u2615" * 5000, '"\\\n' * 5000])
def test_long_texts_are_cut(read: Any, text: str) -> None:
    found = read(pandas.DataFrame({f"{text}{n}": [text] * 70 for n in range(70)}, index=[text] * 70))
    assert found["truncated"]["texts"] > 0 and found["columns"][0]["unique"] == 1


def test_hostile_objects(read: Any) -> None:
    class Hostile:
        touched = 0

        def _fail(self, *_arguments: Any) -> Any:
            Hostile.touched += 1
            raise ValueError("no")

        __repr__ = __len__ = __hash__ = __eq__ = __lt__ = __bool__ = __float__ = _fail

    column = numpy.empty(100_000, dtype=object)
    column[:] = [Hostile()] * len(column)
    found = read(pandas.DataFrame({"o": column}))
    assert found["head"][0] == ["<Hostile>"] and found["columns"][0]["holds"] == ["Hostile"] and Hostile.touched < 1000


def test_what_cannot_be_read_leaves_the_other_forms(ctx: Context) -> None:
    run = ctx.run("import pandas as pd\nclass Quiet(pd.Series):\n    def to_frame(self): raise ValueError('no')\nQuiet([1])")
    assert run.error is None and list(run.results[0]) == ["text/plain"] and run.stderr == ""


def test_polars(read: Any) -> None:
    polars = pytest.importorskip("polars")
    found = read(polars.DataFrame({"a": [1, None, 3], "s": ["x", "x", None], "l": [[1], [], None], "b": [True, False, None]}))
    assert (found["library"], found["kind"], found["shape"], "index" in found) == ("polars", "frame", [3, 4], False)
    assert found["columns"][0] == {"name": "a", "dtype": "Int64", "nulls": 1, "min": 1, "max": 3, "mean": 2.0, "unique": 2}
    assert found["columns"][1] == {"name": "s", "dtype": "String", "nulls": 1, "unique": 1, "top": "x", "top_count": 2}
    assert found["head"] == [[1, "x", "[1]", True], [None, "x", "[]", False], [3, None, None, None]]
    assert read(polars.Series("n", [1.5]))["kind"] == "series"
    assert read(polars.DataFrame())["shape"] == [0, 0]


def test_a_lazy_frame_is_not_computed(read: Any) -> None:
    polars = pytest.importorskip("polars")
    computed = []
    lazy = polars.LazyFrame({"a": [1]}).map_batches(lambda frame: computed.append(frame) or frame, schema={"a": polars.Int64})
    found = read(lazy)
    assert found["shape"] == [None, 1] and found["columns"] == [{"name": "a", "dtype": "Int64"}]
    assert computed == [] and "head" not in found


def test_nested_values_of_millions_are_not_read(read: Any) -> None:
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    many = numpy.zeros(2_000_000)
    offsets = pyarrow.array([0, len(many)], type=pyarrow.int32())
    arrow = pyarrow.table({"a": [1], "l": pyarrow.ListArray.from_arrays(offsets, pyarrow.array(many))})
    for table in (polars.DataFrame({"a": [1], "l": [polars.Series(many)]}), arrow):
        found = read(table)
        assert found["head"] == [[1, None]] and found["truncated"] == {"unreadable": 1}


def test_arrow(read: Any) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"a": [1, None, 3], "s": ["x", "y", None], "l": [[1], [2], None], "b": [True, None, False]})
    for value in (table, table.to_batches()[0]):
        found = read(value)
        assert (found["library"], found["shape"]) == ("pyarrow", [3, 4])
        assert found["columns"][0] == {"name": "a", "dtype": "int64", "nulls": 1, "min": 1, "max": 3, "mean": 2.0, "unique": 2}
        assert found["columns"][3]["true"] == 1 and found["head"][2] == [3, None, None, False]
    spans = read(pyarrow.table({"d": pyarrow.array([1, None], type=pyarrow.duration("s"))}))
    assert spans["columns"][0]["nulls"] == 1 and spans["head"] == [["P0DT0H0M1S"], [None]]
    assert read(pyarrow.chunked_array([[1, 2], [3]]))["head"] == [[1], [2], [3]]
    assert read(pyarrow.table({}))["shape"] == [0, 0]


def test_arrays_of_records(read: Any) -> None:
    found = read(numpy.array([(1, 2.5, "x"), (2, float("nan"), "y")], dtype=[("a", int), ("b", float), ("c", "U5")]))
    assert found["library"] == "numpy" and found["head"] == [[1, 2.5, "x"], [2, None, "y"]] and found["columns"][1]["nulls"] == 1


def test_no_library_is_imported_for_it() -> None:
    code = (
        "from IPython.core.formatters import DisplayFormatter\nfrom pandastack_interpreter import tables\nimport sys, types\n"
        "shell = types.SimpleNamespace(display_formatter=DisplayFormatter())\n"
        "tables.register(shell)\nshell.display_formatter.format([1])\n"
        "print([name for name in ('pandas', 'numpy', 'polars', 'pyarrow') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE_ROOT, capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
