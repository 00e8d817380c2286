"""The commands of the tutorial and of the README, word for word: every block that begins with ```sh, in order.

Those of the tutorial run in one empty folder. The README's run where it says: `git clone` and `make demo` in a new clone,
those of a party in the background, at each of three sites. `docker compose` is for tests/containers.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^( *)```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SECONDS = 600


def commands(page: str) -> list[str]:
    """The blocks of a page, without their indentation."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = [re.sub(f"^{indent}", "", body, flags=re.MULTILINE) for indent, body in _BLOCK.findall(text)]
    assert blocks, f"{page} has no commands"
    return blocks


def run(blocks: list[str], folder: Path, **variables: str) -> str:
    """One block after the other; whatever fails ends it."""
    tools = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "SECFC_CLONE": str(ROOT), "COLUMNS": "80"}
    log = folder / "output"
    script = "set -euo pipefail\n" + "\n".join(blocks) + "\nwait\n"
    with open(log, "wb") as out:
        bash = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=environment | variables,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            code: int | None = bash.wait(SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):  # what a failed block began in the background, too
                os.killpg(bash.pid, signal.SIGKILL)
    text = log.read_text(encoding="utf-8", errors="replace")
    assert code == 0, text[-5000:]
    return text


@pytest.mark.slow
def test_the_tutorial(tmp_path: Path) -> None:
    run(commands("docs/tutorial.md"), tmp_path)
    for name in ("hospital-a", "hospital-b", "hospital-c"):
        labels = (tmp_path / name / "labels.csv").read_text(encoding="utf-8").splitlines()
        assert labels[0].endswith(",cluster")
        assert all(line.rpartition(",")[2] in "0123" for line in labels[1:])
        assert (tmp_path / name / "labels.report.html").exists()


START, JOB, CONTAINERS = "make demo", "secfc", "docker compose"
SITES = ("hospital-a", "hospital-b", "hospital-c")


def of_readme(what: str) -> list[str]:
    """Its blocks of one sort; every block is of one of three."""
    blocks = commands("README.md")
    sorts = [next(one for one in (START, CONTAINERS, JOB) if one in block) for block in blocks]
    return [block for block, sort in zip(blocks, sorts, strict=True) if sort == what]


@pytest.mark.slow
def test_the_readmes_two_commands_in_a_new_clone(tmp_path: Path) -> None:
    source = tmp_path / "source"
    leave = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "out", "kernels-*.bin")
    shutil.copytree(ROOT, source, ignore=leave)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x.example", "-C", str(source)]
    for call in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "what is here"]):
        subprocess.run([*git, *call], check=True, timeout=SECONDS, capture_output=True)
    blocks = [block.replace("<this repository>", str(source)) for block in of_readme(START)]
    assert re.search("identical to central Lloyd.*yes", run(blocks, tmp_path, PYTHON=sys.executable))


@pytest.mark.slow
def test_the_readmes_job_across_machines(tmp_path: Path) -> None:
    """Every site has a folder of its own; the kits are where they were made."""
    [agree, certify, serve, join] = of_readme(JOB)
    serve = serve.replace("--kit kits/server --out .", "--kit kits/server --out . > server.log 2>&1 &")
    rows = f"{sys.executable} {ROOT}/examples/hospitals.py ."
    wait = f"until secfc status --kit kits/{SITES[0]}; do sleep 1; done"
    sites = []
    for site in SITES:
        sites += [f"ln -s ../kits {site}/kits && mv {site}/patients.csv {site}/rows.csv"]
        own = join.replace(SITES[0], site).strip().replace("\n", " && ")
        sites += [f"(cd {site} && {own}) > {site}/log 2>&1 &"]
    run([agree, certify, serve, wait, rows, *sites], tmp_path)
    for site in SITES:
        labels = (tmp_path / site / "labels.csv").read_text(encoding="utf-8").splitlines()
        assert labels[0].endswith(",cluster"), (tmp_path / site / "log").read_text(encoding="utf-8")
    assert (tmp_path / "result.json").exists()


@pytest.mark.slow
def test_the_readmes_python(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    given = "from sklearn.datasets import load_iris\nX = load_iris().data\n"
    subprocess.run([sys.executable, "-c", given + code], cwd=tmp_path, timeout=SECONDS, check=True)


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
