"""A client against a server that forgets, refuses and vanishes: its machine in virtual time, its process for what is left."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc import aio

from secfc import auditfile, local
from secfc.agreement import plan
from secfc.agreement.federation import SERVER
from secfc.agreement.policy import Policy
from secfc.errors import AlreadyJoined, InvalidInput, JobFailed, OutOfTurn, SecfcError, StorageError, Unavailable
from secfc.kmeans import central
from secfc.kmeans.coins import Coins
from secfc.net import rpc, wire
from secfc.pki import kit as kits
from secfc.pki import provision
from secfc.pki.kit import Kit
from secfc.privacy import identifiers
from secfc.protocol import messages
from secfc.protocol.client.inputs import Linked, Lost, Sent, Stop, Told, Unsent
from secfc.protocol.client.participant import Participant
from secfc.protocol.client.phases import ending
from secfc.protocol.client.serverline import TAKEOVER_SECONDS
from secfc.protocol.client.site import SHARE_SECONDS
from secfc.protocol.effects import Effects, Put, Send, Started, Tick
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Made, Parcel
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as stubs
from secfc_client import data, keptlabels, oneshot
from secfc_client.__main__ import command
from secfc_client.driver import ClientDriver
from secfc_client.job import Files, SiteJob
from secfc_client.keptlabels import KeptLabels
from secfc_client.store import Store
from tests.parties import deal, make_federation
from tests.protocol.bench import Bench, is_parcel

SECONDS = 120.0  # only ever waited for in full when a test fails


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    """Of the first of three clients."""
    made = local.describe(3, name="trial", k=2, features=2, max_rows=100, bound=16.0, privacy=1, precision=4)
    folder = tmp_path_factory.mktemp("driver") / "kits"
    provision.provision(made, folder)
    return kits.load(folder / "client-1")


def alone(*, resumed: bool = False, **changes: Any) -> Participant:
    """A client that has just started, in virtual time 0."""
    job = Bench(make_federation(3), deal(1, [5, 3, 2]))
    site = dataclasses.replace(job.clients["c0"].site, **changes)
    machine = Participant(site, resumed=resumed)
    assert [type(send.message) for send in machine.handle(Started(), 0.0).send] == [messages.Join]
    return machine


def joins(effects: Effects) -> int:
    return sum(isinstance(send.message, messages.Join) for send in effects.send)


def ticks(machine: Participant, first: float, seconds: float, answer: Callable[[], Exception]) -> list[float]:
    """Let time pass; every try to join ends with an error. When it tried."""
    tried, now = [], first
    while now < first + seconds and machine.ended is None:
        now = round(now + 0.1, 1)
        if joins(machine.handle(Tick(), now)):
            tried.append(now)
            machine.handle(Lost(answer()), now)  # type: ignore[arg-type]
    return tried


# --- a server that cannot be reached ------------------------------------------------------------------------------------


def test_a_server_that_is_away_is_tried_again_with_growing_pauses_until_patience_ends() -> None:
    machine = alone(patience=60.0)
    machine.handle(Lost(Unavailable("nobody there")), 0.0)
    tried = ticks(machine, 0.0, 200.0, lambda: Unavailable("nobody there"))
    pauses = np.diff([0.0, *tried])
    assert pauses[0] < 0.5
    assert 3.0 < max(pauses) < 7.0
    assert machine.ended is not None
    assert isinstance(machine.ended.error, Unavailable)
    assert str(machine.ended.error) == "gave up on the server after 60 s: nobody there"
    assert 60.0 <= tried[-1] < 61.0


def test_patience_begins_anew_with_every_connection() -> None:
    machine = alone(patience=60.0)
    machine.handle(Linked(), 0.0)
    machine.handle(Lost(Unavailable("gone")), 500.0)
    assert machine.ended is None
    ticks(machine, 500.0, 59.0, lambda: Unavailable("gone"))
    assert machine.ended is None
    ticks(machine, 559.0, 3.0, lambda: Unavailable("gone"))
    assert machine.ended is not None


def test_what_is_wrong_is_said_once_for_each_reason() -> None:
    machine = alone()
    said = []
    for second, reason in enumerate(["one", "one", "other", "other"]):
        said += [note.fields["reason"] for note in machine.handle(Lost(Unavailable(reason)), float(second)).note]
    assert said == ["one", "other"]


def test_a_restarted_client_waits_until_the_server_finds_its_earlier_process_gone() -> None:
    """A machine that lost its power has left a connection that the server takes for alive until a probe fails."""
    machine = alone(resumed=True)
    machine.handle(Lost(AlreadyJoined("another process has joined")), 0.0)
    tried = ticks(machine, 0.0, TAKEOVER_SECONDS - 5, lambda: AlreadyJoined("another process has joined"))
    assert len(tried) > 10
    assert machine.ended is None
    machine.handle(Linked(), TAKEOVER_SECONDS - 4)
    assert machine.ended is None


@pytest.mark.parametrize("resumed", [False, True])
def test_a_second_process_of_a_client_gives_way(resumed: bool) -> None:
    """At once if it is the first of its secrets here, else when an earlier one would have been found gone."""
    machine = alone(resumed=resumed)
    machine.handle(Lost(AlreadyJoined("another process has joined")), 0.0)
    ticks(machine, 0.0, TAKEOVER_SECONDS + 10, lambda: AlreadyJoined("another process has joined"))
    assert machine.ended is not None
    assert isinstance(machine.ended.error, AlreadyJoined)
    assert (machine.ended.since > TAKEOVER_SECONDS) == resumed


def test_an_operators_stop_is_told_to_the_server() -> None:
    machine = alone()
    machine.handle(Linked(), 0.0)
    effects = machine.handle(Stop("stopped by its operator"), 1.0)
    [send] = effects.send
    assert send.message == messages.Stopped("stopped by its operator")
    assert not machine.over(1.1), "the server is to hear it"
    machine.handle(Sent(send), 1.2)
    assert machine.over(1.2)
    deaf = alone()
    deaf.handle(Stop("stopped by its operator"), 1.0)
    assert deaf.over(4.0), "but not for ever"


# --- a server that does not know us any more --------------------------------------------------------------------------


def exact(job: Bench) -> None:
    assert job.server.phase is Phase.FINISHED, str(job.server.failure)
    seed, what = job.server.snapshot(job.now).seed, job.federation.job
    assert seed is not None
    start, tried = what.seeding, job.plan.candidates
    pooled = central.run(np.concatenate(job.rows), what.k, start=start, coins=Coins(seed), candidates=tried)
    assert job.labels() == pooled.labels.tolist()


@pytest.mark.parametrize("phase", [Phase.AGREEING, Phase.SHARING, Phase.CHECKING, Phase.ROUNDS, Phase.FINISHED])
def test_a_server_that_restarts_in_any_phase_is_told_again_what_it_must_know(phase: Phase) -> None:
    """It was told nothing for ever, or a part of the check came too early and never again."""
    job = Bench(make_federation(3), deal(1, [5, 3, 4]))
    job.start()
    job.until(lambda: job.server.phase is phase)
    job.restart(SERVER)
    job.until(lambda: all(client.ended for client in job.clients.values()), seconds=100.0)
    exact(job)


def test_a_part_of_the_check_that_came_too_early_is_given_again() -> None:
    """Else a job whose server was killed while shares were checked stands still until --share-timeout."""
    job = Bench(make_federation(3), deal(1, [5, 3, 4]))
    refused: list[Send] = []
    transmit = job._transmit

    def too_early(sender: str, send: Send) -> None:
        if is_parcel(send.message, Kind.SUM) and sender == "c0" and not refused:
            refused.append(send)
            job.give(sender, Unsent(send, OutOfTurn("this sum is not due")))
        else:
            transmit(sender, send)

    job._transmit = too_early  # type: ignore[method-assign]
    job.start()
    job.until(lambda: bool(refused))
    job.cut("c0")
    job.until(lambda: all(client.ended for client in job.clients.values()), seconds=100.0)
    exact(job)


class Forgetful(Bench):
    """A server that says that a client has not joined, whatever it holds, for the first `times` times."""

    def __init__(self, times: int, patience: float = 600.0) -> None:
        super().__init__(make_federation(3), deal(1, [5, 3, 4]))
        for name, client in self.clients.items():
            self.clients[name] = Participant(dataclasses.replace(client.site, patience=patience))
        self.left, self.joins = times, 0

    def _transmit(self, sender: str, send: Send) -> None:
        self.joins += sender == "c0" and isinstance(send.message, messages.Join)
        if sender == "c0" and isinstance(send.message, messages.Held) and self.left:
            self.left -= 1
            self.give(sender, Unsent(send, OutOfTurn("the server refuses: join first")))
        else:
            super()._transmit(sender, send)


def test_a_server_that_has_forgotten_us_is_joined_again() -> None:
    """It was told the same for ever, silently, past --wait."""
    job = Forgetful(2)
    job.finish()
    exact(job)
    assert job.joins == 3


def test_a_server_that_never_takes_what_we_hold_is_given_up() -> None:
    job = Forgetful(1000, patience=30.0)
    job.start()
    job.until(lambda: job.clients["c0"].ended is not None, seconds=100.0)
    ended = job.clients["c0"].ended
    assert ended is not None
    assert isinstance(ended.error, Unavailable)
    assert str(ended.error).startswith(
        "for 30 s the server has not accepted our report of what we hold: the server refuses: join first"
    )
    assert 10 < job.joins < 50


def test_shares_that_never_come_are_given_up_and_their_owners_named() -> None:
    job = Bench(make_federation(3), deal(1, [5, 3, 2]))
    transmit = job._transmit

    def lost(sender: str, send: Send) -> None:
        if not is_parcel(send.message, Kind.SHARES):
            transmit(sender, send)

    job._transmit = lost  # type: ignore[method-assign]
    job.start()
    job.until(lambda: job.clients["c0"].phase is Phase.SHARING and not job._todo)
    machine, since = job.clients["c0"], job.now
    machine.handle(Tick(), since)
    machine.handle(Tick(), since + SHARE_SECONDS - 1)
    assert machine.ended is None
    machine.handle(Tick(), since + SHARE_SECONDS + 1)
    assert machine.ended is not None
    assert isinstance(machine.ended.error, Unavailable)
    wanted = f"no shares have arrived from c1, c2 for {SHARE_SECONDS:.0f} s; start the same command again to go on"
    assert str(machine.ended.error) == wanted


def test_a_client_that_cannot_be_reached_is_named_to_the_server_and_tried_again() -> None:
    job = Bench(make_federation(3), deal(1, [5, 3, 4]))
    reports, cuts, transmit = list[messages.Unreachable](), [3], job._transmit

    def cut(sender: str, send: Send) -> None:
        if isinstance(send.message, messages.Unreachable):
            reports.append(send.message)
        if is_parcel(send.message, Kind.SHARES) and (sender, send.to) == ("c0", "c1") and cuts[0]:
            cuts[0] -= 1
            job.give(sender, Unsent(send, Unavailable("c1: nobody there")))
        else:
            transmit(sender, send)

    job._transmit = cut  # type: ignore[method-assign]
    job.finish()
    exact(job)
    assert reports == [messages.Unreachable("c1", "c1: nobody there"), messages.Unreachable("c1", "")]


def test_what_is_given_away_is_kept_before_an_upload_leaves() -> None:
    job = Bench(make_federation(3), deal(1, [5, 3, 4]))
    machine, handle, leaving, kept = job.clients["c0"], job.clients["c0"].handle, list[list[str]](), list[str]()

    def watched(given: Any, now: float) -> Effects:
        effects = handle(given, now)
        kept.extend(one.key for one in effects.keep)
        if any(is_parcel(send.message, Kind.UPLOAD) for send in effects.send):
            leaving.append(kept.copy())
            kept.clear()
        return effects

    machine.handle = watched  # type: ignore[method-assign]
    job.finish()
    exact(job)
    assert len(leaving) > 3
    assert all(before[-2:] == ["tally", "given"] for before in leaving), "the budget first"


# --- goodbye ------------------------------------------------------------------------------------------------------------


def saying_goodbye() -> tuple[Participant, float, Send]:
    """A client that has written its labels, and what it has to say."""
    job = Bench(make_federation(3), deal(1, [5, 3, 4]))
    said: list[Send] = []
    transmit = job._transmit

    def held(sender: str, send: Send) -> None:
        if sender == "c0" and isinstance(send.message, messages.Done):
            said.append(send)
        else:
            transmit(sender, send)

    job._transmit = held  # type: ignore[method-assign]
    job.start()
    job.until(lambda: bool(said))
    assert "written" in job.disks["c0"]
    return job.clients["c0"], job.now, said[0]


def test_a_server_that_is_just_restarting_is_joined_once_more_to_say_goodbye() -> None:
    machine, now, done = saying_goodbye()
    effects = machine.handle(Unsent(done, OutOfTurn("join first")), now)
    assert joins(effects) == 1
    machine.handle(Linked(), now + 1)
    roster = messages.Roster(machine._phase.met.members)  # type: ignore[attr-defined]
    [again] = machine.handle(Told(roster), now + 1).send
    assert again.message == messages.Done()
    machine.handle(Sent(again), now + 2)
    assert machine.ended is not None
    assert machine.ended.error is None
    assert not machine.ended.untold


def test_a_server_that_is_gone_at_the_end_is_waited_for_a_little_while() -> None:
    machine, now, done = saying_goodbye()
    machine.handle(Lost(Unavailable("gone")), now)
    tries = 0
    while machine.ended is None and tries < 1000:
        now += 0.1
        for send in machine.handle(Unsent(done, Unavailable("gone")), now).send:
            tries += send == done
        machine.handle(Tick(), now)
    assert machine.ended is not None
    assert machine.ended.error is None, "the labels are written"
    assert machine.ended.untold, "so the same command must be able to go on"


# --- what a site hears of itself --------------------------------------------------------------------------------------


def test_a_site_behind_a_firewall_is_told() -> None:
    machine = alone()
    machine.handle(Linked(), 0.0)
    notes = []
    for by in ((), ("c1", "c2"), ("c1", "c2"), ()):
        notes += machine.handle(Told(messages.Waiting(Phase.SHARING, ("c0",), by)), 0.0).note
    told = [(note.text, note.level, note.fields.get("clients")) for note in notes if "reach us" in note.text]
    text = "other clients cannot reach us; check the firewall and what listens at our address"
    assert told == [(text, logging.WARNING, ("c1", "c2")), ("other clients reach us again", logging.INFO, None)]


# --- the end of a job, by the next process ----------------------------------------------------------------------------


class Recorder(stubs.CoordinatorServicer, stubs.ExchangeServicer):  # type: ignore[misc]
    """A server whose job is over: it takes what clients say at the end."""

    def __init__(self) -> None:
        self.joined, self.published = False, b""
        self.reports: list[pb.ReportRequest] = []
        self.state: list[list[str]] = []
        self.look: Callable[[], list[str]] = list

    async def Join(self, request: object, context: Any) -> pb.JoinReply:
        self.joined = True
        return pb.JoinReply()

    async def Follow(self, request: object, context: Any) -> AsyncIterator[pb.Event]:
        yield wire.event_to(messages.Roster(()))
        await asyncio.sleep(SECONDS)

    async def Deliver(self, request_iterator: AsyncIterator[pb.Piece], context: Any) -> pb.Received:
        if not self.joined:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "join first")
        async for message in request_iterator:
            self.published += bytes(wire.arrived_from("client-1", message).data)
        return pb.Received()

    async def Hand(self, request: pb.Piece, context: Any) -> pb.Received:
        async def alone() -> AsyncIterator[pb.Piece]:
            yield request

        return await self.Deliver(alone(), context)

    async def Report(self, request: pb.ReportRequest, context: Any) -> pb.ReportReply:
        self.reports.append(request)
        self.state.append(self.look())
        return pb.ReportReply()


async def served(kit: Kit, service: Recorder) -> aio.Server:
    own = kits.load(kit.path.parent / "server")
    listener = rpc.server(own)
    stubs.add_CoordinatorServicer_to_server(service, listener)
    stubs.add_ExchangeServicer_to_server(service, listener)
    rpc.listen(listener, own, kit.federation.server.bind)
    await listener.start()
    return listener


def job_of(kit: Kit, folder: Path, **changes: Any) -> SiteJob:
    """A client's command, as far as its options go."""
    rows = np.arange(6, dtype=np.int64).reshape(3, 2)
    (folder / "rows.csv").write_text("x1,x2\n0,1\n2,3\n4,5\n")
    table = data.load(folder / "rows.csv", feature_count=2)
    files = Files(folder / "rows.csv", folder / "labels.csv", folder / "centers.csv", folder / "labels.profile.csv")
    made, store = plan.of(kit.federation), Store(folder / "state")
    whole = SiteJob(kit, made, Policy(), table, rows, None, store, files, 5.0, False, False)
    return dataclasses.replace(whole, **changes)


