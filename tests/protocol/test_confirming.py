"""The clients confirm the union of IDs to each other: a server that changes it must not learn whose ID it changed.

`play` is a whole alignment with a server that lies, and notes everything that anybody outside the owner can see: who sends
whom how many bytes of what, in which order, what everybody ends with, and what the server is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from secfc.agreement.federation import SERVER
from secfc.coding.field import Words
from secfc.errors import JobFailed, Malformed, OutOfTurn, WrongSender
from secfc.privacy import confirming
from secfc.privacy.identifiers import Ids
from secfc.protocol import messages
from secfc.protocol.client.phases.union import LINGER_SECONDS
from secfc.protocol.effects import Arrived, Send, Tick
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Data, Kind, Parcel, of_words, to_words
from secfc.protocol.server.inputs import Reported
from tests.parties import deal, make_federation, unchanged
from tests.protocol.helpers import Client, agreements, deliver, exchange, introduced, opened, refused, roster
from tests.simulation.scene import Scene
from tests.simulation.world import World

SIZES = [4, 0, 7, 3]
AGREED = make_federation(4, membership="private")
ROWS = sum(SIZES)
View = list[tuple[str, ...]]


def aligned(seed: int = 2, count: int = ROWS) -> list[Client]:
    """Clients whose table of IDs is summed up: the server knows the union and has not told it."""
    clients = introduced(AGREED, deal(seed, SIZES), seed)
    exchange(clients)
    for client in clients:
        client.tell(opened(client, 0, count))
    exchange(clients)
    return clients


def show(client: Client, ids: Ids) -> None:
    client.tell(opened(client, 1, 0, ids))


def play(clients: list[Client], told: Callable[[int], Ids]) -> View:
    """What is seen from the opened table to the end of everybody."""
    before = [len(client.told) for client in clients]
    for j, client in enumerate(clients):
        show(client, told(j))
    seen: View = [tuple(map(str, one)) for one in exchange(clients, confirms)]
    return seen + concluded(clients, before)


def confirms(send: Send) -> bool:
    return send.message.kind in (Kind.COMMITMENT, Kind.CONFIRMATION)


def concluded(clients: Sequence[Client], before: Sequence[int]) -> View:
    """How everybody ends that was told everything, and what the server hears."""
    view: View = []
    for client, start in zip(clients, before, strict=True):
        client.now += LINGER_SECONDS + 1
        client.give(Tick())
        reports = [send.message for send in client.told[start:] if not isinstance(send.message, Parcel)]
        ending = "goes on" if client.phase is Phase.SHARING else f"{client.phase.value}: {client.error}"
        view.append((client.name, ending, str(client.machine._desk.past.dead), *map(str, reports)))
    return view


def everybody(clients: list[Client]) -> Ids:
    return np.concatenate([client.site.ids_in(client.machine.session) for client in clients])


def without(ids: Ids, gone: int) -> Ids:
    return np.delete(ids, gone, axis=0)


def other(ids: Ids, at: int) -> Ids:
    """Another ID in the place of one."""
    changed = ids.copy()
    changed[at, 1] ^= np.uint64(1)
    return changed


BROKEN_OFF = (f"failed: {confirming.DISPUTED}", "True", str(messages.Refused(confirming.DISPUTED)))
FAILED = [(f"c{j}", *BROKEN_OFF) for j in range(4)]
GOES_ON = [(f"c{j}", "goes on", "False") for j in range(4)]


def test_an_honest_union_is_confirmed_by_all() -> None:
    clients = aligned()
    assert play(clients, lambda j: everybody(clients))[-4:] == GOES_ON
    slots = [slot for client in clients for slot in client.machine.own.tolist()]
    assert sorted(slots) == list(range(ROWS))


def test_whoever_owns_an_exchanged_id_the_server_sees_the_same() -> None:
    """The attack: one ID is another one. Once only its owner broke off, so every owner was found, 14 of 14."""
    views = []
    for at in range(ROWS):
        clients = aligned()
        views.append(play(clients, lambda j, m=clients, at=at: other(everybody(m), at)))  # type: ignore[misc]
    assert all(view == views[0] for view in views)
    assert views[0][-4:] == FAILED


def test_whoever_owns_an_omitted_id_the_server_sees_the_same() -> None:
    """It also says one row less from the beginning, so that the numbers fit."""
    views = []
    for at in range(ROWS):
        clients = aligned(count=ROWS - 1)
        views.append(play(clients, lambda j, m=clients, at=at: without(everybody(m), at)))  # type: ignore[misc]
    assert all(view == views[0] for view in views)
    assert views[0][-4:] == FAILED


def test_an_added_id_is_noticed_by_all() -> None:
    clients = aligned(count=ROWS + 1)
    extra = np.concatenate([everybody(clients), other(everybody(clients), 0)[:1]])
    assert play(clients, lambda j: extra)[-4:] == FAILED


@pytest.mark.parametrize("odd", [0, *(pytest.param(odd, marks=pytest.mark.slow) for odd in range(1, 4))])
def test_one_client_that_is_told_another_union_ends_it_for_all_whoever_owns_what(odd: int) -> None:
    views = []
    for at in range(ROWS):
        clients = aligned()
        true, lie = everybody(clients), other(everybody(clients), at)
        views.append(play(clients, lambda j, true=true, lie=lie: lie if j == odd else true))  # type: ignore[misc]
    assert all(view == views[0] for view in views)
    assert views[0][-4:] == FAILED


def test_several_owners_numbers_do_not_cancel() -> None:
    clients = aligned()
    ids = everybody(clients)
    ids[:, 1] ^= np.uint64(1)
    assert play(clients, lambda j: ids)[-4:] == FAILED


# --- what is sent when ---------------------------------------------------------------------------------------------------


def waiting(client: Client, kind: Kind) -> list[Send]:
    return [send for send in client.waiting if send.message.kind is kind]


def parcel(client: Client, kind: Kind, digest: bytes | None = None) -> Parcel:
    """A message about the union that this client was told."""
    known = next(send.message for send in client.waiting if send.message.kind is Kind.COMMITMENT)
    return Parcel(known.session, kind, known.name if digest is None else digest)


def say(receiver: Client, sender: str, about: Parcel, data: Data) -> None:
    receiver.give(Arrived(sender, about, 0, len(data), data))


def told_the_union(clients: list[Client], ids: Ids | None = None) -> None:
    for client in clients:
        show(client, everybody(clients) if ids is None else ids)


def commit(clients: Sequence[Client], receivers: Sequence[Client]) -> None:
    """The commitments of some arrive at some; they stay with their senders, to be sent again."""
    for client in clients:
        for send in waiting(client, Kind.COMMITMENT):
            for receiver in receivers:
                if receiver.name == send.to:
                    deliver(client, receiver, send)


def test_words_are_not_sent_before_everybody_has_committed_itself_and_that_is_noted() -> None:
    clients = aligned()
    told_the_union(clients)
    me = clients[0]
    commit(clients[1:3], [me])
    assert not waiting(me, Kind.CONFIRMATION), "c3 has not committed itself"
    assert not me.machine._desk.past.committed
    assert me.machine._phase.missing() == ("c3",)
    commit(clients[3:], [me])
    assert {send.to for send in waiting(me, Kind.CONFIRMATION)} == {"c1", "c2", "c3"}
    assert me.machine._desk.past.committed.encode() in me.disk["past"], "kept with the same effects, and so before"


def test_nothing_is_confirmed_before_the_union_is_known_nor_shared_before_all_have() -> None:
    clients = aligned()
    me = clients[0]
    for kind, data in ((Kind.COMMITMENT, bytes(32)), (Kind.CONFIRMATION, bytes(16)), (Kind.WANTED, b"")):
        with unchanged(me.machine), pytest.raises(OutOfTurn):
            say(me, "c1", Parcel(me.machine.session, kind, bytes(32)), data)
    told_the_union(clients)
    exchange(clients, lambda send: send.message.kind is Kind.COMMITMENT)
    exchange(clients[:3], confirms)
    assert me.phase is Phase.UNION
    assert me.machine._phase.missing() == ("c3",)
    assert not waiting(me, Kind.SHARES)
    exchange(clients, confirms)
    assert me.phase is Phase.SHARING
    assert waiting(me, Kind.SHARES)


# --- a client that conspires with the server ----------------------------------------------------------------------------


def balancing(given: Sequence[Words], rows: int) -> Words:
    """What makes the sums come out right, for a client that has seen everybody else's words."""
    total = np.zeros((confirming.FIELD.lanes, 1, 2))
    for words in given:
        confirming.LAYOUT.unpack(words, list(total), add=True)
    expected = confirming.FIELD.from_ints(np.array([[rows, 0]]))
    return confirming.LAYOUT.pack(list(confirming.FIELD.reduce(np.ascontiguousarray(expected - total))))


