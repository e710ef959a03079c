r"""Contexts that run Node.js."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Context, Zygote


@pytest.fixture
def node(zygote: Zygote) -> Iterator[Context]:
    context = zygote.fork(language="node")
    yield context
    context.close()


def reports_of(node: Context) -> str:
    """The descriptor to which the child of a context's process reports."""
    with open(f"/proc/{node.pid}/task/{node.pid}/children") as children:
        child = children.read().split()[0]
    with open(f"/proc/{child}/cmdline") as arguments:
        return arguments.read().rstrip("\0").split("\0")[-1]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("1 + 1", "2"),
        ("await new Promise((done) => setTimeout(done, 5, 7))", "7"),
        ("const x = 1; const y = 2; x + y", "3"),
        ("{a: 1, b: 'z'}", "{ a: 1, b: 'z' }"),
        ("async function main() { await null; return 'done'; }\nmain()", "'done'"),
        ("for (const i of [1, 2]) i;", None),
        ("let z = 5", None),
        ("undefined", None),
        ("'use strict'; 1", "1"),
        ("'a\\u0000b'", r"'a\x00b'"),
        ("import fs, {readFileSync as read} from 'fs';\nimport * as os from 'node:os';\n[typeof fs.statSync, typeof read, os.EOL]",
         r"[ 'function', 'function', '\n' ]"),
        ("(await import('node:path')).sep", "'/'"),
        ("require('path').sep", "'/'"),
        ("export const five = 5;\nfive", "5"),
        ("`import(${1})` + /import\\(/.test('import(')", "'import(1)true'"),
    ],
)  # fmt: skip
def test_the_value_of_the_last_expression(node: Context, code: str, text: str | None) -> None:
    run = node.run(code)
    assert (run.text, run.error, run.stdout, run.stderr) == (text, None, "", "")


def test_declarations_may_be_repeated(node: Context) -> None:
    node.run("const a = 1; let b = 1; class C {}; function f() { return 1; }")
    assert (
        node.run("const a = 2; let b = 2; class C { static v = 3; }; function f() { return 4; }; [a, b, C.v, f()]").text == "[ 2, 2, 3, 4 ]"
    )


def test_plain_data_is_json_too(node: Context) -> None:
    data = node.run("({a: [1, null, 'x'], when: new Date(0)})").results[0]
    assert json.loads(data["application/json"]) == {"a": [1, None, "x"], "when": "1970-01-01T00:00:00.000Z"}
    for code in ("const c = {}; c.c = c; c", "({n: 1n})", "new Map()", "5", "new Array(1e6).fill(1)"):
        assert set(node.run(code).results[0]) == {"text/plain"}


def test_display(node: Context) -> None:
    run = node.run(
        "display.html('<b>x</b>'); display.png(Buffer.from('89504e47', 'hex')); display({'text/markdown': '*m*'});"
        "display({a: 1}, {display_id: 'd'}); display('last', {display_id: 'd', update: true})"
    )
    assert run.results == [{"text/html": "<b>x</b>"}, {"image/png": "iVBORw=="}, {"text/markdown": "*m*"}, {"text/plain": "'last'"}]
    assert node.run("({[Symbol.for('Jupyter.display')]: () => ({'text/html': '<i>'})})").results == [{"text/html": "<i>"}]


def test_output_keeps_its_order_and_is_whole(node: Context) -> None:
    run = node.run(
        "console.log('a'); require('child_process').execSync('echo b', {stdio: 'inherit'}); process.stdout.write('c\\n');"
        "require('child_process').spawnSync(process.execPath, ['-e', 'console.log(\"d\")'], {stdio: 'inherit'});"
        "process.stdout.write('x'.repeat(3_000_000)); console.error('e'); process.stdout.end('f')"
    )
    assert run.stdout.replace("x", "") == "a\nb\nc\nd\nf" and run.stdout.count("x") == 3_000_000 and run.stderr == "e\n"
    assert node.run("console.log('still')").stdout == "still\n"


