"""The corners of restarts that matter most, by hand."""

from __future__ import annotations

import random

import pytest

from secfc.agreement.federation import SERVER
from secfc.agreement.policy import Policy
from secfc.privacy import masks
from secfc.protocol import messages
from secfc.protocol.effects import Send
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel
from tests.parties import deal, make_federation
from tests.simulation.carried import TRICKS
from tests.simulation.scene import Scene, relayed
from tests.simulation.world import World


@pytest.fixture
def job() -> World:
    """Four clients, one of which may be lost."""
    world = World(Scene(make_federation(4, dropouts=1), tuple(deal(7, [3, 4, 0, 5]))), 11)
    world.start()
    return world


def finish(world: World) -> None:
    world.until(lambda: world.finished)
    world.check_labels()


def forget_shares(world: World, name: str, which: int | None = None) -> None:
    """Shares that a client has kept are gone: all, or one."""
    disk = world.parties[name].disk
    keys = sorted(key for key in disk if key.startswith("shares/"))
    for key in keys if which is None else keys[which : which + 1]:
        del disk[key]


@pytest.mark.parametrize("phase", [Phase.JOINING, Phase.AGREEING, Phase.SHARING, Phase.CHECKING, Phase.ROUNDS])
def test_everybody_is_killed_at_once(job: World, phase: Phase) -> None:
    job.until(lambda: job.server.phase is phase)
    for name in job.parties:
        job.kill(name)
    for which, process in enumerate(job.clients):
        forget_shares(job, process.name, which % 3)
    job.start()
    finish(job)


def test_everybody_is_killed_at_the_end(job: World) -> None:
    job.until(lambda: job.server.phase is Phase.FINISHED and not job.parties[SERVER].pending)
    for name in job.parties:
        job.kill(name)
    job.start()
    assert job.server.phase is Phase.FINISHED
    finish(job)


def test_a_server_killed_while_shares_are_checked(job: World) -> None:
    """c0 is back first, and gives its part before the others have said what they hold."""
    job.until(lambda: job.server.phase is Phase.CHECKING and "c0" not in job.server._phase.missing())
    job.kill(SERVER)
    for name in ("c1", "c2", "c3"):
        job.walls.add(frozenset((SERVER, name)))
    job.start(SERVER)
    job.until(lambda: job.server.job.members["c0"].held is not None)
    job.until(lambda: job.now > 1060.0)
    assert job.server.phase is Phase.SHARING
    job.walls.clear()
    finish(job)


def test_a_server_killed_between_writing_a_round_down_and_going_on(job: World) -> None:
    for number in range(1, 4):
        key = f"record/{number:09d}"
        job.until(lambda key=key: key in job.parties[SERVER].disk)  # type: ignore[misc]
        job.kill(SERVER)
        job.start(SERVER)
    finish(job)
    rounds = job.server._phase.asking
    assert rounds is not None
    numbers = [record.number for record in rounds.records]
    assert numbers == list(range(1, len(numbers) + 1)), "no round is lost and none is counted twice"


def test_a_server_killed_after_every_single_thing_it_keeps(job: World) -> None:
    """Whatever was kept last, the next process goes on from there."""
    kept, starts = 0, 0
    while not job.finished:
        before = kept
        job.until(lambda before=before: job.finished or len(job.parties[SERVER].disk) > before)  # type: ignore[misc]
        kept = len(job.parties[SERVER].disk)
        if not job.finished:
            job.kill(SERVER)
            job.start(SERVER)
            starts += 1
    assert starts > 15
    job.check_labels()


@pytest.mark.parametrize("name", ["c0", "c2"])
def test_a_client_killed_after_every_single_thing_it_keeps(job: World, name: str) -> None:
    process, kept, starts = job.parties[name], 0, 0
    while not job.finished:
        before = kept
        job.until(lambda before=before: job.finished or len(process.disk) > before or process.done)  # type: ignore[misc]
        kept = len(process.disk)
        if process.alive:
            job.kill(name)
            job.start(name)
            starts += 1
        elif not job.finished:
            job.until(lambda: job.finished)
    assert starts > 6
    job.check_labels()