def words_of(client: Client) -> Words:
    """What a client says once everybody has committed itself."""
    return to_words(waiting(client, Kind.CONFIRMATION)[0].body.data)  # type: ignore[union-attr]


def test_who_speaks_last_cannot_make_the_owner_break_off_alone() -> None:
    """The attack: the server exchanges an ID, and c3 chooses its numbers when it has seen all others', so that the sums come
    out right. The owner alone broke off, 11 of 11 owners."""
    views = []
    for at in range(sum(SIZES[:3])):
        clients = aligned()
        honest, spy = clients[:3], clients[3]
        before = [len(client.told) for client in honest]
        lie = other(everybody(clients), at)
        told_the_union(clients, lie)
        assert not any(waiting(client, Kind.CONFIRMATION) for client in clients)
        commit(clients, clients)
        spoken = [words_of(client) for client in honest]
        forged = balancing(spoken, len(lie))
        about = parcel(spy, Kind.CONFIRMATION)
        recommitted = confirming.commitment(3, about.session, about.name, forged)
        for client in honest:
            with (
                unchanged(client.machine),
                pytest.raises(WrongSender, match="another way than it has committed itself"),
            ):
                say(client, "c3", about, of_words(forged).data)
            with unchanged(client.machine), pytest.raises(WrongSender, match="not the same way"):
                say(client, "c3", parcel(spy, Kind.COMMITMENT), recommitted)
        exchange(clients, confirms)
        views.append(concluded(honest, before))
    assert all(view == views[0] for view in views)
    assert views[0] == FAILED[:3]


