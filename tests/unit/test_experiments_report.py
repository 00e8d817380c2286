"""docs/results.md is what the files of a run say; peers that are not installed are left out with the extra's name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import contest, figure1, foreign, kfed, output, peers, plots, report, table1, tables
from experiments.workload import Size
from secfc.errors import DataError

ROOT = Path(__file__).parents[2]


def times(sweep: str, **changed: int) -> output.Row:
    point = {"n": 10, "t": 4, "d": 20, "m": 1000} | changed
    seconds = {"client_round_s": 0.001, "client_masked_round_s": 0.002, "server_s": 0.0123, "kfed_s": 0.1}
    return {"sweep": sweep, "network_round_s": None} | point | seconds | {"upload_bytes": 32000, "quiet": 0.9}


def test_a_report_says_what_was_measured_and_what_was_not(tmp_path: Path) -> None:
    folder, docs = tmp_path / "out", tmp_path / "docs"
    settings = [table1.setting(60, 5, 3, 5, 1, 1.0, (1, 3))]
    result = tables.run("table1", "small mixtures", settings, {"runs": 2, "seed": 4, "quick": False}, folder)
    busy = times("n", n=30, t=10) | {"server_s": 0.0789, "quiet": 0.5}
    rows = [times("n"), times("n", n=20, t=7) | {"server_s": 0.0456, "network_round_s": 0.321}, busy]
    output.write(folder, "figure1", {"quick": False}, rows)
    plots.run_times(rows, figure1.PARTS, 16.0, folder / "figure1.png")
    page = report.write(folder, docs).read_text(encoding="utf-8")
    for row in result["rows"]:
        assert f"**{row['mean']:.1f} ± {row['std']:.1f}**" in page
    assert "in 4 of 4 cells" in page
    assert "45.6 ms" in page
    assert "321 ms" in page
    assert "78.9 ms" not in page  # measured on a busy machine
    assert "In 1 of 3 measurements it was below 0.8" in page
    assert "`python -m experiments table1 --runs 2 --seed 4 --out DIR`" in page
    assert page.count("*Not measured.*") == 8
    assert "$" not in page
    assert [path.name for path in (docs / "results").iterdir()] == ["table1.png"]


def test_what_a_run_does_not_hold_stays_as_it_was(tmp_path: Path) -> None:
    docs, first, second = tmp_path / "docs", tmp_path / "first", tmp_path / "second"
    asked = {"runs": 1, "seed": 4, "quick": False}
    tables.run("table1", "small mixtures", [table1.setting(60, 5, 3, 5, 1, 1.0, (3,))], asked, first)
    before = report.write(first, docs).read_text(encoding="utf-8")
    found = {"data": "iris", "m": 150, "d": 4, "k": 3, "ratio": 0.987}
    found |= {f"{method} inertia": 1.0 for method in ("scikit-learn", "secfc")}
    found |= {"rows unlike": 0.0, "inertia unlike": 0.0}
    output.write(second, "quality", {"runs": 1, "seed": 0}, [found])
    after = report.write(second, docs).read_text(encoding="utf-8")
    assert "0.9870" in after
    assert after.count("*Not measured.*") == before.count("*Not measured.*") - 1
    name = "<!-- table1 -->"
    assert after.partition(name)[2].partition("<!-- /")[0] == before.partition(name)[2].partition("<!-- /")[0]


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no results"):
        report.write(tmp_path, tmp_path / "docs")
    assert not (tmp_path / "docs").exists()


def test_settings_near_the_papers_figure_are_named(tmp_path: Path) -> None:
    size = ((48, 4, 4, 4, (4,)),)
    rows = kfed.measure(size, 1, 0, tmp_path)
    for row in rows:
        row["paper_mean"] = 25.8
        row["mean"] = 26.0 if row["variant"] == "chance" else 80.0
    lines = report.sections.settings({"asked": {}, "rows": rows}, "kfed.png")
    near = [line for line in lines if line.startswith("* σ = 1")]
    assert near == [
        "* σ = 1, k = k′ = 4: the paper has 25.8 %. Within 3 points of it: chance. As its authors have it: 80.0 %; "
        "the worst setting of k-FED tried (as its authors have it): 80.0 %; labels dealt by lot: 26.0 %."
    ]


def test_ours_give_lloyds_labels_from_the_same_start() -> None:
    job = contest.Job(Size(300, 6, 4), 0, 3, clients=5, privacy=1)
    for row in (contest.secfc(job, "open"), contest.secfc(job, "masked"), contest.scikit_learn(job)):
        assert (row["labels"] == job.expected).all()
        assert row["seconds"] > 0


def test_a_peer_that_is_not_installed_names_the_extra() -> None:
    peer = foreign.Peer("Nobody", "nobody_has_this", "peer_spu.py")
    assert ".[peers]" in str(foreign.missing(peer, sys.executable))
    assert foreign.missing(foreign.Peer("numpy", "numpy", ""), sys.executable) is None
    assert "does not run" in str(foreign.missing(peer, "/nowhere/python"))


def test_a_peer_that_fails_says_its_last_words(tmp_path: Path) -> None:
    script = tmp_path / "peer.py"
    script.write_text("import sys\nprint('no luck')\nsys.exit(3)\n")
    with pytest.raises(RuntimeError, match=r"peer\.py ended with code 3: no luck"):
        foreign._wait([sys.executable, str(script)], str(tmp_path))


def test_a_peer_left_out_shows_in_the_table() -> None:
    row = {
        "peer": "SPU",
        "size": "m=1 d=1 k=1",
        "seconds": None,
        "left_out": foreign.missing(foreign.SPU, "/nowhere/python"),
    }
    assert peers.cells_of(row)[-1].startswith("left out: /nowhere/python does not run")


def test_table3_without_mnist_says_what_to_do(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments", "table3", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--mnist" in done.stderr
    assert "OpenML" in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_a_quick_table_writes_json_csv_and_a_plot(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "experiments",
        "table3",
        "--quick",
        "--json",
        "--runs",
        "1",
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert json.loads((tmp_path / "table3.json").read_text(encoding="utf-8")) == result
    assert all(all(row["equal"]) for row in result["rows"] if row["method"] == "secfc")
    assert (tmp_path / "table3.csv").read_text(encoding="utf-8").count("\n") == 1 + len(result["rows"])
    assert (tmp_path / "table3.png").read_bytes()[:4] == b"\x89PNG"
    assert "seed 0" in done.stderr
