"""Contexts that run bash."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Context, Zygote


@pytest.fixture
def bash(zygote: Zygote) -> Iterator[Context]:
    context = zygote.fork(language="bash")
    yield context
    context.close()


def test_directory_variables_and_functions_last(bash: Context) -> None:
    bash.run("cd /usr; x=5; export E=q; f() { echo in f $1; }; declare -A m=([a]=1); shopt -s nullglob; set -- p q")
    assert bash.run("f $x; pwd; env | grep ^E=; echo ${m[a]} $2 $0 $?; echo /nothing*").stdout == "in f 5\n/usr\nE=q\n1 q bash 0\n\n"


def test_the_last_status_is_the_cells(bash: Context) -> None:
    run = bash.run("false")
    assert run.error and (run.error["value"], run.end["exit_code"]) == ("exit status 1", 1)
    assert bash.run("echo $?").stdout == "1\n"


@pytest.mark.parametrize(
    ("code", "status"),
    [("exit 7", 7), ("set -e\nfalse\necho no", 1), ("set -u\necho $nothing\necho no", 127), (": ${nothing?told}", 127), ("kill $$", 143),
     ("g() { exit 4; }\ng", 4), ("trap 'echo bye >&2; exit 9' EXIT\nexit 1", 9)],
)  # fmt: skip
def test_a_cell_that_ends_its_shell_keeps_the_state(bash: Context, code: str, status: int) -> None:
    bash.run("cd /usr; x='a\nb'; f() { echo in f; }; shopt -s extglob; declare -r fixed=1; list=(1 '2 3')")
    run = bash.run("y=7\n" + code)
    assert run.error and (run.stdout, run.end["exit_code"]) == ("", status)
    assert bash.run('f; echo "$x" $y $fixed "${list[1]}"; pwd; shopt extglob').stdout == "in f\na\nb 7 1 2 3\n/usr\nextglob        \ton\n"


def test_what_set_switches_on_holds_for_its_cell(bash: Context) -> None:
    bash.run("set -euxo pipefail")
    run = bash.run("false | true; echo $nothing on")
    assert (run.stdout, run.stderr, run.error) == ("on\n", "", None)


def test_traces_are_the_cells_own(bash: Context) -> None:
    lines = bash.run("set -x\necho a").stderr.splitlines()
    assert [line.lstrip("+ ") for line in lines] == ["echo a"]


def test_an_unfinished_construct_is_an_error_with_its_line(bash: Context) -> None:
    run = bash.run("echo a\nif true; then")
    assert run.end["exit_code"] == 2 and "line 3: syntax error: unexpected end of file" in run.stderr
    run = bash.run("echo 'a")
    assert run.end["exit_code"] == 2 and "line 1: unexpected EOF" in run.stderr


def test_messages_have_the_cells_lines(bash: Context) -> None:
    assert bash.run("\n\nnosuchcommand").stderr == "bash: line 3: nosuchcommand: command not found\n"


def test_constructs_of_many_lines(bash: Context) -> None:
    run = bash.run("x=1\ncat <<X\n$x\nX\nfor i in 1 2\ndo\n  echo $i\ndone\ncat <<'Y'\n$x\nY")
    assert run.stdout == "1\n1\n2\n$x\n"


def test_a_stray_break_ends_only_the_cell(bash: Context) -> None:
    assert bash.run("x=3; break; echo no").stdout == ""
    assert bash.run("echo $x").stdout == "3\n"


def test_background_jobs(bash: Context) -> None:
    bash.run("sleep 0.1 & p=$!")
    assert bash.run("wait $p; echo $?").stdout == "0\n"


def test_input(bash: Context) -> None:
    run = bash.run('read a; echo "[$a]"; head -n 1; cat', stdin="1\n2\n3\n")
    assert run.stdout == "[1]\n2\n3\n"
    assert bash.run('read a; echo "$? [$a]"; cat').stdout == "1 []\n"


def test_environment_and_directory_of_one_cell(bash: Context) -> None:
    run = bash.run('echo "$A"; printenv A; pwd', env={"A": "1 '\n$x"}, cwd="/usr")
    assert run.stdout == "1 '\n$x\n1 '\n$x\n/usr\n"
    assert bash.run('echo "[$A]"; pwd').stdout == "[]\n/tmp\n"
    bash.run("exit 1", cwd="/usr")
    assert bash.run("pwd").stdout == "/tmp\n"


def test_any_output(bash: Context) -> None:
    assert bash.run(r"printf 'a\0b'").stdout == "a\0b"
    assert len(bash.run("head -c 3000000 /dev/zero | tr '\\0' x").stdout) == 3000000


def test_a_nul_in_the_code_is_refused(bash: Context) -> None:
    run = bash.run("echo a\0b")
    assert run.error and "NUL" in run.error["value"]
    assert bash.run("echo 1").stdout == "1\n"


@pytest.mark.parametrize(
    "code", ["while :; do :; done", "while :; do true | cat; done", "yes", "read x < <(sleep 99)", "( while :; do :; done )"]
)
def test_interrupts(bash: Context, code: str) -> None:
    bash.run("keep=41")
    run = bash.run(code, interrupt_after=0.3)
    assert run.error and run.error["name"] == "KeyboardInterrupt"
    assert bash.run("echo $keep").stdout == "41\n"


def test_no_limit_on_the_address_space_of_commands(zygote: Zygote) -> None:
    context = zygote.fork({"PANDASTACK_MEMORY_LIMIT_BYTES": str(2**31)}, language="bash")
    assert context.run("ulimit -v").stdout == "unlimited\n"
    context.close()


def test_no_start_up_files(zygote: Zygote, tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("echo noise")
    context = zygote.fork({"HOME": str(tmp_path), "BASH_ENV": ""}, language="bash")
    assert context.run("echo 1").stdout == "1\n"
    context.close()


def test_a_copy_draws_other_numbers(bash: Context) -> None:
    # Not an assignment: that would be the user's seed.
    bash.run("printf -v RANDOM 1; a=$RANDOM$RANDOM; printf -v RANDOM 1")
    assert bash.run("[[ $RANDOM$RANDOM == $a ]]; echo $?", reseed=True).stdout == "1\n"


def test_the_agent_asks_for_other_numbers_between_cells(bash: Context) -> None:
    bash.run("printf -v RANDOM 1; a=$RANDOM$RANDOM; printf -v RANDOM 1")
    bash.channel.send({"op": "reseed"})
    assert bash.run("[[ $RANDOM$RANDOM == $a ]]; echo $?").stdout == "1\n"


def test_a_sequence_that_the_user_seeded_goes_on_in_a_copy(bash: Context) -> None:
    bash.run("echo 'RANDOM=no seed'; printf -v RANDOM 1; a=$RANDOM$RANDOM; printf -v RANDOM 1")
    assert bash.run("[[ $RANDOM$RANDOM == $a ]]; echo $?", reseed=True).stdout == "1\n"
    bash.run("if true; then RANDOM=1; fi; a=$RANDOM$RANDOM; RANDOM=1")
    assert bash.run("[[ $RANDOM$RANDOM == $a ]]; echo $?", reseed=True).stdout == "0\n"
