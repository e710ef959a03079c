"""IPython's shell, with everything it would print turned into events."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from IPython.core import async_helpers, page
from IPython.core.autocall import ExitAutocall
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import UsageError
from IPython.core.formatters import DisplayFormatter
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.text import LSString, SList
from traitlets import default
from traitlets.config import Config

from . import budget, figures, rich, tables
from .bundles import MAX_NAME, MAX_TEXT, cut, to_wire
from .compiler import WholeCellCompiler
from .rich import pictures
from .tracebacks import only_users_frames, text_of, traceback_of

Event = dict[str, Any]
Sink = Callable[[Event], None]

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")

#: IPython's name for the source of a cell; it stands in the text of syntax errors. Kept elsewhere: numba and joblib look for it.
_CELL_FILE = re.compile(r"<ipython-input-(\d+)-[0-9a-f]+>")

#: What every cell with a top-level await has.
_AWAITS = re.compile(r"\b(await|async)\b")

#: Types that have no form but their text, unless user code gives them one.
_PLAIN = frozenset({bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset})

#: How long an interrupted coroutine may take to end, in seconds; well under the agent's patience.
_CANCEL_PATIENCE = 1.0


class Formatter(DisplayFormatter):
    """Forms of a value. One broken form is a note on stderr; a broken ``__repr__`` is the cell's error, as it is for ``print``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._depth = 0
        self._failures: list[BaseException] = []

    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """All forms of a value."""
        tables.prepare()
        outer, self._failures = self._failures, []
        self._depth += 1
        try:
            if include is None and exclude is None and self._has_only_text(obj):
                text, metadata = self.formatters["text/plain"](obj), {}
                data = {} if text is None else {"text/plain": text}
            else:
                data, metadata = super().format(obj, include=include, exclude=exclude)
            failures = self._failures
        finally:
            self._depth -= 1
            self._failures = outer
        if failures and not data:
            raise failures[-1]
        for failure in failures:
            sys.stderr.write(traceback_of(failure) + "\n")
        text = data.get("text/plain")
        if isinstance(text, str):
            data["text/plain"] = budget.render(obj, text, self.parent.max_chars)
        return data, metadata

    def _has_only_text(self, obj: Any) -> bool:
        """Whether no other formatter could have anything to say, which saves asking a dozen of them."""
        kind = type(obj)
        if kind not in _PLAIN:
            return False
        others = (formatter for mime, formatter in self.formatters.items() if mime != "text/plain")
        asked = (*others, self.mimebundle_formatter, self.ipython_display_formatter)
        return not any(formatter.type_printers.keys() & {kind, object} or formatter.singleton_printers for formatter in asked)

    def take_failure(self, error: BaseException | None) -> bool:
        """Keeps an exception that came out of one form. False if no value is being formatted."""
        if self._depth == 0 or error is None:
            return False
        self._failures.append(error)
        return True


class Exit(ExitAutocall):
    """``exit`` and ``quit``: they end the cell, as in a script, and not the session."""

    def __call__(self, code: object = 0) -> None:
        """Ends the cell with a code."""
        raise SystemExit(code)


