"""A cell's events as they come: their order, their end, and that a plain answer is their fold."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from cells import Context
from server import Server, wait_until

MEBIBYTE = 1 << 20
ORDERED = """
import os, sys
from IPython.display import clear_output, display
display("gone"); clear_output()
print("one", flush=True); print("two", file=sys.stderr, flush=True)
shown = display("first", display_id="d"); display("second"); shown.update("third")
os.system("echo three")
{"a": [1, 2]}
"""


class Stream:
    """The events of one cell."""

    def __init__(self, answer: requests.Response):
        self.answer = answer
        self.comments = 0
        self._lines = answer.iter_lines(chunk_size=65536, delimiter=b"\n")

    def __iter__(self) -> Iterator[tuple[str, dict]]:
        name = None
        for line in self._lines:
            if line.startswith(b":"):
                self.comments += 1
            elif line.startswith(b"event: "):
                name = line.removeprefix(b"event: ").decode("ascii")
            elif line.startswith(b"data: "):
                yield name, json.loads(line.removeprefix(b"data: ").decode("ascii"))


def ask(context: Context, code: str, accept: str = "text/event-stream", **fields) -> requests.Response:
    path = f"{context.api.base}/sandboxes/{context.sandbox}/repl/sessions/{context.id}/run"
    headers = {"Accept": accept, "Connection": "close"}
    return context.api.session.post(path, json={"code": code, **fields}, headers=headers, stream=True, timeout=60)


@contextmanager
def streamed(context: Context, code: str, **fields) -> Iterator[Stream]:
    with ask(context, code, **fields) as answer:
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Stream(answer)


def run(context: Context, code: str, **fields) -> list[tuple[str, dict]]:
    with streamed(context, code, **fields) as stream:
        events = list(stream)
    assert [name for name, _ in events].count("end") == 1 and events[-1][0] == "end", events[-3:]
    return events


def text(events: list[tuple[str, dict]], name: str) -> str:
    return "".join(data["chunk"] for kind, data in events if kind == name)


def fold(events: list[tuple[str, dict]]) -> dict:
    """The fields of a plain answer that the events determine."""
    main, displays, written = [], [], {"stdout": "", "stderr": ""}
    error, clear_on_next = None, False
    for name, data in events:
        shows = name in ("stdout", "stderr", "result", "display")
        if (clear_on_next and shows) or (name == "clear" and not data["wait"]):
            displays, written, clear_on_next = [], {"stdout": "", "stderr": ""}, False
        if name == "result":
            main = [data["data"]]
        elif name in written:
            written[name] += data["chunk"]
        elif name == "clear":
            clear_on_next = data["wait"]
        elif name == "display" and data.get("update"):
            displays = [(at, data["data"] if at == data["display_id"] else forms) for at, forms in displays]
        elif name == "display":
            displays.append((data.get("display_id"), data["data"]))
        elif name == "error":
            error = data["traceback"]
    stderr = written["stderr"]
    if error:
        stderr += "\n" * (bool(stderr) and not stderr.endswith("\n")) + error.rstrip("\n") + "\n"
    end = events[-1][1]
    same = ("exit_code", "context_state", "truncated", "stdout_bytes", "stderr_bytes")
    return {
        "stdout": written["stdout"],
        "stderr": stderr,
        "results": main + [forms for _, forms in displays],
        "error": error,
    } | {name: end[name] for name in same}


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (ORDERED, {}),
        ("print('begun'); 1 / 0", {}),
        ("import sys; print('x' * 5000); sys.stderr.write('é' * 5000); 1 / 0", {"max_output_bytes": 1000}),
        ("import sys; sys.exit(3)", {}),
        ("pass", {}),
    ],
    ids=["order", "error", "cut", "exit", "silent"],
)
def test_a_plain_answer_is_the_fold_of_the_events(make_context: Callable[..., Context], code: str, fields: dict):
    first, second = make_context(), make_context()
    events, plain = run(first, code, **fields), second.run(code, **fields).body
    folded = fold(events)
    assert folded == {name: plain.get(name) for name in folded}


def test_events_come_in_the_order_of_what_happened(ctx: Context):
    events = run(ctx, ORDERED)
    kinds = [name for name, _ in events]
    assert kinds.index("clear") < kinds.index("stdout") < kinds.index("result") < kinds.index("end")
    assert text(events, "stdout") == "one\nthree\n" and text(events, "stderr") == "two\n"
    end = events[-1][1]
    assert (end["status"], end["exit_code"], end["context_state"]) == ("ok", 0, "alive")
    assert "error" not in end and "context_reason" not in end


def test_output_comes_while_the_cell_runs(ctx: Context):
    with streamed(
        ctx, "print('now', flush=True)\ninput_never = __import__('time').sleep(20)", timeout_ms=3000
    ) as stream:
        begun = time.monotonic()
        events = iter(stream)
        assert next(events) == ("stdout", {"chunk": "now\n"})
        assert time.monotonic() - begun < 2.5
        end = list(events)[-1][1]
    assert (end["status"], end["code"], end["context_state"]) == ("timeout", "cell.timeout", "alive")
    assert "timeout" in end["error"]


def test_an_error_is_an_event_after_all_text_and_the_mark_of_a_cut_is_before_it(ctx: Context):
    events = run(ctx, "print('x' * 100_000); raise ValueError('é')", max_output_bytes=1000)
    assert text(events, "stdout") == "x" * 1000 + "\n[output cut: 1000 of 100001 bytes kept]\n"
    name, error = events[-2]
    assert (name, error["name"], error["value"]) == ("error", "ValueError", "é")
    assert error["traceback"].rstrip().endswith("ValueError: é")
    assert events[-1][1]["truncated"] and events[-1][1]["status"] == "error"


def test_a_dead_interpreter_is_told(ctx: Context):
    events = run(ctx, "import os; print('bye', flush=True); os._exit(7)")
    assert events[0] == ("stdout", {"chunk": "bye\n"})
    name, error = events[-2]
    assert (name, error["name"]) == ("error", "InterpreterDied")
    end = events[-1][1]
    assert (end["status"], end["exit_code"], end["code"], end["context_state"]) == ("died", 7, "cell.died", "restarted")
    assert end["context_reason"] in end["error"]


def test_who_goes_away_interrupts_the_cell(ctx: Context):
    code = "import time\nseen = []\ntry:\n    print('on', flush=True); time.sleep(50)\n"
    code += "except KeyboardInterrupt:\n    seen.append(1)"
    with streamed(ctx, code, timeout_ms=55_000) as stream:
        assert next(iter(stream))[0] == "stdout"
    begun = time.monotonic()
    assert ctx.run("seen", timeout=25).text == "[1]"
    assert time.monotonic() - begun < 20


def test_a_slow_reader_slows_the_cell_and_costs_no_memory(server: Server, ctx: Context):
    code = "print('x' * 1023 + '\\n', end='')\n" * 3 + "for _ in range(61_000): print('y' * 1023)"
    with streamed(ctx, code, max_output_bytes=64 * MEBIBYTE, timeout_ms=50_000) as stream:
        events = iter(stream)
        assert next(events)[0] == "stdout"
        time.sleep(2)
        assert _resident_megabytes(server.process.pid) < 300
        rest = list(events)
    assert rest[-1][1]["status"] == "ok" and rest[-1][1]["stdout_bytes"] == 61_003 * 1024
    assert all(len(data["chunk"]) <= 65536 for name, data in rest if name == "stdout")
    assert _resident_megabytes(server.process.pid) < 300


def _resident_megabytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / MEBIBYTE


def test_a_silent_cell_says_that_it_lives(ctx: Context):
    with streamed(ctx, "import time; time.sleep(11.5)", timeout_ms=30_000) as stream:
        events = list(stream)
    assert stream.comments >= 1 and [name for name, _ in events] == ["end"]


def test_refusals_before_the_start_are_plain_errors(ctx: Context):
    ctx_of_nobody = "0190a8b0-0000-7000-8000-000000000000"
    path = f"/sandboxes/{ctx.sandbox}/repl/sessions/{ctx_of_nobody}/run"
    answer = ctx.api.session.post(
        ctx.api.base + path, json={"code": "1"}, headers={"Accept": "text/event-stream"}, timeout=30
    )
    assert (answer.status_code, answer.json()["code"]) == (404, "context.not_found")
    with ask(ctx, "1", max_chars=0) as answer:
        assert (answer.status_code, answer.json()["code"]) == (400, "validation.field")


@pytest.mark.parametrize(
    "accept", ["*/*", "application/json", "application/json, text/event-stream;q=0.5", "text/html"]
)
def test_who_does_not_prefer_events_gets_json(ctx: Context, accept: str):
    with ask(ctx, "1 + 1", accept=accept) as answer:
        assert answer.json()["results"][0]["text/plain"] == "2"


def test_an_interrupt_ends_the_cell_and_keeps_its_variables(ctx: Context):
    path = f"/sandboxes/{ctx.sandbox}/repl/sessions/{ctx.id}/interrupt"
    assert ctx.api.post(path, None).json() == {"interrupted": False}
    ctx.run("kept = 41")
    cells = []
    runner = threading.Thread(target=lambda: cells.append(ctx.run("import time; time.sleep(50)", timeout=55)))
    runner.start()
    wait_until(lambda: ctx.api.post(path, None).json()["interrupted"], 20, "the interrupt")
    runner.join(20)
    [cell] = cells
    assert (cell.status, cell.error_name, cell.context_state) == (200, "KeyboardInterrupt", "alive")
    assert ctx.run("kept").text == "41"


@pytest.mark.parametrize("most", [1, 40, 500, 100_000])
def test_a_text_for_a_model_is_as_long_as_was_asked(ctx: Context, most: int):
    code = "for n in range(2000): print(f'{n}%', end='\\r')\n"
    code += "print('\\x1b[31mdone\\x1b[0m', 'z' * 3000)\nraise ValueError('why')"
    body = ctx.run(code, max_chars=most).body
    assert 0 < len(body["text"]) <= most
    assert "\r" not in body["text"] and "\x1b" not in body["text"]
    assert bool(body["cut"]) == (most < 3000)
    assert most < 40 or body["text"].endswith("ValueError: why")
