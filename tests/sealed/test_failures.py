"""What must happen when something fails in a sealed round (docs/sealed.md, Section 7): one test per rule, real machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from secfc.agreement.federation import SERVER
from secfc.coding.sharing import CodedRows
from secfc.errors import JobFailed, Refused, SecfcError, Unavailable
from secfc.kmeans.lloyd import Step
from secfc.privacy.sealed.comparer import Comparer
from secfc.privacy.sealed.messages import Kind as Said
from secfc.protocol import messages, parcels
from secfc.protocol.effects import Arrived, Send, Work
from secfc.protocol.messages import Phase, RoundRequest
from secfc.protocol.parcels import Kind, Parcel, Whole
from secfc.protocol.rounds import sealing
from secfc.protocol.rounds.kinds import Holding
from secfc.protocol.rounds.sealed_client import MOST_OPENINGS, SealedClient
from secfc.protocol.rounds.sealed_server import SealedServer
from secfc.protocol.rounds.sealing import CHECK, SEED, Detail
from secfc.protocol.server.job import Deadlines
from tests.parties import deal, make_federation, plan_of
from tests.simulation.scene import Scene
from tests.simulation.world import Process, World

HEAD = len(parcels.attempt_name(0, 0))


class Watched:
    """A job of five clients, three of which respond and two of those compare; and every request that was told."""

    def __init__(self, seed: int = 3, *, lost: float = Deadlines.lost, **settings: Any) -> None:
        wishes = {"uploads": "sealed", "seeding": "random", "dropouts": 2} | settings
        clients = 3 + int(wishes["dropouts"])  # type: ignore[call-overload]
        scene = Scene(make_federation(clients, **wishes), tuple(deal(seed, [10] * clients)))
        self.world = World(scene, seed, deadlines=Deadlines(lost=lost))
        self.world.tell, self.world.alter = self._tell, self._alter
        self.told: dict[tuple[int, int], RoundRequest] = {}
        self.hear: Callable[[str, messages.Event], messages.Event] = lambda _, event: event
        self.say: Callable[[str, Send], Send] = lambda _, send: send
        self.world.start()

    def _tell(self, client: str, event: messages.Event) -> messages.Event:
        if isinstance(event, RoundRequest) and not event.past:
            self.told[event.number, event.attempt] = event
        return self.hear(client, event)

    def _alter(self, sender: str, send: Send) -> Send:
        if sender != SERVER and isinstance(send.message, Parcel) and send.message.kind is Kind.STEP:
            self._check_noted(sender, send.message)
        return self.say(sender, send)

    def _check_noted(self, sender: str, parcel: Parcel) -> None:
        """An epoch's number is on a member's disk before anything of the epoch leaves it."""
        detail = self.detail(parcels.attempt_of(parcel.name))
        if sender not in self.names(detail.committee):  # uploads for further questions
            return
        noted = self.world.parties[sender].disk["noted"].split()[1]
        assert int(noted) >= detail.epoch

    def detail(self, name: tuple[int, int]) -> Detail:
        return Detail.from_bytes(self.told[name].detail)

    def names(self, clients: Any) -> list[str]:
        return [self.world.scene.federation.roster[j] for j in clients]

    def asked(self, number: int) -> tuple[int, int]:
        """Wait until a request has been told; its latest attempt."""
        self.world.until(lambda: any(name[0] == number for name in self.told))
        return max(name for name in self.told if name[0] == number)

    def agreed(self, number: int) -> tuple[int, int]:
        """The same, once the committee's key is known to be one, and nobody of it waits for its disk."""
        name = self.asked(number)
        self.world.until(lambda: self.epoch is not None and self.epoch.agreed)
        return name

    @property
    def epoch(self) -> Any:
        rounds = self.world.server._phase.asking
        return None if rounds is None else rounds._half._halves[0]._epoch  # type: ignore[attr-defined]

    def finish(self) -> None:
        self.world.until(lambda: self.world.finished)
        self.world.check_labels()

    def epochs(self) -> list[int]:
        return [self.detail(name).epoch for name in sorted(self.told)]