def ended_after_labels(job: SiteJob) -> KeptLabels:
    """What a process leaves that is killed right after its labels are written."""
    _, disk = job.prepare()
    ids = np.arange(6, dtype=np.uint64).reshape(3, 2)
    kept = KeptLabels(b"s" * 32, keptlabels.table_key(job.table), np.array([1, 0, 1], np.int32), ids)
    keptlabels.keep(job.store.folder, kept)
    job.write(kept)
    disk.put([Put("joined", b""), Put("no-centers", b""), Put("written", b"s" * 32 + b"a" * 32)])
    return kept


def go_on(job: SiteJob, kit: Kit, service: Recorder | None) -> int:
    async def scenario() -> int:
        listener = await served(kit, service) if service is not None else None
        try:
            return await asyncio.wait_for(oneshot.run(job, "127.0.0.1:0", False, ("json", True)), SECONDS)
        finally:
            if listener is not None:
                await listener.stop(None)

    return asyncio.run(scenario())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != auditfile.FILE)  # it stays, whatever happens


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
    monkeypatch.setattr(ending, "GOODBYE_SECONDS", 0.5)
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
    opens = dataclasses.replace(
        kit,
        federation=dataclasses.replace(kit.federation, job=dataclasses.replace(kit.federation.job, centers="clients")),
    )
    job = job_of(opens, tmp_path)
    (tmp_path / "centers.csv").write_text("of an earlier job")
    ended_after_labels(job)
    assert not (tmp_path / "centers.csv").exists()
    again = job_of(opens, tmp_path)
    participant, disk = again.prepare()
    assert participant.phase is Phase.JOINING
    disk.put([Put("centers-done", b"")])
    participant, _ = again.prepare()
    assert participant.phase is Phase.FINISHED, "only goodbye is left"


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
    _, disk = job.prepare()
    disk.put([Put("joined", b"")])
    before = {path.name: path.read_bytes() for path in (tmp_path / "state").iterdir()}
    (tmp_path / "rows.csv").write_text("x1,x2\n0,1\n2,3\n4,4\n")
    with pytest.raises(Exception, match=r"the rows are not what it began with; put the old file back .* --new"):
        command.main(options(kit, tmp_path, "--wait", "0.1"), standalone_mode=False)
    now = {path.name: path.read_bytes() for path in (tmp_path / "state").iterdir()}
    assert {name: content for name, content in now.items() if name not in ("lock", "roster.json")} == before
    with pytest.raises(Unavailable, match="gave up on the server"):
        command.main(options(kit, tmp_path, "--wait", "0.1", "--new", "--bind", "127.0.0.1:0"), standalone_mode=False)
    assert (tmp_path / "state" / "secrets.json").read_bytes() != before["secrets.json"]


