"""The machines of server and clients, joined in memory: whatever the network does, the labels are Lloyd's.

`joined` says which orders and mishaps are tried. Here also: no message that a wrong sender sends, or that comes at a wrong
time or in a wrong size, changes anything, at any moment of a job.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from secfc import config, events
from secfc.errors import AlreadyJoined, Malformed, OutOfTurn, SecfcError, Unavailable, WrongSender
from secfc.v1 import secfc_pb2 as pb
from secfc_client.participant import Phase as ClientPhase
from secfc_client.peers import Exchange, Peers
from secfc_client.store import Store
from secfc_server.coordinator import Phase
from secfc_server.journal import Journal
from secfc_server.service import Service
from tests.protocol.joined import (
    PATIENT,
    Joined,
    agreement,
    deal,
    introduced,
    make_federation,
    resigned,
    share_chunks,
    small_chunks,
    unchanged,
)

SEEDINGS = ("k-means++", "random", "separation")
calm = settings(deadline=None, suppress_health_check=list(HealthCheck))


def draw_job(seed: int, uploads: str, seeding: str, **changes: Any) -> Joined:
    """A small job with everything else by chance: clients (some without rows, some late), k, t, ties."""
    chance = random.Random(seed)
    clients = chance.randint(3, 7)
    least = 1 if uploads == "masked" else 0
    privacy = chance.randint(least, (clients - 1) // 2)
    k = chance.randint(1, 4)
    sizes = [chance.choice([0, 1, 2, 5]) for _ in range(clients)]
    sizes[chance.randrange(clients)] += max(k - sum(sizes), 0)
    agreed = make_federation(clients, k=k, privacy=privacy, uploads=uploads, seeding=seeding, **changes)
    late = [name for name in agreed.roster if chance.random() < 0.3]
    return Joined(agreed, deal(seed, sizes, spread=chance.choice([1, 5, 128])), seed=seed, late=late)


# --- any order, any mishap ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uploads", ["masked", "open"])
@settings(calm, max_examples=12)
@given(seed=st.integers(0, 1 << 32), seeding=st.sampled_from(SEEDINGS), mishap=st.sampled_from([0.0, 0.05, 0.2]))
def test_whatever_happens_the_labels_are_lloyds(uploads: str, seed: int, seeding: str, mishap: float) -> None:
    job = draw_job(seed, uploads, seeding)
    job.run(mishap=mishap, mishaps_until=800)
    job.check_result()


@pytest.mark.slow
@pytest.mark.parametrize("uploads", ["masked", "open"])
@settings(calm, max_examples=20)
@given(seed=st.integers(0, 1 << 32), seeding=st.sampled_from(SEEDINGS), mishap=st.sampled_from([0.0, 0.05, 0.3]))
def test_very_many_orders(uploads: str, seed: int, seeding: str, mishap: float) -> None:
    job = draw_job(seed, uploads, seeding)
    job.run(mishap=mishap)
    job.check_result()


@pytest.mark.parametrize("uploads", ["masked", "open"])
@pytest.mark.parametrize("seeding", SEEDINGS)
def test_clients_without_rows_take_part(uploads: str, seeding: str) -> None:
    """All rows are one client's; the others compute on its shares and get no labels."""
    agreed = make_federation(5, uploads=uploads, seeding=seeding, segments=2)
    job = Joined(agreed, deal(3, [0, 0, 20, 0, 0]), seed=4)
    job.run(mishap=0.05)
    job.check_result()
    assert [len(part) for part in job.labels()] == [0, 0, 20, 0, 0]


@pytest.mark.parametrize("uploads", ["masked", "open"])
def test_a_round_of_no_columns(uploads: str) -> None:
    """k = m: the seeding is final already, so the first Lloyd round asks for columns that did not change: none."""
    agreed = make_federation(3, k=4, uploads=uploads, features=1)
    job = Joined(agreed, [np.array([[1], [50]]), np.array([[-60]]), np.array([[100]])], seed=1)
    job.run()
    job.check_result()
    assert job.coordinator.rounds is not None
    assert job.coordinator.rounds.records[-1].columns == 0


def test_max_rounds_ends_a_job() -> None:
    job = Joined(make_federation(3, max_rounds=1, seeding="random"), deal(1, [9, 9, 9]), seed=2)
    job.run()
    job.check_result()
    assert all(site.participant.finished and not site.participant.finished.converged for site in job.sites.values())


# --- lost responders --------------------------------------------------------------------------------------------------