def is_step(send: Send, what: bytes) -> bool:
    parcel = send.message
    return isinstance(parcel, Parcel) and parcel.kind is Kind.STEP and parcel.name[HEAD : HEAD + len(what)] == what


def columns_of(request: RoundRequest) -> set[int]:
    return set(request.columns)


# --- the committee's key -----------------------------------------------------------------------------------------------


def test_members_that_disagree_on_the_key_begin_another_epoch() -> None:
    job = Watched()

    def say(sender: str, send: Send) -> Send:
        first = isinstance(send.message, Parcel) and parcels.attempt_of(send.message.name) == (1, 1)
        if sender == job.names(job.detail((1, 1)).committee)[0] and first and is_step(send, CHECK):
            return replace(send, body=Whole(bytes(32)))
        return send

    job.say = lambda sender, send: say(sender, send) if (1, 1) in job.told else send
    job.finish()
    assert sorted(set(job.epochs())) == [1, 2], "one more epoch, and no more than one"


def test_members_that_never_agree_end_the_job_and_are_named() -> None:
    job = Watched()
    job.say = lambda sender, send: (
        replace(send, body=Whole(sender.encode().ljust(32))) if is_step(send, CHECK) else send
    )
    job.world.until(lambda: job.world.server.phase is Phase.FAILED)
    failure = job.world.server.failure
    assert isinstance(failure, JobFailed)
    last = job.names(job.detail(max(job.told)).committee)
    assert all(name in str(failure) for name in last)
    assert "do not agree on their key, 5 times in a row" in str(failure)


# --- who is lost -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 3])
def test_a_lost_responder_is_the_next_attempt_in_the_same_epoch(number: int) -> None:
    job = Watched()
    first = job.asked(number)
    [lost] = set(job.told[first].responders) - set(job.detail(first).committee)
    job.world.kill(job.names([lost])[0])
    job.world.until(lambda: job.asked(number) > first)
    second = job.asked(number)
    assert lost not in job.told[second].responders
    assert job.detail(second).epoch == job.detail(first).epoch
    assert job.detail(second).committee == job.detail(first).committee
    assert job.told[second].columns == job.told[first].columns, "kept columns stay"
    job.world.start()
    job.finish()


@pytest.mark.parametrize("place", [0, 1])
def test_a_lost_member_is_a_new_epoch_of_live_clients_with_all_columns_again(place: int) -> None:
    job = Watched(k=3)
    first = job.agreed(3)
    lost = job.detail(first).committee[place]
    job.world.kill(job.names([lost])[0])
    job.world.until(lambda: job.asked(3) > first)
    second = job.asked(3)
    assert lost not in job.told[second].responders
    assert job.detail(second).epoch == job.detail(first).epoch + 1
    assert columns_of(job.told[second]) == {0, 1, 2}
    job.world.start()
    job.finish()


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("dropouts", [0, 2])
def test_a_restarted_member_is_a_new_epoch(place: int, dropouts: int) -> None:
    job = Watched(dropouts=dropouts)
    first = job.agreed(3)
    name = job.names(job.detail(first).committee)[place]
    job.world.kill(name)
    job.world.start(name)
    job.world.until(lambda: job.asked(3) > first)
    assert job.detail(job.asked(3)).epoch == job.detail(first).epoch + 1
    job.finish()


