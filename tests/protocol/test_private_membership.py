"""Private membership between machines: joined in memory, with mishaps, and with a server that lies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from secfc import events, wire
from secfc.errors import JobFailed, Malformed, OutOfTurn, WrongSender
from secfc_client.participant import Participant
from secfc_client.participant import Phase as ClientPhase
from secfc_server.coordinator import Phase
from tests.protocol.joined import (
    Joined,
    agreements,
    deal,
    introduced,
    make_federation,
    open_confirmation,
    resigned,
    settle,
    unchanged,
)

SIZES = [4, 0, 7, 3]


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 1000),
    sizes=st.lists(st.integers(0, 8), min_size=3, max_size=6).filter(lambda sizes: sum(sizes) >= 3),
    uploads=st.sampled_from(["masked", "open"]),
    seeding=st.sampled_from(["k-means++", "random", "separation"]),
    mishap=st.sampled_from([0.0, 0.15]),
)
@example(seed=837, sizes=[0, 0, 0, 3], uploads="masked", seeding="k-means++", mishap=0.15)  # a repeat in the next stage
def test_labels_are_those_of_lloyd_whatever_happens_on_the_way(
    seed: int, sizes: list[int], uploads: str, seeding: str, mishap: float
) -> None:
    agreed = make_federation(len(sizes), membership="private", uploads=uploads, seeding=seeding)
    job = Joined(agreed, deal(seed, sizes), seed=seed)
    job.run(mishap=mishap)
    job.check_result()


def test_nobody_is_told_how_many_rows_a_client_brings() -> None:
    job = Joined(make_federation(4, membership="private"), deal(1, SIZES))
    job.until(lambda: job.coordinator.phase is Phase.ROUNDS)
    assert [one.rows for one in job.coordinator.roster()] == [0, 0, 0, 0]
    assert job.coordinator.rows == sum(SIZES)
    fresh = Joined(job.federation, deal(1, SIZES))
    told = resigned(fresh.sites["c0"].introduction(), fresh.federation, rows=4)
    with pytest.raises(Malformed, match="nobody tells"):
        fresh.coordinator.join("c0", fresh.federation.digest(), bytes(16), told, fresh.now)


def messages(sizes: list[int]) -> list[tuple[str, str, int]]:
    """Who sends what of which size to whom, for one deal of the same rows: all that a network shows."""
    agreed = make_federation(len(sizes), membership="private", seeding="random")
    rows = np.concatenate(deal(3, [sum(sizes)]))
    job = Joined(agreed, np.split(rows, np.cumsum(sizes)[:-1]), seed=5)
    sent = []
    for site in job.sites.values():
        job.join(site)
        sent.append((site.name, "join", len(wire.introduction_to(site.introduction()).SerializeToString())))
    for site in job.sites.values():
        site.participant.handle(events.Roster(job.coordinator.roster()))
        job.tell_agreed(site)
    machines = [site.participant for site in job.sites.values()]
    for machine, said in zip(machines, agreements(machines), strict=True):
        machine.handle(said)
    while job.coordinator.phase is not Phase.CHECKING:
        for opens in (True, False):
            for site in job.sites.values():
                for other in job.sites.values():
                    if site.participant.confirms and other is not site:
                        job.confirm(site, other)
                        sent.append((site.name, other.name, len(site.participant.confirmation.words)))
            for site in job.sites.values():
                if site.participant.confirms and opens:
                    open_confirmation(site.participant)
        for site in job.sites.values():
            if site.participant.confirms:
                site.participant.conclude_union()
        for site in job.sites.values():
            for other in job.sites.values():
                if other is not site:
                    sent.append((site.name, other.name, share(site.participant, other.participant)))
            site.participant.keep_own()
        for site in job.sites.values():
            if site.participant.phase is ClientPhase.SHARING:
                job.hold(site)
                job.tell_held(site)
                continue
            context, words = site.participant.contribution()
            sent.append((site.name, "server", len(words)))
            job.coordinator.contribute(site.name, context, events.Chunk(0, len(words), words), job.now)
        opening = job.coordinator.take_opening()
        if opening is not None:
            known = job.coordinator.alignment.step if job.coordinator.alignment else 0
            job.coordinator.opened(opening.run(), job.now)
            assert job.coordinator.alignment is not None
            for event in job.coordinator.alignment.news(known, 1 << 20):
                for site in job.sites.values():
                    site.participant.handle(event)
    return sent


def share(owner: Participant, other: Participant) -> int:
    words = owner.outgoing(other.name)
    other.receive(owner.name, owner.session, owner.stage.id, events.Chunk(0, len(words), words))
    settle(other, owner.name)
    return len(words)


def test_sizes_numbers_and_order_of_messages_do_not_depend_on_who_owns_what() -> None:
    even, one_has_all, empty = messages([4, 4, 4]), messages([12, 0, 0]), messages([0, 5, 7])
    assert even == one_has_all == empty


# --- a server that lies ----------------------------------------------------------------------------------------------


@pytest.fixture
def machines() -> list[Participant]:
    return introduced(make_federation(4, membership="private"), deal(2, SIZES))


def exchange(machines: list[Participant]) -> None:
    for owner in machines:
        for other in machines:
            if other is not owner:
                share(owner, other)
        owner.keep_own()


def test_no_client_gives_a_partial_sum(machines: list[Participant]) -> None:
    me = machines[0]
    for owner in machines[1:-1]:
        share(owner, me)
    me.keep_own()
    assert me.missing() == ("c3",)
    with unchanged(me), pytest.raises(OutOfTurn, match="partial sum is never opened"):
        me.contribution()


def test_clients_that_were_told_different_counts_refuse_each_others_tables(machines: list[Participant]) -> None:
    """Otherwise a server could have one client put its IDs into a table that the others leave empty."""
    exchange(machines)
    for machine, count in zip(machines, [14, 14, 14, 13], strict=True):
        machine.handle(events.Opened(0, count, 0, 0, b""))
    share(machines[0], machines[1])
    for a, b in ((0, 3), (3, 0)):
        with unchanged(machines[b]), pytest.raises(OutOfTurn, match="another step"):
            share(machines[a], machines[b])


def test_clients_that_were_told_different_ids_refuse_each_others_tables(machines: list[Participant]) -> None:
    """The residual table holds a client's IDs that are not found yet: all must agree which those are."""
    exchange(machines)
    for machine in machines:
        machine.handle(events.Opened(0, 14, 0, 0, b""))
    exchange(machines)
    mine = machines[0].ids.astype("<u8").tobytes()
    other = machines[2].ids[:4].astype("<u8").tobytes()
    machines[0].handle(events.Opened(1, 10, 0, len(other), other))
    machines[1].handle(events.Opened(1, 10, 0, len(mine), mine))
    with unchanged(machines[1]), pytest.raises(OutOfTurn, match="another step"):
        share(machines[0], machines[1])


