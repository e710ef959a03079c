"""O-38 to O-44: contexts, directories, concurrency, processes. Each test is named after its case in the field."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pandastack import CodeContext, Sandbox

from cells import Context, execute
from footprint import inside
from server import Api, Server, wait_until

# Contexts


def test_o38_25_contexts(api: Api, sandbox: Sandbox, ctx: Context):
    pid = int(ctx.run("import os; os.getpid()").text)

    def use_one() -> None:
        context = Context(api, sandbox.id)
        assert context.run("'v' in globals()").text == "False"
        context.run("v = 1")
        context.close()

    use_one()
    before = inside(sandbox, pid)
    for _ in range(25):
        use_one()

    def is_as_before() -> bool:
        after = inside(sandbox, pid)
        return (
            after.processes <= before.processes + 1
            and after.agent_descriptors <= before.agent_descriptors + 2
            and after.agent_kib < before.agent_kib + 8 * 1024
            and after.temporary_files == before.temporary_files
        )

    # The agent keeps a process ready and forks a new one a second after the last was taken.
    wait_until(is_as_before, 15, "nothing is left of closed contexts")


def test_o39_working_directory(api: Api, sandbox: Sandbox, make_context: Callable[..., Context]):
    path = "/tmp/my dir; $(x)"
    assert execute(api, sandbox.id, ["mkdir", "-p", path])["exit_code"] == 0
    context = make_context(cwd=path)
    assert context.run("import os; os.getcwd()").text == repr(path)
    assert context.run("!pwd").stdout == path + "\n"
    refusal = api.post(f"/sandboxes/{sandbox.id}/repl/sessions", {"cwd": "/no/such"})
    assert 400 <= refusal.status_code < 500 and "/no/such" in refusal.json()["error"]


def test_o39_directory_that_goes_away(ctx: Context):
    ctx.run("import os; os.makedirs('/tmp/gone'); os.chdir('/tmp/gone'); os.rmdir('/tmp/gone')")
    assert ctx.run("1", cwd="/tmp").text == "1"
    assert ctx.run("os.getcwd()").error_name == "FileNotFoundError", "the code's own doing is not undone"
    refused = ctx.run("1", cwd="/no/such")
    assert refused.status == 400 or "/no/such" in refused.error


def test_o39_environment_of_one_cell(ctx: Context):
    ctx.run("import os; os.environ['MINE'] = '1'; os.environ['BOTH'] = 'before'")
    r = ctx.run("(os.environ['ONE'], os.environ['BOTH'])", env={"ONE": "x y$z", "BOTH": "during"})
    assert r.text == "('x y$z', 'during')"
    assert ctx.run("!echo $ONE", env={"ONE": "child sees it"}).stdout == "child sees it\n"
    assert ctx.run("(os.environ.get('ONE'), os.environ['BOTH'], os.environ['MINE'])").text == "(None, 'before', '1')"


def test_o40_parallel_cells_of_one_context(ctx: Context):
    ctx.run("n = 0")

    def job(number: int) -> str:
        code = f"m = n\nimport time; time.sleep(.1)\nn = m + 1\nprint('job', {number})"
        return ctx.run(code, timeout=60).stdout

    with ThreadPoolExecutor(8) as threads:
        outputs = list(threads.map(job, range(8)))
    assert outputs == [f"job {number}\n" for number in range(8)]
    assert ctx.run("n").text == "8"


def test_o41_another_client(server: Server, sandbox: Sandbox, ctx: Context):
    ctx.run("x = 7; import math")
    same = CodeContext(server.client().sandboxes.get(sandbox.id), ctx.id)
    assert same.run_code("x, math.pi > 3").text == "(7, True)"


# Processes

CHILDREN = (
    "import os, subprocess, sys\nos.system('echo A'); os.write(1, b'B\\n'); subprocess.run(['echo','C']); "
    "subprocess.Popen(['echo','D'], stdout=sys.stdout).wait()\nprint('E')"
)


def test_o42_output_of_children(ctx: Context):
    for _ in range(50):
        assert ctx.run(CHILDREN).stdout == "A\nB\nC\nD\nE\n"


def test_o42_child_as_the_last_statement(ctx: Context):
    for _ in range(50):
        assert ctx.run("import os\n_ = os.system('echo last')").stdout == "last\n"


def test_o42_forks(ctx: Context):
    r = ctx.run("import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('child' if pid == 0 else 'parent')")
    assert r.stdout == "child\nparent\n"
    assert ctx.run("print('only once')").stdout == "only once\n"
    pool = ctx.run(
        "from concurrent.futures import ProcessPoolExecutor\ndef sq(x): return x * x\n"
        "with ProcessPoolExecutor(2) as pool: print(list(pool.map(sq, range(4))))",
        timeout=60,
    )
    assert pool.stdout == "[0, 1, 4, 9]\n"


def test_o43_process_pool(ctx: Context, sandbox: Sandbox):
    a = ctx.run(
        "import multiprocessing as mp\ndef sq(x): return x*x\nwith mp.Pool(2) as p: print(p.map(sq, [1,2,3]))",
        timeout=60,
    )
    assert a.stdout == "[1, 4, 9]\n"
    b = ctx.run("with mp.get_context('spawn').Pool(2) as p: print(p.map(sq, [1,2,3]))", timeout=5)
    assert b.stdout == "[1, 4, 9]\n" or b.timed_out or b.error
    assert ctx.run("1", timeout=20).text == "1"
    assert sandbox.exec("pgrep -fc '[s]pawn_main' || true").stdout.strip() == "0"


def test_o44_children_of_a_timed_out_cell(ctx: Context, sandbox: Sandbox):
    """Foreground children end with their cell. What they put into the background lives on until its context ends."""
    a = ctx.run("import subprocess\nsubprocess.run(['sh','-c','sleep 300 & sleep 301'])", timeout=2)
    assert a.timed_out
    time.sleep(3)
    assert sandbox.exec("pgrep -fc '^[s]h -c sleep 300' || true").stdout == "0\n"


def test_o44_a_closed_context_takes_its_children_along(api: Api, sandbox: Sandbox):
    context = Context(api, sandbox.id)
    context.run("import subprocess; subprocess.Popen(['sh', '-c', 'sleep 310 & sleep 311'])\n!sleep 312 &")
    context.close()
    assert sandbox.exec("sleep 1; pgrep -fc '[s]leep 31[012]' || true").stdout == "0\n"
