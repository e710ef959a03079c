"""Tasks that outlive their cell."""

import time
from pathlib import Path

from harness import Context

SLEEPER = "import asyncio\nasync def f():\n    await asyncio.sleep(0.05)\n    return 41\n"


def test_a_task_made_without_await_is_awaited_in_the_next_cell(ctx: Context) -> None:
    assert ctx.run(SLEEPER + "t = asyncio.create_task(f())").error is None
    assert ctx.run("await t").text == "41"


def test_tasks_go_on_between_cells(ctx: Context, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"async def write():\n    await f()\n    open({str(mark)!r}, 'w').close()\nt = asyncio.create_task(write())"
    first = ctx.run(SLEEPER + code)
    assert first.end["tasks"] == 1
    deadline = time.monotonic() + 30
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    second = ctx.run("t.done()")
    assert (second.text, second.stdout, second.end["tasks"]) == ("True", "", 0)


def test_a_task_that_exits_between_cells_ends_itself_only(ctx: Context) -> None:
    ctx.run("import asyncio, time\nasync def leave():\n    raise SystemExit(3)\nkeep = 41\nt = asyncio.create_task(leave())")
    time.sleep(0.2)
    assert ctx.run("keep, t.done()").text == "(41, True)"


def test_a_task_in_a_thread_without_a_loop_is_still_an_error(ctx: Context) -> None:
    code = (
        "import asyncio, threading\nasync def f(): pass\ndef work():\n    c = f()\n    try: asyncio.create_task(c)\n"
        "    except RuntimeError as e: print(e); c.close()\nt = threading.Thread(target=work); t.start(); t.join()"
    )
    assert "no running event loop" in ctx.run(code).stdout


def test_what_a_thread_displays_after_its_cell_is_late_text(ctx: Context) -> None:
    show = "def show():\n    time.sleep(0.3)\n    display(HTML('late'))\n"
    ctx.run(f"import threading, time\nfrom IPython.display import HTML, display\n{show}threading.Thread(target=show).start()")
    run = ctx.run("time.sleep(1)\n2")
    assert run.text == "2" and [late["cell"] for late in run.late] == [1]
    assert "HTML" in run.late[0]["text"]
