"""One zygote for the whole run, one context for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import Context, Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    running = Zygote("numpy", "pandas", "matplotlib.pyplot")
    yield running
    running.close()


@pytest.fixture
def ctx(zygote: Zygote) -> Iterator[Context]:
    context = zygote.fork()
    yield context
    context.close()
