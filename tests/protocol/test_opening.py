"""Opening the centres, clients joined in memory: who gets to see them, and what a dishonest party cannot do."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secfc.agreement.federation import SERVER
from secfc.agreement.job import AUDIENCES
from secfc.agreement.policy import Policy
from secfc.errors import JobFailed, Malformed, OutOfTurn, SecfcError, WrongSender
from secfc.kmeans.distances import CodedClusters
from secfc.privacy.centers import Centers, decode, large_enough, needed
from secfc.privacy.gathering import REFUSAL, Gathering
from secfc.protocol import transfer
from secfc.protocol.effects import Arrived, Send
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel, Whole, to_words
from tests.parties import deal, make_federation, unchanged
from tests.protocol.bench import Bench, is_parcel

SIZES = [4, 5, 0, 6, 3]
HEAD = len(REFUSAL)
calm = settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))


def policy(smallest: int | None) -> Policy:
    """Consents to everything with a floor, or to nothing (None)."""
    if smallest is None:
        return Policy(open_centers="nobody")
    return Policy(open_centers="server", centers_smallest=smallest)


class Opening(Bench):
    """A job of five clients, R = 5, ℓ = 2, t = 1: three must consent. `answers` are their floors, or None."""

    def __init__(self, answers: list[int | None] | None = None, seed: int = 1, **changes: Any) -> None:
        keys = {"segments": 2, "centers": "server", "centers_smallest": 1, "max_rounds": 3} | changes
        federation = make_federation(5, **keys)
        rules = dict(zip(federation.roster, map(policy, answers or [1] * 5), strict=True))
        super().__init__(federation, deal(seed, SIZES), seed=seed, policies=rules)

    def finished(self) -> Opening:
        self.finish()
        assert self.server.phase is Phase.FINISHED
        return self

    @property
    def digest(self) -> bytes:
        """Names the final assignment."""
        return self.gathering().digest

    def all_labels(self) -> np.ndarray:
        assert self.server.ending is not None
        return self.server.ending.labels

    def gathering(self, labels: np.ndarray | None = None) -> Gathering:
        """What a party gathers answers with, as it stands at the end of this job."""
        members = self.server.job.introductions()
        return Gathering(self.federation, self.plan, self.all_labels() if labels is None else labels, members)

    def values(self, j: int, smallest: int | None = 1, labels: np.ndarray | None = None) -> bytes:
        """What client j says."""
        if smallest is None:
            return REFUSAL
        coded = CodedClusters(self.clients[f"c{j}"].coded, self.federation.job.k)
        coded.assign(self.all_labels() if labels is None else labels.astype(np.int32))
        return self.gathering(labels).consent(coded, smallest)

    def means(self, smallest: int = 1) -> dict[int, list[float]]:
        labels, rows = self.all_labels(), np.concatenate(self.rows)
        sizes, rest = np.bincount(labels, minlength=3), self.rest()
        return {h: (rows[labels == h].sum(axis=0) / sizes[h] / 16.0).tolist() for h in range(3) if rest[h] >= smallest}

    def rest(self) -> list[int]:
        """Of every cluster, the rows beside those of the site that has most of them: what floors count, t being 1."""
        parts = np.split(self.all_labels(), np.cumsum([len(part) for part in self.rows])[:-1])
        counts = [np.bincount(part, minlength=3) for part in parts]
        rest: list[int] = (np.sum(counts, axis=0) - np.max(counts, axis=0)).tolist()
        return rest

    def written(self, name: str) -> str | None:
        """The file of centres that a client writes."""
        value = self.disks[name].get("centers")
        return None if value is None else value.decode()


def seen(opened: Centers) -> dict[int, list[float]]:
    return dict(zip(opened.clusters, opened.means().tolist(), strict=True))


@calm
@given(
    seed=st.integers(0, 50),
    answers=st.lists(st.none() | st.just(1), min_size=5, max_size=5),
    piece=st.sampled_from([24, 1 << 20]),
)
def test_enough_consent_opens_exact_means_and_less_opens_nothing(
    seed: int, answers: list[int | None], piece: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "PIECE_BYTES", piece)
        opening = Opening(answers, seed).finished()
    count, above, end = sum(answer is not None for answer in answers), opening.means(), opening.server.ending
    assert end is not None
    texts = {opening.written(name) for name in opening.clients}
    assert len(texts) == 1, "all see the same"
    if count >= 3 and above:
        assert seen(end.opened_centers()) == above
        assert texts == {end.opened_centers().table(["x1", "x2", "x3"])}
    elif count < 3:
        assert texts == {None}
        with pytest.raises(JobFailed, match=f"^centres were not opened: {count} of 3 needed clients consent$"):
            end.opened_centers()


@pytest.fixture(scope="module")
def shared() -> Opening:
    """One finished job."""
    return Opening().finished()


def test_three_are_needed(shared: Opening) -> None:
    assert needed(shared.plan.code) == 3
    gathering = shared.gathering()
    gathering.take(0, shared.values(0))
    gathering.take(3, shared.values(3))
    assert not gathering.enough
    assert not gathering.settled, "others may still consent"
    gathering.take(1, shared.values(1))
    assert gathering.enough
    assert not gathering.settled, "others may still be checked"
    assert seen(gathering.opened_centers()) == shared.means(), "whoever has not answered sees them too"


def test_three_refusals_decide_it(shared: Opening) -> None:
    gathering = shared.gathering()
    for j in (0, 1, 2):
        assert not gathering.decided
        gathering.take(j, REFUSAL)
    assert gathering.decided
    assert not gathering.enough
    assert not gathering.settled


def test_clients_with_other_floors_count_for_the_clusters_above_theirs() -> None:
    sizes = sorted(Opening(seed=2).finished().rest())
    assert 0 < sizes[0] < sizes[1]
    opening = Opening([1, 1, sizes[1], sizes[1], sizes[2] + 1], 2).finished()
    assert opening.server.ending is not None
    found = opening.server.ending.opened_centers()
    assert seen(found) == opening.means(sizes[1]), "two of five give the smallest cluster, and three are needed"
    assert {opening.written(name) for name in opening.clients} == {found.table(["x1", "x2", "x3"])}


def test_the_federations_floor_holds_whatever_a_client_says() -> None:
    sizes = sorted(Opening(seed=2).finished().rest())
    opening = Opening(seed=2, centers_smallest=sizes[1]).finished()
    assert opening.server.ending is not None
    assert seen(opening.server.ending.opened_centers()) == opening.means(sizes[1])
    below = b"\x01" + (1).to_bytes(8, "little") + opening.values(0)[HEAD:]
    with pytest.raises(Malformed, match=f"with fewer than {sizes[1]} rows of others are not opened"):
        opening.gathering().take(0, below)


def colluding(rows: list[int], victim: int = 1, **changes: Any) -> Centers:
    """What is opened where a lying server has chosen the last assignment: cluster 0 is `victim` rows of client 0, and of the
    others as many as `rows` says; cluster 1 is the rest. All consent."""
    sizes = [max(count, 0) + 30 for count in (victim, *rows)]
    keys = {
        "segments": 1,
        "centers": "server",
        "max_rows": 1000,
        "k": 2,
        "max_rounds": 1,
        "seeding": "random",
    } | changes
    job = Bench(make_federation(len(sizes), **keys), deal(3, sizes), seed=3)
    job.finish()
    labels = np.concatenate([np.arange(m) >= count for m, count in zip(sizes, (victim, *rows), strict=True)])
    gathering = Gathering(job.federation, job.plan, labels.astype(np.int32), job.server.job.introductions())
    for j, client in enumerate(job.clients.values()):
        coded = CodedClusters(client.coded, 2)
        coded.assign(labels.astype(np.int32))
        gathering.take(j, gathering.consent(coded, 1))
    return gathering.opened_centers()


def test_one_row_among_a_colluders_is_not_opened() -> None:
    """The attack: a cluster of one victim's row and 19 of a client that works with the server meets a floor of 20 rows,
    and the sum less the colluder's rows is the victim's row. Rows that one site brings must not count."""
    assert colluding([19, 0], centers_smallest=20).clusters == (1,)
    with pytest.raises(JobFailed, match="no cluster is above the floor"):
        colluding([19, 0], centers_smallest=61)


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
    opened = colluding(rows, privacy=privacy, uploads="masked" if privacy else "open")
    assert (0 in opened.clusters) == opens


def test_a_server_that_shows_clients_different_ends_gets_sums_to_subtract() -> None:
    """What a floor does not prevent, and docs/protocol.md says: with ℓ = 1 the value of a single client and that of a
    colluder make a sum, so the server and the colluder get one for every end that the server shows to somebody."""
    opening = Opening(segments=1, centers_smallest=2).finished()
    labels = opening.all_labels()
    large = int(np.argmax(opening.rest()))
    row = int(np.flatnonzero(labels == large)[0])  # one of c0's
    sums = []
    for j, end in ((1, labels), (3, np.where(np.arange(len(labels)) == row, (large + 1) % 3, labels))):
        rest = opening.gathering(end)._rest
        said = {index: opening.values(index, 2, end) for index in (j, 4)}
        clusters = large_enough(rest, int.from_bytes(said[j][1:HEAD], "little"))
        assert large in clusters, "the floor is met at both ends"
        given = {index: to_words(answer[HEAD:]) for index, answer in said.items()}
        found = decode(opening.plan, clusters, np.bincount(end, minlength=3), given)
        sums.append(dict(zip(clusters, found, strict=True))[large])
    assert np.subtract(*sums).tolist() == np.concatenate(opening.rows)[row].tolist()


def test_no_cluster_above_the_floor(shared: Opening) -> None:
    gathering = shared.gathering()
    for j in range(5):
        gathering.take(j, shared.values(j, 100))
    with pytest.raises(JobFailed, match="no cluster is above the floor"):
        gathering.opened_centers()


def test_a_lie_beside_more_values_than_needed_is_refused(shared: Opening) -> None:
    gathering = shared.gathering()
    for j in (0, 1, 2, 3):
        answer = bytearray(shared.values(j))
        answer[HEAD] ^= j == 2
        gathering.take(j, bytes(answer))
    with pytest.raises(Malformed, match="do not fit together; at least one of them is wrong"):
        gathering.opened_centers()


def test_malformed_answers_change_nothing(shared: Opening) -> None:
    good, gathering = shared.values(0), shared.gathering()
    bad = [
        b"",
        good[: HEAD - 1],
        b"\x02" + good[1:],
        good + bytes(8),
        good[:-8],
        good[:-3],
        good[:HEAD] + ((1 << 63) - 1).to_bytes(8, "little") + good[HEAD + 8 :],
        good[:1] + (100).to_bytes(8, "little") + good[HEAD:],
        good[:1] + (0).to_bytes(8, "little") + good[HEAD:],
        good[:1] + ((1 << 31) + 1).to_bytes(8, "little") + good[HEAD:],
        b"\x00" + good[1:],
    ]
    for answer in bad:
        with unchanged(gathering), pytest.raises(Malformed):
            gathering.take(0, answer)
    assert gathering.answered == []
    gathering.take(0, good)
    with unchanged(gathering):
        gathering.take(0, REFUSAL)  # the first whole answer counts
    assert gathering.consenting == [0]


# --- what the machines take from whom --------------------------------------------------------------------------------------


class Held(Opening):
    """A job at its end whose answers about the centres are held back."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(**changes)
        self.answers: list[tuple[str, Send]] = []
        self.start()
        self.until(lambda: self.server.phase is Phase.FINISHED and len(self.answers) == 25)

    def _transmit(self, sender: str, send: Send) -> None:
        if is_parcel(send.message, Kind.CENTERS):
            self.answers.append((sender, send))
        else:
            super()._transmit(sender, send)

    def answer(self, sender: str, to: str) -> tuple[Parcel, bytes]:
        [send] = [send for who, send in self.answers if (who, send.to) == (sender, to)]
        assert isinstance(send.body, Whole)
        return send.message, bytes(send.body.data)


