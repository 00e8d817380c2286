"""In CI a skipped test fails (tests/conftest.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[1] / "conftest.py"
SKIPS = """
import pytest

@pytest.mark.skipif(True, reason="by a mark")
def test_one():
    pass

def test_two():
    pytest.skip("by a call")

@pytest.fixture
def lacking():
    pytest.skip("by a fixture")

def test_three(lacking):
    pass
"""


@pytest.mark.parametrize(("setting", "code"), [("true", 1), ("", 0)])
def test_skips_fail_in_ci_only(tmp_path: Path, setting: str, code: int) -> None:
    (tmp_path / "conftest.py").write_text(HOOK.read_text())
    (tmp_path / "test_skips.py").write_text(SKIPS)
    call = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    environment = os.environ | {"CI": setting}
    done = subprocess.run(call, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == code, done.stdout
    if code:
        assert all(f"by a {how}" in done.stdout for how in ("mark", "call", "fixture"))
        assert "skipped," not in done.stdout.splitlines()[-1]