class ResultHook(DisplayHook):
    """The value of the last expression becomes a ``result`` event."""

    shell: Shell

    def write_output_prompt(self) -> None:
        """There is no prompt."""

    def compute_format_data(self, result: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """All forms of a value; a figure that the cell has shown is not drawn again."""
        if figures.was_shown(result):
            return {}, {}
        return super().compute_format_data(result)

    def cull_cache(self) -> None:
        """Forgets the oldest results. IPython would warn of it, and keep them in a namespace of its own."""
        results = self.shell.user_ns["_oh"]
        for number in sorted(results)[: max(int(len(results) * self.cull_fraction), 2)]:
            del results[number]
            for namespace in (self.shell.user_ns, self.shell.user_ns_hidden):
                namespace.pop(f"_{number}", None)

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        """Sends the value."""
        bundle = self.shell.bundle(format_dict)
        if bundle:
            self.shell.emit({"op": "result", "data": bundle})
        pictures.raise_interrupt()


class EventPublisher(DisplayPublisher):
    """``display()`` becomes a ``display`` event."""

    shell: Shell

    def publish(  # type: ignore[override]
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        *_args: object,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **_options: object,
    ) -> None:
        """Sends one displayed object."""
        display_id = (transient or {}).get("display_id")
        if display_id is not None:
            display_id = cut(str(display_id), MAX_NAME)
        bundle = self.shell.bundle(data)
        if bundle:
            self.shell.emit({"op": "display", "data": bundle, "display_id": display_id, "update": bool(update)})
        pictures.raise_interrupt()
        pictures.raise_interrupt()

    def clear_output(self, wait: bool = False) -> None:
        """Sends that what was displayed is void."""
        self.shell.emit({"op": "clear", "wait": bool(wait)})


class Shell(InteractiveShell):
    """One interpreter. ``sink`` receives its events; without one they are dropped."""

    sink: Sink | None = None
    #: The error that the running or last cell ended with, as an event.
    last_error: Event | None = None
    #: How long the text of each value and of an error may be in the running cell, in characters; 0 is no limit.
    max_chars = 0
    #: This process is a copy that user code made of the context's.
    is_copy = False
    _left_out = 0
    #: An interrupted cell with a top-level await is being ended, and what ended it.
    _cancelling = False
    _cancelled: BaseException | None = None
    #: Called before an error is told: what a failing cell needs to be told with.
    before_error: Callable[[BaseException | None], None] = staticmethod(lambda _error: None)

    #: Entered while an interrupt is told, so that the next does not cut it short.
    muted: Callable[[], AbstractContextManager[Any]] = staticmethod(nullcontext)

    def emit(self, event: Event) -> None:
        """Hands an event on."""
        if self.sink is not None:
            self.sink(event)

    def bundle(self, data: dict[str, Any]) -> dict[str, str]:
        """The forms of a value as the wire has them."""
        bundle = to_wire(data)
        if self.max_chars and "text/plain" in bundle:
            bundle["text/plain"] = budget.shorten(bundle["text/plain"], self.max_chars)
        return bundle

    def init_display_formatter(self) -> None:
        """Sets the formatter up."""
        self.display_formatter = Formatter(parent=self)
        self.configurables.append(self.display_formatter)

    def enable_gui(self, gui: str | None = None) -> None:
        """There is no window system."""

    def enable_matplotlib(self, gui: str | None = None) -> tuple[str | None, str]:
        """``%matplotlib`` with whatever argument: figures come as pictures."""
        figures.select_backend()
        return "inline", figures.BACKEND

    def _tee(self, channel: str) -> AbstractContextManager[Any]:
        """IPython would keep a copy of everything printed for as long as the session lasts."""
        return nullcontext()

    def _format_exception_for_storage(self, *_args: Any, **_options: Any) -> dict[str, Any]:
        """IPython would format every traceback a second time, to keep it."""
        return {}

    @default("exiter")
    def _exiter_default(self) -> Exit:
        return Exit(self)

    def debugger(self, force: bool = False) -> None:
        """``%debug``: nobody could answer the prompt."""
        raise RuntimeError("a debugger needs a terminal; this code runs without one")

    def system(self, cmd: str) -> None:  # type: ignore[override]
        """``!cmd``: output goes straight to the cell's own pipes; an interrupt ends the cell, not only the command."""
        code, _output = self._run_command(self.var_expand(cmd, depth=1), {})
        self.user_ns["_exit_code"] = code

    system_piped = system_raw = system

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> Any:
        """``x = !cmd``: what the command writes on both streams, as lines."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        code, output = self._run_command(self.var_expand(cmd, depth=depth + 1), options)
        self.user_ns["_exit_code"] = code
        text = (output or b"").decode("utf-8", "replace")
        return SList(text.splitlines()) if split else LSString(text)

    @staticmethod
    def _run_command(command: str, options: dict[str, Any]) -> tuple[int, bytes | None]:
        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
        process = subprocess.Popen(command, shell=True, executable=shell, **options)
        try:
            output, _ = process.communicate()
        except BaseException:
            process.kill()
            process.wait()
            raise
        # A command that a signal ended has the code that a shell would give it.
        return process.returncode if process.returncode >= 0 else 128 - process.returncode, output

    def showtraceback(self, exc_tuple: Any = None, *args: Any, **kwargs: Any) -> None:
        """Tells the current exception; one that cannot be formatted is told all the same."""
        error = (exc_tuple or sys.exc_info())[1]
        if error is None and exc_tuple is None:
            self._show_last_traceback()
            return
        if isinstance(self.display_formatter, Formatter) and self.display_formatter.take_failure(error):
            return
        if self._cancelling and isinstance(error, asyncio.CancelledError):
            self._cancelled = error
            return
        self.before_error(error)
        # `%pdb on` asks for a debugger after every error.
        self.call_pdb = False
        if error is None or isinstance(error, (SystemExit, UsageError)):
            self.tell_error(error)
            return
        if isinstance(error, BaseExceptionGroup) or self.is_copy:
            # IPython shows a group without what is in it. Its way of formatting makes a copy touch, and so have, 20 MB of its own.
            self.tell_error(error, traceback_of(error))
            return
        muted = self.muted if isinstance(error, KeyboardInterrupt) else nullcontext
        try:
            with muted():
                self._tell_formatted(error)
        except BaseException as broken:
            self.tell_error(broken if isinstance(broken, KeyboardInterrupt) else error)

    @staticmethod
    def _show_last_traceback() -> None:
        """``%tb``: shows what an earlier cell failed with, which is no failure of this one."""
        last = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        sys.stderr.write(f"{traceback_of(last) if last is not None else 'No traceback available to show.'}\n")

    def _tell_formatted(self, error: BaseException) -> None:
        self._left_out = only_users_frames(error)
        super().showtraceback((type(error), error, error.__traceback__), tb_offset=0)

    def _showtraceback(self, etype: type[BaseException] | None, evalue: BaseException | None, stb: list[str]) -> None:
        lines = list(stb) if isinstance(stb, list) else [str(stb)]
        if self._left_out:
            lines.insert(-1, f"[... {self._left_out} frames left out ...]\n")
            self._left_out = 0
        self.tell_error(evalue, "\n".join(lines))

    def should_run_async(self, raw_cell: str, *, transformed_cell: str | None = None, preprocessing_exc_tuple: Any = None) -> bool:
        """Whether a cell needs the event loop. IPython finds out by compiling it, and would tell the compiler's warnings a first time."""
        if transformed_cell is None or not _AWAITS.search(transformed_cell):
            return False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = {"transformed_cell": transformed_cell, "preprocessing_exc_tuple": preprocessing_exc_tuple}
            return super().should_run_async(raw_cell, **options)

    def run_coroutine(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs a cell with a top-level ``await``. One that is interrupted must not go on when a later cell runs the loop."""
        loop = async_helpers.get_asyncio_loop()
        task = loop.create_task(coroutine)
        try:
            return loop.run_until_complete(task)
        except BaseException as interrupt:
            if not task.done():
                with self.muted():
                    self._cancel(loop, task, interrupt)
            raise

    def _cancel(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any], interrupt: BaseException) -> None:
        self._cancelling, self._cancelled = True, None
        try:
            task.cancel()
            loop.run_until_complete(asyncio.wait([task], timeout=_CANCEL_PATIENCE))
        finally:
            self._cancelling = False
        if self._cancelled is not None:
            # Where the cell waited, rather than where the event loop did.
            interrupt.__traceback__ = self._cancelled.__traceback__
            self._cancelled = None

    def show_usage_error(self, exc: BaseException) -> None:
        """A magic that does not exist or does not like its arguments."""
        self.tell_error(exc)

    def tell_error(self, error: BaseException | None, traceback: str | None = None) -> None:
        """Sends what the cell failed with. A second failure in the same cell is text on stderr."""
        name = type(error).__name__ if error is not None else "Error"
        if isinstance(error, SyntaxError) and name.startswith("_"):
            # Python's private kind, for code that breaks off.
            traceback, name = traceback and traceback.replace(name, "SyntaxError"), "SyntaxError"
        value = _CELL_FILE.sub(r"cell \1", text_of(error))
        text = _ANSI.sub("", traceback) if traceback is not None else f"{name}: {value}"
        text = cut(text, MAX_TEXT)
        if self.max_chars:
            text = budget.shorten_traceback(text, f"{name}: {value}", self.max_chars)
            value = budget.shorten(value, self.max_chars)
        if self.last_error is not None:
            sys.stderr.write(text + "\n")
            return
        event = {"op": "error", "name": cut(name, MAX_NAME), "value": cut(value, MAX_TEXT), "traceback": text}
        self.last_error = event
        self.emit(event)


def _drop_exit_hint(message: Any, *args: Any, **kwargs: Any) -> None:
    if not str(message).startswith("To exit:"):
        warnings.warn(message, *args, **kwargs)  # noqa: B028


def build() -> Shell:
    """Makes the one shell of this process, with ``__main__`` as its namespace."""
    module = types.ModuleType("__main__", "The namespace of the code context.")
    shell = Shell.instance(
        config=_config(),
        user_module=module,
        user_ns=module.__dict__,
        displayhook_class=ResultHook,
        display_pub_class=EventPublisher,
        compiler_class=WholeCellCompiler,
    )
    shell.loop_runner = shell.run_coroutine
    rich.register(shell)
    figures.register(shell)
    tables.register(shell)
    # `obj?` would start a pager, `%edit` an editor; both would wait for a person.
    shell.set_hook("show_in_pager", page.as_hook(page.display_page), 0)
    shell.set_hook("editor", _no_editor, 0)
    # It advises keys that nobody can press. Not a filter: user code may reset those.
    sys.modules[InteractiveShell.__module__].warn = _drop_exit_hint  # type: ignore[attr-defined]
    return shell


def _config() -> Config:
    config = Config()
    # A history file would be shared by all contexts and needs a thread.
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.xmode = "Context"
    config.InteractiveShell.ast_node_interactivity = "last_expr"
    # Each entry of `Out` keeps its value alive, a chart's last line its whole figure.
    config.InteractiveShell.cache_size = 100
    return config


def _no_editor(*_args: object, **_options: object) -> None:
    raise RuntimeError("an editor needs a terminal; this code runs without one")