def in_round(job: Joined, number: int = 1) -> bool:
    rounds = job.coordinator.rounds
    return rounds is not None and rounds.attempt is not None and rounds.attempt.request.number >= number


def responders(job: Joined) -> list[str]:
    assert job.coordinator.rounds is not None
    assert job.coordinator.rounds.attempt is not None
    return [job.federation.roster[j] for j in job.coordinator.rounds.attempt.responders]


@pytest.mark.parametrize("uploads", ["masked", "open"])
def test_a_lost_responder_is_replaced_and_the_labels_stay(uploads: str) -> None:
    agreed = make_federation(5, uploads=uploads, dropouts=2)
    job = Joined(agreed, deal(7, [3, 4, 5, 6, 7]), seed=5)
    job.until(lambda: in_round(job, 2))
    assert job.coordinator.rounds is not None
    attempt = job.coordinator.rounds.attempt
    assert attempt is not None
    lost = job.sites[responders(job)[1]]
    job.until(lambda: attempt.decoder.received(lost.participant.index) > 0)
    job.drop(lost)
    job.notice(job.unnoticed[0])
    lost.started = False
    job.tick(PATIENT.lost - 0.1)
    assert job.coordinator.rounds.attempt is attempt, "not yet"
    job.tick(0.2)
    second = job.coordinator.rounds.attempt
    assert second is not None
    assert (second.request.number, second.number) == (attempt.request.number, attempt.number + 1)
    assert lost.participant.index not in second.responders
    assert len(set(second.responders)) == job.plan.responders
    assert second.decoder is not attempt.decoder
    assert all(second.decoder.received(j) == 0 for j in second.responders), "what came before is not used"
    lost.started = True
    job.run()
    job.check_result()
    assert job.coordinator.rounds.records[attempt.request.number - 1].attempts == second.number


def test_with_nobody_to_spare_the_round_waits_for_the_lost_one() -> None:
    job = Joined(make_federation(3), deal(7, [3, 4, 5]), seed=5)
    job.until(lambda: in_round(job, 2))
    lost = job.sites["c1"]
    job.drop(lost)
    job.notice(job.unnoticed[0])
    job.tick(PATIENT.lost + 1)
    assert job.coordinator.rounds is not None
    assert job.coordinator.rounds.attempt is None
    assert job.coordinator.missing() == ("c1",)
    with pytest.raises(OutOfTurn, match="no distances are wanted now"):
        job.coordinator.upload("c0", (2, 1), events.Chunk(0, 1, np.zeros(1, np.uint64)), 0.0, job.now)
    for _ in range(3):
        job.tick(10.0)
    job.run()
    job.check_result()
    numbers = [attempt for number, attempt, _ in job.attempts if number == 2]
    assert numbers[-1] >= 2


def test_a_responder_that_is_connected_but_sends_nothing_is_left_out_after_a_while() -> None:
    """A frozen process keeps its connection; it is replaced once it is far slower than the others."""
    deadlines = dataclasses.replace(PATIENT, lost=60.0)
    job = Joined(make_federation(4, dropouts=1), deal(7, [3, 4, 5, 2]), seed=5, deadlines=deadlines)
    job.until(lambda: in_round(job, 2))
    stuck = job.sites[responders(job)[0]]
    held = [site for site in job.sites.values() if site is not stuck]
    with small_chunks():
        for _ in range(300):
            for site in held:
                for action in job._enabled(site):
                    action()
    assert job.coordinator.missing() == (stuck.name,)
    job.tick(59.0)
    assert responders(job).count(stuck.name) == 1
    job.tick(2.0)
    assert stuck.name not in responders(job)
    job.run()
    job.check_result()


# --- the end of a stream ----------------------------------------------------------------------------------------------


class Context:
    """A gRPC context whose peer has shown a client's certificate."""

    def __init__(self, name: str) -> None:
        self._name = config.identity("trial", name).encode()

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_subject_alternative_name": [self._name]}

    async def abort(self, code: object, text: str) -> None:
        raise AssertionError(f"{code}: {text}")


class Wired:
    """A stub whose calls go straight to the receiver's service."""

    def __init__(self, exchange: Exchange, sender: str) -> None:
        self._exchange, self._context = exchange, Context(sender)

    async def Progress(self, request: pb.ProgressRequest, **_: object) -> pb.ProgressReply:
        return await self._exchange.Progress(request, self._context)

    async def Deliver(self, chunks: AsyncIterator[pb.ShareChunk], **_: object) -> pb.ShareReceipt:
        return await self._exchange.Deliver(chunks, self._context)