def rebuilt(clients: list[Client], at: int) -> Client:
    """The next process of a client, told by the server what it was told before, up to the count."""
    said = agreements(clients)[at]
    again = clients[at].restarted()
    again.tell(roster(clients), said)
    return again


def test_a_restarted_client_takes_no_other_commitments_once_its_own_is_opened() -> None:
    """Else a server that makes it restart lets the spy commit itself again, to what it has seen meanwhile."""
    clients = aligned()
    lie = other(everybody(clients), 0)
    told_the_union(clients, lie)
    commit(clients, clients)
    assert waiting(clients[0], Kind.CONFIRMATION), "its own is opened"
    again = rebuilt(clients, 0)
    again.tell(opened(again, 0, ROWS))
    show(again, lie)
    assert not waiting(again, Kind.CONFIRMATION)
    commit(clients[1:3], [again])
    say(again, "c3", parcel(again, Kind.COMMITMENT), bytes(32))
    assert again.machine._desk.past.dead
    assert not waiting(again, Kind.CONFIRMATION)
    assert str(again.report(messages.Refused).reason) == confirming.DISPUTED


# --- what a single message shows ----------------------------------------------------------------------------------------


def opening(clients: list[Client], ids: Ids) -> list[list[int]]:
    """What everybody says once all have committed themselves."""
    told_the_union(clients, ids)
    commit(clients, clients)
    return [words_of(client).tolist() for client in clients]


def test_what_an_owner_says_is_masked_and_the_same_after_a_restart() -> None:
    clients, again, elsewhere = aligned(), aligned(), aligned(seed=3)
    words = opening(clients, other(everybody(clients), 0))
    assert words == opening(again, other(everybody(again), 0))
    others = opening(elsewhere, other(everybody(elsewhere), 0))
    assert all(a != b for a, b in zip(words, others, strict=True)), "masks belong to one session"
    assert len({tuple(one) for one in words}) == 4, (
        "c1 has no rows and nothing to object to, and still does not say (0, 0)"
    )


def test_masks_depend_on_the_union_that_was_told() -> None:
    one, two = aligned(), aligned()
    assert opening(one, everybody(one))[1] != opening(two, other(everybody(two), 0))[1]


