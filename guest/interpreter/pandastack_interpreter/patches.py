"""What waits for a person fails at once: nobody could answer."""

from __future__ import annotations

import builtins
import getpass
import sys
from typing import Any, NoReturn

from IPython.core.error import StdinNotImplementedError


def install() -> None:
    """Replaces the functions that wait for input."""
    builtins.input = _no_input
    getpass.getpass = _no_input
    sys.breakpointhook = _no_debugger


def _no_input(*_args: Any, **_options: Any) -> NoReturn:
    raise StdinNotImplementedError("input is not available: this code runs without a terminal; pass values in the code")


def _no_debugger(*_args: Any, **_options: Any) -> NoReturn:
    raise RuntimeError("a debugger needs a terminal; this code runs without one")
