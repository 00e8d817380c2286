"""Jobs from Python, against a server that is played: what is signed, how waiting goes, what is shown of what was found."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest

import secfc
from secfc import connecting
from secfc.agreement import federation as federations
from secfc.agreement.submission import Submission
from secfc.connecting import Connection, Job
from secfc.errors import ConfigError, InvalidInput, JobFailed, Malformed, Unavailable
from secfc.net import jobs
from secfc.net.jobs import Listed
from secfc.pki import submitting
from tests.jobs import JOB, Kits, signed, standing

RESULT = {"k": 3, "rows": 60, "cluster_sizes": [30, 20, 10], "inertia": 12.5, "rounds": 4, "converged": True}
RUNS = [{"k": 2, "inertia": 20.0}, {"k": 2, "inertia": 21.0}, {"k": 3, "inertia": 12.5}]


class Played:
    """A server with one job, whose state is the next of those given every time somebody asks."""

    def __init__(self) -> None:
        self.job: Submission | None = None
        self.states: list[str | Exception] = ["finished"]
        self.cancelled = 0

    def told(self) -> Listed:
        assert self.job is not None
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, Exception):
            raise state
        return Listed(
            self.job, state, "why" if state == "failed" else "", ("b",) if state == "waiting" else (), 1, 2, ()
        )

    def submit(self, _: object, job: Submission) -> Listed:
        self.job = self.job or job
        return dataclasses.replace(self.told(), state="submitted")

    def listed(self, *_: object) -> list[Listed]:
        return [self.told()]

    def named(self, *_: object) -> Listed:
        return self.told()

    def cancel(self, *_: object) -> Listed:
        self.cancelled += 1
        return dataclasses.replace(self.told(), state="cancelled")

    def result(self, *_: object) -> bytes:
        return json.dumps(RESULT | {"runs": RUNS, "best_runs": [0, 2]}).encode()


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Kits:
    return Kits(tmp_path_factory.mktemp("jobs") / "kits")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    made = Played()
    monkeypatch.setattr(connecting, "calls", made)
    monkeypatch.setattr(connecting, "INTERVAL", 0.001)
    return made


@pytest.fixture
def analyst(kits: Kits, played: Played) -> Connection:
    return secfc.connect(kits.folder / "analyst")


def submitted(analyst: Connection, **settings: Any) -> Job:
    what: dict[str, Any] = {"dataset": "patients", "features": ["age", "weight"], "k": range(2, 7), "bound": 16.0}
    return analyst.submit(**what | settings)


def test_what_is_submitted_is_what_the_same_file_would_say(
    analyst: Connection, kits: Kits, played: Played, tmp_path: Path
) -> None:
    job = submitted(analyst, starts=10, token="t", sites=["c", "a", "b"])
    assert played.job is not None
    submitting.verifier(kits["a"])(played.job, time.time())
    wanted = played.job.wanted
    assert (wanted.job.ks, wanted.job.starts, wanted.dataset) == ((2, 3, 4, 5, 6), 10, "patients")
    assert (wanted.job.feature_names, wanted.job.max_rows, wanted.sites) == (
        ("age", "weight"),
        100_000,
        ("a", "b", "c"),
    )
    assert (job.id, job.digest, job.state) == (played.job.id, played.job.digest.hex(), "submitted")
    played.job = None
    submitted(analyst, features={"age": {"range": [0, 120]}, "sex": {"levels": ["f", "m"]}}, k=2)
    assert wanted.digest() != played.job.wanted.digest()  # type: ignore[attr-defined]
    played.job = None
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    analyst.submit_file(path)
    first = played.job
    played.job = None
    submitted(analyst, k=2, starts=1, max_rows=100)
    assert first.wanted.digest() == played.job.wanted.digest()  # type: ignore[attr-defined]


def test_what_cannot_be_submitted_is_told_at_once(analyst: Connection, kits: Kits, played: Played) -> None:
    for settings, complaint in (
        ({"bound": -1.0}, "the job: bound: must be"),
        ({"colour": "red"}, "colour"),
        ({"k": []}, "the job: k: "),
        ({"sites": ["d"]}, "'d' is not a client"),
        ({"k": 0}, "the job: k: must be"),
    ):
        with pytest.raises(InvalidInput, match=complaint):
            submitted(analyst, **settings)
    with pytest.raises(ConfigError, match="lacks the right to submit jobs"):
        submitted(secfc.connect(kits.folder / "a"))
    assert played.job is None


def test_a_federation_for_one_job_has_nothing_to_connect_to(tmp_path: Path) -> None:
    from secfc.pki import provision

    text = federations.dumps(standing()).replace(
        "[server]", "[job]\nk = 2\nfeatures = 1\nbound = 1\nmax_rows = 9\n[server]"
    )
    provision.provision(federations.parse(text, "f"), tmp_path / "kits")
    with pytest.raises(ConfigError, match="it is a federation for that one job"):
        secfc.connect(tmp_path / "kits" / "a")


def test_waiting_goes_on_while_the_server_is_away(
    analyst: Connection, played: Played, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = submitted(analyst)
    played.states = ["waiting", Unavailable("gone"), "running", "finished"]
    monkeypatch.setattr(connecting.inquiry, "ask", lambda *_: (_ for _ in ()).throw(Unavailable("gone")))
    assert job.wait() is job
    assert job.state == "finished"
    assert f"{job.id}  finished" in capsys.readouterr().out
    played.states = ["running"]
    with pytest.raises(Unavailable, match=r"is not over after 0.01 s: it is running"):
        job.wait(0.01, progress=False)
    assert capsys.readouterr().out == ""
    played.states = [Unavailable("gone")]
    monkeypatch.setattr(connecting, "PATIENCE", 0.0)
    with pytest.raises(Unavailable, match="gone"):
        job.wait()


def test_how_many_runs_are_done_is_shown(
    analyst: Connection, played: Played, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job, asked = submitted(analyst), []
    agreed = played.job.within(analyst.kit.federation).agreed().hex()  # type: ignore[union-attr]
    empty = dict.fromkeys((one.name for one in dataclasses.fields(connecting.Status)), "")

    def ask(*_: object) -> connecting.Status:
        asked.append(1)
        digest = agreed if len(asked) == 1 else "ff" * 32  # then the server runs another job already
        return connecting.Status(
            **empty | {"phase": "rounds", "round": 7, "runs": 10, "moving": 4, "federation_digest": digest}
        )  # type: ignore[arg-type]

    monkeypatch.setattr(connecting.inquiry, "ask", ask)
    shown: list[str] = []
    monkeypatch.setattr(
        connecting._Bar, "show", lambda _, text, now, over: shown.append(f"{text} {now and now.runs - now.moving}")
    )
    played.states = ["running", "running", "finished"]
    job.wait()
    assert shown == ["running 6", "running None", "finished None"]


def test_what_was_found(analyst: Connection, played: Played) -> None:
    job = submitted(analyst)
    played.states = ["running"]
    with pytest.raises(JobFailed, match=f"job {job.id} has no result: it is running"):
        _ = job.result
    played.states = ["finished"]
    found = job.result
    assert (found.k, found.sizes, found.inertia, found.best) == (3, (30, 20, 10), 12.5, {2: 20.0, 3: 12.5})
    assert job.result is found
    assert "labels" not in found.plain
    played.states = ["failed"]
    with pytest.raises(JobFailed, match="it is failed: why"):
        _ = analyst.job(job.id).result
    assert [one.id for one in analyst.jobs()] == [job.id]
    assert job.cancel().state == "cancelled"
    assert played.cancelled == 1


def test_a_notebook_shows_a_job_and_its_plots(analyst: Connection, played: Played) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    job = submitted(analyst, token="<script>")
    shown = job._repr_html_()
    assert "<th>dataset</th><td>patients, at all sites</td>" in shown
    assert "<script>" not in shown
    figure = job.plot()
    bars, line = figure.axes
    assert [one.get_height() for one in bars.patches] == [30, 20, 10]
    assert line.lines[0].get_xydata().tolist() == [[2.0, 20.0], [3.0, 12.5]]
    assert "Result(k=3" in job._repr_html_()


def test_calls_work_where_a_loop_is_running(analyst: Connection, played: Played) -> None:
    """As in a notebook."""
    played.result = lambda *_: asyncio.run(_late())  # type: ignore[method-assign]

    async def notebook() -> int:
        return submitted(analyst).result.k

    assert asyncio.run(notebook()) == 3


async def _late() -> bytes:
    await asyncio.sleep(0)
    return Played().result()


def test_labels_are_read_at_their_site(kits: Kits, played: Played, analyst: Connection, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    job = submitted(analyst)
    with pytest.raises(ConfigError, match="analyst is no site: labels stay with the owners of the rows"):
        secfc.labels(job)
    here = secfc.connect(kits.folder / "a").job(job.id)
    with pytest.raises(ConfigError, match=r"labels.csv: no such file; a node writes it when the job has finished"):
        secfc.labels(here)
    for folder in (kits.folder / "a" / "jobs", tmp_path):
        (folder / job.id).mkdir(parents=True)
        (folder / job.id / "labels.csv").write_text("age,cluster\n30,1\n40,0\n")
    for found in (secfc.labels(here), secfc.labels(job, tmp_path), secfc.labels(job.digest, out=tmp_path)):
        assert found["cluster"].tolist() == [1, 0]
    with pytest.raises(InvalidInput, match="give out, or the job itself"):
        secfc.labels(job.id)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ConfigError, match=r"this needs nowhere, which is not installed: pip install 'secfc-kmeans\[notebook\]'"
    ):
        connecting._needed("nowhere.at_all")


def test_a_server_that_tells_of_another_job_or_of_none_is_not_believed(
    kits: Kits, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, other = (Listed(signed(kits["analyst"], token), "finished", "", (), 1, 2, ()) for token in ("a", "b"))
    name, answers = right.job.digest.hex(), [[right], [], [other], [right, other]]
    monkeypatch.setattr(jobs, "listed", lambda *_: answers.pop(0))
    assert jobs.named(kits["analyst"], f" {name[:8].upper()}") is right
    while answers:
        with pytest.raises(Malformed, match="another job"):
            jobs.named(kits["analyst"], name)
