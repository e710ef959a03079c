"""New randomness for a copy: a fork of the zygote must not draw the numbers of its siblings."""

from __future__ import annotations

import os
import sys


def reseed() -> None:
    """Reseeds every generator that user code may reach without having seeded it.

    uuid and secrets read the operating system's generator each time and need nothing.
    """
    entropy = os.urandom(32)
    _standard_library(entropy)
    _numpy()
    _openssl(entropy)


def _standard_library(entropy: bytes) -> None:
    import random
    import tempfile

    random.seed(entropy)
    # Temporary names come from a generator of their own, made on first use.
    tempfile._name_sequence = None  # type: ignore[attr-defined]


def _numpy() -> None:
    # Not imported for this: without it there is no generator to reseed.
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()


def _openssl(entropy: bytes) -> None:
    ssl = sys.modules.get("ssl")
    if ssl is not None:
        ssl.RAND_add(entropy, float(len(entropy)))