def test_a_member_that_restarts_while_the_server_computes_is_a_new_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else is asked while something is computed; afterwards the attempt is void, long before its deadline."""
    job, work = Watched(dropouts=0), World._work
    slow: list[str] = []

    def slowly(self: World, process: Process, life: int, one: Work) -> None:
        if process.name == SERVER and one.name[0] == "round" and one.name[1] == 3 and not slow:
            slow.append("at work")
            self.after(4.0, partial(work, self, process, life, one))
        else:
            work(self, process, life, one)

    monkeypatch.setattr(World, "_work", slowly)
    job.world.until(lambda: bool(slow))
    began, first = job.world.now, job.asked(3)
    name = job.names(job.detail(first).committee)[3 % 2]  # the last member: it has yet to be dealt something
    job.world.kill(name)
    job.world.start(name)
    job.world.until(lambda: job.asked(3) > first)
    assert job.world.now - began < 60, "long before the deadline of a round"
    assert job.detail(job.asked(3)).epoch == job.detail(first).epoch + 1
    job.finish()


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("asked", [0, 1, 2])
def test_a_member_lost_while_a_new_epoch_repeats_the_seeds(asked: int, place: int) -> None:
    """The new epoch folds the seeds chosen so far once more, one question each; lost halfway, another one begins anew."""
    job = Watched(seeding="k-means++", k=4)
    first = job.agreed(3)
    job.world.kill(job.names(job.detail(first).committee)[0])
    job.world.until(lambda: job.asked(3) > first)
    second = job.asked(3)
    assert [one["seed"] for one in job.detail(second).asked] == [0, 1, 2]

    def exchange() -> Any:
        attempt = job.world.server.attempt
        return attempt.exchange._exchanges[0] if attempt is not None and attempt.name == second else None

    job.world.until(lambda: exchange() is not None and exchange()._place == asked)
    job.world.kill(job.names(job.detail(second).committee)[place])
    job.world.until(lambda: job.asked(3) > second)
    third = job.asked(3)
    assert job.detail(third).epoch == job.detail(second).epoch + 1
    assert [one["seed"] for one in job.detail(third).asked] == [0, 1, 2]
    job.world.start()
    job.finish()


def test_a_restarted_server_begins_a_new_epoch_above_the_last_with_all_columns_again() -> None:
    job = Watched(k=3)
    first = job.agreed(3)
    job.world.kill(SERVER)
    job.world.start(SERVER)
    job.world.until(lambda: job.asked(3) > first)
    second = job.asked(3)
    assert job.detail(second).epoch > job.detail(first).epoch
    assert second[1] > 1 << 16, "attempts are numbered in a range of their own"
    assert columns_of(job.told[second]) == {0, 1, 2}
    job.finish()


@pytest.mark.parametrize("number", [1, 3])
def test_a_member_that_freezes_is_replaced(number: int) -> None:
    job = Watched()
    first = job.asked(number)
    frozen = job.names(job.detail(first).committee)[1]
    job.world.parties[frozen].frozen_until = job.world.now + 5000.0
    job.world.until(lambda: job.asked(number) > first, seconds=120.0)
    second = job.asked(number)
    assert job.world.scene.federation.roster.index(frozen) not in job.detail(second).committee
    assert job.detail(second).epoch == job.detail(first).epoch + 1
    job.world.until(lambda: job.world.server.phase is Phase.FINISHED, seconds=600.0)
    job.finish()


def test_members_that_cannot_reach_each_other_give_way_to_others() -> None:
    """Even if nobody may be lost: those two can respond, but not agree on a key."""
    job = Watched(dropouts=0)
    roster = job.world.scene.federation.roster
    job.world.until(lambda: job.world.server.phase is Phase.CHECKING)
    job.world.walls.add(frozenset(roster[:2]))
    job.finish()
    committees = [job.detail(name).committee for name in sorted(job.told)]
    assert committees[0] == (0, 1), "the test begins with those who cannot reach each other"
    assert committees[-1] != (0, 1)


# --- too few -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [1, 2])
def test_fewer_live_clients_than_needed_are_waited_for_and_named(left: int) -> None:
    """Fewer than R, and even fewer than t+1."""
    job = Watched()
    job.agreed(3)
    roster = job.world.scene.federation.roster
    for name in roster[left:]:
        job.world.kill(name)
    job.world.until(lambda: job.world.server.phase is Phase.FAILED, seconds=900.0)
    failure = job.world.server.failure
    assert isinstance(failure, Unavailable), "started again, the job goes on"
    assert all(name in str(failure).partition("missing: ")[2] for name in roster[left:])
    for name in job.world.parties:
        job.world.kill(name)
    job.world.start()
    job.finish()


# --- the same name, the same bytes -------------------------------------------------------------------------------------


def cut_when(job: Watched, condition: Callable[[str, messages.Event], bool]) -> list[str]:
    """Cut a client's connection once, when it has been told something and has taken it; returns whose it was."""
    cut: list[str] = []

    def hear(client: str, event: messages.Event) -> messages.Event:
        if not cut and condition(client, event):
            cut.append(client)
            stream = job.world._streams[client]
            job.world.after(8.0, lambda: job.world._cut(stream))
        return event

    job.hear = hear
    return cut


