"""Texts that fit a budget: never longer, and what is left says what was cut."""

import collections
import dataclasses
import random
from typing import Any

import pytest
from harness import Context

from pandastack_interpreter.budget import render, shorten, shorten_traceback

LIMITS = (1, 2, 5, 11, 39, 40, 63, 100, 257, 1000, 4000)


@dataclasses.dataclass
class Row:
    name: Any
    items: Any


Pair = collections.namedtuple("Pair", "left right")


class Hostile:
    def __repr__(self) -> str:
        raise ValueError("no text")


class Chatty(list):
    def __repr__(self) -> str:
        return "chatty " * 500


def _random_value(dice: random.Random, depth: int = 0) -> Any:
    leaves = [
        lambda: dice.randint(-(10**30), 10**30),
        lambda: dice.random(),
        lambda: "ab\n'\u2615\ud800" * dice.randint(0, 200),
        lambda: bytes(dice.randint(0, 500)),
        lambda: None,
        Hostile,
        Chatty,
        lambda: range(10**9),
    ]
    if depth > 4 or dice.random() < 0.2:
        return dice.choice(leaves)()
    size = dice.choice((0, 1, 2, 5, (400, 20, 3, 2, 1)[depth]))
    items = [_random_value(dice, depth + 1) for _ in range(size)]
    makers = [
        lambda: items,
        lambda: tuple(items),
        lambda: {dice.choice((position, f"key {position}" * 9)): item for position, item in enumerate(items)},
        lambda: collections.OrderedDict(enumerate(items)),
        lambda: collections.deque(items),
        lambda: set(range(size)),
        lambda: Row(items, items[:2]),
        lambda: Pair(items, len(items)),
    ]
    return dice.choice(makers)()


@pytest.mark.parametrize("seed", range(60))
def test_no_text_is_longer_than_its_budget(seed: int) -> None:
    dice = random.Random(seed)
    value = _random_value(dice)
    try:
        text = repr(value)
    except ValueError:
        text = "x" * dice.randint(0, 9000)
    for limit in LIMITS:
        brief = render(value, text, limit)
        assert len(brief) <= limit
        assert (brief == text) == (len(text) <= limit)
        assert len(shorten(text, limit)) <= limit
        assert len(shorten_traceback(text, "E: no", limit)) <= limit


def test_no_budget_is_no_limit() -> None:
    assert render([1] * 9000, "text" * 9000, 0) == "text" * 9000


def test_a_string_keeps_head_and_tail() -> None:
    text = "start" + "x" * 1000 + "end"
    brief = shorten(text, 100)
    assert brief.startswith("startx") and brief.endswith("xend") and len(brief) <= 100
    head, _, rest = brief.partition("[... ")
    cut, _, tail = rest.partition(" characters cut ...]")
    assert len(head) + int(cut) + len(tail) == len(text)


def test_lines_stay_whole() -> None:
    text = "\n".join(f"line {number:04}" for number in range(1000))
    head, mark, tail = shorten(text, 300).partition("\n[... ")
    assert mark and all(len(line) == 9 for line in head.split("\n") + tail.split("...]\n")[1].split("\n"))


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (list(range(100_000)), ("[0, 1, 2, ", "more of 100,000, ", ", 99999]")),
        (tuple("ab" * 5000), ("('a', 'b', ", "more of 10,000, ", "'b')")),
        (set(range(5000)), ("{0, 1, 2, ", "more of 5,000}")),
        ({n: str(n) * 40 for n in range(5000)}, ("{0: '000", "...", "more of 5,000, ", "4999: '4999", "}")),
        ({"rows": [1] * 5000, "name": "n"}, ("{'rows': [1, 1, ", "more of 5,000, ", "'name': 'n'}")),
        ([{"id": n, "text": "t" * 500} for n in range(99)], ("[{'id': 0, 'text': 'tt", "more of 99, ", "{'id': 98, 'text': ")),
        (Row("a" * 900, list(range(900))), ("Row(name='aaa", "characters cut ...]", "items=[0, 1, ", "more of 900, ", "899])")),
        (Pair(list(range(900)), "b"), ("Pair(left=[0, 1, ", "more of 900, ", "right='b')")),
        (collections.Counter("a" * 9 + "".join(map(chr, range(200, 900)))), ("Counter({'a': 9, ", "more of 701, ", "})")),
        (dict.fromkeys(range(900)).keys(), ("dict_keys([0, 1, ", "more of 900, ", "899])")),
    ],
)
def test_containers_keep_their_structure_and_counts(value: Any, parts: tuple[str, ...]) -> None:
    brief = render(value, repr(value), 240)
    assert 120 < len(brief) <= 240
    position = 0
    for part in parts:
        assert part in brief[position:], (part, brief)
        position = brief.index(part, position) + len(part)


