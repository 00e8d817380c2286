"""Kernels compiled beforehand: numba gets a private copy it can write to, and a cache that was chosen is left alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from secfc import kernels


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shipped" / "secfc_0123"
    folder.mkdir(parents=True)
    (folder / "one.nbi").write_bytes(b"index")
    monkeypatch.setenv(kernels.SHIPPED, str(tmp_path / "shipped"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")  # so that it is put back afterwards
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    return folder.parent


def test_a_private_copy(shipped: Path) -> None:
    kernels._use_shipped()
    copy = Path(os.environ["NUMBA_CACHE_DIR"])
    assert copy != shipped
    assert (copy / "secfc_0123" / "one.nbi").read_bytes() == b"index"
    assert copy.parent.stat().st_mode & 0o077 == 0
    assert os.access(copy, os.W_OK)


def test_a_chosen_cache_is_kept(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/chosen")
    kernels._use_shipped()
    assert os.environ["NUMBA_CACHE_DIR"] == "/chosen"


def test_a_folder_that_is_not_there(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels.SHIPPED, str(shipped / "missing"))
    kernels._use_shipped()
    assert "NUMBA_CACHE_DIR" not in os.environ
