"""The process around a client's machine against a server that forgets, refuses and vanishes; real TLS where it matters."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc import aio

from secfc import events, identifiers, local, plan, provision, rpc, wire
from secfc import kit as kits
from secfc.errors import InvalidInput, JobFailed, StorageError, Unavailable
from secfc.kit import Kit
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as stubs
from secfc_client import data, keptlabels, runner
from secfc_client.__main__ import _run, command
from secfc_client.job import Files, Job
from secfc_client.keptlabels import Kept
from secfc_client.participant import Participant
from secfc_client.peers import GaveUp
from secfc_client.policy import Policy
from secfc_client.runner import Runner
from secfc_client.store import Store, Written
from tests.protocol.joined import deal, introduced

SECONDS = 20.0  # only ever waited for in full when a test fails
SIZES = [5, 3, 2]
HELD = events.Held(bytes(32), 0, 0, 0.0, b"")


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    """Of the first of three clients."""
    made = local.describe(3, name="trial", k=2, features=2, max_rows=100, bound=16.0, privacy=1, precision=4)
    folder = tmp_path_factory.mktemp("runner") / "kits"
    provision.provision(made, folder)
    return kits.load(folder / "client-1")


def make(kit: Kit, folder: Path, patience: float = SECONDS) -> tuple[Runner, Participant]:
    """A client that knows the roster and holds nothing."""
    machine = introduced(kit.federation, deal(1, SIZES, 2))[0]
    return Runner(kit, machine, Store(folder), "127.0.0.1:0", patience), machine


def refusal(code: grpc.StatusCode, text: str) -> aio.AioRpcError:
    return aio.AioRpcError(code, aio.Metadata(), aio.Metadata(), text)


class Stream:
    """What the server says, and then nothing more."""

    def __init__(self, *said: events.Event) -> None:
        self._said = list(said)

    async def read(self) -> pb.Event:
        if not self._said:
            await asyncio.sleep(SECONDS)
        return wire.event_to(self._said.pop(0))

    def cancel(self) -> None:
        return None


class Forgetful:
    """A server that restarts right after a client has joined, so that whatever it reports is out of turn until it joins
    again."""

    def __init__(self, *streams: Stream, restarts: int = 1) -> None:
        self.streams, self.left = list(streams), restarts
        self.joins = 0
        self.reports: list[str] = []

    async def Status(self, request: object, **_: object) -> pb.StatusReply:
        return pb.StatusReply(phase="rounds")

    async def Join(self, request: object, **_: object) -> pb.JoinReply:
        self.joins += 1
        return pb.JoinReply()

    def Follow(self, request: object, **_: object) -> Stream:
        return self.streams.pop(0)

    async def Report(self, request: pb.ReportRequest, **_: object) -> pb.ReportReply:
        self.reports.append("refused" if self.joins <= self.left else "taken")
        if self.joins <= self.left:
            raise refusal(grpc.StatusCode.FAILED_PRECONDITION, "join first")
        return pb.ReportReply()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are not looked into, and pauses are short."""

    async def nothing(kit: object, party: str, address: str) -> str:
        return ""

    monkeypatch.setattr(runner, "why_unreachable", nothing)


# --- a server that does not know us any more --------------------------------------------------------------------------


class Checker:
    """A server that takes parts of the check of all shares, but not before it has shown the coins: it has restarted, and
    waits to hear from everybody what it holds."""

    def __init__(self) -> None:
        self.checking, self.said = False, list[str]()

    async def Contribute(self, chunks: Any, **_: object) -> pb.UploadReply:
        self.said.append("taken" if self.checking else "refused")
        if not self.checking:
            raise refusal(grpc.StatusCode.FAILED_PRECONDITION, "this sum is not due")
        return pb.UploadReply()


