"""Values, display(), and what a value's forms look like on the wire."""

import base64
import json

import pytest
from harness import Context


def test_o01_a_semicolon_mutes_only_as_the_last_sign_of_code(ctx: Context) -> None:
    muted = ctx.run("x = 41\nx + 1;  # quiet")
    assert (muted.results, muted.error) == ([], None)
    assert [r["text/plain"] for r in ctx.run("x + 1  # left; right;").results] == ["42"]


def test_o02_prints_and_the_value_of_the_last_expression(ctx: Context) -> None:
    run = ctx.run("print('a')\nprint('b')\n1 + 2")
    assert (run.stdout, run.text, run.end["status"], run.end["exit_code"]) == ("a\nb\n", "3", "ok", 0)
    for code in ("y = 5", "None", "for i in range(3):\n    i"):
        quiet = ctx.run(code)
        assert (quiet.results, quiet.stdout, quiet.stderr, quiet.error) == ([], "", "", None)


def test_o03_an_update_replaces(ctx: Context) -> None:
    run = ctx.run("h = display('before', display_id=True)\nh.update('after')")
    assert run.results == [{"text/plain": "'after'"}]
    assert [e["update"] for e in run.events] == [False, True]


def test_a_display_id_is_always_text(ctx: Context) -> None:
    assert ctx.run("display(1, display_id=5);").events[0]["display_id"] == "5"


def test_clear_output_is_an_event(ctx: Context) -> None:
    run = ctx.run("from IPython.display import clear_output\ndisplay(1); clear_output(wait=True); display(2)")
    assert [e["op"] for e in run.events] == ["display", "clear", "display"] and run.events[1]["wait"] is True
    assert run.results == [{"text/plain": "2"}]


def test_the_main_result_comes_beside_displays(ctx: Context) -> None:
    run = ctx.run("def f():\n    display('a')\n    return 5\nf()")
    assert [e["op"] for e in run.events] == ["display", "result"] and run.text == "5"


def test_o16_json_has_no_nan(ctx: Context) -> None:
    run = ctx.run("from IPython.display import JSON, display\ndisplay(JSON({'a': float('nan'), 'b': float('inf'), 'c': 1.5}))")
    assert json.loads(run.results[0]["application/json"]) == {"a": None, "b": None, "c": 1.5}
    assert run.stderr == ""


def test_json_kinds_take_whatever_python_has(ctx: Context) -> None:
    run = ctx.run(
        "import numpy as np, datetime\nclass M:\n    def _repr_mimebundle_(self, **k):\n"
        "        return {'application/x.y+json': {1: np.arange(2), 'd': datetime.date(2020, 1, 2), 's': {3}, 'f': np.float64('nan')}}\nM()"
    )
    value = json.loads(run.results[0]["application/x.y+json"])
    assert value == {"1": [0, 1], "d": "2020-01-02", "s": "{3}", "f": None}


def test_a_json_value_within_itself_is_no_hang(ctx: Context) -> None:
    run = ctx.run("from IPython.display import JSON\nd = {}; d['d'] = d\nJSON(d)")
    assert run.end["status"] in ("ok", "error")
    assert ctx.run("1").text == "1"


def test_a_broken_rich_form_leaves_the_text(ctx: Context) -> None:
    run = ctx.run("class B:\n    def _repr_html_(self): raise ValueError('html')\n    def __repr__(self): return 'B'\nB()")
    assert (run.results, run.error, run.end["status"]) == ([{"text/plain": "B"}], None, "ok")
    assert "ValueError: html" in run.stderr and "pandastack" not in run.stderr and "IPython" not in run.stderr


@pytest.mark.parametrize("use", ["C()", "display(C())", "print(C())"])
def test_a_broken_repr_is_the_cells_error(ctx: Context, use: str) -> None:
    run = ctx.run(f"class C:\n    def __repr__(self): raise ValueError('rep')\n{use}")
    assert run.error and (run.error["name"], run.error["value"], run.results) == ("ValueError", "rep", [])
    assert "in C.__repr__" in run.error["traceback"] and run.end["status"] == "error"


