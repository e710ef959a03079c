"""The agent recipes, run as their first lines say, with their scripted models."""

import subprocess
import sys
from pathlib import Path

import pytest

from cells import picture
from server import REPO, Server


@pytest.mark.parametrize("recipe", ["pydantic_ai_agent", "llamaindex_agent"])
def test_recipe(server: Server, tmp_path: Path, recipe: str):
    environment = server.environment
    for provider in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        environment.pop(provider, None)
    before = {one.id for one in server.client().sandboxes.list()}
    done = subprocess.run(
        [sys.executable, REPO / f"recipes/{recipe}.py"],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    # Of numpy.random.default_rng(7).normal(100, 15, 10_000).
    assert "mean 99.82, standard deviation 14.91" in done.stdout
    assert "68.2% within one standard deviation" in done.stdout, "the second turn reused the samples of the first"
    assert done.stdout.count("image/png") == 1, "the model was handed one picture"
    chart = tmp_path / "chart.png"
    assert f"chart: {chart}" in done.stdout
    assert picture(chart.read_bytes()).width > 100
    assert {one.id for one in server.client().sandboxes.list()} == before, "the recipe ends its sandbox"
