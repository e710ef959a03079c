"""Cells by chance, from a seed: valid and broken ones, all of them deterministic and finite."""

import random
from collections.abc import Callable

NAMES = ("a", "b", "c", "d")
ERRORS = ("ValueError", "KeyError", "TypeError", "RuntimeError", "StopIteration")
ENDS = ("KeyboardInterrupt", "SystemExit")
# What is typed by mistake. None of it makes a loop endless or calls a shell.
TYPOS = "()[]{}:;,='\"#\\ \n"

PRELUDE = """
import asyncio, contextlib, functools, sys, threading, warnings
import matplotlib.pyplot as plt
from IPython.display import HTML, Markdown, clear_output, display
a, b, c, d = 1, 'two', [3, 4], {'k': 5}
0
"""


def indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


class Grammar:
    """Writes cells. The same seed writes the same cells."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)
        self._made = 0

    def cell(self) -> str:
        lines = [line for _ in range(self._random.randint(0, 4)) for line in self._statement(2)]
        last = self._random.random()
        if last < 0.55:
            lines += self._last_line()
        elif last < 0.65:
            lines += [f"raise {self._error((*ERRORS, *ENDS))}"]
        text = "\n".join(lines) or self._expression(2)
        if self._random.random() < 0.05 and "plt." not in text:
            return f"%%capture captured\n{text}"
        if self._random.random() < 0.1 and "while" not in text:
            text = self._mistyped(text)
        if self._random.random() < 0.05:
            text = f"```python\n{text}\n```" if "```" not in text else text
        return text if text.strip() else "None"

    def _last_line(self) -> list[str]:
        end = self._random.choice(["", "", "", ";", " ;", "  # no; comment", ";  # quiet", "\n", "\n# the end"])
        return (self._expression(2) + end).split("\n")

    def _mistyped(self, text: str) -> str:
        at = self._random.randrange(len(text))
        if self._random.random() < 0.5:
            return text[:at] + text[at + 1 :]
        return text[:at] + self._random.choice(TYPOS) + text[at:]

    def _name(self) -> str:
        return self._random.choice((*NAMES, *NAMES, *NAMES, "_", "missing"))

    def _new_name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}{self._made}"

    def _error(self, kinds: tuple[str, ...] = ERRORS) -> str:
        kind = self._random.choice(kinds)
        text = self._random.choice(["'text'", "", "3", "'ü☕'", "'two\\nlines'", "('a', 1)"])
        return f"{kind}({text})"

    # Expressions

    def _expression(self, depth: int) -> str:
        literals = ("0", "1", "-7", "2.5", "True", "None", "'s'", "'semi;colon'", "'# no comment'", "b'\\xff'", "'é☕'")
        literals += ("[]", "{}", "()", "1e400", "'multi\\nline'", '"""t;\n#t"""', "...", "10**30")
        if depth == 0 or self._random.random() < 0.3:
            return self._random.choice((*literals, self._name(), self._name()))
        x, y = self._expression(depth - 1), self._expression(depth - 1)
        n, size = self._name(), self._random.randint(0, 12)
        return self._random.choice(
            [
                f"{x} + {y}",
                f"{x} == {y}",
                f"not {x}",
                f"({x}, {y})",
                f"[{x}, {y}]",
                f"{{1: {x}, 2: {y}}}",
                f"[i * i for i in range({size}) if i % 2]",
                f"{{i: str(i) for i in range({size})}}",
                f"sum(i for i in range({size}))",
                f"len({x})",
                f"str({x})",
                f"repr({x})",
                f"sorted({n})",
                f"{n}[{self._random.randint(-3, 3)}]",
                f"{n}.upper()",
                f"{n}.nothing",
                f"(lambda q: q)({x})",
                f"{x} if {y} else {n}",
                f"(w := {x})",
                f"f'{{{n}}} and {{{n}!r:>8}}'",
                f"1 / {self._random.randint(0, 3)}",
                f"int({x})",
                f"print({x})",
                f"list(map(str, {n}))",
                "'\\n'.join('abc')",
                f"'x' * {size * 20}",
                f"list(range({size * 40}))",
                f"{{'nested': {{'list': [{x}] * {size}}}}}",
                f"type({x})",
                f"sys.stdout.write('w{size}')",
                "await asyncio.sleep(0, 'slept')",
                f"asyncio.run(asyncio.sleep(0, {size}))",
            ]
        )

    # Statements

    def _statement(self, depth: int) -> list[str]:
        simple = (self._assign, self._print, self._print_error, self._joined, self._display, self._warn, self._delete)
        simple += (self._assign, self._print, self._long_text, self._executed, self._figure, self._await)
        nested = (self._if, self._for, self._while, self._try, self._with, self._function, self._class, self._generator)
        nested += (self._decorator, self._thread, self._match, self._closure, self._async_function, self._finally)
        kinds: tuple[Callable[[int], list[str]], ...] = simple if depth == 0 else simple + nested
        return self._random.choice(kinds)(depth - 1)

    def _body(self, depth: int) -> list[str]:
        count = self._random.randint(1, 2)
        return indented([line for _ in range(count) for line in self._statement(max(depth, 0))])

    def _assign(self, _depth: int) -> list[str]:
        n, x = self._random.choice(NAMES), self._flat(2)
        return [
            self._random.choice(
                [f"{n} = {x}", f"{n} += {x}", f"{n}: object = {x}", f"{n}, w = {x}, 2", f"*w, {n} = 1, {x}"]
            )
        ]

    def _flat(self, depth: int) -> str:
        """An expression on one line, which may stand in an indented block."""
        return self._expression(depth).replace("\n", " ")

    def _without_await(self, depth: int) -> str:
        """An expression that may stand in a function."""
        text = self._flat(depth)
        return text if "await" not in text else "None"

    def _print(self, _depth: int) -> list[str]:
        end = self._random.choice(["", "", ", end=''", ", sep='-', flush=True", ", end='\\r'"])
        return [f"print({self._flat(1)}, {self._flat(1)}{end})"]

    def _print_error(self, _depth: int) -> list[str]:
        return [f"print({self._flat(1)}, file=sys.stderr)"]

    def _joined(self, _depth: int) -> list[str]:
        return [f"{self._random.choice(NAMES)} = {self._flat(1)}; print({self._name()}); {self._flat(1)}"]

    def _display(self, _depth: int) -> list[str]:
        x, handle = self._flat(1), self._new_name("handle")
        return self._random.choice(
            [
                [f"display({x})"],
                [f"display({x}, {self._flat(1)})"],
                ["display(HTML('<b>bold</b>'))"],
                ["display(Markdown('# title'))"],
                [f"{handle} = display({x}, display_id='{handle}')", f"{handle}.update({self._flat(1)})"],
            ]
        )

    def _warn(self, _depth: int) -> list[str]:
        return [f"warnings.warn('{self._new_name('warning')}')"]

    def _delete(self, _depth: int) -> list[str]:
        n = self._random.choice(NAMES)
        return [f"del {n}", f"{n} = {self._flat(0)}"]

    def _long_text(self, _depth: int) -> list[str]:
        return ["print('''first;", "  # second", "third''')"]

    def _executed(self, _depth: int) -> list[str]:
        return [self._random.choice([f"exec({self._flat(1)!r})", f"print(eval({self._flat(1)!r}))"])]

    def _figure(self, _depth: int) -> list[str]:
        if self._random.random() < 0.7:
            return ["w = None"]
        return [
            self._random.choice(
                ["plt.figure(figsize=(1, 1)); plt.plot([1, 2])", "plt.plot([2, 1]); plt.show()", "plt.close('all')"]
            )
        ]

    def _await(self, _depth: int) -> list[str]:
        slept = f"asyncio.sleep(0, 1), asyncio.sleep(0, {self._flat(0)})"
        return [f"{self._random.choice(NAMES)} = await asyncio.gather({slept})"]

    def _if(self, depth: int) -> list[str]:
        return [f"if {self._flat(1)}:", *self._body(depth), "else:", *self._body(depth)]

    def _for(self, depth: int) -> list[str]:
        jump = self._random.choice(["break", "continue", "pass", "i"])
        return [f"for i in range({self._random.randint(0, 4)}):", *self._body(depth), f"    {jump}"]

    def _while(self, depth: int) -> list[str]:
        n = self._new_name("n")
        return [f"{n} = 2", f"while {n}:", f"    {n} -= 1", *self._body(depth)]

    def _try(self, depth: int) -> list[str]:
        raised = f"    raise {self._error()}" if self._random.random() < 0.5 else f"    {self._flat(1)}"
        handler = self._random.choice(
            ["except Exception as e: print(type(e), e)", "except ValueError: raise", "except: pass"]
        )
        return ["try:", *self._body(depth), raised, handler]

    def _finally(self, depth: int) -> list[str]:
        return ["try:", *self._body(depth), "finally:", *self._body(depth)]

    def _with(self, depth: int) -> list[str]:
        manager = self._random.choice(
            ["contextlib.suppress(Exception)", "contextlib.nullcontext(3) as w", "open('/dev/null') as w"]
        )
        return [f"with {manager}:", *self._body(depth)]

    def _function(self, depth: int) -> list[str]:
        f = self._new_name("f")
        result = self._random.choice(
            [f"return {self._without_await(1)}", f"raise {self._error()}", "pass", f"return {f}"]
        )
        return [
            f"def {f}(x, *more, k=1):",
            *self._body_of_function(depth),
            f"    {result}",
            f"print({f}({self._flat(1)}, k=2))",
        ]

    def _body_of_function(self, depth: int) -> list[str]:
        """A body without a top-level await in it."""
        body = self._body(depth)
        return body if not any("await" in line for line in body) else ["    pass"]

    def _class(self, depth: int) -> list[str]:
        k = self._new_name("K")
        shown = self._random.choice(["'shown'", "'two\\nlines'", "f'<{self.x}>'"])
        lines = [f"class {k}:", *self._body_of_function(depth), "    def __init__(self, x): self.x = x"]
        return [
            *lines,
            f"    def __repr__(self): return {shown}",
            f"{self._random.choice(NAMES)} = {k}({self._flat(0)})",
        ]

    def _generator(self, depth: int) -> list[str]:
        g = self._new_name("g")
        return [
            f"def {g}():",
            *self._body_of_function(depth),
            f"    yield {self._without_await(0)}",
            "    yield 2",
            f"print(list({g}()))",
        ]

    def _decorator(self, _depth: int) -> list[str]:
        f = self._new_name("f")
        chosen = self._random.choice(["functools.cache", "contextlib.contextmanager", "property", "(lambda h: h)"])
        return [f"@{chosen}", f"def {f}(x=1): return x", f"{f}"]

    def _closure(self, _depth: int) -> list[str]:
        f = self._new_name("f")
        return [
            f"def {f}():",
            "    n = 0",
            "    def step():",
            "        nonlocal n; n += 1; return n",
            "    return step",
            f"print([{f}()() for _ in 'ab'])",
        ]

    def _thread(self, _depth: int) -> list[str]:
        t = self._new_name("t")
        return [
            f"{t} = threading.Thread(target=lambda: print({self._flat(0)}, 'from a thread'))",
            f"{t}.start(); {t}.join()",
        ]

    def _match(self, depth: int) -> list[str]:
        cases = ["    case [x, *_]:", *indented(self._body(depth)), "    case _:", *indented(self._body(depth))]
        return [f"match {self._flat(1)}:", *cases]

    def _async_function(self, _depth: int) -> list[str]:
        f = self._new_name("f")
        result = self._random.choice([f"return {self._flat(0)}", f"raise {self._error()}"])
        use = self._random.choice(
            [f"await {f}()", f"[await {f}() for _ in range(2)]", f"await asyncio.create_task({f}())"]
        )
        return [f"async def {f}():", "    print('in', 1)", "    await asyncio.sleep(0)", f"    {result}", use]
