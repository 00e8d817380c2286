"""Who may compare is a site's own rule (`committee` in policy.toml): the server chooses, and cannot overrule it."""

from __future__ import annotations

import pytest

from secfc.agreement.policy import Policy
from secfc.errors import Malformed
from secfc.protocol.messages import Phase
from secfc.protocol.server.job import Deadlines, ServerJob
from secfc_server.service import status
from tests.simulation.scene import Scene, deal, make_federation
from tests.simulation.world import World


def job(**committees: tuple[str, ...]) -> World:
    """Four clients, t = 1; whose policies name who may be on the committee."""
    world = World(Scene(make_federation(4, uploads="sealed"), tuple(deal(3, [5, 4, 6, 5]))), 5)
    world.policies.update({name: Policy(committee=names) for name, names in committees.items()})
    world.start()
    return world


@pytest.mark.parametrize("site", ["c0", "c3"])
def test_a_committee_that_a_site_does_not_allow_ends_the_job(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a server does not heed what sites accept. Whether the site itself would be on it or not; the server is told which
    rule it was. A site that is asked has given nothing; one that is not asked may be heard too late for the first request."""
    monkeypatch.setattr(ServerJob, "accepted", property(lambda job: job.names))
    world = job(**{site: ("c2", "c3")})
    world.until(lambda: world.server.phase is Phase.FAILED)
    rule = "policy.toml: committee = c2, c3, but c0, c1 would compare"
    assert str(world.server.failure) == f"{site} refuses: {rule}"
    if site == "c0":
        assert not world.server._phase.asking.records


@pytest.mark.parametrize(
    ("rules", "members"),
    [
        ({"c0": ("c0", "c1"), "c2": ("c0", "c1", "c2"), "c3": ()}, ("c0", "c1")),
        ({"c0": ("c2", "c3")}, ("c2", "c3")),
        ({"c3": ("c0", "c2", "c3"), "c1": ("c1", "c2", "c3")}, ("c2", "c3")),
    ],
)
def test_a_committee_that_all_sites_allow_compares(rules: dict[str, tuple[str, ...]], members: tuple[str, ...]) -> None:
    """The server knows whom each site accepts, and chooses accordingly."""
    world = job(**rules)
    world.until(lambda: world.finished)
    world.check_labels()
    assert world.server.snapshot(world.now).outcome.committee == members
    told = status(world.server.snapshot(world.now), 0.0)
    assert tuple(told.committee) == members
    assert (told.directions, told.of_directions) == (0, world.scene.federation.job.features)
    assert told.assignments == world.server.snapshot(world.now).outcome.given.assignments > 0


def test_lists_without_a_common_committee_end_the_job_while_joining() -> None:
    """Whoever comes last is refused, with one line that names all lists; nobody has shared anything."""
    world = job(c0=("c0", "c1"), c1=("c1", "c2"), c3=("c0", "c1", "c2"))
    world.until(lambda: any(process.error is not None for process in world.clients))
    [error] = [str(process.error) for process in world.clients if process.error is not None]
    assert error.startswith("fewer than 2 clients are accepted on the committee by every site: c0 accepts c0, c1; ")
    assert "; c1 accepts c1, c2; " in error
    assert "agree on committee in policy.toml" in error
    assert world.server.phase is Phase.JOINING


def test_only_clients_can_be_accepted() -> None:
    world = World(Scene(make_federation(4, uploads="sealed"), tuple(deal(3, [5, 4, 6, 5]))), 5)
    world.start()
    world.until(lambda: world.server.job.members["c0"].introduction is not None)
    with pytest.raises(Malformed, match="not a client of the federation"):
        world.server.job.accepting("c0", ("c1", "c2", "mallory"))
    assert world.server.job.accepted == ("c0", "c1", "c2", "c3")


def test_members_that_all_accept_are_waited_for_and_named() -> None:
    """c1 can respond, but not compare: with c3 gone nobody can take its place on the committee."""
    world = World(
        Scene(make_federation(5, uploads="sealed", dropouts=1), tuple(deal(3, [5, 4, 6, 5, 5]))),
        5,
        deadlines=Deadlines(),
    )
    world.policies["c0"] = Policy(committee=("c2", "c3"))
    world.start()
    world.until(lambda: world.server.attempt is not None)
    world.kill("c3")
    world.until(lambda: world.server.phase is Phase.FAILED, seconds=900.0)
    text = str(world.server.failure)
    assert "fewer than 2 of those whom every site accepts on the committee (c2, c3) are ready; missing: c3" in text


def test_a_site_that_comes_back_with_other_rules_gets_another_committee() -> None:
    world = job()
    world.until(lambda: world.server.attempt is not None)
    world.kill("c2")
    world.policies["c2"] = Policy(committee=("c1", "c3"))
    world.start("c2")
    world.until(lambda: world.finished)
    world.check_labels()
    assert world.server.snapshot(world.now).outcome.committee == ("c1", "c3")


@pytest.mark.parametrize("late", [False, True])
def test_a_restarted_server_knows_the_rules_of_a_site_that_is_away(late: bool) -> None:
    """Whether it joined with them or came back with them later: nobody compares whom it would refuse."""
    world = World(
        Scene(make_federation(5, uploads="sealed", dropouts=1), tuple(deal(3, [5, 4, 6, 5, 5]))),
        5,
        deadlines=Deadlines(),
    )
    rules = Policy(committee=("c2", "c3", "c4"))
    if not late:
        world.policies["c4"] = rules
    world.start()
    world.until(lambda: len(world.finished_requests) > 0)
    if late:
        world.kill("c4")
        world.policies["c4"] = rules
        world.start("c4")
        world.until(lambda: world.parties["server"].disk["committee/c4"] != b"[]")
    world.kill("c4")
    world.kill("server")
    world.start("server")
    assert world.server.job.accepted == ("c2", "c3", "c4")
    world.start("c4")
    world.until(lambda: world.finished)
    world.check_labels()
    assert set(world.server.snapshot(world.now).outcome.committee) <= {"c2", "c3", "c4"}
