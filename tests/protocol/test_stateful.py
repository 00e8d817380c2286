"""The machines of server and clients under everything at once: joins, drops, repeats, reorderings, lies and restarts.

Hypothesis picks what happens; `lasting` says what is kept over a restart and watches, across all of them, that

- nothing is decoded but R whole uploads of one attempt, as their senders sent them,
- no mask is used for two different uploads,
- no message of a wrong sender is taken,
- a finished job never changes,
- in the end every client has central Lloyd's labels.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import Phase as Stage
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from secfc import events, masks
from secfc.errors import OutOfTurn, WrongSender
from secfc_client.participant import Participant
from secfc_client.participant import Phase as ClientPhase
from secfc_server.coordinator import Phase
from tests.protocol.joined import BEFORE_SHARES, deal, make_federation, small_chunks, unchanged
from tests.protocol.lasting import Lasting
from tests.protocol.test_machines import SEEDINGS, check_lie, lies


def draw(seed: int, uploads: str, seeding: str) -> Lasting:
    """A small job; clients without rows and late ones among them, with and without dropouts."""
    chance = random.Random(seed)
    clients = chance.randint(3, 5)
    spare = chance.randint(0, clients - 3)
    sizes = [chance.choice([0, 1, 2, 4]) for _ in range(clients)]
    k = chance.randint(1, 3)
    sizes[chance.randrange(clients)] += max(k - sum(sizes), 0)
    agreed = make_federation(clients, k=k, uploads=uploads, seeding=seeding, dropouts=spare)
    late = [name for name in agreed.roster if chance.random() < 0.3]
    return Lasting(agreed, deal(seed, sizes, spread=chance.choice([1, 5, 128])), seed=seed, late=late)


class Machines(RuleBasedStateMachine):
    """See the module's docstring."""

    job: Lasting

    @initialize(
        seed=st.integers(0, 1 << 16), uploads=st.sampled_from(["masked", "open"]), seeding=st.sampled_from(SEEDINGS)
    )
    def begin(self, seed: int, uploads: str, seeding: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.job = draw(seed, uploads, seeding)
        self.job.keep_in(Path(self.folder.name))

    @rule(steps=st.integers(1, 120))
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

    @rule(dying=st.booleans())
    def restart_server(self, dying: bool) -> None:
        """Also between writing a round down and going on."""
        with small_chunks():
            if dying and self.job.work is not None:
                self.job.finish_work(die=True)
            else:
                self.job.restart_server()

    @rule(client=st.integers(0, 4), tear=st.booleans())
    def restart_client(self, client: int, tear: bool) -> None:
        names = self.job.federation.roster
        self.job.restart_client(names[client % len(names)], tear=tear)

    @rule(which=st.integers(0, 1 << 16), client=st.integers(0, 4))
    def lie_to_the_server(self, which: int, client: int) -> None:
        sites = list(self.job.sites.values())
        told = lies(self.job, sites[client % len(sites)])
        check_lie(self.job, told[which % len(told)])

    @rule(client=st.integers(0, 4), liar=st.integers(0, 4))
    def lie_to_a_client(self, client: int, liar: int) -> None:
        """Shares from a stranger, from itself, or of another session are refused and change nothing."""
        sites = list(self.job.sites.values())
        me, other = sites[client % len(sites)].participant, sites[liar % len(sites)].participant
        chunk = wire_words(other, me.name)
        with unchanged(me):
            for sender in ("mallory", "server", me.name):
                with pytest.raises(OutOfTurn if me.phase in BEFORE_SHARES else WrongSender):
                    me.receive(sender, me.session, other.share_set.id, chunk)
            if other is not me:
                with pytest.raises(OutOfTurn):
                    me.receive(other.name, bytes(32), other.share_set.id, chunk)
                with pytest.raises(OutOfTurn):
                    me.receive(other.name, me.session, bytes(16), chunk)

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
            self.job.journal.close()
            self.folder.cleanup()


def wire_words(owner: Participant, receiver: str) -> events.Chunk:
    words = owner.share_set.shares([owner.federation.roster.index(receiver)])[0]
    return events.Chunk(0, len(words), words)


def explore(examples: int, steps: int) -> None:
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[when for when in Stage if when is not Stage.shrink],  # a job takes too long to be shrunk
    )
    run_state_machine_as_test(Machines, settings=profile)


