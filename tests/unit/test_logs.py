"""With --log-format json every line on standard error is one JSON object, the last one and the libraries' too."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from secfc import exits, logs
from secfc_client.__main__ import command as client
from secfc_server.__main__ import command as server

NAMES = ("secfc", "grpc", "asyncio", "concurrent.futures")


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in NAMES]
    before = [(one, one.handlers, one.level, one.propagate) for one in loggers]
    hook = sys.excepthook
    yield
    sys.excepthook = hook
    for one, handlers, level, propagate in before:
        one.handlers, one.propagate = handlers, propagate
        one.setLevel(level)


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--kit", "{nowhere}"], "nowhere"),
        (["--no-such-option"], "No such option"),
        (["--kit", "{nowhere}", "--wait", "soon", "--join-timeout", "soon"], "o"),
        ([], "Missing option"),
    ],
)
@pytest.mark.parametrize("command", [server, client], ids=["server", "client"])
def test_the_last_line_is_json_too(
    command: Any, options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [option.format(nowhere=tmp_path / "nowhere") for option in options]
    needed = ["--data", "a.csv", "--out", "b.csv"] if command is client and given else []

    with pytest.raises(SystemExit) as ended:
        exits.run(command, "p", [*given, *needed, "--log-format", "json"])
    (last,) = objects(capsys.readouterr().err)
    assert (ended.value.code, last["level"], last["exit_code"]) == (2, "error", 2)
    assert words in last["event"]


def test_for_people_it_stays_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        exits.run(server, "p", ["--kit", str(tmp_path / "nowhere")])
    assert capsys.readouterr().err.startswith("error: ")


def test_what_libraries_and_tracebacks_say_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", quiet=True)
    for name in NAMES:
        logging.getLogger(f"{name}.part").error("said by %s", name)
    try:
        raise RuntimeError("nobody expected this")
    except RuntimeError:
        logging.getLogger("secfc.net.rpc").exception("an internal error")
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    lines = objects(capsys.readouterr().err)
    assert [line["event"] for line in lines[:4]] == [f"said by {name}" for name in NAMES]
    assert all("nobody expected this" in line["traceback"] for line in lines[4:])
    assert len(lines) == 6


@pytest.mark.parametrize("program", ["secfc_server", "secfc_client"])
def test_grpc_writes_no_lines_of_its_own_unless_asked_to(program: str) -> None:
    """Its core reads the setting once, when it is loaded."""
    code = f"import {program}.__main__, os; print(os.environ['GRPC_VERBOSITY'])"
    for given, told in (({}, "NONE"), ({"GRPC_VERBOSITY": "ERROR"}, "ERROR")):
        call = [sys.executable, "-c", f"import sys\nassert 'grpc' not in sys.modules\n{code}"]
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", **given}
        done = subprocess.run(call, capture_output=True, text=True, timeout=300, check=True, env=environment)
        assert done.stdout.strip() == told