# --- what cannot be made while it is sent -----------------------------------------------------------------------------


class Unmade:
    """An upload whose making ends with an error after a few words."""

    def __init__(self, error: Exception) -> None:
        self.error, self.tries = error, 0
        self.send = Send(SERVER, Parcel(bytes(32), Kind.UPLOAD, b"name"), Made(20, self._words))

    def _words(self, first: int) -> Iterator[tuple[int, Any]]:
        self.tries += 1
        yield 0, np.zeros(10, dtype=np.uint64)
        raise self.error

    def sent(self, kit: Kit, folder: Path, through: Any = None) -> SecfcError:
        """By a client; why it, or its process, ends."""

        async def scenario() -> SecfcError:
            service = Recorder()
            service.joined = True
            participant, disk = job_of(kit, folder).prepare()
            listener, client = await served(kit, service), ClientDriver(kit, participant, disk, "")
            client._routes = through or client._routes
            try:
                client._transmit(self.send)
                async with asyncio.timeout(SECONDS):
                    while participant.ended is None and client._driver.broken is None:
                        participant.handle(Tick(), client._driver.now())
                        await asyncio.sleep(0.05)
                error = client._driver.broken or participant.ended.error  # type: ignore[union-attr]
                assert error is not None
                return error
            finally:
                client._driver.end()
                await client._link.close()
                await listener.stop(None)

        return asyncio.run(scenario())