def test_a_text_of_its_own_is_only_shortened() -> None:
    text = "chatty " * 500
    assert render(Chatty([1, 2]), text, 200) == shorten(text, 200)


def test_a_container_within_itself() -> None:
    value: list[Any] = [1]
    value.append(value)
    assert len(render([value] * 1000, "x" * 9000, 300)) <= 300


def test_each_object_is_asked_for_its_text_once() -> None:
    class Counted:
        asked = 0

        def __repr__(self) -> str:
            type(self).asked += 1
            return "counted"

    render([[[Counted()] * 3] * 3] * 1000, "x" * 9000, 300)
    assert Counted.asked == 1
    render([[Counted() for _ in range(100)] for _ in range(1000)], "x" * 9000, 300)
    assert Counted.asked < 300


def test_pydantic_models() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", name=(str, ...), items=(list, ...))(name="n" * 300, items=list(range(900)))
    brief = render(model, repr(model), 150)
    assert brief.startswith("Model(name='nnn") and "more of 900" in brief and brief.endswith("899])")


def test_arrays_tell_shape_type_and_range() -> None:
    numpy = pytest.importorskip("numpy")
    grid = numpy.arange(10**6).reshape(1000, 1000)
    brief = render(grid, repr(grid), 200)
    assert brief.startswith("array of shape (1000, 1000), dtype int64, min 0, max 999999\narray([[     0, ...,")
    holes = numpy.array([1.0, numpy.nan, 3.0] * 300)
    assert "min 1.0, max 3.0, 300 NaN" in render(holes, repr(holes), 300)
    for limit in LIMITS:
        for value in (grid, holes, numpy.zeros((3,) * 9), numpy.array([[None, "x" * 999]] * 99), numpy.zeros((0, 5))):
            assert len(render(value, "x" * 5000, limit)) <= limit


@pytest.fixture
def wide() -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"id": range(10_000), "text": "t" * 90, **{f"c{n}": n * 0.5 for n in range(28)}})


def test_a_frame_keeps_header_types_shape_head_and_tail(wide: Any) -> None:
    brief = render(wide, wide.to_string(max_rows=60), 900)
    lines = brief.split("\n")
    assert len(brief) <= 900 and lines[0].split()[:2] == ["id", "text"] and lines[0].endswith("c27")
    assert lines[1].split()[1] == "0" and "... 9,996 rows cut of 10,000" in lines and any(line.startswith("9999") for line in lines)
    assert any(line.endswith("columns cut of 30") for line in lines)
    assert "[10,000 rows x 30 columns]" in lines and lines[-1].startswith("dtypes: float64(28)")


def test_frames_of_all_kinds_stay_within_the_budget(wide: Any) -> None:
    import pandas

    frames = [
        wide,
        wide.T,
        wide.head(5),
        wide["id"],
        wide["text"],
        wide.set_index(["id", "text"]),
        wide.describe(),
        pandas.DataFrame(),
        pandas.DataFrame(index=range(100)),
        pandas.DataFrame([["x" * 500] * 3], columns=["a" * 400, "a" * 400, "b\nc"]),
        pandas.DataFrame({("a", n): [n] for n in range(300)}),
        pandas.Series({"a" * 900: 1}, name="n" * 900),
    ]
    for frame in frames:
        for limit in LIMITS:
            assert len(render(frame, "x" * 5000, limit)) <= limit