def test_a_sum_that_was_opened_is_not_opened_differently(machines: list[Participant]) -> None:
    me = machines[0]
    me.handle(events.Opened(0, 14, 0, 0, b""))
    stage = me.stage
    me.handle(events.Opened(0, 14, 0, 0, b""))
    assert me.stage is stage, "the same again, after a lost connection, changes nothing"
    with unchanged(me.stage), pytest.raises(WrongSender, match="another opened sum"):
        me.handle(events.Opened(0, 15, 0, 0, b""))


def test_what_no_honest_server_opens(machines: list[Participant]) -> None:
    me = machines[0]
    with pytest.raises(OutOfTurn, match="not due"):
        me.handle(events.Opened(1, 0, 0, 0, b""))
    with pytest.raises(JobFailed):
        me.handle(events.Opened(0, 1 << 30, 0, 0, b""))
    with pytest.raises(Malformed, match="out of order"):
        me.handle(events.Opened(0, 14, 16, 32, bytes(16)))
    with pytest.raises(Malformed, match="too long"):
        me.handle(events.Opened(0, 14, 0, 1 << 40, bytes(16)))


def test_in_public_jobs_nothing_is_opened() -> None:
    me = introduced(make_federation(4), deal(2, SIZES))[0]
    with unchanged(me), pytest.raises(OutOfTurn, match="nobody shared"):
        me.handle(events.Opened(0, 14, 0, 0, b""))
