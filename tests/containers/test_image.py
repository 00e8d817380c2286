"""The image: whom it runs as, what it needs to write, what it holds and what it does not."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.containers.compose import inspect
from tests.containers.engine import run

SEALED = ("--rm", "--read-only", "--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true")


def inside(image: str, code: str, *options: str) -> str:
    return run("docker", "run", *SEALED, *options, image, "python", "-c", code).stdout


def test_one_image_three_commands(image: str) -> None:
    for command in ("secfc", "secfc-server", "secfc-client"):
        assert "version" in run("docker", "run", *SEALED, image, command, "--version").stdout


def test_it_runs_as_nobody_and_is_looked_after(image: str) -> None:
    settings = inspect(image)["Config"]
    assert settings["User"] == "10001:10001"
    assert settings["Healthcheck"]["Test"] == ["CMD", "secfc", "health", "--kit", "/kit"]
    assert not settings.get("Volumes")
    assert inside(image, "import os; print(os.getuid(), os.getgid())").split() == ["10001", "10001"]


WARM = """
import sys
from secfc.coding import kernels
kernels.warm()
print("numba" in sys.modules)
"""


def test_kernels_are_there_already_without_a_place_to_write(image: str) -> None:
    """Read-only root, no volume, no tmpfs of ours: every kernel is loaded, none compiled."""
    assert inside(image, WARM) == "False\n"


def test_kernels_for_another_processor_are_compiled(image: str) -> None:
    """An image that was built elsewhere still runs on a read-only root."""
    assert (
        inside(
            image, "from secfc.coding import kernels; kernels.warm(); print('ok')", "--env", "NUMBA_CPU_NAME=generic"
        )
        == "ok\n"
    )


LISTING = """
import os
for folder, folders, files in os.walk("/"):
    if folder == "/":
        folders[:] = [f for f in folders if f not in ("proc", "sys", "dev")]
    for name in files:
        print(os.path.join(folder, name))
"""


def test_no_keys_no_build_tools_no_tests(image: str) -> None:
    paths = run("docker", "run", *SEALED, "--user", "0:0", image, "python", "-c", LISTING).stdout.splitlines()
    ours = [path for path in paths if path.startswith("/opt/secfc/")]
    assert any(path.endswith("secfc/privacy/masks.py") for path in ours)
    names = {Path(path).name for path in paths if "/bin/" in path}
    assert not names & {"gcc", "cc", "g++", "make", "ld", "cargo", "rustc", "protoc", "git"}
    assert not [
        path
        for path in ours
        if re.search(r"/bin/pip|/site-packages/(pip|setuptools|hatchling|pytest|grpc_tools)/", path)
    ]
    assert not [path for path in ours if re.search(r"/tests/|/test_[^/]*\.py$|conftest", path)]
    assert not [path for path in paths if path.endswith((".key", "key.pem", "request.pem"))]
    assert not [path for path in paths if path.startswith(("/kit/", "/state/", "/data/", "/out/", "/source", "/build"))]
    found = run(
        "docker",
        "run",
        *SEALED,
        "--user",
        "0:0",
        image,
        "grep",
        "-rlE",
        "BEGIN (EC |RSA )?PRIVATE KEY",
        "/opt/secfc",
        "/etc",
        check=False,
    )
    assert [path for path in found.stdout.splitlines() if not path.endswith((".py", ".so", ".pyc"))] == []


def test_a_secret_of_kubernetes_becomes_a_kit(image: str, tmp_path: Path) -> None:
    """The manifests' first container copies files of root, readable by the group, to files of the user's only."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit").chmod(0o2777)  # as an emptyDir is
    (secret / "key.pem").write_text("x")
    own = f"{secret}:/secret"
    call = "chown 0:10001 /secret/key.pem && chmod 0440 /secret/key.pem"
    run("docker", "run", "--rm", "--user", "0:0", "-v", own, image, "sh", "-c", call)
    manifest = (Path(__file__).parents[2] / "deploy" / "kubernetes" / "client" / "client.yaml").read_text()
    command = json.loads('"' + re.search(r'command: \[sh, -c, "(.*)"\]', manifest)[1] + '"')  # type: ignore[index]
    look = "stat -c '%u %a' /kit/key.pem"
    told = run(
        "docker",
        "run",
        *SEALED,
        "-v",
        f"{tmp_path / 'kit'}:/kit",
        "-v",
        f"{own}:ro",
        image,
        "sh",
        "-c",
        f"{command} && {look}",
    )
    assert told.stdout.split() == ["10001", "400"]
