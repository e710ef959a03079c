"""IPython's shell, with everything it would print turned into events."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from . import figures
from .bundles import MAX_TEXT, cut, to_wire

Event = dict[str, Any]
Sink = Callable[[Event], None]

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class ResultHook(DisplayHook):
    """The value of the last expression becomes a ``result`` event."""

    shell: Shell

    def write_output_prompt(self) -> None:
        """There is no prompt."""

    def compute_format_data(self, result: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """All forms of a value; a figure that the cell has shown is not drawn again."""
        figures.set_skip_shown(True)
        try:
            return super().compute_format_data(result)
        finally:
            figures.set_skip_shown(False)

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        """Sends the value."""
        self.shell.emit({"op": "result", "data": to_wire(format_dict)})


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
        bundle = to_wire(data)
        if bundle:
            self.shell.emit({"op": "display", "data": bundle, "display_id": display_id, "update": bool(update)})

    def clear_output(self, wait: bool = False) -> None:
        """Sends that what was displayed is void."""
        self.shell.emit({"op": "clear", "wait": bool(wait)})


class Shell(InteractiveShell):
    """One interpreter. ``sink`` receives its events; without one they are dropped."""

    sink: Sink | None = None
    #: The error that the last cell ended with, as an event.
    last_error: Event | None = None

    def emit(self, event: Event) -> None:
        """Hands an event on."""
        if self.sink is not None:
            self.sink(event)

    def enable_gui(self, gui: str | None = None) -> None:
        """There is no window system; ``%matplotlib inline`` asks for none."""

    def ask_exit(self) -> None:
        """``exit()`` ends the cell, as in a script, and not the session."""
        raise SystemExit(0)

    def debugger(self, force: bool = False) -> None:
        """``%debug``: nobody could answer the prompt."""
        raise RuntimeError("a debugger needs a terminal; this code runs without one")

    def system(self, cmd: str) -> None:  # type: ignore[override]
        """``!cmd``: output goes straight to the cell's own pipes; an interrupt ends the cell, not only the command."""
        sys.stdout.flush()
        sys.stderr.flush()
        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
        process = subprocess.Popen(self.var_expand(cmd, depth=1), shell=True, executable=shell)
        try:
            code = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        self.user_ns["_exit_code"] = code if code >= 0 else 128 - code

    system_piped = system_raw = system

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        """Formats the current exception; one that cannot be formatted is still told."""
        try:
            super().showtraceback(*args, **kwargs)
        except BaseException:
            self.tell_error(*sys.exc_info()[:2])

    def _showtraceback(self, etype: type[BaseException] | None, evalue: BaseException | None, stb: list[str]) -> None:
        text = _ANSI.sub("", "\n".join(stb)) if isinstance(stb, list) else _ANSI.sub("", str(stb))
        self.tell_error(etype, evalue, text)

    def tell_error(
        self, etype: type[BaseException] | None, evalue: BaseException | None, traceback: str | None = None
    ) -> None:
        """Sends an error."""
        name = getattr(etype, "__name__", "Error")
        value = _text_of(evalue)
        text = traceback if traceback is not None else f"{name}: {value}"
        error = {"op": "error", "name": name, "value": cut(value, MAX_TEXT), "traceback": cut(text, MAX_TEXT)}
        self.last_error = error
        self.emit(error)


def _text_of(error: BaseException | None) -> str:
    try:
        return str(error)
    except BaseException as broken:
        return f"<{type(error).__name__} whose text cannot be had: {type(broken).__name__}>"


def build() -> Shell:
    """Makes the one shell of this process, with ``__main__`` as its namespace."""
    config = Config()
    # A history file would be shared by all contexts and needs a thread.
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.xmode = "Context"
    config.InteractiveShell.ast_node_interactivity = "last_expr"
    config.InteractiveShell.cache_size = 1000
    module = types.ModuleType("__main__", "The namespace of the code context.")
    shell = Shell.instance(
        config=config,
        user_module=module,
        user_ns=module.__dict__,
        displayhook_class=ResultHook,
        display_pub_class=EventPublisher,
    )
    figures.register(shell)
    warnings.filterwarnings("ignore", message="To exit: use 'exit', 'quit', or Ctrl-D.")
    return shell