def test_errors_have_the_cells_lines_and_no_frames_of_ours(node: Context) -> None:
    node.run("1")
    error = node.run("function f() {\n  throw new TypeError('x');\n}\nf()").error
    assert error and (error["name"], error["value"]) == ("TypeError", "x")
    assert error["traceback"] == "TypeError: x\n    at f (cell-2.js:2:9)\n    at cell-2.js:4:1"
    error = node.run("let a = 1;\nlet b = ;").error
    assert error and error["name"] == "SyntaxError" and error["traceback"].startswith("cell-3.js:2\nlet b = ;\n        ^\n")
    error = node.run("throw Object.assign(new Error('o', {cause: new Error('i')}), {code: 'X'})").error
    assert error and "code: 'X'" in error["traceback"] and "[cause]: Error: i" in error["traceback"]
    error = node.run("throw 5").error
    assert error and error["value"] == "5"
    assert "node_" not in json.dumps([node.run("await import('nosuch')").error, node.run("require('nosuch')").error])


@pytest.mark.parametrize(
    "code",
    [
        "Promise.reject(new RangeError('r')); 5;",
        "setTimeout(() => { throw new RangeError('r'); }, 5); await new Promise(() => {})",
        "async function main() { await null; throw new RangeError('r'); }\nmain()",
        "({get [Symbol.toStringTag]() { throw new RangeError('r'); }})",
    ],
)
def test_what_nobody_caught_is_the_cells_error(node: Context, code: str) -> None:
    run = node.run(code)
    assert run.error and (run.error["name"], run.end["exit_code"]) == ("RangeError", 1)
    assert node.run("1").text == "1"


def test_late_text_and_errors_are_the_earlier_cells(node: Context) -> None:
    node.run(
        "let go; new Promise((f) => { go = f; }).then(() => { console.log('late'); setTimeout(() => { throw new Error('bad'); }, 1); }); 0;"
    )
    run = node.run("go(); await new Promise((f) => setTimeout(f, 100)); console.log('mine')")
    assert (run.stdout, run.stderr, run.error) == ("mine\n", "", None)
    assert [(late["cell"], late["name"], late["text"].split("\n")[0]) for late in run.late] == [
        (1, "stdout", "late"), (1, "stderr", "Uncaught Error: bad"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("try { process.exit(5); } catch { console.log('no'); } finally { console.log('no'); }", 5),
        ("await null; process.exit(5)", 5),
        ("setTimeout(() => process.exit(5), 5); await new Promise(() => {})", 5),
        ("process.exitCode = 5; undefined", 5),
        ("process.exit()", 0),
    ],
)
def test_an_exit_ends_the_cell_at_once(node: Context, code: str, status: int) -> None:
    node.run("keep = 41")
    run = node.run(code)
    assert (run.stdout, run.end["exit_code"], run.error is None) == ("", status, status == 0)
    assert node.run("keep").text == "41"


@pytest.mark.parametrize(
    "code",
    [
        "for (;;);",
        "await null; for (;;);",
        "setTimeout(() => { for (;;); }, 5); await new Promise(() => {})",
        "process.nextTick(() => { for (;;); }); await new Promise(() => {})",
        "require('fs').stat('/', () => { for (;;); }); await new Promise(() => {})",
        "await new Promise(() => {})",
        "for (;;) console.log('x');",
        "for (;;) display(1);",
        "for (;;) require('child_process').spawnSync('true');",
        "({[require('util').inspect.custom]() { for (;;); }})",
        "try { for (;;); } finally { console.error('no'); }",
    ],
)
def test_interrupts(node: Context, code: str) -> None:
    node.run("keep = 41; setInterval(() => {}, 10); undefined")
    for _ in range(2):
        run = node.run(code, interrupt_after=0.2)
        assert run.error and (run.error["name"], run.stderr) == ("KeyboardInterrupt", "")
    assert node.run("await new Promise((f) => setTimeout(f, 5)); keep").text == "41"


