"""The machines of server and clients in a simulated world: whatever the network does, the labels are Lloyd's.

Here: what is done about lost and silent responders, and that no message that a wrong sender sends, or that comes at a wrong
time or in a wrong size, changes anything, at any moment of a job. Disasters of all kinds: tests/simulation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secfc.agreement.federation import SERVER
from secfc.errors import AlreadyJoined, Malformed, OutOfTurn, SecfcError, StorageError, Unavailable, WrongSender
from secfc.protocol import messages, parcels
from secfc.protocol.client.inputs import Sent, Unsent
from secfc.protocol.client.site import SHARE_SECONDS
from secfc.protocol.effects import Arrived, Tick, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel
from secfc.protocol.server.asking import Asking
from secfc.protocol.server.attempt import Attempt
from secfc.protocol.server.inputs import Followed, Joined, Reported, Unfollowed
from secfc.protocol.server.job import Deadlines
from tests.parties import deal, make_federation, resigned, unchanged
from tests.protocol.helpers import deliver, exchange, introduced, reveals
from tests.simulation.scene import Scene
from tests.simulation.world import World

SEEDINGS = ("k-means++", "random", "separation")


def world(sizes: list[int], seed: int = 5, deadlines: Deadlines | None = None, **changes: Any) -> World:
    """A calm world that has been started."""
    scene = Scene(make_federation(len(sizes), **changes), tuple(deal(7, sizes)))
    made = World(scene, seed, deadlines=deadlines or Deadlines())
    made.start()
    return made


def finish(job: World) -> None:
    job.until(lambda: job.finished)
    job.check_labels()


def rounds(job: World) -> Asking:
    found = job.server._phase.asking
    assert found is not None
    return found


def attempt(job: World) -> Attempt:
    found = job.server.attempt
    assert found is not None
    return found


def in_round(job: World, number: int = 1) -> Callable[[], bool]:
    return lambda: job.server.attempt is not None and job.server.attempt.question.number >= number


# --- any order --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uploads", ["masked", "open"])
@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=6)
@given(
    chance=st.integers(0, 1 << 32),
    seeding=st.sampled_from(SEEDINGS),
    sizes=st.lists(st.sampled_from([0, 1, 2, 5]), min_size=3, max_size=7).filter(lambda sizes: sum(sizes) > 3),
    k=st.integers(1, 4),
    spread=st.sampled_from([1, 5, 128]),
    calm=st.booleans(),
)
def test_whatever_happens_the_labels_are_lloyds(
    uploads: str, chance: int, seeding: str, sizes: list[int], k: int, spread: int, calm: bool
) -> None:
    """Ties and duplicate rows, clients without rows, any t that the clients allow."""
    least = 1 if uploads == "masked" else 0
    privacy = least + chance % ((len(sizes) - 1) // 2 + 1 - least)
    agreed = make_federation(len(sizes), k=k, privacy=privacy, uploads=uploads, seeding=seeding)
    job = World(Scene(agreed, tuple(deal(chance % 1000, sizes, spread=spread))), chance, calm=calm)
    job.start()
    finish(job)


@pytest.mark.parametrize("uploads", ["masked", "open"])
@pytest.mark.parametrize("seeding", SEEDINGS)
def test_clients_without_rows_take_part(uploads: str, seeding: str) -> None:
    """All rows are one client's; the others compute on its shares and get no labels."""
    job = world([0, 0, 20, 0, 0], 4, uploads=uploads, seeding=seeding, segments=2)
    finish(job)
    assert [len(part) for part in job.labels()] == [0, 0, 20, 0, 0]


@pytest.mark.parametrize("uploads", ["masked", "open"])
def test_a_round_of_no_columns(uploads: str) -> None:
    """k = m: the seeding is final already, so the first Lloyd round asks for columns that did not change: none.
    (Of several candidates of the last seed, the winner's column is asked for once more.)"""
    agreed = make_federation(3, k=4, uploads=uploads, features=1, candidates=1)
    job = World(Scene(agreed, (np.array([[1], [50]]), np.array([[-60]]), np.array([[100]]))), 1)
    job.start()
    finish(job)
    assert rounds(job).records[-1].columns == 0


def test_max_rounds_ends_a_job() -> None:
    told: list[messages.Finished] = []
    job = world([9, 9, 9], max_rounds=1, seeding="random")

    def tell(_: str, event: messages.Event) -> messages.Event:
        if isinstance(event, messages.Finished):
            told.append(event)
        return event

    job.tell = tell
    finish(job)
    assert len(told) == 3
    assert not any(event.converged for event in told)


