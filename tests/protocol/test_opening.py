"""Opening the centres, clients joined in memory: who gets to see them, and what a dishonest party cannot do."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secfc import config, events, wire
from secfc.centers import decode, large_enough, needed
from secfc.errors import JobFailed, Malformed, OutOfTurn, SecfcError, WrongSender
from secfc.field import Words
from secfc.v1 import secfc_pb2 as pb
from secfc_client.opening import Opener
from secfc_client.participant import Participant
from secfc_client.peers import Exchange
from secfc_client.policy import Policy
from secfc_client.store import Store
from secfc_server.coordinator import Phase
from tests.protocol.joined import Joined, deal, make_federation, meet, small_chunks, unchanged
from tests.protocol.test_machines import Context

SIZES = [4, 5, 0, 6, 3]
calm = settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))


class Opening:
    """A finished job of five clients, R = 5, ℓ = 2, t = 1: three must consent."""

    def __init__(self, seed: int = 1, **changes: Any) -> None:
        keys = {"segments": 2, "centers": "server", "centers_smallest": 1, "max_rounds": 3} | changes
        self.job = Joined(make_federation(5, **keys), deal(seed, SIZES), seed=seed)
        self.job.run()
        self.machines = [site.participant for site in self.job.sites.values()]
        self.server = self.job.coordinator
        assert self.server.phase is Phase.FINISHED

    def parts(self, j: int, smallest: int | None = 1) -> list[events.CentersPart]:
        """What client j says: its values above a floor, or that it does not consent (None), by way of real bytes."""
        me = self.machines[j]
        gathering = me.centers()
        if smallest is None:
            said = [gathering.refusal()]
        else:
            floor, words = gathering.consent(me.final_clusters(), smallest)
            said = [gathering.part(floor, chunk) for chunk in wire.chunks(words)]
        texts = [wire.centers_to(part).SerializeToString() for part in said]
        return [wire.centers_from(pb.CentersChunk.FromString(text)) for text in texts]

    def tell_all(self, j: int, smallest: int | None = 1) -> None:
        """Client j answers every other client, itself, and the server."""
        for part in self.parts(j, smallest):
            for machine in self.machines:
                if machine.index == j:
                    machine.centers().take(j, part)
                else:
                    machine.take_centers(f"c{j}", part)
            if self.job.federation.centers == "server":
                self.server.open_centers(f"c{j}", part)

    def means(self, smallest: int = 1) -> dict[int, list[float]]:
        labels = np.concatenate([machine.own_labels() for machine in self.machines])
        rows = np.concatenate(self.job.rows)
        sizes, rest = np.bincount(labels, minlength=3), self.rest()
        return {h: (rows[labels == h].sum(axis=0) / sizes[h] / 16.0).tolist() for h in range(3) if rest[h] >= smallest}

    def rest(self) -> list[int]:
        """Of every cluster, the rows beside those of the site that has most of them: what floors count, t being 1."""
        counts = [np.bincount(machine.own_labels(), minlength=3) for machine in self.machines]
        return (np.sum(counts, axis=0) - np.max(counts, axis=0)).tolist()


def seen(machine: Participant) -> dict[int, list[float]]:
    opened = machine.centers().opened()
    return dict(zip(opened.clusters, opened.means().tolist(), strict=True))


@calm
@given(
    seed=st.integers(0, 50),
    answers=st.lists(st.none() | st.just(1), min_size=5, max_size=5),
    order=st.permutations(range(5)),
    words=st.sampled_from([3, 1 << 17]),
)
def test_enough_consent_opens_exact_means_and_less_opens_nothing(
    seed: int, answers: list[int | None], order: list[int], words: int
) -> None:
    opening = Opening(seed)
    with small_chunks(words):
        for j in order:
            opening.tell_all(j, answers[j])
    count, above = sum(answer is not None for answer in answers), opening.means()
    for machine in opening.machines:
        assert machine.centers().settled
        if count >= 3 and above:
            assert seen(machine) == above
        elif count < 3:
            with pytest.raises(JobFailed, match=f"^centres were not opened: {count} of 3 needed clients consent$"):
                machine.centers().opened()
    if count >= 3 and above:
        assert opening.server.opened_centers() == opening.machines[0].centers().opened()


@pytest.fixture(scope="module")
def shared() -> Opening:
    """One finished job; tests that use it begin with `fresh`."""
    return Opening()


@pytest.fixture
def fresh(shared: Opening) -> Opening:
    for machine in shared.machines:
        machine._centers = None
    shared.server.centers = None
    return shared


def test_three_are_needed(fresh: Opening) -> None:
    assert needed(fresh.job.plan.code) == 3
    fresh.tell_all(0)
    fresh.tell_all(3)
    assert not fresh.machines[0].centers().enough
    assert not fresh.machines[0].centers().settled, "others may still consent"
    fresh.tell_all(1)
    assert fresh.machines[4].centers().enough
    assert not fresh.machines[4].centers().settled, "others may still be checked"
    assert seen(fresh.machines[4]) == fresh.means(), "a client that has not answered sees them too"


def test_three_refusals_decide_it(fresh: Opening) -> None:
    gathering = fresh.machines[4].centers()
    for j in (0, 1, 2):
        assert not gathering.decided
        fresh.tell_all(j, None)
    assert gathering.decided
    assert not gathering.enough
    assert not gathering.settled


def test_clients_with_other_floors_count_for_the_clusters_above_theirs() -> None:
    opening = Opening(4)
    sizes = sorted(opening.rest())
    assert 0 < sizes[0] < sizes[1]
    for j, floor in enumerate([1, 1, sizes[1], sizes[1], sizes[2] + 1]):
        opening.tell_all(j, floor)
    for machine in opening.machines:
        assert seen(machine) == opening.means(sizes[1]), "two of five give the smallest cluster, and three are needed"


def test_the_federations_floor_holds_whatever_a_client_says() -> None:
    sizes = sorted(Opening(4).rest())
    opening = Opening(4, centers_smallest=sizes[1])
    for j in range(5):
        opening.tell_all(j, 1)
    assert seen(opening.machines[0]) == opening.means(sizes[1])
    below = dataclasses.replace(opening.parts(0)[0], smallest=1)
    opening.machines[1]._centers = None
    with pytest.raises(Malformed, match=f"with fewer than {sizes[1]} rows of others are not opened"):
        opening.machines[1].take_centers("c0", below)


def colluding(rows: list[int], victim: int = 1, **changes: Any) -> tuple[Joined, list[Participant]]:
    """A finished job whose last assignment a lying server has chosen: cluster 0 is `victim` rows of client 0, and of the
    others as many as `rows` says; cluster 1 is the rest. All consent."""
    sizes = [max(count, 0) + 30 for count in (victim, *rows)]
    keys = {"segments": 1, "centers": "server", "max_rows": 1000, "k": 2} | changes
    job = Joined(make_federation(len(sizes), **keys), deal(3, sizes), seed=3)
    job.run()
    labels = np.concatenate([np.arange(m) >= count for m, count in zip(sizes, (victim, *rows), strict=True)])
    machines = [site.participant for site in job.sites.values()]
    assert job.coordinator.rounds is not None
    job.coordinator.rounds.clustering.labels = labels.astype(np.int32)
    for machine in machines:
        machine._labels = lambda version, labels=labels: labels.astype(np.int32)  # type: ignore[method-assign]
    for machine in machines:
        gathering = machine.centers()
        floor, words = gathering.consent(machine.final_clusters(), 1)
        for chunk in wire.chunks(words):
            job.coordinator.open_centers(machine.name, gathering.part(floor, chunk))
    return job, machines


def test_one_row_among_a_colluders_is_not_opened() -> None:
    """The attack: a cluster of one victim's row and 19 of a client that works with the server meets a floor of 20 rows,
    and the sum less the colluder's rows is the victim's row. Rows that one site brings must not count."""
    job, _ = colluding([19, 0], centers_smallest=20)
    assert job.coordinator.opened_centers().clusters == (1,)
    with pytest.raises(JobFailed, match="no cluster is above the floor"):
        colluding([19, 0], centers_smallest=61)[0].coordinator.opened_centers()


@pytest.mark.parametrize(
    ("rows", "privacy", "opens"),
    [
        ([40, 0, 0, 0], 1, False),  # all but one row are one site's
        ([40, 10, 0, 0], 1, True),  # beside the largest site's, 11 rows of two sites
        ([40, 9, 0, 0], 1, False),
        ([40, 40, 0, 0], 2, False),  # two may collude
        ([40, 40, 10, 0], 2, True),
        ([40, 40, 9, 0], 2, False),
        ([40, 0, 0, 0], 0, False),  # t = 0: whoever sees the sum still knows its own rows
    ],
)
def test_rows_of_the_t_largest_sites_do_not_count(rows: list[int], privacy: int, opens: bool) -> None:
    """Whichever t sites work together, 11 rows (the default floor) of others are in every sum that is opened."""
    job, _ = colluding(rows, privacy=privacy, uploads="masked" if privacy else "open")
    assert (0 in job.coordinator.opened_centers().clusters) == opens


def test_a_server_that_shows_clients_different_ends_gets_sums_to_subtract() -> None:
    """What a floor does not prevent, and docs/protocol.md says: with ℓ = 1 the value of a single client and that of a
    colluder make a sum, so the server and the colluder get one for every end that the server shows to somebody."""
    opening = Opening(segments=1, centers_smallest=2)
    plan, machines, spy = opening.job.plan, opening.machines, opening.machines[4]
    labels = np.concatenate([machine.own_labels() for machine in machines])
    large = int(np.argmax(opening.rest()))
    row = int(np.flatnonzero(labels == large)[0])  # one of c0's
    sums = []
    for j, end in ((1, labels), (3, np.where(np.arange(len(labels)) == row, (large + 1) % 3, labels))):
        given = {}
        for machine in (machines[j], spy):
            assert machine.finished is not None
            machine._versions, machine._centers = {machine.finished.version: end.astype(np.int32)}, None
            floor, words = machine.centers().consent(machine.final_clusters(), 2)
            clusters = large_enough(machine.centers()._rest, floor)
            given[machine.index] = words
        assert large in clusters, "the floor is met at both ends"
        sums.append(
            dict(zip(clusters, decode(plan, clusters, np.bincount(end, minlength=3), given), strict=True))[large]
        )
    assert np.subtract(*sums).tolist() == np.concatenate(opening.job.rows)[row].tolist()


def test_no_cluster_above_the_floor(fresh: Opening) -> None:
    for j in range(5):
        fresh.tell_all(j, 100)
    with pytest.raises(JobFailed, match="no cluster is above the floor"):
        fresh.machines[0].centers().opened()


def test_a_lie_beside_more_values_than_needed_is_refused(fresh: Opening) -> None:
    for j in (0, 1, 2, 3):
        for part in fresh.parts(j):
            words: Words = part.chunk.words.copy()
            words[0] ^= np.uint64(j == 2)
            fresh.machines[4].take_centers(f"c{j}", dataclasses.replace(part, chunk=events.Chunk(0, len(words), words)))
    with pytest.raises(Malformed, match="do not fit together; at least one of them is wrong"):
        fresh.machines[4].centers().opened()


@pytest.mark.parametrize("change", [{"session": bytes(32)}, {"digest": bytes(32)}])
def test_values_of_another_job_or_assignment(fresh: Opening, change: dict[str, bytes]) -> None:
    """Keys: what was said in one session is refused in another."""
    part = dataclasses.replace(fresh.parts(0)[0], **change)
    for take in (fresh.machines[1].take_centers, fresh.server.open_centers):
        with pytest.raises(OutOfTurn, match="belong to another job or another final assignment"):
            take("c0", part)
    assert fresh.machines[1].centers().answered == []


def test_malformed_answers_change_nothing(fresh: Opening) -> None:
    good, gathering = fresh.parts(0)[0], fresh.machines[1].centers()
    words = good.chunk.words

    def chunk(offset: int, total: int, some: Any) -> events.CentersPart:
        return dataclasses.replace(good, chunk=events.Chunk(offset, total, some))

    wrong = words.copy()
    wrong[1] = np.uint64((1 << 63) - 1)
    bad = [
        chunk(0, len(words) + 1, words),
        chunk(1, len(words), words[1:]),
        chunk(0, len(words), wrong),
        chunk(0, len(words), np.zeros(len(words) + 1, np.uint64)),
        dataclasses.replace(good, smallest=100),
        dataclasses.replace(good, smallest=0),
        dataclasses.replace(good, consents=False),
    ]
    for part in bad:
        with unchanged(gathering), pytest.raises(Malformed):
            fresh.machines[1].take_centers("c0", part)
    fresh.machines[1].take_centers("c0", chunk(0, len(words), words[:1]))
    for part in (chunk(2, len(words), words[2:]), dataclasses.replace(chunk(1, len(words), words[1:]), smallest=2)):
        with unchanged(gathering), pytest.raises(Malformed, match="words from offset 1 are due"):
            fresh.machines[1].take_centers("c0", part)
    fresh.machines[1].take_centers("c0", chunk(0, len(words), words))  # from the start again, after a broken stream
    assert gathering.consenting == [0]
    with unchanged(gathering):
        fresh.machines[1].take_centers("c0", fresh.machines[0].centers().refusal())  # the first whole answer counts


def test_only_clients_of_the_roster_answer(fresh: Opening) -> None:
    part = fresh.parts(0)[0]
    for name in ("server", "nobody", "c1"):  # c1 is the receiver itself
        with pytest.raises(WrongSender):
            fresh.machines[1].take_centers(name, part)
    with pytest.raises(WrongSender):
        fresh.server.open_centers("server", part)


def test_what_comes_after_a_whole_answer_takes_no_room_and_spoils_nothing(fresh: Opening, tmp_path: Path) -> None:
    """A stream that never ends must not fill the receiver's memory, nor what it puts on its disk."""
    receiver, store = fresh.machines[1], Store(tmp_path)
    with small_chunks(1):
        whole = [wire.centers_to(part) for part in fresh.parts(0)]
    assert len(whole) > 2

    async def endless() -> AsyncIterator[pb.CentersChunk]:
        for message in [*whole, *whole, *[whole[-1]] * 50]:
            yield message

    asyncio.run(Exchange(receiver, store, lambda: None).OpenCenters(endless(), Context("c0")))
    assert store.answers(receiver.session) == {"c0": [message.SerializeToString() for message in whole]}


