"""`docker compose up` on a fresh clone: one command, the labels of the run in memory, and no trouble with leftovers."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest

from secfc.agreement import plan
from secfc.agreement.federation import Federation
from secfc.kmeans import fixedpoint
from secfc.kmeans.coins import Coins
from secfc.kmeans.runs import Runs
from secfc.protocol import memory
from tests.containers.compose import Composer, interrupt
from tests.containers.engine import run
from tests.integration import helpers
from tests.integration.helpers import until

ROOT = Path(__file__).parents[2]
BOTH = pytest.mark.parametrize("composer", ["v1", "v2"], indirect=True)
OWNER = 4321  # who cloned the repository, here


def script(name: str) -> ModuleType:
    """A step of the compose file, as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "deploy" / "compose" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def settings(composer: Composer) -> dict[str, str]:
    lines = (ROOT / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#")) | composer.settings


def wanted(composer: Composer) -> Federation:
    with mock.patch.dict(os.environ, settings(composer)):
        made: Federation = script("provision").wanted()
    return made


def written(clone: Path, made: Federation) -> tuple[helpers.Parts, npt.NDArray[np.int32]]:
    """The rows and the clusters in what the clients wrote."""
    tables = [np.loadtxt(clone / "out" / name / "labels.csv", delimiter=",", skiprows=1) for name in made.roster]
    return [table[:, :-1] for table in tables], np.concatenate([table[:, -1] for table in tables]).astype(np.int32)


def check(composer: Composer, clone: Path) -> None:
    """Labels and result are those of the whole protocol in memory, and of central Lloyd, on the same rows."""
    made = wanted(composer)
    parts, labels = written(clone, made)
    coins = Coins(settings(composer)["SEED"].encode())
    agreed = plan.of(made)
    rows = [fixedpoint.quantise(part, made.job.bound, made.job.precision) for part in parts]

    job = made.job

    def runs(count: int) -> Runs:
        return Runs.of(count, job.runs, coins, start=job.seeding, max_rounds=job.max_rounds, candidates=job.candidates)

    in_memory = memory.run(agreed, rows, runs, clusters=job.ks, starts=job.starts)
    np.testing.assert_array_equal(labels, in_memory.labels)
    np.testing.assert_array_equal(labels, helpers.pooled(made, parts).labels)
    summary = composer.logs("summary").rpartition("finished after")[2]  # of the last run
    assert summary.startswith(f" {in_memory.rounds} rounds")
    assert summary.count("labels.csv") == made.n


@pytest.fixture
def out(clone: Path) -> Iterator[Path]:
    """./out of the clone, which belongs to whoever cloned it."""
    if os.geteuid() == 0:
        os.chown(clone / "out", OWNER, OWNER)
    yield clone / "out"
    if os.geteuid() == 0:
        for path in [clone / "out", *(clone / "out").rglob("*")]:
            os.chown(path, 0, 0)


@BOTH
def test_the_file_is_valid(composer: Composer, clone: Path) -> None:
    composer.run("config", "--quiet")
    for folder in ("site", "server"):
        Composer(composer.call()[:-4], clone / "deploy" / folder / "docker-compose.yml", base="x").run(
            "config", "--quiet"
        )
    assert set(composer.run("config", "--services").stdout.split()) >= {"server", "client-1", "client-5", "summary"}


@pytest.mark.parametrize("composer", ["v2"], indirect=True)
def test_a_fresh_clone_and_one_command(composer: Composer, clone: Path, out: Path) -> None:
    """Builds, provisions, waits by health, finishes, leaves labels and result for whoever cloned it, ends with 0."""
    composer.settings["IMAGE"] = f"secfc-fresh:{composer.project}"
    try:
        composer.run("up", timeout=1800)
        check(composer, clone)
        found = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()} - {".gitkeep"}
        of_clients = {f"client-{j}/labels.{end}" for j in range(1, 6) for end in ("csv", "profile.csv", "report.html")}
        assert found == {"server/result.json", *of_clients}
        if os.geteuid() == 0:
            assert {path.stat().st_uid for path in out.rglob("*") if path.is_file() and path.name != ".gitkeep"} == {
                OWNER
            }
    finally:
        composer.remove()
        run("docker", "image", "rm", composer.settings["IMAGE"], check=False)