def test_numbers_and_attempts_rise_and_an_attempt_has_one_responder_set() -> None:
    """Over restarts of the server too."""
    asked: list[tuple[int, int, tuple[int, ...]]] = []
    job = world([3, 4, 0, 5], dropouts=1)

    def tell(_: str, event: messages.Event) -> messages.Event:
        if isinstance(event, messages.RoundRequest) and not event.past:
            one = (event.number, event.attempt, event.responders)
            if one not in asked:
                asked.append(one)
        return event

    job.tell = tell
    for number in (2, 3, 4):
        job.until(in_round(job, number))
        job.kill(SERVER)
        job.start(SERVER)
    finish(job)
    names = [one[:2] for one in asked]
    assert names == sorted(set(names))
    assert all(len(set(responders)) == job.scene.plan.responders for _, _, responders in asked)
    assert max(attempt for _, attempt in names) > 1


# --- lost responders --------------------------------------------------------------------------------------------------


def received(one: Attempt, client: int) -> int:
    return one.exchange._exchanges[0]._decoders[0].received(client)  # type: ignore[attr-defined]


@pytest.mark.parametrize("uploads", ["masked", "open"])
def test_a_lost_responder_is_replaced_and_the_labels_stay(uploads: str) -> None:
    job = world([3, 4, 5, 6, 7], uploads=uploads, dropouts=2)
    roster = job.scene.federation.roster
    job.until(in_round(job, 2))
    first = attempt(job)
    job.until(lambda: any(received(first, j) and j in first.exchange.missing() for j in first.responders))
    lost = next(j for j in first.exchange.missing() if received(first, j))
    job.kill(roster[lost])
    gone = job.now
    job.until(lambda: job.server.attempt is not first)
    assert job.now - gone >= job.deadlines.lost
    second = attempt(job)
    assert second.name == (first.question.number, first.number + 1)
    assert lost not in second.responders
    assert len(set(second.responders)) == job.scene.plan.responders
    assert all(received(second, j) == 0 for j in second.responders), "what came before is not used"
    job.start(roster[lost])
    finish(job)
    assert rounds(job).records[first.question.number - 1].attempts == second.number


def test_with_nobody_to_spare_the_round_waits_for_the_lost_one() -> None:
    job = world([3, 4, 5])
    job.until(in_round(job, 2))
    first = attempt(job)
    job.kill("c1")
    job.until(lambda: job.server.attempt is None, 60.0)
    assert job.server._phase.missing() == ("c1",)
    assert job.server.waiting("c0") == messages.Waiting(Phase.ROUNDS, ("c1",))
    upload = Parcel(job.client("c0").session, Kind.UPLOAD, parcels.attempt_name(*first.name))
    with unchanged(job.server), pytest.raises(OutOfTurn, match="not due"):
        job.server.handle(Arrived("c0", upload, 0, 8, bytes(8)), job.now)
    job.start("c1")
    finish(job)
    assert rounds(job).records[first.question.number - 1].attempts >= 2


def test_a_responder_that_is_connected_but_sends_nothing_is_left_out_after_a_while() -> None:
    """A frozen process keeps its connection; it is replaced once it is far slower than the others."""
    job = world([3, 4, 5, 2], deadlines=dataclasses.replace(Deadlines(), lost=60.0), dropouts=1)
    job.until(in_round(job, 2))
    first = attempt(job)
    stuck = first.responders[0]
    name = job.scene.federation.roster[stuck]
    job.parties[name].frozen_until = job.now + 1000.0
    job.until(lambda: first.exchange.missing() == [stuck])
    assert job.server._phase.missing() == (name,)
    job.until(lambda: job.now > first.started + 59.0)
    assert job.server.attempt is first
    job.until(lambda: job.now > first.started + 62.0)
    assert stuck not in job.server.attempt.responders if job.server.attempt else True
    assert job.server.job.members[name].connected
    finish(job)


# --- the end of a stream ----------------------------------------------------------------------------------------------


def test_a_delivery_whose_receipt_is_lost_is_settled_by_the_next_one() -> None:
    """Everything was taken, and its sender does not know: what comes again is passed over."""
    sender, receiver, _ = introduced(make_federation(3), deal(1, [5, 3, 2]))
    send = next(send for send in sender.waiting if send.to == receiver.name)
    deliver(sender, receiver, send)
    key = f"shares/{sender.name}/{send.message.name.hex()}"
    kept = receiver.disk[key]
    assert receiver.machine.progress(sender.name, send.message) >= send.body.total  # type: ignore[union-attr]
    with unchanged(receiver.machine):
        deliver(sender, receiver, send)
    assert receiver.disk[key] == kept
    sender.give(Sent(send))
    assert sender.error is None