def test_nobody_answers_before_the_end() -> None:
    job = Joined(make_federation(5, centers="server"), deal(1, SIZES), seed=1)
    job.until(lambda: job.coordinator.phase is Phase.ROUNDS)
    chunk = events.Chunk(0, 0, np.empty(0, np.uint64))
    part = events.CentersPart(job.sites["c0"].participant.session, bytes(32), False, 0, chunk)
    takers: list[Any] = [job.sites["c1"].participant.take_centers, job.coordinator.open_centers]
    for take in takers:
        with pytest.raises(OutOfTurn, match="not finished"):
            take("c0", part)


@pytest.mark.parametrize("audience", ["nobody", "clients"])
def test_the_server_takes_nothing_that_is_not_for_it(audience: str) -> None:
    opening = Opening(centers=audience)
    chunk = events.Chunk(0, 0, np.empty(0, np.uint64))
    part = events.CentersPart(opening.machines[0].session, bytes(32), False, 0, chunk)
    with unchanged(opening.server), pytest.raises(OutOfTurn, match="are not for the server"):
        opening.server.open_centers("c0", part)
    with pytest.raises(JobFailed, match="0 of 3 needed clients consent"):
        opening.server.opened_centers()
    if audience == "nobody":
        with pytest.raises(OutOfTurn, match="opened to nobody"):
            opening.machines[1].take_centers("c0", part)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"session": bytes(31)}, "a session must have 32 bytes"),
        ({"assignment_digest": b""}, "an assignment's digest must have 32 bytes"),
        ({"smallest": (1 << 31) + 1}, "a size floor is beyond"),
        ({"words": bytes(7)}, "whole 64-bit words"),
        ({"words": bytes(16)}, "reaches beyond its total"),
    ],
)
def test_malformed_messages(change: dict[str, Any], words: str) -> None:
    fields: dict[str, Any] = {"session": bytes(32), "assignment_digest": bytes(32), "total": 1, "words": bytes(8)}
    with pytest.raises(Malformed, match=words):
        wire.centers_from(pb.CentersChunk(**(fields | change)))