def test_a_part_of_the_check_that_came_too_early_is_given_again(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a job whose server was killed while shares were checked stands still until --share-timeout."""
    ours, machine = make(kit, tmp_path)
    server = Checker()
    ours._stub = server
    monkeypatch.setattr(Participant, "verifiable", True)
    monkeypatch.setattr(Participant, "verification", lambda self: (b"purpose", np.zeros(4, np.uint64)))
    monkeypatch.setattr(Participant, "handle", lambda self, event: None)
    monkeypatch.setattr(Runner, "_begin_sharing", lambda self, reconnected: None)

    async def scenario() -> None:
        await ours._handle(events.Roster(machine.members))
        server.checking = True
        await ours._handle(events.Waiting("checking", ()))
        await ours._handle(events.Reveals(()))
        await ours._handle(events.Waiting("checking", ()))

    asyncio.run(scenario())
    assert server.said == ["refused", "taken"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("teller", ["follow", "share"])
def test_a_server_that_restarts_before_it_hears_what_we_hold_is_joined_again(
    kit: Kit, tmp_path: Path, teller: str
) -> None:
    """It was told the same for ever, silently, past --wait."""
    one, machine = make(kit, tmp_path)
    roster, end = events.Roster(machine.members), events.Failed("the test is over")
    if teller == "follow":
        server = Forgetful(Stream(roster), Stream(roster, end))
        one._held = HELD
    else:
        server = Forgetful(Stream(), Stream(end))
    one._stub = server
    one._stage = machine.stage  # nothing is shared here

    async def scenario() -> None:
        if teller == "share":
            one._sharing = asyncio.ensure_future(later(lambda: one._or_rejoin(one._insist(HELD)), server))
        await one._until_over()

    with pytest.raises(JobFailed, match="the test is over"):
        asyncio.run(asyncio.wait_for(scenario(), SECONDS))
    assert server.joins == 2
    assert server.reports == (["refused", "taken"] if teller == "follow" else ["refused"])


async def later(tell: Callable[[], Any], server: Forgetful) -> None:
    while not server.joins:
        await asyncio.sleep(0.01)
    await tell()


@pytest.mark.usefixtures("quick")
def test_a_server_that_never_takes_what_we_hold_is_given_up(kit: Kit, tmp_path: Path) -> None:
    one, machine = make(kit, tmp_path, patience=0.4)
    roster = events.Roster(machine.members)
    server = Forgetful(*(Stream(roster) for _ in range(100)), restarts=100)
    one._held, one._stub, one._stage = HELD, server, machine.stage
    with pytest.raises(GaveUp, match="for 0 s the server has not taken what we hold: the server refuses: join first"):
        asyncio.run(asyncio.wait_for(one._until_over(), SECONDS))
    assert server.joins > 1


@pytest.mark.usefixtures("quick")
def test_shares_that_never_come_are_given_up_and_their_owners_named(kit: Kit, tmp_path: Path) -> None:
    one, machine = make(kit, tmp_path)
    one._share_seconds = 0.2
    with pytest.raises(
        GaveUp, match="no shares have come from client-2, client-3 for 0 s; start the same command again"
    ):
        asyncio.run(asyncio.wait_for(one._gather(machine.stage), SECONDS))


# --- gRPC's own cancellations -----------------------------------------------------------------------------------------


class Cut:
    """A server whose calls end as gRPC may end them when a write fails."""

    async def Upload(self, chunks: object, **_: object) -> None:
        raise asyncio.CancelledError

    Report = Contribute = Contributed = Upload


def test_calls_that_grpc_cancels_are_broken_connections(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client ended with code 1 at an upload."""
    one, machine = make(kit, tmp_path)
    one._stub = Cut()
    request = events.RoundRequest(1, 1, (0, 1, 2), (0,), bytes(32), 0, 5.0)
    monkeypatch.setattr(machine, "answer", lambda request: np.zeros(3, np.uint64))
    monkeypatch.setattr(machine, "contribution", lambda: (b"", np.zeros(3, np.uint64)))
    with pytest.raises(Unavailable, match="the server: the connection broke"):
        asyncio.run(one._answer(request))
    with pytest.raises(Unavailable, match="the server: the connection broke"):
        asyncio.run(one._contribute())
    with pytest.raises(Unavailable, match="the server: the connection broke"):
        asyncio.run(one._insist(HELD))


def test_what_is_given_away_is_on_disk_before_an_upload_and_a_late_thread_puts_nothing_older_there(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, machine = make(kit, tmp_path)
    kept: list[str] = []

    class Account:
        def spend(self, ranks: int) -> None:
            kept.append("budget")

    class Server:
        async def Upload(self, chunks: AsyncIterator[object], **_: object) -> None:
            kept.append("upload")

    one._account, one._stub = Account(), Server()  # type: ignore[assignment]
    monkeypatch.setattr(machine, "answer", lambda request: np.zeros(3, np.uint64))
    monkeypatch.setattr(one._store, "keep_given", lambda content: kept.append("given"))
    asyncio.run(one._answer(events.RoundRequest(1, 1, (0, 1, 2), (0,), bytes(32), 0, 5.0)))
    assert kept == ["budget", "given", "upload"]


# --- what a site hears of itself --------------------------------------------------------------------------------------


def test_a_site_behind_a_firewall_is_told(kit: Kit, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, _ = make(kit, tmp_path)
    with caplog.at_level(logging.INFO, "secfc.client"):
        for by in ((), ("client-2", "client-3"), ("client-2", "client-3"), ()):
            one._describe(events.Waiting("sharing", ("client-1",), by))
    told = [(r.message, r.levelname, r.fields.get("clients")) for r in caplog.records if "reach us" in r.message]  # type: ignore[attr-defined]
    assert told == [
        (
            "other clients cannot reach us; check the firewall and what listens at our address",
            "WARNING",
            ("client-2", "client-3"),
        ),
        ("other clients reach us again", "INFO", None),
    ]


# --- the end of a job, by the next process ----------------------------------------------------------------------------


class Recorder(stubs.CoordinatorServicer):  # type: ignore[misc]
    """A server whose job is over, or that is at any other point."""

    def __init__(self, phase: str = "finished") -> None:
        self.phase, self.joined = phase, False
        self.published = b""
        self.reports: list[pb.ReportRequest] = []
        self.state: list[list[str]] = []
        self.look: Callable[[], list[str]] = list

    async def Status(self, request: object, context: Any) -> pb.StatusReply:
        return pb.StatusReply(phase=self.phase)

    async def Join(self, request: object, context: Any) -> pb.JoinReply:
        self.joined = True
        return pb.JoinReply()

    async def Publish(self, request_iterator: AsyncIterator[pb.IdChunk], context: Any) -> pb.UploadReply:
        if not self.joined:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "join first")
        async for message in request_iterator:
            self.published += message.data
        return pb.UploadReply()

    async def Report(self, request: pb.ReportRequest, context: Any) -> pb.ReportReply:
        self.reports.append(request)
        self.state.append(self.look())
        return pb.ReportReply()


async def served(kit: Kit, service: Recorder) -> aio.Server:
    own = kits.load(kit.path.parent / "server")
    listener = rpc.server(own)
    stubs.add_CoordinatorServicer_to_server(service, listener)
    rpc.listen(listener, own, kit.federation.server.bind)
    await listener.start()
    return listener


def job_of(kit: Kit, folder: Path, **changes: Any) -> Job:
    """A client's command, as far as its options go."""
    rows = np.arange(6, dtype=np.int64).reshape(3, 2)
    (folder / "rows.csv").write_text("x1,x2\n0,1\n2,3\n4,5\n")
    table = data.load(folder / "rows.csv", feature_count=2)
    files = Files(folder / "rows.csv", folder / "labels.csv", folder / "centers.csv")
    made, store = plan.of(kit.federation), Store(folder / "state")
    whole = Job(kit, made, Policy(), table, rows, None, store, files, "127.0.0.1:0", 5.0, False, False)
    return dataclasses.replace(whole, **changes)


def ended_after_labels(job: Job) -> Kept:
    """What a process leaves that is killed right after its labels are written."""
    job.prepare()
    job.store.note_joined()
    ids = np.arange(6, dtype=np.uint64).reshape(3, 2)
    kept = Kept(b"s" * 32, keptlabels.table_key(job.table), np.array([1, 0, 1], np.int32), ids)
    job._finish_labels(kept, Written(b"s" * 32, b"a" * 32))
    return kept


def go_on(job: Job, kit: Kit, service: Recorder | None) -> int:
    async def scenario() -> int:
        listener = await served(kit, service) if service is not None else None
        try:
            return await asyncio.wait_for(_run(job, False, ("json", True)), SECONDS)
        finally:
            if listener is not None:
                await listener.stop(None)

    return asyncio.run(scenario())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_client_killed_after_its_labels_publishes_its_ids_and_clears_its_state_last(kit: Kit, tmp_path: Path) -> None:
    """It crashed, the IDs were never published, and the state was gone."""
    job = job_of(kit, tmp_path, publish_ids=True)
    kept = ended_after_labels(job)
    before = (tmp_path / "labels.csv").read_bytes()
    again, server = job_of(kit, tmp_path, publish_ids=True), Recorder()
    server.look = lambda: names(tmp_path / "state")
    assert go_on(again, kit, server) == 0
    assert kept.ids is not None
    assert server.published == kept.ids[identifiers.order(kept.ids)].astype("<u8").tobytes()
    assert [report.WhichOneof("kind") for report in server.reports] == ["done"]
    assert "secrets.json" in server.state[0], "until the server knows, the same command must be able to go on"
    assert names(tmp_path / "state") == [f"labels-{'73' * 16}.kept"]
    assert (tmp_path / "labels.csv").read_bytes() == before


def test_ids_that_cannot_be_published_are_not_forgotten(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "GOODBYE_SECONDS", 0.1)
    ended_after_labels(job_of(kit, tmp_path, publish_ids=True))
    before = names(tmp_path / "state")
    with pytest.raises(
        Unavailable, match=r"the labels are written, but our IDs are not published .*the same command again"
    ):
        go_on(job_of(kit, tmp_path, publish_ids=True), kit, None)
    assert names(tmp_path / "state") == before
    assert go_on(job_of(kit, tmp_path), kit, None) == 0, "without --publish-ids a server that is gone does not matter"


def test_labels_that_were_lost_are_written_again_by_the_same_command(kit: Kit, tmp_path: Path) -> None:
    job = job_of(kit, tmp_path)
    ended_after_labels(job)
    text = (tmp_path / "labels.csv").read_text()
    assert text == "x1,x2,cluster\n0,1,1\n2,3,0\n4,5,1\n"
    (tmp_path / "labels.csv").unlink()
    assert go_on(job_of(kit, tmp_path), kit, Recorder()) == 0
    assert (tmp_path / "labels.csv").read_text() == text


def test_centres_that_are_left_are_not_taken_for_done(kit: Kit, tmp_path: Path) -> None:
    opens = dataclasses.replace(kit, federation=dataclasses.replace(kit.federation, centers="clients"))
    job = job_of(opens, tmp_path)
    (tmp_path / "centers.csv").write_text("of an earlier job")
    ended_after_labels(job)
    assert not (tmp_path / "centers.csv").exists()
    again = job_of(opens, tmp_path)
    _, driver = again.prepare()
    assert not again.only_goodbye_left(driver)
    again.store.note_centers()
    assert again.only_goodbye_left(driver)


def options(kit: Kit, folder: Path, *more: str) -> list[str]:
    files = ["--data", str(folder / "rows.csv"), "--out", str(folder / "labels.csv"), "--state", str(folder / "state")]
    return ["--kit", str(kit.path), *files, "--quiet", *more]


def test_labels_of_a_job_that_is_over_are_written_again_without_the_server(kit: Kit, tmp_path: Path) -> None:
    job = job_of(kit, tmp_path)
    ended_after_labels(job)
    text = (tmp_path / "labels.csv").read_text()
    job.store.finish(keep=False)
    (tmp_path / "labels.csv").unlink()
    assert command.main(options(kit, tmp_path, "--again"), standalone_mode=False) == 0
    assert (tmp_path / "labels.csv").read_text() == text
    with pytest.raises(InvalidInput, match="leave out --new"):
        command.main(options(kit, tmp_path, "--again", "--new"), standalone_mode=False)
    (tmp_path / "rows.csv").write_text("x1,x2\n0,1\n4,5\n2,3\n")
    with pytest.raises(Exception, match="no labels of these rows, in this order, are kept there"):
        command.main(options(kit, tmp_path, "--again"), standalone_mode=False)


def test_changed_rows_end_the_client_with_one_line_and_go_on_when_put_back(kit: Kit, tmp_path: Path) -> None:
    job = job_of(kit, tmp_path)
    job.prepare()
    job.store.note_joined()
    before = {path.name: path.read_bytes() for path in (tmp_path / "state").iterdir()}
    (tmp_path / "rows.csv").write_text("x1,x2\n0,1\n2,3\n4,4\n")
    with pytest.raises(Exception, match=r"the rows are not what it began with; put the old file back .* --new"):
        command.main(options(kit, tmp_path, "--wait", "0.1"), standalone_mode=False)
    now = {path.name: path.read_bytes() for path in (tmp_path / "state").iterdir()}
    assert {name: content for name, content in now.items() if name not in ("lock", "roster.json")} == before
    with pytest.raises(Unavailable, match="gave up on the server"):
        command.main(options(kit, tmp_path, "--wait", "0.1", "--new", "--bind", "127.0.0.1:0"), standalone_mode=False)
    assert (tmp_path / "state" / "secrets.json").read_bytes() != before["secrets.json"]


# --- what others hear -------------------------------------------------------------------------------------------------


def test_the_server_does_not_hear_where_our_files_are(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(self: Runner) -> None:
        raise StorageError(f"{tmp_path}/state: cannot keep state there (No space left on device)")

    monkeypatch.setattr(Runner, "_follow", full)
    server = Recorder("joining")
    with pytest.raises(StorageError, match="No space left"):
        go_on(job_of(kit, tmp_path), kit, server)
    [report] = server.reports
    assert report.stopped.reason == "it has a problem with its own files; its log says which"