def test_a_delivery_cut_after_its_last_chunk_is_settled_by_the_next_one(tmp_path: Path) -> None:
    sender, receiver, _ = introduced(make_federation(3), deal(1, [5, 3, 2]))
    settled: list[bool] = []
    exchange = Exchange(receiver, Store(tmp_path), lambda: settled.append(True))

    async def cut() -> AsyncIterator[pb.ShareChunk]:
        for data in share_chunks(sender, sender.outgoing(receiver.name), 0):
            yield pb.ShareChunk.FromString(data)
        raise asyncio.CancelledError  # how gRPC ends a handler whose connection is lost

    async def tell(peer: str, reason: str) -> None:
        raise AssertionError(f"{peer}: {reason}")

    async def scenario() -> None:
        with pytest.raises(asyncio.CancelledError):
            await exchange.Deliver(cut(), Context(sender.name))
        await Peers(None, sender, tell)._attempt(Wired(exchange, sender.name), receiver.name)  # type: ignore[arg-type]

    asyncio.run(scenario())
    assert sender.name not in receiver.missing()
    assert settled


def test_a_client_whose_disk_is_full_ends_itself_and_not_the_owner_of_the_shares(tmp_path: Path) -> None:
    sender, receiver, _ = introduced(make_federation(3), deal(1, [5, 3, 2]))
    (tmp_path / "full").write_bytes(b"")  # a file where the state folder should be: nothing can be written there
    exchange = Exchange(receiver, Store(tmp_path / "full"), lambda: None)

    class Refusing(Context):
        async def abort(self, code: object, text: str) -> None:
            raise Unavailable(f"{code}: {text}")

        def peer(self) -> str:
            return "test"

    async def words() -> AsyncIterator[pb.ShareChunk]:
        for data in share_chunks(sender, sender.outgoing(receiver.name), 0):
            yield pb.ShareChunk.FromString(data)

    with pytest.raises(Unavailable, match=r"StatusCode\.UNAVAILABLE: it cannot keep shares on its disk, and stops"):
        asyncio.run(exchange.Deliver(words(), Refusing(sender.name)))
    assert "cannot keep state there" in str(exchange.failure)
    assert sender.name in receiver.missing(), "what is not on disk is not relied on"


def test_a_round_whose_last_stream_breaks_after_its_last_chunk_is_decoded(tmp_path: Path) -> None:
    job = Joined(make_federation(3), deal(1, [5, 3, 2]), seed=3)
    job.until(lambda: in_round(job, 2))
    rounds = job.coordinator.rounds
    assert rounds is not None
    with small_chunks():
        while rounds.attempt is not None and rounds.attempt.decoder.missing():
            for site in job.sites.values():
                if site.sending is None or site.sending.queue or site.sending.request.number < 2:
                    for action in job._enabled(site):
                        action()
    broken = [site for site in job.sites.values() if site.sending is not None]
    assert broken, "all words are here, but these streams have not ended"
    for site in broken:
        job.drop(site)
        job.notice(job.unnoticed[0])

    async def scenario() -> None:
        service = Service(job.coordinator, Journal(tmp_path, bytes(32)))
        service.tick()
        await asyncio.gather(*service._tasks)

    asyncio.run(scenario())
    assert len(rounds.records) == 2


# --- lies ---------------------------------------------------------------------------------------------------------------

Lie = tuple[str, Callable[[], object], type[SecfcError] | None]


