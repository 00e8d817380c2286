"""The commands of the tutorial, word for word: every block that begins with ```sh, in order, in an empty folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^( *)```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SECONDS = 600


def script(page: str) -> str:
    """All blocks one after the other; whatever fails ends it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = [re.sub(f"^{indent}", "", body, flags=re.MULTILINE) for indent, body in _BLOCK.findall(text)]
    assert blocks, f"{page} has no commands"
    return "set -euo pipefail\n" + "\n".join(blocks) + "\nwait\n"


def run(page: str, folder: Path) -> str:
    tools = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "SECFC_CLONE": str(ROOT), "COLUMNS": "80"}
    log = folder / "output"
    with open(log, "wb") as out:
        bash = subprocess.Popen(
            ["bash", "-c", script(page)], cwd=folder, env=environment, stdout=out, stderr=out, start_new_session=True
        )
        try:
            code: int | None = bash.wait(SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if bash.poll() is None:
                os.killpg(bash.pid, signal.SIGKILL)
    text = log.read_text(encoding="utf-8", errors="replace")
    assert code == 0, text[-5000:]
    return text


@pytest.mark.slow
def test_the_tutorial(tmp_path: Path) -> None:
    run("docs/tutorial.md", tmp_path)
    for name in ("hospital-a", "hospital-b", "hospital-c"):
        labels = (tmp_path / name / "labels.csv").read_text(encoding="utf-8").splitlines()
        assert labels[0].endswith(",cluster")
        assert all(line.rpartition(",")[2] in "0123" for line in labels[1:])
        assert (tmp_path / name / "labels.report.html").exists()


@pytest.mark.slow
def test_the_examples(tmp_path: Path) -> None:
    call = [sys.executable, str(ROOT / "examples" / "estimator.py")]
    told = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=True).stdout
    secure, pooled = (line.split("inertia")[1] for line in told.splitlines()[:2])
    assert secure == pooled


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of Jupyter's own
@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("secure_kmeans", ["image/png"]),
        ("jobs", ["image/png", "patients, at all sites", "Result(k=", "lines in order"]),
    ],
)
def test_the_notebooks(tmp_path: Path, name: str, texts: list[str]) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(ROOT / "examples" / f"{name}.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = "".join(str(cell.get("outputs")) for cell in notebook.cells)
    assert [text for text in texts if text not in shown] == []