def test_a_client_whose_disk_is_full_ends_itself_and_not_the_owner_of_the_shares() -> None:
    job = world([5, 3, 2])
    job.until(lambda: job.server.phase is Phase.SHARING)
    job.parties["c1"].disk_fails = True
    job.until(lambda: not job.parties["c1"].alive)
    assert isinstance(job.parties["c1"].error, StorageError)
    assert not any(key.startswith("shares/") for key in job.parties["c1"].disk), "what is not on disk is not relied on"
    job.until(lambda: job.now > 1060.0)
    assert job.parties["c0"].alive
    assert job.parties["c2"].alive
    job.parties["c1"].disk_fails = False
    job.start("c1")
    finish(job)


def test_a_round_whose_last_responder_dies_after_its_last_piece_is_decoded() -> None:
    job = world([5, 3, 2])
    job.until(in_round(job, 2))
    first = attempt(job)
    job.until(lambda: not first.exchange.missing())
    for name in job.scene.federation.roster:
        job.kill(name)
    job.until(lambda: len(rounds(job).records) == 2, 5.0)
    job.start(*job.scene.federation.roster)
    finish(job)


@pytest.mark.parametrize("why", [Unavailable("c1 is away"), OutOfTurn("not yet")])
def test_whoever_takes_no_shares_for_too_long_is_named_by_their_sender(why: SecfcError) -> None:
    """c0 holds everybody's shares, and c1 takes none of c0's: without the server's word, too, that comes to an end."""
    clients = introduced(make_federation(3), deal(1, [5, 3, 2]))
    exchange(clients, lambda send: send.to != "c1")
    waits, patient = clients[0], clients[0].copy()
    assert waits.phase is Phase.ROUNDS
    patient.tell(reveals(clients))  # from then on c1 has had them, and has only lost them
    for client in (waits, patient):
        while client.now < 2 * SHARE_SECONDS and client.error is None:
            sends, client.waiting = client.waiting, []
            for send in sends:
                client.give(Unsent(send, why))
            client.now += 60.0
            client.give(Tick())
    assert patient.error is None
    assert isinstance(waits.error, Unavailable)
    assert (
        str(waits.error) == "our shares could not be delivered to c1 for 3600 s; start the same command again to go on"
    )


# --- lies ---------------------------------------------------------------------------------------------------------------

Lie = tuple[str, Any, type[SecfcError] | None]


def lies(job: World, name: str) -> list[Lie]:
    """Inputs that `name`, or somebody in its name, must not get through with now; None: ignored without an error."""
    server, agreed, site = job.server, job.scene.federation, job.client(name).site
    mine, instance, member = site.introduction(), site.instance, job.server.job.members[name]
    other = next(p.machine.site.introduction() for p in job.clients if p.alive and p.name != name)
    waste = Parcel(bytes(32), Kind.UPLOAD, parcels.attempt_name(1, 1))

    def join(
        sender: str = name, introduction: messages.Introduction = mine, digest: bytes = b"", process: bytes = instance
    ) -> Joined:
        return Joined(sender, messages.Join(digest or agreed.agreed(), process, introduction, begun=False))

    out: list[Lie] = [
        ("a stranger joins", join("mallory"), WrongSender),
        ("the server's certificate joins", join(SERVER), WrongSender),
        ("a stranger follows", Followed("mallory", instance), WrongSender),
        ("a stranger goes", Unfollowed("mallory", instance), WrongSender),
        ("a stranger reports", Reported("mallory", instance, messages.Done()), WrongSender),
        ("a stranger uploads", Arrived("mallory", waste, 0, 8, bytes(8)), WrongSender),
        ("another's introduction", join(introduction=other), WrongSender),
        ("another federation", join(digest=bytes(32)), OutOfTurn),
        ("an old process goes", Unfollowed(name, bytes(16)), None),
        ("another process follows", Followed(name, bytes(16)), OutOfTurn if member.instance else Unavailable),
        ("another process reports", Reported(name, bytes(16), messages.Stopped("x")), OutOfTurn),
        ("work that nobody asked for", Worked(("round", 999, 1), "anything"), None),
        ("a comparison that nobody asked for", Worked(("open", 99), "anything"), None),
        ("an upload of another job", Arrived(name, waste, 0, 8, bytes(8)), OutOfTurn),
    ]
    same = member.introduction is not None and member.instance == instance
    alive = member.introduction is not None and member.connected and not same  # as far as the server has noticed

    def unless_alive(error: type[SecfcError]) -> type[SecfcError]:
        return AlreadyJoined if alive else error

    forged = dataclasses.replace(mine, nonce=bytes(32))
    out.append(("a forged signature", join(introduction=forged), unless_alive(WrongSender)))
    if server.phase is Phase.JOINING:
        many = resigned(mine, agreed, rows=agreed.job.max_rows + 1)
        out.append(("too many rows", join(introduction=many), unless_alive(Malformed)))
    else:
        changed = resigned(mine, agreed, nonce=bytes(32))
        out.append(("other shares", join(introduction=changed), unless_alive(OutOfTurn)))
    if member.connected and same:
        out.append(("a second process", join(process=bytes(16)), AlreadyJoined))
    if same:
        out += _reports(job, name, instance)
    return out + _uploads(job, name)