@pytest.fixture
def held() -> Held:
    return Held()


def whole(sender: str, parcel: Parcel, data: bytes) -> Arrived:
    return Arrived(sender, parcel, 0, len(data), data)


@pytest.mark.parametrize("change", [{"session": bytes(32)}, {"name": bytes(32)}])
@pytest.mark.parametrize("to", ["c1", SERVER])
def test_values_of_another_job_or_assignment(held: Held, change: dict[str, bytes], to: str) -> None:
    """Keys: what was said in one session is refused in another."""
    parcel, data = held.answer("c0", to)
    with held.unmoved(to), pytest.raises(OutOfTurn):
        held.give(to, whole("c0", dataclasses.replace(parcel, **change), data))


def test_pieces_out_of_place_and_answers_too_long_change_nothing(held: Held) -> None:
    parcel, data = held.answer("c0", "c1")
    most, client = held.gathering().most, held.clients["c1"]
    held.give("c1", Arrived("c0", parcel, 0, len(data), data[:8]))
    bad = [
        Arrived("c0", parcel, 16, len(data), data[16:]),
        Arrived("c0", parcel, 8, len(data) - 8, data[8:-8]),
        Arrived("c0", parcel, 8, len(data), data[8:] + bytes(8)),
        Arrived("c0", parcel, 8, most + 8, data[8:]),
    ]
    for piece in bad:
        with held.unmoved("c1"), pytest.raises(Malformed):
            held.give("c1", piece)
    assert client.progress("c0", parcel) == 8
    held.give("c1", whole("c0", parcel, data))  # from the start again, after a broken stream
    assert held.disks["c1"]["answer/c0"] == client.session + data


