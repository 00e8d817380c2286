"""What programs load before they can do anything: seconds that everybody waits, at every start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from secfc import local
from secfc.pki import provision
from secfc_client import cli
from secfc_client.datasets import formats

HEAVY = (
    "numba",
    "llvmlite",
    "numpy",
    "pyarrow",
    "grpc",
    "cryptography",
    "rich",
    "asyncio",
    "pandas",
    "galois",
    "scipy",
)


def loaded(program: str) -> list[str]:
    code = f"import sys\ntry:\n    {program}\nexcept SystemExit:\n    pass\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return [name for name in HEAVY if name in done.stderr.split()]


def test_help_loads_nothing_heavy() -> None:
    assert loaded("sys.argv = ['secfc', '--help']; from secfc_client import cli; cli.main()") == []


def test_status_loads_what_connects_it_only() -> None:
    assert not {"numba", "llvmlite", "pyarrow", "pandas", "scipy", "galois"} & set(
        loaded("import secfc.commands.status")
    )


@pytest.mark.parametrize("program", ["secfc_client", "secfc_server"])
def test_programs_load_no_compiler_and_no_data_frames(program: str) -> None:
    assert not {"numba", "pandas", "scipy", "galois", "rich"} & set(loaded(f"import {program}.__main__"))


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_a_client_reads_rows_without_pandas(tmp_path: Path, name: str) -> None:
    """Where it is installed, pyarrow would load it."""
    file, made = tmp_path / name, local.describe(3, k=2, privacy=1, max_rows=9, features=2, bound=4.0, precision=4)
    provision.provision(made, tmp_path / "kits")
    with file.open("wb") as target:
        formats.write(pa.table({"x1": [0.5, 1.5], "x2": [1, 2]}), file.suffix, target)
    options = ["--kit", str(tmp_path / "kits" / "client-1"), "--data", str(file), "--out", str(tmp_path / "out.csv")]
    program = f"sys.argv = ['secfc-client', '--again', *{options}]; from secfc_client.__main__ import main; main()"
    found = loaded(program)
    assert "pyarrow" in found
    assert "pandas" not in found


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_says_of_a_command_what_it_says_itself(name: str) -> None:
    """The list is read from the source; click writes the command's own help."""
    whole = " ".join(CliRunner().invoke(cli.group, [name, "--help"]).output.split())
    summary = cli._summary(name)
    assert summary.endswith(".")
    assert summary in whole