def test_an_endless_repr_of_itself(ctx: Context) -> None:
    run = ctx.run("class D:\n    def __repr__(self): return repr(self)\nD()")
    assert run.error and run.error["name"] == "RecursionError" and len(run.error["traceback"]) < 20_000


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nP(1)", "P(x=1)"),
        ("(i for i in [])", "<generator object"),
        ("b'x'", "b'x'"),
        ("...", "Ellipsis"),
        ("'\\ud800'", "'\\ud800'"),
    ],
)
def test_plain_values(ctx: Context, code: str, text: str) -> None:
    assert (ctx.run(code).text or "").startswith(text)


def test_long_text_is_cut_with_a_mark(ctx: Context) -> None:
    text = ctx.run("'x' * 3_000_000").text or ""
    assert len(text) < 1_100_000 and "characters cut" in text and text.endswith("x'")
    assert (ctx.run("list(range(10**6))").text or "").endswith("...]")


@pytest.mark.parametrize("value", ["'a' * 30_000_000", "'\\x01' * 5_000_000", "'☕' * 9_000_000"])
def test_a_form_that_fits_no_message_is_dropped_with_a_note(ctx: Context, value: str) -> None:
    run = ctx.run(f"from IPython.display import HTML\nHTML({value})")
    assert "text/html" not in run.results[0] and "dropped: too large" in run.results[0]["text/plain"]
    assert ctx.run("1").text == "1"


def test_forms_have_text_for_names_and_values(ctx: Context) -> None:
    run = ctx.run(
        "class M:\n    def _repr_mimebundle_(self, **k): return {1: 2, 'x' * 9000: 'y', 'image/gif': b'\\xff\\x00', 'text/html': None}\nM()"
    )
    bundle = run.results[0]
    assert all(isinstance(v, str) and len(k) < 2000 for k, v in bundle.items())
    assert bundle["1"] == "2" and base64.b64decode(bundle["image/gif"]) == b"\xff\x00"


def test_base64_has_no_line_breaks(ctx: Context) -> None:
    run = ctx.run("from IPython.display import Image\nImage(data=b'\\x89PNG\\r\\n\\x1a\\n' + bytes(500), format='png')")
    assert "\n" not in run.results[0]["image/png"]


def test_half_a_character_in_a_form_is_sent_as_its_escape(ctx: Context) -> None:
    run = ctx.run("from IPython.display import HTML\nHTML('a\\ud800b')")
    assert run.results[0]["text/html"] == "a\\ud800b"


def test_a_value_that_displays_itself(ctx: Context) -> None:
    run = ctx.run("class E:\n    def _ipython_display_(self): print('shown')\nE()")
    assert (run.stdout, run.results) == ("shown\n", [])


def test_underscores_are_empty_before_the_first_value(ctx: Context) -> None:
    assert ctx.run("print(repr((_, __, ___)))").stdout == "('', '', '')\n"


def test_text_and_displays_keep_their_places(ctx: Context) -> None:
    cell = ctx.start("for i in range(20): print(i); display(i)")
    order = []
    while True:
        message, _fds = ctx.channel.receive()
        if message["op"] == "display":
            order.append(ctx.read("stdout"))
        elif message["op"] == "sync":
            ctx.channel.send({"op": "synced"})
        elif message["op"] == "end" and message["cell"] == cell:
            break
    assert order == [f"{i}\n" for i in range(20)]


def test_a_display_of_a_thread_waits_for_nobody(ctx: Context) -> None:
    code = "import threading\nt = threading.Thread(target=lambda: display('in a thread')); t.start(); t.join()"
    assert [result["text/plain"] for result in ctx.run(code).results] == ["'in a thread'"]


def test_old_results_are_forgotten_without_a_word(ctx: Context) -> None:
    prepare = "import weakref\nclass Big: pass\nkept = []\ndef make():\n    b = Big(); kept.append(weakref.ref(b)); return b"
    ctx.run(prepare)
    assert all(ctx.run("make()").stderr == "" for _ in range(150))
    assert ctx.run("sum(ref() is not None for ref in kept) <= 110 and len(Out) <= 110").text == "True"