def dealt(event: messages.Event, *kinds: Said) -> bool:
    """Whether the server deals something of these kinds."""
    if not isinstance(event, messages.Piece) or event.parcel.kind is not Kind.STEP or event.offset:
        return False
    name = event.parcel.name[HEAD:]
    return name == SEED if not kinds else name != SEED and sealing.message_of(name, b"")[1].kind in kinds


def slowed(job: Watched, seconds: float) -> None:
    """Members' answers take so long, so that an attempt is still under way when a connection is back."""
    world, transmit = job.world, job.world._transmit

    def later(sender: str, life: int, send: Send) -> None:
        steps = isinstance(send.message, Parcel) and send.message.kind is Kind.STEP and send.to == SERVER
        if steps and not is_step(send, CHECK):
            world.after(seconds, partial(transmit, sender, life, send))
        else:
            transmit(sender, life, send)

    world._transmit = later  # type: ignore[method-assign]


def test_after_a_lost_connection_the_same_bytes_come_again() -> None:
    """To a member and from it, and its answers count once."""
    job = Watched(dropouts=0, lost=60.0)
    slowed(job, 25.0)
    cut = cut_when(job, lambda _, event: dealt(event, Said.DIGITS))
    told: dict[tuple[Any, ...], bytes] = {}
    again: list[str] = []
    hear = job.hear

    def recorded(client: str, event: messages.Event) -> messages.Event:
        if isinstance(event, messages.Piece) and event.parcel.kind is Kind.STEP:
            name = (client, event.parcel, event.offset)
            again.extend([client] if name in told else [])
            assert told.setdefault(name, bytes(event.data)) == bytes(event.data)
        return hear(client, event)

    def said(sender: str, send: Send) -> Send:
        if isinstance(send.message, Parcel) and send.message.kind in (Kind.UPLOAD, Kind.STEP):
            assert isinstance(send.body, Whole)
            name = (sender, send.to, send.message)
            assert told.setdefault(name, bytes(send.body.data)) == bytes(send.body.data)
        return send

    job.hear, job.say = recorded, said
    job.finish()
    assert cut
    assert cut[0] in again
    assert set(job.epochs()) == {1}, "a connection is not a member"


@pytest.mark.parametrize("kinds", [(), (Said.DIGITS,), (Said.BITS,), (Said.TOLD,)])
def test_a_server_that_deals_other_data_under_one_name_is_refused(kinds: tuple[Said, ...]) -> None:
    """It could learn the difference of two plaintexts under one stream. The member refuses, and the job ends."""
    job = Watched(dropouts=0, lost=60.0)
    slowed(job, 25.0)
    cut = cut_when(job, lambda _, event: dealt(event, *kinds))
    seen: set[tuple[Any, ...]] = set()
    hear = job.hear

    def lying(client: str, event: messages.Event) -> messages.Event:
        event = hear(client, event)
        if not dealt(event, *kinds):
            return event
        assert isinstance(event, messages.Piece)
        name = (client, event.parcel)
        lie = name in seen and client in cut
        seen.add(name)
        return replace(event, data=bytes([bytes(event.data)[0] ^ 1]) + bytes(event.data)[1:]) if lie else event

    job.hear = lying
    job.world.until(lambda: job.world.server.phase is Phase.FAILED, seconds=600.0)
    assert cut
    failure = job.world.server.failure
    assert isinstance(failure, JobFailed)
    assert f"{cut[0]} refuses: the server deals other" in str(failure)
    job.world.until(lambda: job.world.parties[cut[0]].error is not None)
    assert isinstance(job.world.parties[cut[0]].error, Refused)


def test_a_step_that_was_never_asked_for_is_no_honest_servers() -> None:
    job = Watched()

    def hear(client: str, event: messages.Event) -> messages.Event:
        if dealt(event, Said.DIGITS):
            assert isinstance(event, messages.Piece)
            number, attempt = parcels.attempt_of(event.parcel.name)
            name = parcels.attempt_name(number, attempt + 1) + event.parcel.name[HEAD:]
            return replace(event, parcel=replace(event.parcel, name=name))
        return event

    job.hear = hear
    job.world.until(lambda: any(process.error is not None for process in job.world.clients))
    [error] = [process.error for process in job.world.clients if process.error is not None]
    assert "not due here" in str(error)


