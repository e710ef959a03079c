"""New randomness for a copy: a fork of the zygote, or of a whole sandbox, must not draw the numbers of its siblings.

What user code seeded goes on with its sequence; everything else is seeded anew. So it is noted which generators were seeded: for
``random`` by whoever calls ``seed``, for libraries see ``reseed_libraries.py`` and ``reseed_numpy.py``.

``secrets``, ``random.SystemRandom`` and ``uuid.uuid4`` read the operating system's generator each time and need nothing. Names of
temporary files and sympy's choices come from generators of ``random``.
"""

from __future__ import annotations

import functools
import random
import sys
import weakref
from collections.abc import Callable
from typing import Any

from . import reseed_libraries as libraries
from .reseed_numpy import Numpy

_seed_random = random.Random.seed
#: Living generators that nobody seeded, by id: a subclass may not be hashable.
_unseeded: weakref.WeakValueDictionary[int, random.Random] = weakref.WeakValueDictionary()
_numpy: Numpy | None = None
_polars: libraries.Polars | None = None


def track() -> None:
    """Starts noting. To be called before anything imports one of the libraries."""
    _track_random()
    libraries.at_import("numpy.random", _track_numpy)
    libraries.at_import("polars.functions.random", _track_polars)
    libraries.at_import("pyarrow.compute", libraries.seed_arrow)


def before_freeze() -> None:
    """Notes the generators that are about to be hidden from a search for objects."""
    if _numpy is not None:
        _numpy.hide()


def reseed() -> None:
    """Reseeds every generator that user code may reach without having seeded it. One that cannot be is told on stderr."""
    for name, hook in list(HOOKS.items()):
        try:
            hook()
        except Exception as error:
            print(f"the generators of {name} may draw what those of another sandbox draw: {type(error).__name__}: {error}", file=sys.stderr)


def reseed_random() -> None:
    """Reseeds those of the module ``random``, its shared one too."""
    for generator in list(_unseeded.values()):
        _seed_random(generator)


def reseed_numpy() -> None:
    """Reseeds numpy's, the shared one of ``numpy.random.rand`` and its like too."""
    if _numpy is not None:
        _numpy.reseed()


def reseed_polars() -> None:
    """Reseeds the one that samples and shuffles in polars."""
    if _polars is not None:
        _polars.reseed()


#: All that is reseeded, by what it belongs to.
HOOKS: dict[str, Callable[[], None]] = {
    "random": reseed_random,
    "numpy": reseed_numpy,
    "polars": reseed_polars,
    "openssl": libraries.reseed_openssl,
    "uuid": libraries.reseed_uuid,
}


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


def _track_numpy(module: Any) -> None:
    global _numpy
    _numpy = Numpy(module)


def _track_polars(module: Any) -> None:
    global _polars
    _polars = libraries.Polars(module)