class Straight:
    """A way to others whose errors come out as they are."""

    def arrived(self, to: str, parcel: Parcel) -> int:
        return 0

    async def deliver(self, to: str, parcel: Parcel, body: Any) -> int:
        return len(list(body.pieces(0)))


@pytest.mark.parametrize("through", [None, Straight()], ids=["direct", "other"])
def test_an_answer_that_cannot_be_made_is_no_connection_that_breaks(kit: Kit, tmp_path: Path, through: Any) -> None:
    """It was, and was tried again for ever without a word."""
    lost = Unmade(Unavailable("the cluster is gone"))
    assert lost.sent(kit, tmp_path, through) is lost.error
    assert lost.tries == 1
    error = Unmade(KeyError("x")).sent(kit, tmp_path, through)
    assert isinstance(error, JobFailed)
    assert str(error) == "the upload could not be computed (KeyError); the log says more"
    assert isinstance(Unmade(MemoryError()).sent(kit, tmp_path, through), StorageError)


# --- what others hear -------------------------------------------------------------------------------------------------


def test_the_server_does_not_hear_where_our_files_are(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Store, keep: object) -> None:
        raise StorageError(f"{tmp_path}/state: cannot keep state there (No space left on device)")

    monkeypatch.setattr(Store, "put", full)
    server = Recorder()
    with pytest.raises(StorageError, match="No space left"):
        go_on(job_of(kit, tmp_path), kit, server)
    [report] = server.reports
    assert report.stopped.reason == "it has a problem with its own files; its log says which"
