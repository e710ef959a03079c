"""Fixtures: one server for the session, one sandbox a module, one code context a test."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
from pandastack import Sandbox

from boxes import delete_snapshots
from cells import Cell, Context
from idle_proxy import IdleProxy
from server import BAKED, BINARY, TEMPLATE, Api, Server, clean_environment


@pytest.fixture(scope="session")
def baked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory with the baked template; baking it first if need be."""
    if os.geteuid() != 0:
        pytest.skip("gVisor sandboxes need root")
    if not BINARY.is_file():
        pytest.skip(f"{BINARY} is not built: run `make build`")
    environment = clean_environment(tmp_path_factory.mktemp("bake"))
    build = [BINARY, "template", "build", TEMPLATE, "--data-dir", BAKED, "--json"]
    done = subprocess.run(build, env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    assert done.returncode == 0, "the template could not be built"
    assert json.loads(done.stdout)["ready"]
    return BAKED


@pytest.fixture(scope="session")
def make_server(baked: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Starts servers, each over its own data directory; ends them all, with their sandboxes."""
    servers = []

    def make(*arguments: str, **options) -> Server:
        server = Server(tmp_path_factory.mktemp("server"), *arguments, **options)
        servers.append(server)
        return server.start()

    yield make
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def server(make_server: Callable[..., Server]) -> Server:
    return make_server(pool_size=2)


@pytest.fixture(scope="module")
def own_server(make_server: Callable[..., Server]) -> Iterator[Server]:
    """For a module that looks at all that its server has: the module names it `server`, and `api` is of it as well."""
    server = make_server()
    yield server
    delete_snapshots(server.api())
    server.stop()


@pytest.fixture(scope="module")
def api(server: Server) -> Api:
    return server.api()


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    sandbox = server.client().sandboxes.create(ttl_seconds=900)
    yield sandbox
    sandbox.kill()


@pytest.fixture
def make_context(api: Api, sandbox: Sandbox) -> Iterator[Callable[..., Context]]:
    contexts = []

    def make(**fields) -> Context:
        contexts.append(Context(api, sandbox.id, **fields))
        return contexts[-1]

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def ctx(make_context: Callable[..., Context]) -> Context:
    return make_context()


@pytest.fixture(scope="module")
def shared_ctx(api: Api, sandbox: Sandbox) -> Iterator[Context]:
    """One context for a table of cells that do not mind each other."""
    context = Context(api, sandbox.id)
    yield context
    context.close()


@dataclass
class LongCells:
    """Cells of more than a minute, which run beside the other tests."""

    plain: Future[Cell]
    streamed: Future[str]


@pytest.fixture(scope="session")
def long_cells(make_server: Callable[..., Server]) -> Iterator[LongCells]:
    # Of its own, for other tests look at all sandboxes that theirs has.
    server = make_server()
    code = "import time; time.sleep(75); 'done'"
    host, port = server.url.removeprefix("http://").split(":")
    proxy = IdleProxy(host, int(port), seconds=30)

    def stream(context: Context) -> str:
        url = f"{proxy.url}/v1/sandboxes/{context.sandbox}/repl/sessions/{context.id}/run"
        headers = {"Authorization": f"Bearer {server.key}", "Accept": "text/event-stream"}
        return requests.post(url, json={"code": code, "timeout_ms": 120_000}, headers=headers, timeout=120).text

    with server.client().sandboxes.create() as sandbox, ThreadPoolExecutor(2) as threads:
        one, other = (Context(server.api(), sandbox.id) for _ in range(2))
        yield LongCells(threads.submit(one.run, code, timeout=120), threads.submit(stream, other))
    proxy.close()