def test_confirmations_that_no_honest_client_sends() -> None:
    clients = aligned()
    told_the_union(clients)
    commit(clients, clients)
    me, fair = clients[0], words_of(clients[1])
    about, promise = parcel(me, Kind.CONFIRMATION), parcel(me, Kind.COMMITMENT)
    for _ in range(2):  # its receipt may be lost
        say(me, "c1", about, of_words(fair).data)
    elsewhere = Parcel(bytes(32), Kind.CONFIRMATION, about.name)
    lies = [
        (about, of_words(fair ^ np.uint64(1)).data, WrongSender, "another way"),
        (parcel(me, Kind.CONFIRMATION, bytes(32)), of_words(fair).data, WrongSender, "another way"),
        (promise, bytes(32), WrongSender, "not the same way"),
        (elsewhere, of_words(fair).data, OutOfTurn, "another job"),
        (about, of_words(np.full(2, (1 << 63) - 1, np.uint64)).data, Malformed, "not below its prime"),
        (about, of_words(fair[:1]).data, Malformed, "2 words"),
        (promise, bytes(31), Malformed, "32 bytes"),
    ]
    for message, data, kind, text in lies:
        with unchanged(me.machine), pytest.raises(kind, match=text):
            say(me, "c1", message, data)
    for stranger in ("c0", "c9", SERVER):  # the server has no say in it
        with unchanged(me.machine), pytest.raises(WrongSender):
            say(me, stranger, about, of_words(fair).data)


# --- restarts -------------------------------------------------------------------------------------------------------------


def test_a_session_that_was_broken_off_stays_dead() -> None:
    """Else the server shows the rebuilt machine the true union, and goes on with what it has learnt."""
    clients = aligned()
    met = roster(clients)
    play(clients, lambda j: other(everybody(clients), 0))
    for client in clients:
        again = client.restarted()
        refused(again, met, JobFailed, "aborted earlier and cannot be resumed")
        assert again.phase is Phase.JOINING
        assert again.machine._desk.used, "a new job gets fresh secrets, and so another session"


def test_what_was_opened_is_not_opened_differently_to_a_rebuilt_machine() -> None:
    clients = aligned()
    told_the_union(clients)
    again = rebuilt(clients, 0)
    refused(again, opened(again, 0, ROWS - 1), WrongSender, "another opened sum than before")
    again.tell(opened(again, 0, ROWS))
    lie = opened(again, 1, 0, other(everybody(clients), 0))
    refused(again, lie, WrongSender, "another opened sum than before")
    show(again, everybody(clients))
    commitments = [waiting(client, Kind.COMMITMENT)[0].body for client in (again, clients[0])]
    assert commitments[0] == commitments[1], "the same bytes again"
    assert again.disk["past"] == clients[0].disk["past"]


def test_a_rebuilt_machine_that_had_confirmed_goes_on_without_the_others() -> None:
    """They may be done and gone, and it still gets its labels; and it tells those that ask what it told before."""
    clients = aligned()
    told_the_union(clients)
    commit(clients, clients)
    spoken = words_of(clients[3]).tolist()
    about = parcel(clients[0], Kind.WANTED)
    exchange(clients, confirms)
    assert clients[3].phase is Phase.SHARING
    again = rebuilt(clients, 3)
    again.tell(opened(again, 0, ROWS))
    show(again, everybody(clients))
    assert again.phase is Phase.SHARING
    say(again, "c0", about, b"")
    assert [send.to for send in waiting(again, Kind.CONFIRMATION)] == ["c0", "c1", "c2"], (
        "its word may not have arrived"
    )
    assert words_of(again).tolist() == spoken != []


def test_the_server_ends_the_job_with_the_words_and_no_name() -> None:
    world = World(Scene(AGREED, tuple(deal(2, SIZES))), 1)
    world.start()
    world.until(lambda: world.server.phase is Phase.UNION)
    member = world.server.job.members["c2"]
    world.server.handle(Reported("c2", member.instance, messages.Refused(confirming.DISPUTED)), world.now)
    assert str(world.server.failure) == confirming.DISPUTED


def test_a_whole_job_with_a_server_that_exchanges_an_id_ends_alike_for_all() -> None:
    """Every client says the same, whoever owned the ID; the server names nobody."""
    endings = []
    for at in (0, 16, 32, 48):
        world = World(Scene(AGREED, tuple(deal(2, SIZES))), 5)

        def tell(client: str, event: messages.Event, at: int = at) -> messages.Event:
            if isinstance(event, messages.Piece) and event.parcel.kind is Kind.OPENED and event.offset <= at:
                data = bytearray(event.data)
                if at - event.offset < len(data):
                    data[at - event.offset] ^= 1
                    return messages.Piece(event.parcel, event.offset, event.total, bytes(data))
            return event

        world.tell = tell
        world.start()
        world.until(lambda world=world: not any(process.alive for process in world.clients))  # type: ignore[misc]
        endings.append([(process.name, str(process.error)) for process in world.clients])
        assert str(world.server.failure) == confirming.DISPUTED
    assert all(ending == endings[0] for ending in endings)
    assert {text for _, text in endings[0]} == {confirming.DISPUTED}