def _reports(job: World, name: str, instance: bytes) -> list[Lie]:
    server, roster = job.server, job.scene.federation.roster
    opening = server.phase in (Phase.JOINING, Phase.AGREEING)
    proofs = tuple(b"" if one == name else bytes(32) for one in roster)
    out: list[Lie] = [
        ("holds other shares", messages.Held(bytes(32), 0, 0, 0.0), OutOfTurn if opening else Malformed),
        ("agrees unsigned", messages.Agreed(b"", proofs), OutOfTurn if server.phase is Phase.JOINING else WrongSender),
        ("cannot reach a stranger", messages.Unreachable("mallory", "no"), Malformed),
    ]
    if (agreed := server.job.members[name].agreed) is not None:
        out.append(("proves nothing", dataclasses.replace(agreed, proofs=()), Malformed))
    if server.phase is not Phase.FINISHED:
        out.append(("done before the end", messages.Done(), OutOfTurn))
    return [(what, Reported(name, instance, report), error) for what, report, error in out]


def _uploads(job: World, name: str) -> list[Lie]:
    server = job.server
    if server._phase.met is None:
        return []
    session, current = server._phase.met.session, server.attempt
    if current is None or server.phase is not Phase.ROUNDS or rounds(job).working:
        done = server._phase.asking
        numbers = [(record.number, record.attempts) for record in done.records[-2:]] if done else []
        named = [Parcel(session, Kind.UPLOAD, parcels.attempt_name(*one)) for one in [(1, 1), (0, 0), *numbers]]
        return [("an upload that is not due", Arrived(name, one, 0, 8, bytes(8)), OutOfTurn) for one in named]
    (number, tried), client = current.name, job.scene.federation.roster.index(name)
    due = 8 * current.exchange._exchanges[0]._decoders[0].shape.layout.words  # type: ignore[attr-defined]
    at = 8 * received(current, client) if client in current.responders else 0

    def send(
        words: list[int] | bytes, offset: int = at, total: int = due, asked: tuple[int, int] = (number, tried)
    ) -> Arrived:
        data = words if isinstance(words, bytes) else np.array(words, dtype="<u8").tobytes()
        return Arrived(name, Parcel(session, Kind.UPLOAD, parcels.attempt_name(*asked)), offset, total, data)

    out: list[Lie] = [
        ("the round before", send([0], asked=(number - 1, tried)), OutOfTurn),
        ("the round after", send([0], asked=(number + 1, tried)), OutOfTurn),
        ("another attempt", send([0], asked=(number, tried + 1)), OutOfTurn),
        ("the attempt before", send([0], asked=(number, tried - 1)), OutOfTurn),
        ("a name that is too long", dataclasses.replace(send([0]), parcel=_longer(send([0]).parcel)), OutOfTurn),
    ]
    if client not in current.responders:
        return [*out, ("not a responder", send([0]), OutOfTurn)]
    out += [
        ("a larger total", send([0], total=due + 8), Malformed),
        ("a smaller total", send([], total=due - 8), Malformed),
    ]
    if at == due:
        return out
    return [
        *out,
        ("words left out", send([], offset=at + 8), Malformed),
        ("too many words", send([0] * ((due - at) // 8 + 1)), Malformed),
        ("a part of a word", send(bytes(7)), Malformed),
        ("a residue that is none", send([0x1FFFFF]), Malformed),
        ("a second residue that is none", send([0x1FFFFF << 21]), Malformed),
        ("the top bit", send([1 << 63]), Malformed),
    ]


def _longer(parcel: Parcel) -> Parcel:
    return dataclasses.replace(parcel, name=parcel.name + b"x")


def check_lies(job: World, told: list[Lie]) -> None:
    server = job.server
    with unchanged(server):
        for what, given, error in told:
            if error is None:
                changes = server.job.changes
                effects = server.handle(given, job.now)
                server.job.changes = changes
                assert not [*effects.keep, *effects.send, *effects.work], what
                continue
            with pytest.raises(error) as refused:
                server.handle(given, job.now)
            assert refused.type is error, what
            assert len(str(refused.value).splitlines()) == 1


def lie_to(job: World, me: str, liar: str) -> None:
    """Parcels of a stranger, of itself, of another session or not due are refused by a client and change nothing."""
    client = job.client(me)
    session, share_set = client.session, client.site.share_set.id
    senders = [("mallory", WrongSender), (me, WrongSender), (liar, OutOfTurn)]
    with unchanged(client):
        for kind in (Kind.SHARES, Kind.WANTED, Kind.CENTERS, Kind.COMMITMENT, Kind.UPLOAD, Kind.STEP, Kind.ASSIGNMENT):
            for sender, error in senders:
                for parcel in (Parcel(bytes(32), kind, share_set), Parcel(session, kind, b"x" * 28)):
                    with pytest.raises(error):
                        client.handle(Arrived(sender, parcel, 0, 8, bytes(8)), job.now)


@pytest.mark.parametrize("uploads", ["masked", "open"])
def test_every_lie_in_every_phase_changes_nothing(uploads: str) -> None:
    job = world([3, 4, 0, 2], 11, uploads=uploads, dropouts=1)
    roster, steps = job.scene.federation.roster, 0
    told: set[str] = set()
    with job.patched():
        while not job.finished:
            job.step()
            steps += 1
            alive = [process.name for process in job.clients if process.alive]
            if steps % 7 or len(alive) < 2:
                continue
            name = job.chance.choice(alive)
            some = lies(job, name)
            told |= {what for what, _, _ in some}
            check_lies(job, some)
            if job.client(name).session:
                lie_to(job, name, job.chance.choice([one for one in roster if one != name]))
    job.check_labels()
    assert len(told) >= 34, f"every kind of lie was told: {len(told)}"
    assert job.server.phase is Phase.FINISHED


def test_a_finished_job_never_changes() -> None:
    job = world([3, 4, 0, 2], dropouts=1)
    job.until(lambda: job.server.phase is Phase.FINISHED and not job.parties[SERVER].pending)
    final, told = rounds(job).runs.all[0].labels.copy(), job.server.ending
    assert told is not None
    said = told.told()
    for name in (SERVER, "c0"):
        job.kill(name)
        job.start(name)
    assert np.array_equal(rounds(job).runs.all[0].labels, final)
    assert job.server.ending is not None
    assert job.server.ending.told() == said
    finish(job)


# --- a client that comes back -----------------------------------------------------------------------------------------


def test_no_round_starts_before_a_restarted_client_holds_the_shares_again() -> None:
    """docs/protocol.md: no round starts before all n clients hold the same shares."""
    job = world([5, 3, 2])
    members = job.server.job.members
    job.until(lambda: any(member.held for member in members.values()))
    assert job.server.phase is Phase.SHARING
    back = next(name for name, member in members.items() if member.held)
    job.kill(back)
    job.until(lambda: job.now > 1100.0)
    assert job.server._phase.asking is None, "it has not come back"
    job.start(back)
    job.until(lambda: members[back].instance == job.client(back).site.instance)
    assert members[back].held is None, "a new process tells by itself what it holds"
    assert job.server.phase in (Phase.SHARING, Phase.CHECKING)
    finish(job)


def test_a_client_that_reconnects_after_the_end_gets_its_labels() -> None:
    job = world([5, 3, 2])
    job.until(lambda: job.server.phase is Phase.FINISHED)
    for stream in list(job._streams.values()):
        job._cut(stream)
    finish(job)


def test_everybody_computes_only_after_all_signatures() -> None:
    """c2's signature never arrives: nobody sends a share."""
    scene = Scene(make_federation(3), tuple(deal(1, [5, 3, 2])))
    job = World(scene, 3)
    sent: list[Kind] = []

    def alter(sender: str, send: Any) -> Any:
        if isinstance(send.message, Parcel):
            sent.append(send.message.kind)
        unsigned = sender == "c2" and isinstance(send.message, messages.Agreed)
        return dataclasses.replace(send, message=dataclasses.replace(send.message, signature=b"")) if unsigned else send

    job.alter = alter
    job.start()
    job.until(lambda: job.server.phase is Phase.FAILED)
    assert "these have not signed the session: c2" in str(job.server.failure)
    assert not sent