@BOTH
def test_again_and_with_other_settings(
    composer: Composer, clone: Path, out: Path, image: str, request: pytest.FixtureRequest
) -> None:
    """A finished federation started again is a new job; changed settings are taken up; what was there does no harm."""
    composer.settings |= {"IMAGE": image, "COMPOSE_PROFILES": "clients-3", "ROWS": "60"}
    composer.run("up")
    check(composer, clone)
    assert "new kits" in composer.logs("provision")
    before = (out / "server" / "result.json").stat().st_mtime_ns
    labels = (out / "client-2" / "labels.csv").read_text()
    composer.run("up")
    check(composer, clone)
    assert (out / "server" / "result.json").stat().st_mtime_ns > before
    assert "a new job begins" in composer.logs("provision")
    (kept,) = out.glob("server/*/result.json")  # the first job's results, in a folder of their own
    assert kept.stat().st_mtime_ns == before
    assert (out / "client-2" / kept.parent.name / "labels.csv").read_text() == labels
    assert f"out/*/{kept.parent.name}" in composer.logs("summary")
    composer.settings |= {"COMPOSE_PROFILES": "clients-10", "K": "3", "PRIVACY": "2", "ROWS": "40"}
    if "v1" in request.node.name:  # ten clients once are enough
        composer.settings["COMPOSE_PROFILES"] = "clients-5"
    composer.run("up")
    check(composer, clone)


@BOTH
def test_interrupted_and_started_again(composer: Composer, clone: Path, out: Path, image: str) -> None:
    """Ctrl-C in the middle; the same command again goes on with the job and ends with the same labels."""
    composer.settings |= {"IMAGE": image, "COMPOSE_PROFILES": "clients-3", "ROWS": "3000", "K": "24"}
    process = composer.start("up")
    try:
        until(lambda: "round 3 " in composer.logs("server"), "the third round", 300)
    finally:
        interrupt(process)
    assert not (out / "server" / "result.json").exists()
    assert not list(out.glob("*/labels.csv"))
    assert {composer.inspect(name)["State"]["Running"] for name in ("server", "client-1", "client-3")} == {False}
    composer.run("up")
    assert "an unfinished job goes on" in composer.logs("provision")
    check(composer, clone)


def test_own_rows(composer: Composer, clone: Path, out: Path, image: str) -> None:
    """Each client's rows from a folder of its own, with names, further columns and another file name."""
    rng = np.random.default_rng(5)
    for j in range(1, 4):
        folder = clone / "mine" / f"site{j}"
        folder.mkdir(parents=True)
        lines = [f"{x!r},{y!r}" for x, y in rng.uniform(-9, 9, size=(30 + j, 2)).tolist()]
        (folder / "patients.csv").write_text("age,bmi\n" + "\n".join(lines) + "\n")
        composer.settings[f"DATA_{j}"] = f"./mine/site{j}"
    composer.settings |= {
        "IMAGE": image,
        "COMPOSE_PROFILES": "clients-3",
        "FILE": "patients.csv",
        "FEATURES": "age,bmi",
    }
    composer.settings |= {"BOUND": "10", "PRECISION": "12", "MAX_ROWS": "200", "UPLOADS": "masked"}
    composer.run("up")
    check(composer, clone)
    assert "masked uploads: quicker than sealed, but" in composer.logs("provision")
    assert "masked uploads: quicker than sealed, but" in composer.logs("server")
    assert (out / "client-2" / "labels.csv").read_text().startswith("age,bmi,cluster\n")
    assert len((out / "client-2" / "labels.csv").read_text().splitlines()) == 33


@pytest.mark.parametrize("mistake", [{"PRIVACY": "2"}, {"UPLOADS": "hidden"}])
def test_a_mistake_in_the_settings_is_one_line_and_no_success(
    composer: Composer, clone: Path, out: Path, image: str, mistake: dict[str, str]
) -> None:
    composer.settings |= {"IMAGE": image, "COMPOSE_PROFILES": "clients-3", **mistake}
    done = composer.run("up", check=False)
    assert done.returncode != 0
    said = composer.logs("provision").strip().splitlines()
    assert len(said) == 1
    assert said[0].startswith("error: ")
    assert not list(out.glob("*/result.json"))