# --- epochs on disk ----------------------------------------------------------------------------------------------------


def test_a_member_refuses_an_epoch_that_is_not_above_its_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that forgets to begin another epoch hears nothing from a member whose keys are gone."""
    monkeypatch.setattr(SealedServer, "lost", lambda *_: False)
    job = Watched(dropouts=0)
    first = job.agreed(3)
    name = job.names(job.detail(first).committee)[1]
    job.world.kill(name)
    said: list[Send] = []
    job.say = lambda sender, send: (said.append(send) if sender == name else None, send)[1]  # type: ignore[func-returns-value]
    job.world.start(name)
    job.world.until(lambda: job.world.server.phase is Phase.FAILED, seconds=900.0)
    assert f"from: {name}" in str(job.world.server.failure)
    kinds = [send.message.kind for send in said if isinstance(send.message, Parcel)]
    assert Kind.STEP not in kinds
    assert Kind.UPLOAD not in kinds


@pytest.mark.parametrize("place", [0, 1])
def test_no_step_leaves_before_what_it_gives_away_is_on_disk(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long one member counts: the world checks every message against the sender's disk (`World._check_given`)."""
    work, slow = World._work, []

    def slowly(self: World, process: Process, life: int, one: Work) -> None:
        if one.name[0] == "count" and process.name == f"c{place}":
            slow.append(process.name)
            self.after(4.0, partial(work, self, process, life, one))
        else:
            work(self, process, life, one)

    monkeypatch.setattr(World, "_work", slowly)
    job = Watched()
    job.finish()
    assert slow


def test_a_server_tells_the_seed_again_in_every_attempt_of_an_epoch() -> None:
    """A member that was cut off may not have got it, though all members have one key."""
    job = Watched()
    job.agreed(2)
    rounds = job.world.server._phase.asking
    assert rounds is not None
    half = rounds._half._halves[0]
    assert isinstance(half, SealedServer)
    responders = (0, 1, 2)
    attempts = [half.ask(rounds.runs.all[0].question, responders, 0, number, responders) for number in (70, 71)]
    for attempt in attempts:
        for member in half.committee:
            assert [one.name for one in attempt.told(member)] == [SEED]
    assert len({attempt.detail for attempt in attempts}) == 1


def test_a_round_without_a_comparison_leaves_members_what_the_next_needs() -> None:
    """With one cluster there is nothing to compare: the server has its answer before a member's seed is there."""
    job = Watched(k=1, dropouts=0)
    held: list[Callable[[], None]] = []
    tell = World._tell

    def later(self: World, stream: Any, event: messages.Event) -> None:
        late = isinstance(event, messages.Piece) and dealt(event) and parcels.attempt_of(event.parcel.name)[0] == 1
        if late:
            held.append(lambda: None)
        else:
            tell(self, stream, event)

    job.world._tell = partial(later, job.world)  # type: ignore[method-assign]
    job.finish()
    assert held
    steps = list(job.world.finished_requests.values())
    assert steps[-1] == Step.MEASURE.value


def test_every_purpose_of_a_stream_is_watched() -> None:
    """The registry sees all streams of sealed rounds (docs/sealed.md, Section 2), and none covers two plaintexts."""
    purposes: set[str] = set()
    for settings in ({"seeding": "k-means++"}, {"k": 10}):
        job = Watched(**settings)
        job.finish()
        purposes |= job.world.registry.purposes
    own = {
        "dir",
        "turn",
        "factor",
        "zero",
        "count-factor",
        "count-zero",
        "select-pad",
        "select-zero",
        "blur",
        "group-turn",
    }
    assert purposes == own | {"digits", "bits", "select"}


