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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import secfc
from secfc import local
from secfc.coding import kernels
from secfc.pki import provision
from secfc_client import __main__ as client_program
from secfc_server import __main__ as server_program

NOBODY = 65534


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What the log says, with its fields."""
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.getMessage()} {getattr(record, 'fields', {})}")

    handler = Handler()
    kernels.log.addHandler(handler)
    level = kernels.log.level
    kernels.log.setLevel(logging.INFO)
    yield lines
    kernels.log.setLevel(level)
    kernels.log.removeHandler(handler)


@pytest.fixture
def code() -> tuple[list[Any], bytes]:
    """What was compiled on this machine."""
    kernels.warm()
    found = [kernels._read(folder / f"kernels-{kernels._key()}.bin") for folder in kernels._folders()]
    return next(one for one in found if one is not None)


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch, code: tuple[list[Any], bytes]) -> list[int]:
    """Compiles nothing, but counts how often it would have."""
    times: list[int] = []

    class Compiler:
        @staticmethod
        def compile_all() -> tuple[list[Any], bytes]:
            times.append(1)
            return code

    monkeypatch.setitem(sys.modules, "secfc.coding._compiling", Compiler)
    return times


def test_compiled_once_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiling: list[int], said: list[str]
) -> None:
    monkeypatch.setenv(kernels.FOLDER, str(tmp_path / "new" / "folder"))
    first, second = kernels._load(), kernels._load()
    assert first.keys() == second.keys()
    assert len(compiling) == 1
    assert [line.split(" {")[0] for line in said] == [
        "compiling kernels for this machine, once; this takes 15 seconds to a minute",
        "kernels are compiled",
    ]


def test_a_read_only_folder_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiling: list[int], said: list[str]
) -> None:
    monkeypatch.setenv(kernels.FOLDER, str(tmp_path))
    kernels._load()
    tmp_path.chmod(0o555)
    said.clear()
    kernels._load()
    tmp_path.chmod(0o755)
    assert (len(compiling), said) == (1, [])


@pytest.mark.parametrize("spoil", [lambda whole: whole[:-1], lambda whole: whole[:-1] + b"?", lambda _: b""])
def test_what_is_not_whole_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiling: list[int], spoil: Callable[[bytes], bytes]
) -> None:
    """A file cut off by a full disk must not be run."""
    monkeypatch.setenv(kernels.FOLDER, str(tmp_path))
    kernels._load()
    (path,) = tmp_path.glob("kernels-*.bin")
    path.write_bytes(spoil(path.read_bytes()))
    kernels._load()
    kernels._load()
    assert len(compiling) == 2


def test_another_processor_or_source_is_compiled_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kernels._key()
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    generic = kernels._key()
    for path in Path(kernels.__file__).parent.glob("_*.py"):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(kernels, "_SOURCES", tmp_path)
    assert kernels._key() == generic
    with (tmp_path / "_kernels.py").open("a") as file:
        file.write("# changed")
    assert len({before, generic, kernels._key()}) == 3


def test_without_a_place_they_are_compiled_for_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiling: list[int], said: list[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(kernels.FOLDER, str(tmp_path / "file" / "folder"))
    assert "nearest" in kernels._load()
    assert "every start compiles them again" in said[-1]
    assert "Not a directory" in said[-1]
    assert "set SECFC_KERNELS" in said[-1]


def test_another_error_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        @staticmethod
        def compile_all() -> NoReturn:
            raise RuntimeError("LLVM is broken")

    monkeypatch.setenv(kernels.FOLDER, str(tmp_path))
    monkeypatch.setitem(sys.modules, "secfc.coding._compiling", Broken)
    with pytest.raises(RuntimeError, match="LLVM"):
        kernels._load()


def test_threads_load_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    times, barrier = [], threading.Barrier(4)

    def load() -> dict[str, Any]:
        times.append(1)
        time.sleep(0.005)
        return {"nearest": times}

    def first_use() -> None:
        barrier.wait(10)
        kernels.warm()

    monkeypatch.setattr(kernels, "_loaded", {})
    monkeypatch.setattr(kernels, "_load", load)
    threads = [threading.Thread(target=first_use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert times == [1]


# --- what they take -------------------------------------------------------------------------------------------------------


def test_they_refuse_what_they_were_not_compiled_for() -> None:
    """They get addresses: another type or layout would be read as what it is not."""
    values, frozen = np.zeros((3, 4)), np.zeros((3, 4))
    frozen.flags.writeable = False
    for wrong in (values.astype(np.float32), values[0], frozen, values.tolist(), values.astype(">f8"), None):
        with pytest.raises(TypeError, match="no version of kernel balance takes"):
            kernels.balance(wrong, 7.0)
    with pytest.raises(TypeError, match="balance"):
        kernels.balance(values)
    with pytest.raises(TypeError):
        kernels.balance(values, "seven")
    with pytest.raises(TypeError, match="pack"):
        kernels.pack(np.zeros(6, np.uint32)[::2], np.zeros(1, np.uint64))
    with pytest.raises(AttributeError):
        _ = kernels.no_such_kernel


def test_layouts_and_read_only_words() -> None:
    whole = np.arange(24.0).reshape(4, 6)
    part = whole[::2, ::3]  # not contiguous: the other version
    kernels.balance(part, 7.0)
    assert whole[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert part.tolist() == [[0.0, 3.0], [-2.0, 1.0]]
    received = np.frombuffer((5 | 6 << 21).to_bytes(8, "little"), np.uint64)
    flat = np.empty(2, np.uint32)
    kernels.unpack(received, flat)
    assert flat.tolist() == [5, 6]


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
from secfc.privacy import checking
print(secfc.__file__, values.tolist(), checking.located(101, [1, 2, 3, 4], [3, 6]))
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
        [str(installed / "secfc" / "__init__.py"), "[[-2.0, 2.0]] (1,)\n"],
    ), done.stderr
    compiling, compiled, warning = done.stderr.splitlines()
    assert "compiling kernels for this machine" in compiling
    assert "kernels are compiled" in compiled
    assert "warning: compiled kernels cannot be kept" in warning


def test_a_start_needs_no_numba() -> None:
    """It takes longer to import than a small job to run."""
    kernels.warm()
    code = "import sys; from secfc.coding import kernels; kernels.warm(); print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


# --- when they are compiled -----------------------------------------------------------------------------------------------


class Compiling(Exception):
    """The kernels are being compiled."""


@pytest.fixture
def kits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def compiling() -> NoReturn:
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