def test_whatever_happens_restarts_included_the_labels_are_lloyds() -> None:
    explore(20, 25)


@pytest.mark.slow
def test_much_more_of_the_same() -> None:
    explore(150, 60)


# --- the corners that matter most, by hand ------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path) -> Lasting:
    made = Lasting(make_federation(4, dropouts=1), deal(7, [3, 4, 0, 5]), seed=11)
    made.keep_in(tmp_path)
    return made


@pytest.mark.parametrize("phase", [Phase.JOINING, Phase.SHARING, Phase.ROUNDS, Phase.FINISHED])
def test_everybody_is_killed_at_once(job: Lasting, phase: Phase) -> None:
    job.until(lambda: job.coordinator.phase is phase and (phase is not Phase.JOINING or job.coordinator.rows > 0))
    job.restart_server()
    for name in job.federation.roster:
        job.restart_client(name, tear=True)
    job.run()
    job.check_result()
    assert set(job.starts) == {"server", *job.federation.roster}


def test_a_server_killed_while_shares_are_checked(job: Lasting) -> None:
    """c0 is back first, and gives its part before the others have said what they hold."""
    job.until(lambda: job.coordinator.phase is Phase.CHECKING and job.sites["c0"].part_given)
    job.restart_server()
    first = job.sites["c0"]
    with small_chunks():
        while not (first.joined and first.held_taken and job.coordinator.phase is Phase.SHARING):
            job._enabled(first)[0]()
        job.give_part(first)
    job.run()
    job.check_result()


def test_a_server_killed_between_writing_a_round_down_and_going_on(job: Lasting) -> None:
    for _ in range(3):
        job.until(lambda: job.work is not None)
        with small_chunks():
            job.finish_work(die=True)
    job.run()
    job.check_result()
    assert job.coordinator.rounds is not None
    numbers = [record.number for record in job.coordinator.rounds.records]
    assert numbers == list(range(1, len(numbers) + 1)), "no round is lost and none is counted twice"


def test_a_client_that_lost_shares_gets_its_labels_when_the_others_are_gone(job: Lasting) -> None:
    job.until(lambda: job.coordinator.phase is Phase.ROUNDS)
    late = job.sites["c0"]
    job.drop(late)
    job.notice(job.unnoticed[0])
    late.started = False
    job.disk["c0"].clear()
    others = [site for name, site in job.sites.items() if name != "c0"]
    with small_chunks():
        while not all(site.done_told for site in others):
            for site in others:
                for action in job._enabled(site):
                    action()
            if job.work is not None:
                job.finish_work()
            job.tick(1.0)
    late.started = True
    job.restart_client("c0")
    job.run()
    job.check_result()
    assert job.sites["c0"].participant.missing(), "its labels do not hang on shares that nobody can give it any more"
    assert job.sites["c0"].participant.phase is ClientPhase.FINISHED


def test_the_watch_over_masks_sees_a_mask_used_twice(job: Lasting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks that were not bound to the round would be found out here."""
    monkeypatch.setattr(masks.Context, "bound", lambda self: (b"%r" % (self.responders,),))
    with pytest.raises(AssertionError, match="one key, one context"):
        job.run()


def test_the_watch_over_uploads_sees_one_that_is_not_its_senders(job: Lasting) -> None:
    job.until(lambda: any(site.sending for site in job.sites.values()))
    key = next(iter(job.sent))
    job.sent[key] = bytes(len(job.sent[key]))
    with pytest.raises(AssertionError):
        job.run()