def test_the_watch_over_streams_sees_one_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that were bound to the epoch alone would be found out here."""
    from secfc.privacy.sealed.context import Context

    monkeypatch.setattr(Context, "digest", property(lambda self: b"%d" % self.epoch))
    job = Watched()
    with pytest.raises(AssertionError, match="one stream for two plaintexts"):
        job.finish()


# --- the inertia -------------------------------------------------------------------------------------------------------


class Blurs:
    """Every blur that members draw, by epoch."""

    def __init__(self, job: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drawn: dict[int, set[int]] = {}
        self.attempts: set[tuple[int, int]] = set()
        blur = Comparer.blur

        def noted(side: Comparer, bits: int) -> int:
            found = blur(side, bits)
            name = max(job.told)
            self.attempts.add(name)
            self.drawn.setdefault(job.detail(name).epoch, set()).add(found)
            return found

        monkeypatch.setattr(Comparer, "blur", noted)


def opening(job: Watched) -> tuple[int, int] | None:
    """The latest attempt at the inertia."""
    found = [name for name in job.told if job.detail(name).opens_inertia]
    return max(found, default=None)


def test_all_attempts_at_the_inertia_in_an_epoch_show_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A responder that is lost is another attempt with other masks; a member that is lost is another epoch, and blur."""
    job = Watched(dropouts=3, max_rounds=1)  # so that the inertia needs columns of its own
    blurs = Blurs(job, monkeypatch)
    slowed(job, 25.0)
    for lost in ("responder", "member"):
        before = opening(job)
        job.world.until(lambda before=before: opening(job) not in (before, None) and opening(job) in blurs.attempts)  # type: ignore[misc]
        name = max(blurs.attempts)
        committee = job.detail(name).committee
        client = min(set(job.told[name].responders) - set(committee)) if lost == "responder" else committee[0]
        job.world.kill(job.names([client])[0])
    job.world.until(lambda: job.world.server.phase is Phase.FINISHED)
    job.world.start()
    job.finish()
    assert len(blurs.attempts) == 3
    assert len(blurs.drawn) == 2
    assert all(len(some) == 1 for some in blurs.drawn.values())
    assert len(set.union(*blurs.drawn.values())) == 2


@pytest.mark.parametrize("place", [0, 2])
def test_a_client_opens_the_inertia_in_so_many_epochs_and_no_more(place: int) -> None:
    """Whether it is a member (the first) or not, and however often it is restarted meanwhile."""
    plan = plan_of(make_federation(3, uploads="sealed", seeding="random"))
    coded = CodedRows(plan.field, 9, plan.length)
    request = RoundRequest(5, 1, (0, 1, 2), (), b"", 9.0)
    noted = b""

    def note(epoch: int) -> bytes:
        half = SealedClient(Holding(plan, place, b"session", coded, {}, noted))
        return half.note(replace(request, detail=Detail(epoch, (0, 1), ({"inertia": True},)).to_bytes()))

    for epoch in range(100, 100 + MOST_OPENINGS):
        noted = note(epoch)
        assert note(epoch) == noted, "the same epoch counts once"
    with pytest.raises(Refused, match="in 16 epochs"):
        note(500)


def test_a_members_last_words_are_taken_though_the_answer_needed_none() -> None:
    """What one member says may come after another one's message has settled the request: no reason to refuse, or to warn.
    Uploads are another thing: an answer needs all of them."""
    job = Watched()
    seen: list[Parcel] = []

    def listen(_: str, send: Send) -> Send:
        if isinstance(send.message, Parcel) and send.message.kind is Kind.STEP:
            seen.append(send.message)
        return send

    job.say = listen
    job.world.until(lambda: 2 in job.world.finished_requests)
    name = max(name for name in job.told if name[0] == 2)
    refused: dict[Kind, SecfcError | None] = {}
    for kind in (Kind.STEP, Kind.UPLOAD):
        parcel = Parcel(
            seen[-1].session, kind, parcels.attempt_name(*name) + (b"last words" if kind is Kind.STEP else b"")
        )
        member = job.names(job.detail(name).committee)[0]
        job.world.give(SERVER, Arrived(member, parcel, 0, 4, b"word"), partial(refused.__setitem__, kind))
    job.finish()
    assert refused[Kind.STEP] is None
    assert "is over" in str(refused[Kind.UPLOAD])
