"""Contexts of other languages than Python: a process that drives the language's own interpreter.

A language is one module with a subclass of ``driver.Language``, and a line in ``LANGUAGES``.
"""

from __future__ import annotations

from ..channel import Channel
from .bash import Bash
from .driver import Driver, Language
from .node import Node

#: By the names that the agent uses.
LANGUAGES: dict[str, type[Language]] = {"bash": Bash, "node": Node}


def drive(language: str, channel: Channel, memory_limit: int | None) -> None:
    """Serves cells of a language until the agent closes the channel. ``memory_limit`` is in bytes.

    Raises ``ValueError`` if there is no such language. A child that dies takes this process with it, in the same way.
    """
    if language not in LANGUAGES:
        raise ValueError(f"there is no language {language!r}")
    Driver(LANGUAGES[language](memory_limit), channel).serve()