def test_the_limits_that_the_code_sets_hold_within_a_budget(wide: Any) -> None:
    import pandas

    with pandas.option_context("display.max_rows", 2, "display.max_columns", 4, "display.precision", 1, "display.max_colwidth", 10):
        brief = render(wide, "x" * 9000, 3000)
    assert "... 9,998 rows cut of 10,000" in brief and "... 26 columns cut of 30" in brief and "13.5\n" in brief and "tttttt..." in brief


def test_a_subclass_with_its_own_text_is_only_shortened(wide: Any) -> None:
    import pandas

    class Quiet(pandas.DataFrame):
        def __repr__(self) -> str:
            return "quiet" * 100

    assert render(Quiet(wide), "quiet" * 100, 50) == shorten("quiet" * 100, 50)


def test_polars_and_arrow(wide: Any) -> None:
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    for frame in (polars.DataFrame(wide.to_dict("list")), pyarrow.table(wide.to_dict("list"))):
        for limit in LIMITS:
            assert len(render(frame, "x" * 9000, limit)) <= limit
    brief = render(polars.DataFrame(wide.to_dict("list")), "x" * 9000, 700)
    assert brief.startswith("shape: (10_000, 30)") and "9999" in brief and "c27" in brief and "\u2026" in brief
    table = render(pyarrow.table(wide.to_dict("list")), "x" * 9000, 1000)
    assert table.endswith("[10,000 rows x 30 columns]") and "id: int64" in table


def test_the_budget_of_a_cell(ctx: Context) -> None:
    run = ctx.run("display('d' * 5000); list(range(9000))", max_chars=100)
    assert [len(result["text/plain"]) <= 100 for result in run.results] == [True, True]
    assert "more of 9,000" in (run.text or "") and "characters cut" in run.results[1]["text/plain"]
    assert len(ctx.run("list(range(9000))").text or "") > 5000
    run = ctx.run("display({'text/plain': 'r' * 900}, raw=True)", max_chars=50)
    assert len(run.results[0]["text/plain"]) <= 50


def test_a_frame_of_a_cell(ctx: Context) -> None:
    run = ctx.run("import pandas as pd\npd.DataFrame({f'c{n}': range(5000) for n in range(20)})", max_chars=400)
    assert "rows cut of 5,000" in (run.text or "") and len(run.text or "") <= 400 and "<table" in run.results[0]["text/html"]


DEEP = """
import json
def load(text):
    return json.loads(text)
def outer():
    return load('{')
outer()
"""


def test_an_error_keeps_its_message_and_the_innermost_line_of_the_cell(ctx: Context) -> None:
    run = ctx.run(DEEP, max_chars=500)
    traceback = run.error["traceback"] if run.error else ""
    assert len(traceback) <= 500 and traceback.endswith("line 1 column 2 (char 1)") and "parts left out" in traceback
    assert "return json.loads(text)" in traceback and "in load(text)" in traceback


def test_an_error_within_little(ctx: Context) -> None:
    for limit in (10, 60, 200):
        run = ctx.run(DEEP, max_chars=limit)
        assert run.error and 0 < len(run.error["traceback"]) <= limit
    run = ctx.run("raise ValueError('m' * 9000)", max_chars=300)
    assert run.error and len(run.error["traceback"]) <= 300 and len(run.error["value"]) <= 300
    assert "raise ValueError" in run.error["traceback"] and "ValueError: mmm" in run.error["traceback"]


def test_pythons_own_traceback_is_shortened_too() -> None:
    frames = "".join(f'  File "/lib/module{n}.py", line {n}, in call\n    call()\n' for n in range(30))
    text = f'Traceback (most recent call last):\n  File "<ipython-input-1-aa>", line 1, in <module>\n    go()\n{frames}KeyError: 1'
    brief = shorten_traceback(text, "KeyError: 1", 400)
    assert len(brief) <= 400 and "    go()" in brief and brief.endswith("KeyError: 1") and "module29" in brief
