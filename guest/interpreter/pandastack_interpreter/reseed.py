"""New randomness for a copy: a fork of the zygote, or of a whole sandbox, must not draw the numbers of its siblings.

What user code seeded goes on with its sequence; everything else is seeded anew. So it is noted which generators were seeded: for
``random`` by whoever calls ``seed``, for numpy by a mark in the entropy that a generator gets when it is given none.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import random
import secrets
import sys
import weakref
from importlib.machinery import ModuleSpec
from typing import Any

_seed_random = random.Random.seed
#: Living generators that nobody seeded, by id: a subclass may not be hashable.
_unseeded: weakref.WeakValueDictionary[int, random.Random] = weakref.WeakValueDictionary()

_NUMPY = "numpy.random"
#: What marks entropy as drawn and not given: bits that are computed from the others.
_MARK_BITS = 32
_MARK_KEY = secrets.randbits(64)


def track() -> None:
    """Starts noting. To be called before anything imports numpy."""
    _track_random()
    sys.meta_path.insert(0, _AtImportOfNumpy())


def before_freeze() -> None:
    """Notes the generators that are about to be hidden from a search for objects."""
    if _numpy is not None:
        _numpy.hide()


def reseed() -> None:
    """Reseeds every generator that user code may reach without having seeded it.

    uuid and secrets read the operating system's generator each time and need nothing.
    """
    for generator in list(_unseeded.values()):
        _seed_random(generator)
    if _numpy is not None:
        _numpy.reseed()
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        # Temporary names come from a generator of their own, made on first use.
        tempfile._name_sequence = None  # type: ignore[attr-defined]
    ssl = sys.modules.get("ssl")
    if ssl is not None:
        entropy = os.urandom(32)
        ssl.RAND_add(entropy, float(len(entropy)))


def _track_random() -> None:
    set_state = random.Random.setstate

    @functools.wraps(_seed_random)
    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        _seed_random(self, a, version)
        if a is None:
            _unseeded[id(self)] = self
        else:
            _unseeded.pop(id(self), None)

    @functools.wraps(set_state)
    def setstate(self: random.Random, state: Any) -> None:
        set_state(self, state)
        _unseeded.pop(id(self), None)

    random.Random.seed = seed  # type: ignore[method-assign]
    random.Random.setstate = setstate  # type: ignore[method-assign]
    shared = random._inst  # type: ignore[attr-defined]
    _unseeded[id(shared)] = shared
    random.seed, random.setstate = shared.seed, shared.setstate


class _AtImportOfNumpy:
    """A finder that finds nothing itself, and is there until numpy's generators are imported."""

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        """Sees to it that they are tracked from their import on."""
        if name != _NUMPY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_track(module: Any) -> None:
            global _numpy
            execute(module)
            _numpy = _Numpy(module)

        spec.loader.exec_module = execute_and_track  # type: ignore[method-assign]
        return spec


class _Numpy:
    """numpy's generators. Their types can be neither changed nor replaced."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._legacy = module.mtrand._rand
        #: Of the one behind `numpy.random.rand` and its like, which was made at the import.
        self._first_sequence = self._bits_of(self._legacy)._seed_seq
        self._legacy_is_seeded = False
        #: Unseeded ones that the garbage collector does not list.
        self.hidden: list[Any] = []
        #: Whether there may be others. To look for them takes 0.1 s for a million objects.
        self._has_drawn = True
        self._mark_drawn_entropy()
        self._note_seeding()

    @staticmethod
    def _bits_of(generator: Any) -> Any:
        return generator._bit_generator

    def _mark_drawn_entropy(self) -> None:
        draw = self._module.bit_generator.randbits

        def marked(bits: int) -> int:
            self._has_drawn = True
            drawn = draw(bits)
            return drawn << _MARK_BITS | _mark(drawn)

        self._module.bit_generator.randbits = marked

    def _note_seeding(self) -> None:
        seed, set_state = self._module.seed, self._module.set_state

        @functools.wraps(seed)
        def noted_seed(seed_value: Any = None) -> None:
            seed(seed_value)
            self._legacy_is_seeded = seed_value is not None

        @functools.wraps(set_state)
        def noted_set_state(state: Any) -> None:
            set_state(state)
            self._legacy_is_seeded = True

        for module in (self._module, self._module.mtrand):
            module.seed, module.set_state = noted_seed, noted_set_state

    def hide(self) -> None:
        """Keeps the unseeded ones that there are, which are about to be hidden from a search."""
        self.hidden, self._has_drawn = self.unseeded(), False

    def unseeded(self) -> list[Any]:
        """Every bit generator in reach that got its entropy from the system."""
        if not self._has_drawn:
            return []
        kind = self._module.bit_generator.BitGenerator
        return [found for found in gc.get_objects() if isinstance(found, kind) and self._is_drawn(found._seed_seq)]

    def reseed(self) -> None:
        """Gives the unseeded ones new states."""
        has_drawn = self._has_drawn
        found = {id(bits): bits for bits in [*self.hidden, *self.unseeded()]}
        legacy = self._bits_of(self._legacy)
        found.pop(id(legacy), None)
        if not self._legacy_is_seeded and (legacy._seed_seq is None or self._is_drawn(legacy._seed_seq)):
            found[id(legacy)] = legacy
        for bits in found.values():
            bits.state = type(bits)().state
        self._has_drawn = has_drawn

    def _is_drawn(self, sequence: Any) -> bool:
        if sequence is self._first_sequence and sequence is not None:
            return True
        entropy = getattr(sequence, "entropy", None)
        return isinstance(entropy, int) and entropy & (1 << _MARK_BITS) - 1 == _mark(entropy >> _MARK_BITS)


_numpy: _Numpy | None = None


def _mark(drawn: int) -> int:
    return hash((_MARK_KEY, drawn)) & (1 << _MARK_BITS) - 1
