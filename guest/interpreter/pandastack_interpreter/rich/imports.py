"""Changes to modules that are made once they are imported, and not before."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Change = Callable[[Any], None]

_changes: dict[str, Change] = {}


def after_import(name: str, change: Change) -> None:
    """Calls ``change`` with the module once it is there. It must not raise."""
    module = sys.modules.get(name)
    if module is not None:
        change(module)
    else:
        _changes[name] = change


def install() -> None:
    """Begins to watch imports."""
    if not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())  # type: ignore[arg-type]


class _Watcher:
    """A finder that finds what the others find, and changes it after its own code has run."""

    def find_spec(self, name: str, *_args: object) -> ModuleSpec | None:
        """The module's specification, if it is one to be changed."""
        change = _changes.pop(name, None)
        if change is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            _changes[name] = change
            return None
        _change_after_execution(spec.loader, change)
        return spec


def _change_after_execution(loader: Any, change: Change) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        change(module)

    loader.exec_module = exec_module