def test_a_client_that_lost_shares_gets_its_labels_when_the_others_are_gone(job: World) -> None:
    job.until(lambda: job.server.phase is Phase.ROUNDS)
    job.kill("c0")
    forget_shares(job, "c0")
    job.until(lambda: all(process.done for process in job.clients if process.name != "c0"))
    assert not any(process.alive for process in job.clients)
    job.start("c0")
    finish(job)
    assert not any(key.startswith("shares/") for key in job.parties["c0"].disk), (
        "its labels do not hang on shares that nobody can give it any more"
    )


def test_a_late_client_is_waited_for(job: World) -> None:
    job.kill("c3")
    job.until(lambda: job.now > 1100.0)
    assert job.server.phase in (Phase.JOINING, Phase.AGREEING)
    job.start("c3")
    finish(job)


# --- that those who watch do see -------------------------------------------------------------------------------------


def test_the_watch_over_masks_sees_a_mask_used_twice(job: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks that were not bound to the round would be found out here."""
    monkeypatch.setattr(masks.MaskContext, "bound", lambda self: (b"%r" % (self.responders,),))
    with pytest.raises(AssertionError, match="one stream for two plaintexts"):
        finish(job)


def test_the_check_of_labels_sees_an_upload_that_is_not_its_senders(job: World) -> None:
    """Without spare responders nobody can tell whose distances are wrong; the result is."""

    def alter(sender: str, send: Send) -> Send:
        if sender == "c1" and isinstance(send.message, Parcel) and send.message.kind is Kind.UPLOAD:
            words = bytes(send.body.total)  # type: ignore[union-attr]
            return Send(send.to, send.message, type(send.body)(words), send.patient)  # type: ignore[call-arg,misc]
        return send

    job.alter = alter
    with pytest.raises(AssertionError, match=r"not exact Lloyd|never comes"):
        finish(job)


def test_two_disasters_of_one_seed_tell_the_same_story() -> None:
    stories = []
    for _ in range(2):
        world = World(Scene(make_federation(4, dropouts=1), tuple(deal(7, [3, 4, 0, 5]))), 5, calm=False)
        told: list[str] = []
        world.tell = lambda client, event, told=told: (told.append(f"{client} {type(event).__name__}"), event)[1]  # type: ignore[misc]
        world.start()
        finish(world)
        stories.append((world.now, told, world.labels()))
    assert stories[0] == stories[1]
    assert any(messages.Finished.__name__ in line for line in stories[0][1])


@pytest.mark.parametrize("membership", ["public", "private"])
def test_a_site_whose_own_rule_refuses_the_job_says_so_itself(membership: str) -> None:
    """Whatever message led it there: with private membership it is another client's."""
    world = World(Scene(make_federation(4, membership=membership), tuple(deal(7, [3, 4, 2, 5]))))
    world.policies["c1"] = Policy(least_rows_in_all=90)
    world.start()
    world.until(lambda: not any(process.alive for process in world.clients))
    rule = "policy.toml: least_rows_in_all = 90, and all clients together bring 14"
    others = f"the job has failed: c1 refuses: {rule}"
    assert [str(process.error) for process in world.clients] == [others, rule, others, others]


# --- relay ---------------------------------------------------------------------------------------------------------------

FOUR = make_federation(4, dropouts=1)


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0], ids=["direct", "mixed", "relayed"])
def test_labels_are_the_same_whichever_way_messages_take(part: float) -> None:
    world = World(Scene(relayed(FOUR, part, random.Random(3)), tuple(deal(7, [3, 4, 0, 5]))), 11)
    world.start()
    finish(world)
    assert not world.carrier.noticed


@pytest.mark.parametrize("trick", TRICKS)
def test_a_relay_that_plays_one_trick_is_noticed_and_changes_nothing(trick: str) -> None:
    world = World(Scene(relayed(FOUR, 1.0, random.Random(3)), tuple(deal(7, [3, 4, 0, 5]))), 11)
    world.carrier.mischief, world.carrier.tricks = 0.1, (trick,)
    world.start()
    finish(world)
    assert world.carrier.played[trick]
    assert world.carrier.noticed


@pytest.mark.parametrize("name", ["c1", SERVER])
def test_shares_that_are_relayed_go_on_after_a_kill(name: str) -> None:
    world = World(Scene(relayed(FOUR, 1.0, random.Random(3)), tuple(deal(7, [3, 4, 0, 5]))), 11)
    world.start()
    world.until(lambda: world.server.phase is Phase.SHARING)
    world.kill(name)
    world.start(name)
    finish(world)
