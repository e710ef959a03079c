"""What the documentation shows runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from server import REPO, Server

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
PAGES = {page.name: BLOCK.findall(page.read_text()) for page in (REPO / "README.md", *(REPO / "docs").glob("*.md"))}


@pytest.mark.parametrize("page", sorted(page for page, blocks in PAGES.items() if blocks))
def test_code_of_a_page(server: Server, page: str, tmp_path: Path):
    script = tmp_path / "page.py"
    script.write_text("\n".join(PAGES[page]))
    options = {"capture_output": True, "text": True, "timeout": 300, "cwd": tmp_path}
    done = subprocess.run([sys.executable, script], env=server.environment, **options)
    assert done.returncode == 0, done.stderr
