"""What is the same in contexts of every other language."""

import os
import signal
import time
from collections.abc import Iterator

import pytest
from harness import ChannelClosed, Context, Zygote

from pandastack_interpreter.languages import LANGUAGES

SET, GET, SLEEP, EXIT, DIE = range(5)
SNIPPETS = {
    "bash": ("keep=41", "echo $keep", "sleep 99", "exit 3", "kill -9 $$"),
    "node": (
        "keep = 41; undefined",
        "console.log(keep)",
        "require('child_process').execSync('sleep 99')",
        "process.exit(3)",
        "process.kill(process.pid, 'SIGKILL'); await new Promise(() => {})",
    ),
}


@pytest.fixture(params=SNIPPETS)
def other(zygote: Zygote, request: pytest.FixtureRequest) -> Iterator[tuple[Context, tuple[str, ...]]]:
    context = zygote.fork(language=request.param)
    yield context, SNIPPETS[request.param]
    context.close()


Other = tuple[Context, tuple[str, ...]]


def test_every_language_is_tested() -> None:
    assert set(SNIPPETS) == set(LANGUAGES)


def test_state_lasts(other: Other) -> None:
    context, code = other
    first = context.run(code[SET])
    assert (first.error, first.end["status"], first.end["exit_code"], first.end["execution_count"]) == (None, "ok", 0, 1)
    run = context.run(code[GET])
    assert (run.stdout, run.stderr, run.error, run.end["execution_count"]) == ("41\n", "", None, 2)


@pytest.mark.parametrize("language", SNIPPETS)
def test_a_process_forked_ahead_of_time_becomes_a_context_of_any_language(zygote: Zygote, language: str) -> None:
    context = zygote.fork()
    context.channel.send({"op": "assign", "cwd": "/usr", "env": {"GREETING": "hi"}, "language": language})
    code = {"bash": "echo $GREETING $PWD", "node": "console.log(process.env.GREETING, process.cwd())"}[language]
    assert context.run(code).stdout == "hi /usr\n"
    context.close()


def test_an_exit_ends_the_cell_and_keeps_the_state(other: Other) -> None:
    context, code = other
    context.run(code[SET])
    run = context.run(code[EXIT])
    assert run.error and (run.error["name"], run.error["value"], run.end["exit_code"]) == ("ExitStatus", "exit status 3", 3)
    assert context.run(code[GET]).stdout == "41\n"


def test_an_interrupt_ends_the_foreground_command_and_the_cell(other: Other) -> None:
    context, code = other
    context.run(code[SET])
    run = context.run(code[SLEEP], interrupt_after=0.3)
    assert run.error and (run.error["name"], run.end["exit_code"]) == ("KeyboardInterrupt", 130)
    assert context.run(code[GET]).stdout == "41\n"


def test_an_interrupt_between_cells_does_nothing(other: Other) -> None:
    context, code = other
    context.run(code[SET])
    for _ in range(20):
        os.killpg(context.pid, signal.SIGINT)
        time.sleep(0.005)
    assert context.run(code[GET]).stdout == "41\n"


def test_an_interrupt_while_the_interpreter_starts(zygote: Zygote) -> None:
    for language, code in SNIPPETS.items():
        context = zygote.fork(language=language)
        run = context.run(code[SLEEP], interrupt_after=0)
        assert run.error and run.error["name"] == "KeyboardInterrupt"
        context.run(code[SET])
        assert context.run(code[GET]).stdout == "41\n"
        context.close()


def test_the_driver_dies_as_its_interpreter_did(zygote: Zygote, other: Other) -> None:
    context, code = other
    context.run(code[SET])
    with pytest.raises(ChannelClosed):
        context.run(code[DIE])
    while not any(exit["pid"] == context.pid for exit in zygote.exits):
        zygote.expect("exited")
    assert next(exit for exit in zygote.exits if exit["pid"] == context.pid)["signal"] == signal.SIGKILL


def test_a_fence_is_taken_off(other: Other) -> None:
    context, code = other
    context.run(code[SET])
    for name in ("", "bash", "javascript"):
        run = context.run(f"```{name}\n{code[GET]}\n```")
        if run.stdout == "41\n":
            break
    assert (run.stdout, run.error) == ("41\n", None)


def test_an_unknown_language_is_no_context(zygote: Zygote) -> None:
    context = zygote.fork(language="cobol")
    with pytest.raises(ChannelClosed):
        context.run("1")