def test_values_are_not_printed(fresh: Opening) -> None:
    part = fresh.parts(0)[0]
    assert str(int(part.chunk.words[0])) not in repr(part)
    fresh.machines[1].take_centers("c0", part)
    assert "words" not in repr(fresh.machines[1].centers()._answers)
    with pytest.raises(SecfcError) as caught:
        fresh.machines[1].centers().opened()
    assert str(int(part.chunk.words[0])) not in str(caught.value)


# --- a site's own rules ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("audience", config.AUDIENCES)
@pytest.mark.parametrize("allowed", config.AUDIENCES)
def test_a_policy_can_only_be_stricter_than_the_federation(audience: str, allowed: str) -> None:
    agreed = make_federation(5, segments=2, centers=audience)
    me = meet(agreed, deal(1, SIZES))[0]
    opener = Opener(None, me, Policy(open_centers=allowed))  # type: ignore[arg-type]
    rank = config.AUDIENCES.index
    for whom in ("clients", "server"):
        assert opener._allows(whom) == (rank(whom) <= rank(audience) and rank(whom) <= rank(allowed))
    assert opener._audience() == ["c1", "c2", "c3", "c4", *(["server"] if audience == "server" else [])]


@pytest.mark.parametrize(
    ("allowed", "to_clients", "to_server"),
    [("nobody", False, False), ("clients", True, False), ("server", True, True)],
)
def test_what_a_site_says_to_whom(fresh: Opening, allowed: str, to_clients: bool, to_server: bool) -> None:
    me = fresh.machines[0]
    opener = Opener(None, me, Policy(open_centers=allowed, centers_smallest=3))  # type: ignore[arg-type]
    if opener._allows("clients"):
        opener._values = me.centers().consent(me.final_clusters(), 3)
    for whom, consents in (("clients", to_clients), ("server", to_server)):
        said = opener._answer(whom)
        assert {message.consents for message in said} == {consents}
        assert {message.smallest for message in said} == {3 if consents else 0}
        assert any(message.words for message in said) == consents