@pytest.mark.parametrize(("name", "to"), [("nobody", "c1"), ("c1", "c1"), (SERVER, "c1"), (SERVER, SERVER)])
def test_only_clients_of_the_roster_answer(held: Held, name: str, to: str) -> None:
    parcel, data = held.answer("c0", to)
    with held.unmoved(to), pytest.raises(WrongSender):
        held.give(to, whole(name, parcel, data))


@pytest.mark.parametrize("to", ["c1", SERVER])
def test_what_comes_after_a_whole_answer_takes_no_room_and_spoils_nothing(held: Held, to: str) -> None:
    """A stream that never ends must not fill the receiver's memory, nor what it puts on its disk."""
    parcel, data = held.answer("c0", to)
    held.give(to, whole("c0", parcel, data))
    assert held.disks[to][f"{'answer' if to == 'c1' else 'centers'}/c0"].endswith(data)
    with held.unmoved(to):
        for _ in range(50):
            held.give(to, whole("c0", parcel, data))
            held.give(to, whole("c0", parcel, REFUSAL))


@pytest.mark.parametrize("to", ["c1", SERVER])
def test_nobody_answers_before_the_end(to: str) -> None:
    job = Opening()
    job.start()
    job.until(lambda: job.server.phase is Phase.ROUNDS)
    parcel = Parcel(job.clients["c0"].session, Kind.CENTERS, bytes(32))
    with job.unmoved(to), pytest.raises(OutOfTurn):
        job.give(to, whole("c0", parcel, REFUSAL))


