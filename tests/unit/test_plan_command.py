"""`secfc plan`: the table, the JSON object, the errors and their exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from secfc import exits
from secfc.agreement import costs, plan
from secfc.agreement.federation import dumps
from secfc.agreement.job import STARTS
from secfc.commands.plan import count, size
from secfc_client.cli import group
from tests.parties import make_federation


def run(*arguments: str) -> tuple[int, Result]:
    """The exit code that a shell would see, and the output."""
    result = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(
        group, ["plan", *arguments], standalone_mode=False
    )
    if result.exception is None:
        return 0, result

    def again() -> object:
        assert result.exception is not None
        raise result.exception

    return exits._outcome(again), result


def parameters(*arguments: str) -> dict[str, object]:
    code, result = run(*arguments, "--json")
    assert code == 0, result.exception
    assert len(result.stdout.splitlines()) == 1
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_the_json_is_the_plan() -> None:
    wishes = plan.Wishes(
        clients=16,
        privacy=5,
        clusters=16,
        features=100,
        max_rows=16384,
        bound=8.0,
        precision=10,
        dropouts=1,
        segments=3,
        uploads="sealed",
    )
    found = parameters(
        *("-n", "16", "-t", "5", "-k", "16", "-d", "100", "-m", "16384"),
        *("--bound", "8", "--precision", "10", "--dropouts", "1", "--segments", "3"),
    )
    made = plan.make(wishes)
    runs = [16] * STARTS
    sealed = costs.sealed_runs(made, runs) | {"guards": made.guards()}
    expected = made.parameters() | {"cost": costs.of(made, runs), "sealed": sealed, "warnings": found["warnings"]}
    expected["runs"] = runs
    assert found == json.loads(json.dumps(expected))
    assert (found["segments"], found["responders"], found["segment_length"]) == (3, 15, 34)


def test_defaults_are_the_ones_of_the_help() -> None:
    found = parameters("--clients", "5")
    expected = {"privacy": 1, "clusters": 8, "features": 100, "max_rows": 10_000, "bound": 1.0, "precision": 12}
    assert {key: found[key] for key in expected} == expected
    assert (found["uploads"], found["membership"]) == ("sealed", "public")
    code, result = run("--help")
    assert code == 0
    for option in ("--clients", "--privacy", "--rows", "--dropouts", "--liars", "--uploads", "--segments", "--json"):
        assert option in result.stdout


def test_the_table_says_what_the_json_says() -> None:
    code, result = run("-n", "16", "-t", "5", "--segments", "3", "--uploads", "masked", "--starts", "1")
    assert code == 0
    made = plan.make(plan.Wishes(16, 5, 8, 100, 10_000, 1.0, 12, segments=3))
    for words in (
        "Parameters",
        "2ℓ+2t−1 uploads per round; 1 of 16 clients may be missing",
        "a share has ⌈100/3⌉ = 34 residues per lane",
        f"{made.field.lanes} lanes",
        f"η = {made.eta}",
        "the server gets distances, and can compute the rows",
        "Cost at m = 10000 rows, dealt evenly",
        size(costs.of(made)["round_bytes_per_client"]),
        size(costs.of(made)["server_process_bytes"]),
        count(costs.of(made)["round_multiplications_per_client"]),
    ):
        assert words in result.stdout, words
    assert "sealed" not in result.stdout.lower()
    assert "liars" not in result.stdout
    assert "membership" not in result.stdout
    assert "union" not in result.stdout


def test_sealed_rounds_are_in_the_tables() -> None:
    code, result = run("-n", "16", "-t", "5", "-k", "16", "--segments", "3", "--starts", "1")
    assert code == 0
    made = plan.make(plan.Wishes(16, 5, 16, 100, 10_000, 1.0, 12, segments=3, uploads="sealed"))
    first, usual = (costs.sealed(made)[name] for name in ("first_round", "usual_round"))
    for words in (
        "with one committee member the server gets distances; alone, assignments",
        "6 clients",
        "2·⌊m²/4⌋²·d·(2η)² < Q",
        *made.guards().values(),
        size(first["member_sent"]),
        size(first["server_received"]),
        size(usual["server_sent"]),
        str(usual["member_messages"]),
    ):
        assert words in result.stdout, words
    assert result.stderr.startswith("note: sealed uploads: ")


@pytest.mark.parametrize("uploads", ["sealed", "masked", "open"])
def test_the_tables_fit_a_terminal_of_80_columns(uploads: str) -> None:
    arguments = ["plan", "-n", "16", "-t", "5", "-k", "100", "-m", "1000000", "--uploads", uploads]
    result = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(group, arguments)
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout


def test_rows_of_the_table_that_are_not_always_there() -> None:
    _, result = run("-n", "9", "--uploads", "open", "--liars", "2", "--membership", "private")
    assert "wrong uploads that are found and left out; R+2A = 9 are asked" in result.stdout
    assert "0 of 9 clients may be missing" in result.stdout
    assert "every client shares all m slots" in result.stdout
    assert "union of IDs, sent" in result.stdout
    assert "the server gets every upload" in result.stdout


def test_a_federation_file(tmp_path: Path) -> None:
    agreed = make_federation(5, k=4, max_rows=77)
    path = tmp_path / "federation.toml"
    path.write_text(dumps(agreed), encoding="utf-8")
    found = parameters(str(path))
    made = plan.of(agreed)
    expected = made.parameters() | {"cost": costs.of(made), "warnings": found["warnings"], "runs": [4]}
    assert found == json.loads(json.dumps(expected))
    assert (found["clients"], found["clusters"], found["max_rows"]) == (5, 4, 77)
    code, result = run(str(path))
    assert code == 0
    assert "Cost at m = 77 rows" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "say how many clients there are (--clients N), or give a federation.toml"),
        (("-n", "4", "-t", "2"), "n = 4, t = 2 needs 2t+2ℓ−1 = 5 clients; use t = 1 or 5 clients"),
        (("-n", "0"), "clients must be a whole number of at least 1, not 0"),
        (("-n", "5", "-k", "0"), "clusters must be a whole number of at least 1, not 0"),
        (("-n", "5", "-k", "4,0"), "--clusters must be a whole number of at least 1, not 0"),
        (("-n", "5", "-k", "4,-2"), "--clusters must be a whole number of at least 1, not -2"),
        (("-n", "5", "-t", "0"), "sealed uploads need privacy >= 1; use privacy = 1 or uploads = 'open'"),
        (("-n", "5", "-t", "0", "--uploads", "masked"), "masked uploads need privacy >= 1"),
        (
            ("-n", "5", "-k", "128"),
            "sealed uploads need k ≤ 127, not k = 128; use k = 127, or uploads = 'masked': quicker",
        ),
        (("-n", "5", "--liars", "1"), "liars > 0 needs uploads = 'open'"),
        (("-n", "5", "-k", "9", "-m", "8"), "k = 9 clusters need at least as many rows, not 8"),
        (("-n", "9", "--segments", "200"), "needs 2t+2ℓ−1"),
        (("-n", "5", "--bound", "nan"), "bound"),
        (("-n", "5", "--bound", "-1"), "bound"),
        (("-n", "5", "--bound", "1e300", "--precision", "60"), ""),
        (("nowhere.toml",), "nowhere.toml: cannot be read"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, result = run(*arguments)
    told = capsys.readouterr().err
    assert code == exits.USAGE
    assert result.stdout == ""
    assert words in told
    assert told.startswith("error: ")
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("-n", "many"),
        ("-n", "5", "--starts", "201"),
        ("-n", "5", "--uploads", "secret"),
        ("--nonsense",),
        ("a.toml", "b.toml"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = run(*arguments)
    assert code == exits.USAGE
    assert "Usage:" in capsys.readouterr().err


def test_a_broken_federation_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "federation.toml"
    path.write_text("name = ")
    code, _ = run(str(path), "--json")
    assert code == exits.USAGE
    assert "not valid TOML" in capsys.readouterr().err
    path.write_text(dumps(make_federation(3)).replace("privacy = 1", "privacy = 2"))
    code, _ = run(str(path), "--json")
    assert code == exits.USAGE
    assert "n = 3, t = 2 needs 2t+2ℓ−1 = 5 clients" in capsys.readouterr().err


@pytest.mark.parametrize("options", [("--clients", "5"), ("--clients", "2"), ("--clients", "5", "--json")])
def test_as_a_process(options: tuple[str, ...]) -> None:
    """The installed command: exit codes, no traceback, and quick, for it loads no compiled kernels."""
    program = "import sys; from secfc_client import cli; sys.argv = ['secfc', 'plan', *sys.argv[1:]]\n"
    program += "try: cli.main()\nfinally: assert 'numba' not in sys.modules and 'galois' not in sys.modules\n"
    done = subprocess.run(
        [sys.executable, "-c", program, *options],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    good = "2" not in options
    assert done.returncode == (0 if good else exits.USAGE), done.stderr
    assert "Traceback" not in done.stderr
    assert bool(done.stdout) is good


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 * 1024, "1.5 MiB"),
        (3 << 30, "3.0 GiB"),
        (5 << 40, "5.0 TiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_sizes_for_people(number: int, words: str) -> None:
    assert size(number) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.0 thousand"),
        (2_500_000, "2.5 million"),
        (7e9, "7.0 billion"),
        (1e13, "10000.0 billion"),
    ],
)
def test_counts_for_people(number: float, words: str) -> None:
    assert count(number) == words


@pytest.mark.parametrize(
    ("uploads", "words"),
    [
        ("masked", "quicker than sealed, but from the distances it gets the server can compute the rows themselves"),
        ("open", "any one client together can compute every row"),
    ],
)
def test_it_says_what_the_uploads_give_away(uploads: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(dumps(make_federation(5, uploads=uploads)))
    code, result = run(str(tmp_path / "federation.toml"))
    assert code == 0
    assert result.stderr.startswith(f"warning: {uploads} uploads: ")
    assert words in result.stderr
    (told,) = parameters(str(tmp_path / "federation.toml"))["warnings"]  # type: ignore[misc]
    assert words in told


def test_runs_side_by_side_cost_their_sum() -> None:
    alone = {k: parameters("-n", "5", "-k", str(k), "--starts", "1", "--uploads", "masked")["cost"] for k in (3, 5)}
    found = parameters("-n", "5", "-k", "5,3", "--starts", "2", "--uploads", "masked")
    assert (found["runs"], found["clusters"]) == ([5, 5, 3, 3], 5)
    for what in ("round_bytes_per_client", "round_bytes_server", "seeding_bytes_per_client"):
        assert found["cost"][what] == 2 * (alone[3][what] + alone[5][what])
    assert found["cost"]["sharing_bytes_per_client"] == alone[5]["sharing_bytes_per_client"], "shared once"
    _, shown = run("-n", "5", "-k", "5,3", "--starts", "2")
    assert "k = 5, 3, side by side from one sharing" in shown.stdout
    assert "while all 4 runs move" in shown.stdout


@pytest.mark.parametrize(("k", "words"), [("3,x", "must be a whole number"), ("3,3", "names a number twice")])
def test_wrong_lists_of_k(k: str, words: str) -> None:
    code, result = run("-n", "5", "-k", k)
    assert code == 2
    assert words in str(result.exception)


def test_columns_that_are_split_are_counted(tmp_path: Path) -> None:
    """Every holder may have max_rows rows, so tables of IDs are for as many of each."""
    held = {name: {"holder": client} for name, client in (("x1", "c0"), ("x2", "c1"), ("x3", "c1"))}
    made = make_federation(4, split="columns", features=held, max_rows=6000)
    (file := tmp_path / "federation.toml").write_text(dumps(made))
    found, whole = parameters(str(file))["cost"], costs.of(plan.of(made))
    assert found == costs.of(plan.of(made), made.job.runs, 2)
    assert 1.9 < costs.of(plan.of(made), holders=2)["union_bytes_per_client"] / whole["union_bytes_per_client"] < 2
    assert "2 holders" in run(str(file))[1].stdout
