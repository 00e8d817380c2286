"""Where compiled kernels are kept, what happens where they cannot be, and that nobody waits while they are compiled."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

import secfc
from secfc import local
from secfc.coding import kernels
from secfc.pki import provision
from secfc_client import __main__ as client_program
from secfc_server import __main__ as server_program

NOBODY = 65534


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


def test_shipped_kernels_that_cannot_be_copied(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> NoReturn:
        raise shutil.Error([("a", "b", "no space")])

    monkeypatch.setattr(shutil, "copytree", full)
    kernels._use_shipped()
    assert "NUMBA_CACHE_DIR" not in os.environ


# --- nowhere to write -----------------------------------------------------------------------------------------------------


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the log says, with its fields; afterwards kernels are kept as before."""
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.getMessage()} {getattr(record, 'fields', {})}")

    monkeypatch.setattr(kernels, "kept", True)
    handler = Handler()
    kernels.log.addHandler(handler)
    yield lines
    kernels.log.removeHandler(handler)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("cannot cache function 'f': no locator available"), "no folder of this user's can be written"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_without_a_place_they_are_compiled_for_this_process(
    said: list[str], error: Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[bool] = []

    def compiled(*_: str) -> None:
        tries.append(kernels.kept)
        if kernels.kept:
            raise error

    monkeypatch.setattr(kernels, "_import", compiled)
    kernels._load()
    assert tries == [True, False]
    assert len(said) == 1
    assert "every start compiles them again" in said[0]
    assert words in said[0]
    assert "set NUMBA_CACHE_DIR" in said[0]


def test_another_error_is_not_hidden(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: str) -> NoReturn:
        raise RuntimeError("LLVM is broken")

    monkeypatch.setattr(kernels, "_import", broken)
    with pytest.raises(RuntimeError, match="LLVM"):
        kernels._load()


def test_threads_do_not_load_them_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads importing the same modules have been seen waiting for each other for ever."""
    inside, most, barrier = [], [0], threading.Barrier(4)

    def compiled(*_: str) -> None:
        inside.append(1)
        most[0] = max(most[0], len(inside))
        time.sleep(0.005)
        inside.pop()

    def first_use() -> None:
        barrier.wait(10)
        kernels.__getattr__("nearest")

    monkeypatch.setattr(kernels, "_import", compiled)
    threads = [threading.Thread(target=first_use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert most == [1]


@pytest.fixture
def installed() -> Iterator[Path]:
    """A copy of the package that nobody but root can write; not in pytest's folder, which only its owner may enter."""
    folder = Path(tempfile.mkdtemp(prefix="secfc-installed-"))
    home = Path(secfc.__file__).parent
    shutil.copytree(home, folder / "secfc", ignore=shutil.ignore_patterns("__pycache__"))
    folders = [path for path in (folder, *folder.rglob("*")) if path.is_dir()]
    for path in folders:
        path.chmod(0o555)
    yield folder
    for path in folders:
        path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.slow
def test_a_read_only_installation_under_a_service_account(installed: Path) -> None:
    """Another user (if we are root), no home, nothing to write in: one warning, no traceback, and the kernels compute."""
    code = """
import numpy as np, secfc
from secfc import logs
from secfc.coding import kernels
logs.configure("text", False)
kernels.warm()
values = np.array([[5.0, -5.0]])
kernels.balance(values, 7.0)
print(secfc.__file__, kernels.kept, values.tolist())
"""
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [*become, sys.executable, "-c", code],
        cwd=installed,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout.split(maxsplit=1)) == (
        0,
        [str(installed / "secfc" / "__init__.py"), "False [[-2.0, 2.0]]\n"],
    ), done.stderr
    warning, compiling, compiled = done.stderr.splitlines()
    assert "warning: compiled kernels cannot be kept" in warning
    assert "compiling kernels for this machine, for this process" in compiling
    assert "kernels are compiled" in compiled


@pytest.mark.slow
def test_the_first_start_says_that_it_compiles_and_the_second_loads(tmp_path: Path) -> None:
    code = 'from secfc import logs; from secfc.coding import kernels; logs.configure("text", False); kernels.warm()'
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    call = [sys.executable, "-c", code]
    first, second = (
        subprocess.run(call, env=environment, capture_output=True, text=True, timeout=300, check=True).stderr
        for _ in range(2)
    )
    assert "compiling kernels for this machine, once" in first
    assert "kernels are compiled" in first
    assert second == ""


# --- when they are compiled -----------------------------------------------------------------------------------------------


class Compiling(Exception):
    """The kernels are being compiled."""


@pytest.fixture
def kits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def compiling(**_: bool) -> NoReturn:
        raise Compiling

    def too_early(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the job has begun before the kernels are compiled")

    monkeypatch.setattr(kernels, "warm", compiling)
    monkeypatch.setattr(client_program.asyncio, "run", too_early)
    monkeypatch.setattr(server_program, "Coordinator", too_early)
    made = local.describe(3, k=2, privacy=1, max_rows=9, features=2, bound=1.0, precision=4)
    provision.provision(made, tmp_path / "kits")
    (tmp_path / "rows.csv").write_text("x1,x2\n0.5,0.5\n")
    return tmp_path


def test_a_client_compiles_before_it_joins(kits: Path) -> None:
    options = ["--kit", str(kits / "kits" / "client-1"), "--data", str(kits / "rows.csv"), "--out", str(kits / "l.csv")]
    with pytest.raises(Compiling):
        client_program.command.main(options, standalone_mode=False)


def test_the_server_compiles_before_its_deadlines_run(kits: Path) -> None:
    with pytest.raises(Compiling):
        server_program.command.main(["--kit", str(kits / "kits" / "server")], standalone_mode=False)
