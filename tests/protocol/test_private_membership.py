"""Private membership between machines: whole jobs with mishaps, what the network shows, and a server that lies."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secfc.agreement.federation import SERVER
from secfc.coding.blocks import Blocks
from secfc.errors import JobFailed, Malformed, OutOfTurn, StorageError, WrongSender
from secfc.net import wire
from secfc.protocol import messages
from secfc.protocol.client.inputs import Sent
from secfc.protocol.client.participant import Participant
from secfc.protocol.effects import Arrived, Send, Started, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel, Whole
from secfc.protocol.server.coordinator import Coordinator
from secfc.protocol.server.inputs import Followed, Joined, Reported
from secfc.protocol.server.news import Cursor
from tests.parties import deal, make_federation, plan_of, resigned, unchanged, verifier
from tests.protocol.bench import Bench
from tests.protocol.helpers import Client, Seen, deliver, exchange, introduced, opened, refused, seen, strangers
from tests.simulation.scene import Scene
from tests.simulation.world import World

SIZES = [4, 0, 7, 3]
PRIVATE = make_federation(4, membership="private")


@settings(max_examples=5, deadline=None)
@given(
    seed=st.integers(0, 1000),
    sizes=st.lists(st.integers(0, 8), min_size=3, max_size=6).filter(lambda sizes: sum(sizes) >= 3),
    uploads=st.sampled_from(["masked", "open"]),
    seeding=st.sampled_from(["k-means++", "random", "separation"]),
    calm=st.booleans(),
)
def test_labels_are_those_of_lloyd_whatever_happens_on_the_way(
    seed: int, sizes: list[int], uploads: str, seeding: str, calm: bool
) -> None:
    agreed = make_federation(len(sizes), membership="private", uploads=uploads, seeding=seeding)
    world = World(Scene(agreed, tuple(deal(seed, sizes))), seed, calm=calm)
    world.start()
    world.until(lambda: world.finished)
    world.check_labels()


def test_nobody_is_told_how_many_rows_a_client_brings() -> None:
    scene = Scene(PRIVATE, tuple(deal(1, SIZES)))
    world = World(scene, 1)
    world.start()
    world.until(lambda: world.server.phase is Phase.ROUNDS)
    assert [one.rows for one in world.server.job.introductions()] == [0, 0, 0, 0]
    assert world.server._phase.rows == sum(SIZES)
    fresh = strangers(PRIVATE, scene.rows)[0].site
    told = resigned(fresh.introduction(), PRIVATE, rows=4)
    server = Coordinator(PRIVATE, scene.plan, verifier(PRIVATE))
    with unchanged(server), pytest.raises(Malformed, match="no client may say"):
        server.handle(Joined("c0", messages.Join(PRIVATE.agreed(), bytes(16), told)), 0.0)


def test_a_site_without_room_for_the_shares_ends_and_keeps_nobody_waiting() -> None:
    """There is a number of rows once the last confirmation has come; its sender heard of our disk, and we went on waiting."""

    def full(*_: object) -> Blocks:
        raise StorageError("/state: no room for the shares of this job")

    job = Bench(PRIVATE, deal(1, SIZES))
    job.clients["c0"] = Participant(replace(job.clients["c0"].site, hold=full))
    job.start()
    job.until(lambda: job.clients["c0"].ended is not None)
    ended = job.clients["c0"].ended
    assert ended is not None
    assert isinstance(ended.error, StorageError)


# --- what a network shows --------------------------------------------------------------------------------------------


def traffic(sizes: list[int]) -> Seen:
    """Who sends what of which size to whom, in which order, for one deal of the same rows: all that a network shows."""
    agreed = make_federation(len(sizes), membership="private", seeding="random")
    rows = np.concatenate(deal(3, [sum(sizes)]))
    # With this seed no table has to be followed by a second one: that depends on hashes of random IDs, not on their owners.
    clients = strangers(agreed, np.split(rows, np.cumsum(sizes)[:-1]), seed=1)
    server = Coordinator(agreed, plan_of(agreed), verifier(agreed))
    server.handle(Started(), 0.0)
    sent: Seen = []
    cursors = {client.name: Cursor() for client in clients}
    for client in clients:
        join = messages.Join(agreed.agreed(), client.site.instance, client.site.introduction())
        sent.append((client.name, SERVER, "Join", len(wire.join_to(join).SerializeToString())))
        server.handle(Joined(client.name, join), 0.0)
        server.handle(Followed(client.name, client.site.instance), 0.0)
    given = dict.fromkeys(cursors, 0)
    while server.phase is not Phase.FINISHED:
        for client in clients:
            events = server.news(client.name, cursors[client.name], 0.0)
            sent += [(SERVER, client.name, type(e).__name__, len(wire.event_to(e).SerializeToString())) for e in events]
            client.tell(*events)
        sent += [one for one in exchange(clients) if one[1] != SERVER]
        for client in clients:
            for send in client.told[given[client.name] :]:
                sent.append(seen(client, send))
                hand_over(server, client, send)
            given[client.name] = len(client.told)
    assert any(kind == "UPLOAD" for _, _, kind, _ in sent)
    return sent


def hand_over(server: Coordinator, client: Client, send: Send) -> None:
    """The server is given what a client has told it, and computes what follows."""
    if isinstance(send.message, Parcel):
        body = send.body or Whole(b"")
        pieces = list(body.pieces(0)) or [(0, b"")]
        given = [Arrived(client.name, send.message, offset, body.total, data) for offset, data in pieces]
    else:
        given = [Reported(client.name, client.site.instance, send.message)]
    for one in given:
        queue = list(server.handle(one, 0.0).work)
        while queue:
            work = queue.pop(0)
            queue += server.handle(Worked(work.name, work.run()), 0.0).work  # type: ignore[union-attr]


def test_sizes_numbers_and_order_of_messages_do_not_depend_on_who_owns_what() -> None:
    even, one_has_all, empty = traffic([4, 4, 4]), traffic([12, 0, 0]), traffic([0, 5, 7])
    kinds = {kind for _, _, kind, _ in even}
    assert {"SHARES", "SUM", "COMMITMENT", "CONFIRMATION", "UPLOAD", "Held", "Join"} <= kinds
    before = [
        view[: next(i for i, one in enumerate(view) if one[2] == "UPLOAD")] for view in (even, one_has_all, empty)
    ]
    assert before[0] == before[1] == before[2]


# --- a server that lies ----------------------------------------------------------------------------------------------


@pytest.fixture
def clients() -> list[Client]:
    return introduced(PRIVATE, deal(2, SIZES))


def ids(client: Client) -> np.ndarray:
    return client.site.ids_in(client.machine.session)


def sums(client: Client) -> int:
    return len(client.parcels(Kind.SUM))


def to(clients: list[Client], sender: int, receiver: int) -> None:
    """The shares that one has for another now; those that are in their way count as taken."""
    owner, name = clients[sender], clients[receiver].name
    while not (found := [send for send in owner.waiting if send.to == name]):
        owner.give(Sent(owner.waiting.pop(0)))
    assert found[0].message.kind is Kind.SHARES
    deliver(owner, clients[receiver], found[0])


def test_no_client_gives_a_partial_sum(clients: list[Client]) -> None:
    me = clients[0]
    for owner in (1, 2):
        to(clients, owner, 0)
    assert me.machine._phase.missing() == ("c3",)
    assert sums(me) == 0, "a partial sum is never opened"
    to(clients, 3, 0)
    assert sums(me) == 1


def test_the_server_opens_no_partial_sum() -> None:
    world = World(Scene(PRIVATE, tuple(deal(2, SIZES))), 3)
    world.alter = lambda sender, send: (
        replace(send, to="c0", message=replace(send.message, session=bytes(32)))
        if sender == "c3" and isinstance(send.message, Parcel) and send.message.kind is Kind.SUM
        else send
    )
    world.start()
    with pytest.raises(AssertionError, match="never comes"):
        world.until(lambda: world.server._phase.union is not None and world.server._phase.union.step > 0, 120.0)
    assert world.server._phase.missing() == ("c3",)


def test_clients_that_were_told_different_counts_refuse_each_others_tables(clients: list[Client]) -> None:
    """Otherwise a server could have one client put its IDs into a table that the others leave empty."""
    exchange(clients)
    for client, count in zip(clients, [14, 14, 14, 13], strict=True):
        client.tell(opened(client, 0, count))
    to(clients, 0, 1)
    for a, b in ((0, 3), (3, 0)):
        with unchanged(clients[b].machine), pytest.raises(OutOfTurn, match="another step"):
            to(clients, a, b)


def test_clients_that_were_told_different_ids_refuse_each_others_tables(clients: list[Client]) -> None:
    """The residual table holds a client's IDs that are not found yet: all must agree which those are."""
    exchange(clients)
    for client in clients:
        client.tell(opened(client, 0, 14))
    exchange(clients)
    clients[0].tell(opened(clients[0], 1, 10, ids(clients[2])[:4]))
    clients[1].tell(opened(clients[1], 1, 10, ids(clients[0])))
    with unchanged(clients[1].machine), pytest.raises(OutOfTurn, match="another step"):
        to(clients, 0, 1)