def lies(job: Joined, site: Any) -> list[Lie]:
    """Messages that `site`, or somebody in its name, must not get through with now; None: ignored without an error."""
    c, now, digest, name = job.coordinator, job.now, job.federation.digest(), site.name
    mine, other = site.introduction(), next(s for s in job.sites.values() if s is not site)
    member, instance = c.members[name], site.instance
    waste = events.Chunk(0, 1, np.zeros(1, np.uint64))
    out: list[Lie] = [
        ("a stranger joins", lambda: c.join("mallory", digest, instance, mine, now), WrongSender),
        ("the server's certificate joins", lambda: c.join("server", digest, instance, mine, now), WrongSender),
        ("a stranger follows", lambda: c.connected("mallory", instance, now), WrongSender),
        ("a stranger goes", lambda: c.disconnected("mallory", instance, now), WrongSender),
        ("a stranger reports", lambda: c.report("mallory", instance, events.Done(), now), WrongSender),
        ("a stranger uploads", lambda: c.upload("mallory", (1, 1), waste, 0.0, now), WrongSender),
        ("another's introduction", lambda: c.join(name, digest, instance, other.introduction(), now), WrongSender),
        ("another federation", lambda: c.join(name, bytes(32), instance, mine, now), OutOfTurn),
        ("an old process goes", lambda: c.disconnected(name, bytes(16), now), None),
        ("another process follows", lambda: c.connected(name, bytes(16), now), OutOfTurn),
        ("another process reports", lambda: c.report(name, bytes(16), events.Stopped("x"), now), OutOfTurn),
        ("no work was done", lambda: job.work or c.complete(None, now), None if job.work else OutOfTurn),  # type: ignore[arg-type]
        ("no work is left", lambda: job.work and c.take_work(), None),
    ]
    forged = dataclasses.replace(mine, nonce=bytes(32))
    same = member.introduction is not None and member.instance == instance
    alive = member.introduction is not None and member.connected and not same  # as far as the server has noticed

    def unless_alive(error: type[SecfcError]) -> type[SecfcError]:
        return AlreadyJoined if alive else error

    out.append(("a forged signature", lambda: c.join(name, digest, instance, forged, now), unless_alive(WrongSender)))
    if c.phase is Phase.JOINING:
        many = resigned(mine, job.federation, rows=job.federation.max_rows + 1)
        out.append(("too many rows", lambda: c.join(name, digest, instance, many, now), unless_alive(Malformed)))
    else:
        changed = resigned(mine, job.federation, nonce=bytes(32))
        out.append(("other shares", lambda: c.join(name, digest, instance, changed, now), unless_alive(OutOfTurn)))
    if member.connected and same:
        out.append(("a second process", lambda: c.join(name, digest, bytes(16), mine, now), AlreadyJoined))
    if same:
        held, done = events.Held(bytes(32), 0, 0, 0.0), events.Done()
        early = OutOfTurn if c.phase in (Phase.JOINING, Phase.AGREEING) else Malformed
        out.append(("holds other shares", lambda: c.report(name, instance, held, now), early))
        others = [bytes(32) if j != site.participant.index else b"" for j in range(len(job.sites))]
        unsigned = events.Agreed(b"", tuple(others))
        error = OutOfTurn if c.phase is Phase.JOINING else WrongSender
        out.append(("agrees unsigned", lambda: c.report(name, instance, unsigned, now), error))
        if site.participant.phase is not ClientPhase.JOINING and c.phase is not Phase.JOINING:
            bare = dataclasses.replace(agreement(site.participant), proofs=())
            out.append(("proves nothing", lambda: c.report(name, instance, bare, now), Malformed))
        link = events.Unreachable("mallory", "no")
        out.append(("cannot reach a stranger", lambda: c.report(name, instance, link, now), Malformed))
        if c.phase is not Phase.FINISHED:
            out.append(("done before the end", lambda: c.report(name, instance, done, now), OutOfTurn))
    return out + upload_lies(job, site)


def upload_lies(job: Joined, site: Any) -> list[Lie]:
    c, now, name = job.coordinator, job.now, site.name
    waste = events.Chunk(0, 1, np.zeros(1, np.uint64))
    rounds = c.rounds
    if c.phase is not Phase.ROUNDS or rounds is None or rounds.attempt is None or rounds.busy:
        numbers = [(r.number, r.attempts) for r in rounds.records[-2:]] if rounds else []
        return [
            (f"an upload for {asked}", lambda asked=asked: c.upload(name, asked, waste, 0.0, now), OutOfTurn)  # type: ignore[misc]
            for asked in [(1, 1), (0, 0), *numbers]
        ]
    number, attempt = rounds.attempt.name
    due = rounds.attempt.decoder.shape.layout.words
    at = rounds.attempt.decoder.received(site.participant.index)

    def send(
        words: list[int], offset: int = at, total: int = due, asked: tuple[int, int] = (number, attempt)
    ) -> object:
        chunk = events.Chunk(offset, total, np.array(words, dtype=np.uint64))
        return c.upload(name, asked, chunk, 0.0, now)

    out: list[Lie] = [
        ("the round before", lambda: send([0], asked=(number - 1, attempt)), OutOfTurn),
        ("the round after", lambda: send([0], asked=(number + 1, attempt)), OutOfTurn),
        ("another attempt", lambda: send([0], asked=(number, attempt + 1)), OutOfTurn),
        ("the attempt before", lambda: send([0], asked=(number, attempt - 1)), OutOfTurn),
        ("a larger total", lambda: send([0], total=due + 1), Malformed),
        ("a smaller total", lambda: send([], total=due - 1), Malformed),
    ]
    if site.participant.index not in rounds.attempt.responders:
        return [*out, ("not a responder", lambda: send([0]), OutOfTurn)]
    return [
        *out,
        ("words left out", lambda: send([], offset=at + 1), Malformed),
        ("words again", lambda: send([0], offset=at - 1), Malformed),
        ("too many words", lambda: send([0] * (due - at + 1)), Malformed),
        ("a residue that is none", lambda: send([0x1FFFFF]), Malformed),
        ("a second residue that is none", lambda: send([0x1FFFFF << 21]), Malformed),
        ("the top bit", lambda: send([1 << 63]), Malformed),
    ]