def test_reports_that_code_makes_up_are_no_harm(node: Context) -> None:
    node.run("0;")
    forged = [
        '{"op":"end"}',
        '{"op":"end","exit_code":"x"}',
        '{"op":"end","exit_code":1,"error":5}',
        "nonsense",
        "[]",
        '{"op":"display"}',
        '{"op":"leaving"}',
    ]
    run = node.run(f"for (const report of {json.dumps(forged)}) require('fs').writeSync(Number(process.env.REPORTS), report + '\\0'); 7",
                   env={"REPORTS": reports_of(node)})  # fmt: skip
    assert (run.text, run.error) == ("7", None)


def test_input(node: Context) -> None:
    lines = "const rl = require('readline').createInterface({input: process.stdin}); const l = []; for await (const x of rl) l.push(x); l"
    assert node.run(lines, stdin="a\nb\n").text == "[ 'a', 'b' ]"
    assert node.run(lines).text == "[]"
    assert node.run("require('fs').readFileSync(0, 'utf8')", stdin="é\n").text == r"'é\n'"
    assert node.run("require('child_process').execSync('cat', {stdio: 'inherit'}); 0;", stdin="c\n").stdout == "c\n"
    assert node.run("require('fs').readFileSync(0, 'utf8')").text == "''"


def test_modules_are_found_from_the_working_directory(node: Context, tmp_path: Path) -> None:
    package = tmp_path / "node_modules" / "here"
    package.mkdir(parents=True)
    (package / "index.js").write_text("module.exports = {v: 1};")
    (tmp_path / "own.mjs").write_text("export default 2;")
    node.run(f"process.chdir({json.dumps(str(tmp_path))})")
    assert node.run("import own from './own.mjs';\n[require('here').v, own, (await import('here')).default.v]").text == "[ 1, 2, 1 ]"


def test_environment_and_directory_of_one_cell(node: Context) -> None:
    assert node.run("[process.env.A, process.cwd()]", env={"A": "1"}, cwd="/usr").text == "[ '1', '/usr' ]"
    assert node.run("[process.env.A, process.cwd()]").text == "[ undefined, '/tmp' ]"


def test_a_copy_draws_from_the_operating_system(node: Context) -> None:
    code = (
        "const c = require('crypto');"
        "const draw = () => [Math.random(), c.randomUUID(), crypto.randomUUID(), c.randomBytes(4).length,"
        " c.randomInt(5, 6), c.randomFillSync(Buffer.alloc(8)).length,"
        " crypto.getRandomValues(new Uint16Array(3)).length]; draw()"
    )
    before = json.loads(node.run(code).results[0]["application/json"])
    after = json.loads(node.run("draw()", reseed=True).results[0]["application/json"])
    assert before[3:] == after[3:] == [4, 5, 8, 3] and not set(before[:3]) & set(after[:3])
    assert (
        node.run("c.randomInt(3) < 3 && /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(c.randomUUID())").text
        == "true"
    )
    waited = "[await new Promise((f) => c.randomBytes(3, (e, b) => f(b.length))), await new Promise((f) => c.randomInt(1, (e, n) => f(n)))]"
    assert node.run(waited).text == "[ 3, 0 ]"


def test_the_memory_limit_is_on_the_heap(zygote: Zygote) -> None:
    context = zygote.fork({"PANDASTACK_MEMORY_LIMIT_BYTES": str(2**29)}, language="node")
    limit = "require('v8').getHeapStatistics().heap_size_limit / 2 ** 20"
    assert 500 < float(context.run(limit).text or 0) < 700
    with open(f"/proc/{context.pid}/limits") as limits:
        assert next(line for line in limits if line.startswith("Max address space")).split()[3] == "unlimited"
    context.close()


def test_nothing_of_the_machinery_shows(node: Context) -> None:
    assert node.run("[process.argv.length, process.execArgv, Object.keys(globalThis).includes('display')]").text == "[ 1, [], false ]"
    assert node.run("process.getActiveResourcesInfo; setTimeout(() => {}, 1e6); 0;").end["tasks"] == 1
    assert os.path.exists(f"/proc/{node.pid}")