def test_a_sum_that_was_opened_is_not_opened_differently(clients: list[Client]) -> None:
    me = clients[0]
    me.tell(opened(me, 0, 14))
    with unchanged(me.machine):  # the same again, after a lost connection
        me.tell(opened(me, 0, 14))
    refused(me, opened(me, 0, 15), WrongSender, "another opened sum")


def test_what_no_honest_server_opens(clients: list[Client]) -> None:
    me = clients[0]
    refused(me, opened(me, 1, 0), OutOfTurn, "not due")
    refused(me, opened(me, 0, 1 << 30), Malformed, "more rows than there can be")
    later = replace(opened(me, 0, 14), offset=16, total=32, data=bytes(16))
    refused(me, later, Malformed, "from offset 0 are due")
    refused(me, replace(opened(me, 0, 14), total=1 << 40, data=bytes(16)), Malformed, "at most")


def test_in_public_jobs_nothing_is_opened() -> None:
    me = introduced(make_federation(4), deal(2, SIZES))[0]
    refused(me, opened(me, 0, 14), OutOfTurn, "not due here")


def test_a_server_that_is_told_too_few_rows_ends_the_job() -> None:
    world = World(Scene(PRIVATE, tuple(deal(2, [1, 0, 1, 0]))), random.Random(1).randrange(100))
    world.start()
    world.until(lambda: world.server.phase is Phase.FAILED)
    assert isinstance(world.server.failure, JobFailed)
    assert str(world.server.failure) == "2 rows in all cannot make k = 3 clusters"