def check_lie(job: Joined, lie: Lie) -> None:
    what, call, error = lie
    with unchanged(job.coordinator):
        if error is None:
            call()
            return
        with pytest.raises(error) as refused:
            call()
    assert refused.type is error, what
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("uploads", ["masked", "open"])
def test_every_lie_in_every_phase_changes_nothing(uploads: str) -> None:
    agreed = make_federation(4, uploads=uploads, dropouts=1)
    job = Joined(agreed, deal(7, [3, 4, 0, 2]), seed=11)
    told: set[str] = set()
    with small_chunks():
        while not job.over:
            if job.steps % 9 == 0:
                for lie in lies(job, job.random.choice(list(job.sites.values()))):
                    told.add(lie[0])
                    check_lie(job, lie)
            job.step()
    job.check_result()
    assert len(told) >= 34, "every kind of lie was told"
    for site in job.sites.values():
        for lie in lies(job, site):
            check_lie(job, lie)
    assert job.coordinator.phase is Phase.FINISHED


class Machines(RuleBasedStateMachine):
    """Honest steps, mishaps, lies and passing time in any mixture that hypothesis thinks of; in the end, Lloyd's labels."""

    job: Joined

    @initialize(
        seed=st.integers(0, 1 << 16), uploads=st.sampled_from(["masked", "open"]), seeding=st.sampled_from(SEEDINGS)
    )
    def begin(self, seed: int, uploads: str, seeding: str) -> None:
        self.job = draw_job(seed, uploads, seeding)

    @rule(steps=st.integers(1, 60))
    def go_on(self, steps: int) -> None:
        with small_chunks():
            for _ in range(steps):
                if not self.job.over:
                    self.job.step(pause=0.0)

    @rule(which=st.integers(0, 1 << 16))
    def mishap(self, which: int) -> None:
        with small_chunks():
            if bad := self.job.mishaps():
                bad[which % len(bad)]()

    @rule(which=st.integers(0, 1 << 16), client=st.integers(0, 6))
    def lie(self, which: int, client: int) -> None:
        sites = list(self.job.sites.values())
        told = lies(self.job, sites[client % len(sites)])
        check_lie(self.job, told[which % len(told)])

    @rule(seconds=st.floats(0.0, 20.0))
    def wait(self, seconds: float) -> None:
        self.job.tick(seconds)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "job"):
            self.job.check()

    def teardown(self) -> None:
        if hasattr(self, "job"):
            self.job.run()
            self.job.check_result()


Machines.TestCase.settings = settings(calm, max_examples=12, stateful_step_count=25)
TestMachines = Machines.TestCase


# --- a client that comes back -----------------------------------------------------------------------------------------


def test_no_round_starts_before_a_restarted_client_holds_the_shares_again() -> None:
    """DESIGN.md, step 2: "no round starts before all n clients hold the same ids"."""
    job = Joined(make_federation(3), deal(1, [5, 3, 2]), seed=3)
    job.until(lambda: any(site.held_taken for site in job.sites.values()))
    old = next(site for site in job.sites.values() if site.held_taken)
    job.drop(old)
    job.notice(job.unnoticed[0])
    new = job.sites[old.name] = job.make_site(old.name, old.participant._secrets)
    job.join(new)
    job.follow(new)
    job.until(lambda: all(site.held_taken for site in job.sites.values() if site is not new))
    assert new.participant.phase is not ClientPhase.ROUNDS
    assert job.coordinator.phase is Phase.SHARING


def test_a_client_that_reconnects_after_the_end_gets_its_labels() -> None:
    job = Joined(make_federation(3), deal(1, [5, 3, 2]), seed=3)
    job.until(lambda: job.coordinator.phase is Phase.FINISHED)
    for site in job.sites.values():
        job.drop(site)
    job.run()
    job.check_result()
