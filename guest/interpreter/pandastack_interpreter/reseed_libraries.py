"""Generators of the standard library and of libraries that keep one for the whole process."""

from __future__ import annotations

import functools
import importlib.util
import os
import secrets
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

#: libuuid's word for a time-based UUID that no other process was asked about.
_UNSAFE = -1
_MULTICAST = 1 << 40


def at_import(name: str, then: Callable[[Any], None]) -> None:
    """Calls ``then`` with the module once it is imported, before anybody takes anything from it."""
    sys.meta_path.insert(0, _AtImport(name, then))


class _AtImport:
    """A finder that finds nothing itself, and is there until its module is imported."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self.name, self._then = name, then

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        """Sees to it that the module is handed on."""
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_tell(module: Any) -> None:
            execute(module)
            self._then(module)

        spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec


def reseed_openssl() -> None:
    """Mixes new entropy into OpenSSL's generator, which does not notice that its memory was copied."""
    ssl = sys.modules.get("ssl")
    if ssl is not None:
        entropy = os.urandom(32)
        ssl.RAND_add(entropy, float(len(entropy)))


def reseed_uuid() -> None:
    """Gives ``uuid.uuid1`` another node and clock sequence: libuuid, which keeps them, cannot be told to draw new ones."""
    uuid = sys.modules.get("uuid")
    if uuid is None:
        return
    node, sequence = secrets.randbits(48) | _MULTICAST, secrets.randbits(14)
    uuid._node = node  # type: ignore[attr-defined]
    if uuid._generate_time_safe is not None:  # type: ignore[attr-defined]
        uuid._generate_time_safe = lambda: (uuid.uuid1(node, sequence).bytes, _UNSAFE)  # type: ignore[attr-defined]


class Polars:
    """The generator that polars keeps for samples and shuffles without a seed."""

    def __init__(self, module: Any) -> None:
        self._seed = module.plr.set_random_seed
        self._is_seeded = False
        seed = module.set_random_seed

        @functools.wraps(seed)
        def noted_seed(seed_value: int) -> None:
            seed(seed_value)
            self._is_seeded = True

        module.set_random_seed = noted_seed

    def reseed(self) -> None:
        """Seeds it unless user code has."""
        if not self._is_seeded:
            self._seed(secrets.randbits(64))


def seed_arrow(module: Any) -> None:
    """Arrow takes its seeds from a generator that cannot be seeded: from now on it is given one with every call."""
    draw = module.random

    @functools.wraps(draw)
    def seeded_draw(n: int, *, initializer: Any = "system", **options: Any) -> Any:
        return draw(n, initializer=secrets.randbits(64) if initializer == "system" else initializer, **options)

    module.random = seeded_draw
