"""Cells by chance: a context answers what a plain IPython shell in the same sandbox does.

`PANDASTACK_FUZZ_SEED` chooses other cells than the usual ones, `PANDASTACK_FUZZ_CELLS` how many.
"""

import json
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fuzz_grammar import PRELUDE, Grammar
from pandastack import Sandbox

from cells import Cell, Context
from server import Api

SEED = int(os.environ.get("PANDASTACK_FUZZ_SEED", "20261129"))
CELLS = int(os.environ.get("PANDASTACK_FUZZ_CELLS", "250"))
REFERENCE = Path(__file__).with_name("fuzz_reference.py")

# What differs from run to run, or is named otherwise on purpose.
_CHANGING = [
    (re.compile(r"0x[0-9a-f]{6,}"), "0x"),
    (re.compile(r"<ipython-input-(\d+)-\w+>"), r"cell \1"),
    # When a coroutine is collected is chance.
    (re.compile(r".*RuntimeWarning: coroutine .* was never awaited\n.*\nRuntimeWarning: Enable tracemalloc.*\n"), ""),
    (re.compile(r"Exception ignored in: <coroutine .*\nTraceback .*\n(  .*\n)*\w+: .*\n"), ""),
    (re.compile(r".*UserWarning: To exit: .*\n.*\n"), ""),
    (re.compile(r"; this cell awaits already: use `await` instead"), ""),
]


def normal(text: str) -> str:
    for pattern, replacement in _CHANGING:
        text = pattern.sub(replacement, text)
    return text


def unfenced(code: str) -> str:
    """Taking a fence off is our doing; the plain shell gets what is inside."""
    return code.removeprefix("```python\n").removesuffix("\n```") if code.startswith("```") else code


def of_context(cell: Cell) -> dict:
    stderr = cell.stderr
    if cell.error is not None:
        assert stderr.endswith(cell.error.rstrip("\n") + "\n"), "a traceback is the last of stderr"
        stderr = stderr[: -len(cell.error.rstrip("\n") + "\n")]
    return {
        "stdout": normal(cell.stdout),
        "stderr": normal(stderr),
        "results": [normal(result["text/plain"]) for result in cell.results if "text/plain" in result],
        "pictures": len(cell.pngs),
        "error": [cell.error_name, normal(cell.error_value)] if cell.error is not None else None,
    }


def of_reference(answer: dict) -> dict:
    error = answer["error"]
    if error is not None:
        error = [error[0].replace("_IncompleteInputError", "SyntaxError"), normal(error[1])]
    return answer | {
        "stdout": normal(answer["stdout"]),
        "stderr": normal(answer["stderr"]),
        "results": [normal(text) for text in answer["results"]],
        "error": error,
    }


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_cells_by_chance(api: Api, sandbox: Sandbox, make_context: Callable[..., Context], seed: int):
    grammar = Grammar(seed)
    codes = [PRELUDE, *(grammar.cell() for _ in range(CELLS))]
    sandbox.filesystem.write("/workspace/reference.py", REFERENCE.read_text())
    sandbox.filesystem.write(f"/workspace/cells-{seed}.json", json.dumps([unfenced(code) for code in codes]))
    command = {"cmd": f"python3 reference.py < cells-{seed}.json", "timeout_seconds": 110}
    context = make_context()
    with ThreadPoolExecutor(1) as threads:
        reference = threads.submit(api.post, f"/sandboxes/{sandbox.id}/exec", command)
        cells = [context.run(code, timeout=30) for code in codes]
        done = reference.result().json()
    assert done["exit_code"] == 0, done["stderr"]
    differences = []
    for number, (code, cell, answer) in enumerate(zip(codes, cells, json.loads(done["stdout"]), strict=True)):
        assert cell.status == 200, (code, cell)
        ours, plain = of_context(cell), of_reference(answer)
        if ours != plain:
            parts = (
                f"  {part}: {ours[part]!r}\n   plain: {plain[part]!r}" for part in ours if ours[part] != plain[part]
            )
            differences.append("\n".join([f"cell {number}:", code, *parts, ""]))
    assert not differences, f"{len(differences)} differences with seed {seed}\n" + "\n".join(differences[:5])
