"""Claims of 2⁶³ words, rows or bytes cost nothing: a process that may not grow refuses them all in one line."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_huge_claims_cost_nothing() -> None:
    """256 MiB above what is there before the first claim; a claim taken at its word would need exabytes."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.claims"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].startswith("all ")
