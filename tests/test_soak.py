"""Thousands of cells on one context: nothing grows."""

from pandastack import Sandbox

from cells import Cell, Context
from footprint import Footprint, inside, resident_kib
from server import Server

# Of 100 cells each.
ROUNDS = 50
# Rounds after which caches are full.
WARM_UP = 5

PRELUDE = """
import gc, os, subprocess, sys, tempfile, threading
import matplotlib.pyplot as plt, numpy as np, pandas as pd
from IPython.display import HTML, display
"""

# One round; `{n}` is its number, so that no cell is the same twice.
CELLS = {
    "x = {n}; x + 1": 60,
    "print('line', {n})": 18,
    "print('e' * 1000, file=sys.stderr)": 2,
    "value_{n} = [{n}] * 100; del value_{n}": 2,
    "def f(k): return f(k - 1) if k else 1 / 0\nf({n} % 5)": 2,
    "raise ValueError({n})": 1,
    "if {n} ==": 1,
    "display({n}); display(HTML('<b>{n}</b>'))": 1,
    "handle = display('a', display_id=True); handle.update({n})": 1,
    "pd.DataFrame({{'a': range({n}, {n} + 50)}})": 1,
    "plt.figure(figsize=(2, 2)); plt.plot(np.arange({n} % 9 + 2)); plt.show()": 1,
    "fig, ax = plt.subplots(figsize=(2, 2)); ax.plot([1, {n}])": 1,
    "subprocess.run(['echo', '{n}'], check=True).returncode": 1,
    "!echo {n}": 1,
    "thread = threading.Thread(target=print, args=({n},)); thread.start(); thread.join()": 1,
    "import asyncio; await asyncio.sleep(0, {n})": 1,
    "with tempfile.TemporaryFile() as file: file.write(b'x' * {n})": 1,
    "print('x' * 100_000)": 1,
    "%%capture captured\nprint({n})": 1,
    "%timeit -n1 -r1 pass": 1,
    "gc.collect();": 1,
}
FAILING = ("1 / 0", "raise", "if {n} ==")


def run_round(context: Context, number: int) -> None:
    for code, times in CELLS.items():
        fails = any(word in code for word in FAILING)
        for _ in range(times):
            cell: Cell = context.run(code.format(n=number), timeout=60)
            assert cell.status == 200 and (cell.error is not None) == fails, (code, cell)


def growth(before: Footprint, after: Footprint) -> dict[str, int]:
    return {name: getattr(after, name) - value for name, value in vars(before).items()}


def test_thousands_of_cells(server: Server, sandbox: Sandbox, ctx: Context):
    pid = int(ctx.run(PRELUDE + "os.getpid()", timeout=60).text)
    for number in range(WARM_UP):
        run_round(ctx, number)
    before, server_before = inside(sandbox, pid), resident_kib(server.process.pid)
    for number in range(WARM_UP, ROUNDS):
        run_round(ctx, number)
    after, server_after = inside(sandbox, pid), resident_kib(server.process.pid)
    assert int(ctx.run("os.getpid()").text) == pid, "the same process all the time"
    grown = growth(before, after)
    print(grown, "server KiB", server_after - server_before)
    assert grown["agent_kib"] < 4 * 1024
    assert grown["context_kib"] < 24 * 1024
    assert server_after - server_before < 16 * 1024
    exact = ("agent_descriptors", "context_descriptors", "context_threads", "processes", "temporary_files")
    assert {name: grown[name] for name in exact} == dict.fromkeys(exact, 0)
