"""Shares are checked before the first round, between machines: who is asked when, what is noticed, what a restart may do."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from secfc import events
from secfc.errors import JobFailed, OutOfTurn, Unavailable, WrongSender
from secfc.field import Words
from secfc_client.past import Past
from secfc_server.coordinator import Cursor, Phase
from secfc_server.service import status
from tests.protocol.joined import Joined, Site, deal, make_federation, unchanged
from tests.protocol.lasting import Lasting
from tests.unit.test_coordinator import AGAIN, Server

SIZES = [4, 3, 2, 5, 3]


def flipped(words: Words, bit: int = 0) -> Words:
    """One bit of a residue is another; in a small one, so that it stays a residue."""
    out = words.copy()
    out[0] ^= np.uint64(1 << bit)
    return out


def failure(job: Joined) -> str:
    job.run()
    assert job.coordinator.phase is Phase.FAILED
    assert job.coordinator.rounds is None, "no round was asked for"
    return str(job.coordinator.failure)


class Tampered(Joined):
    """A job in which what `owner` delivers to `receiver` is not what it should be."""

    owner, receiver = "c1", "c3"

    def deliver(self, site: Site, peer: Site) -> None:
        honest = site.participant.outgoing
        if (site.name, peer.name) == (self.owner, self.receiver):
            vars(site.participant)["outgoing"] = lambda receiver: flipped(honest(receiver))
        super().deliver(site, peer)
        vars(site.participant).pop("outgoing", None)


@pytest.mark.parametrize("uploads", ["masked", "open"])
@pytest.mark.parametrize("membership", ["public", "private"])
def test_a_dealer_off_its_polynomial_ends_the_job_before_the_first_round(membership: str, uploads: str) -> None:
    agreed = make_federation(5, membership=membership, uploads=uploads)
    job = Tampered(agreed, deal(1, SIZES), seed=3)
    if membership == "private":  # there, only the rows are tampered with
        job.owner = ""
        job.until(lambda: job.sites["c1"].participant.phase.value == "sharing")
        job.owner = "c1"
    assert failure(job).startswith("the shares held by c3 do not fit those of the others: a copy is damaged, or")


def test_a_share_that_was_added_twice_ends_the_job_and_its_holder_is_named() -> None:
    """What a race in a restarted client once did, with wrong labels and no error."""
    job = Joined(make_federation(5, membership="private"), deal(1, SIZES), seed=4)
    twice = job.sites["c2"].participant
    job.until(lambda: twice.phase.value == "sharing")
    put = twice.stage._put

    def doubled(owner: int, words: Words) -> None:
        for _ in range(2 if owner == 0 else 1):
            put(owner, words)

    twice.stage._put = doubled
    assert failure(job).startswith("the shares held by c2 do not fit")


@pytest.mark.parametrize("seed", [None, "so be it"])
def test_coins_decide_the_factors_even_if_the_start_is_agreed(seed: str | None) -> None:
    """A dealer that knew them beforehand could be off its polynomial and pass."""
    changes = {} if seed is None else {"seed": seed}
    job = Tampered(make_federation(5, **changes), deal(1, SIZES), seed=3)
    assert "the shares held by c3" in failure(job)
    assert job.coordinator.tossed is not None
    assert job.coordinator.tossed.seed != (seed or "").encode()


# --- restarts -------------------------------------------------------------------------------------------------------------


def lasting(folder: Path, seed: int = 5) -> Lasting:
    job = Lasting(make_federation(5), deal(1, SIZES), seed=seed)
    job.keep_in(folder)
    return job


def test_a_bit_that_flips_on_a_disk_is_noticed(tmp_path: Path) -> None:
    """The seal of the file would notice as well; the check does not depend on it."""
    job = lasting(tmp_path)
    job.until(lambda: job.coordinator.phase is Phase.CHECKING)
    job.disk["c4"]["c0"] = flipped(job.disk["c4"]["c0"])
    job.sites["c4"].parts.clear()
    job.restart_client("c4")
    job.until(lambda: job.comparison is not None)
    assert job.comparison is not None
    with pytest.raises(JobFailed, match="the shares held by c4 do not fit"):
        job.comparison.run()


def test_a_client_whose_shares_changed_since_they_were_checked_says_so_and_sends_nothing(tmp_path: Path) -> None:
    """It would also be a second plaintext under the same masks."""
    job = lasting(tmp_path)
    job.until(lambda: job.coordinator.phase is Phase.ROUNDS)
    job.disk["c4"]["c0"] = flipped(job.disk["c4"]["c0"])
    job.restart_client("c4")
    again = job.sites["c4"].participant
    job.until(lambda: again.verifiable)
    before = again.past
    with pytest.raises(JobFailed, match="not those that were checked in this job"):
        again.verification()
    assert again.past == before


def test_a_server_that_was_told_before_it_died_does_not_ask_again(tmp_path: Path) -> None:
    job = lasting(tmp_path)
    job.until(lambda: job.coordinator.phase is Phase.CHECKING)
    job.restart_server()
    assert not job.coordinator.verified
    job.until(lambda: job.comparison is not None)
    job.journal.verified()
    job.restart_server()
    assert job.coordinator.verified
    phases = [job.coordinator.phase]
    while job.coordinator.phase is not Phase.ROUNDS:
        job.until(lambda: job.coordinator.phase is not phases[-1])
        phases.append(job.coordinator.phase)
    assert phases == [Phase.SHARING, Phase.ROUNDS]
    job.run()
    job.check_result()


# --- the server -------------------------------------------------------------------------------------------------------------


def checking(**changes: object) -> Server:
    server = Server(**changes)  # type: ignore[arg-type]
    server.join(0, 1, 2, 3)
    server.follow(0, 1, 2, 3)
    for j in range(4):
        server.report(j, server.held(j))
    assert server.coordinator.phase is Phase.CHECKING
    return server


def test_the_server_names_whom_it_waits_for() -> None:
    server = checking()
    server.part(0)
    server.part(2)
    assert server.coordinator.missing() == ("c1", "c3")
    told = server.coordinator.news("c1", Cursor(), server.now)
    assert [type(event) for event in told] == [events.Roster, events.Agreements, events.Reveals, events.Waiting]
    assert told[-1] == events.Waiting("checking", ("c1", "c3"))
    assert [client.shares_checked for client in status(server.coordinator, 1.0).clients] == [True, False, True, False]
    server.tick(201.0)
    assert isinstance(server.coordinator.failure, Unavailable)
    text = "after 201 s these have not given their part of the check: c1, c3" + AGAIN
    assert str(server.coordinator.failure) == text


def test_a_part_is_taken_once_and_only_while_shares_are_checked() -> None:
    server = checking()
    assert server.coordinator.take_comparison() is None
    server.part(0)
    with unchanged(server.coordinator):
        server.part(0)
    with unchanged(server.coordinator), pytest.raises(OutOfTurn, match="not due"):
        server.coordinator.contribute("c1", bytes(32), events.Chunk(0, 1, np.zeros(1, np.uint64)), server.now)
    with unchanged(server.coordinator), pytest.raises(WrongSender):
        server.coordinator.contribute("c9", bytes(32), events.Chunk(0, 1, np.zeros(1, np.uint64)), server.now)
    server.check_shares()
    assert server.coordinator.take_comparison() is None
    with unchanged(server.coordinator), pytest.raises(OutOfTurn, match="no sum is due now"):
        server.part(0)


def test_a_job_of_one_client_goes_straight_to_its_rounds() -> None:
    job = Joined(make_federation(1, privacy=0, uploads="open"), deal(1, [6]))
    job.run()
    job.check_result()
    assert Phase.CHECKING not in job._seen_phases


# --- the client -------------------------------------------------------------------------------------------------------


def test_nothing_is_given_before_the_coins_are_known() -> None:
    job = Joined(make_federation(5), deal(1, SIZES), seed=5)
    job.until(lambda: job.coordinator.phase is Phase.CHECKING)
    me = job.sites["c0"].participant
    fresh = dataclasses.replace(me.past, verified="")
    assert not me.verifiable
    with unchanged(me), pytest.raises(OutOfTurn, match="once all are here and everybody's coin is known"):
        me.verification()
    job.until(lambda: me.verifiable)
    me.verification()
    assert me.past == dataclasses.replace(fresh, verified=me.past.verified)
    assert Past.restored(me.past.kept()) == me.past