@pytest.mark.parametrize("audience", ["nobody", "clients"])
def test_the_server_takes_nothing_that_is_not_for_it(audience: str) -> None:
    opening = Opening(centers=audience)
    sent: list[Send] = []

    def alter(_: str, send: Send) -> Send:
        sent.extend([send] if is_parcel(send.message, Kind.CENTERS) else [])
        return send

    opening.alter = alter
    opening.finished()
    parcel = Parcel(opening.clients["c0"].session, Kind.CENTERS, opening.digest)
    with opening.unmoved(SERVER), pytest.raises(OutOfTurn):
        opening.give(SERVER, whole("c0", parcel, REFUSAL))
    assert opening.server.ending is not None
    with pytest.raises(SecfcError, match="not for the server"):
        opening.server.ending.opened_centers()
    assert SERVER not in {send.to for send in sent}
    assert bool(sent) == (audience == "clients")


def test_values_are_not_printed(shared: Opening) -> None:
    answer, gathering = shared.values(0), shared.gathering()
    word = str(int(to_words(answer[HEAD:])[0]))
    gathering.take(0, answer)
    assert "words" not in repr(gathering._answers)
    assert word not in repr(gathering._answers)
    assert word not in repr(Send("c1", Parcel(bytes(32), Kind.CENTERS, bytes(32)), Whole(answer)))
    with pytest.raises(SecfcError) as caught:
        gathering.opened_centers()
    assert word not in str(caught.value)


# --- a site's own rules ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("audience", AUDIENCES)
@pytest.mark.parametrize("allowed", AUDIENCES)
def test_a_policy_can_only_be_stricter_than_the_federation(audience: str, allowed: str) -> None:
    """What a site says to whom: its values where federation and policy both allow it, else that it does not consent."""
    opening = Opening(centers=audience)
    opening.policies["c0"] = Policy(open_centers=allowed, centers_smallest=3)
    opening.clients["c0"] = opening.make_client("c0")
    said: dict[str, bytes] = {}

    def alter(sender: str, send: Send) -> Send:
        if is_parcel(send.message, Kind.CENTERS) and sender == "c0":
            assert isinstance(send.body, Whole)
            said[send.to] = bytes(send.body.data)
        return send

    opening.alter = alter
    opening.finished()
    rank = AUDIENCES.index
    asked = [] if audience == "nobody" else ["c1", "c2", "c3", "c4", *([SERVER] if audience == SERVER else [])]
    assert sorted(said) == sorted(asked)
    for to, answer in said.items():
        consents = rank(SERVER if to == SERVER else "clients") <= min(rank(audience), rank(allowed))
        assert answer == (opening.values(0, 3) if consents else REFUSAL)
        assert int.from_bytes(answer[1:HEAD], "little") == (3 if consents else 0)
        assert (len(answer) > HEAD) == consents
