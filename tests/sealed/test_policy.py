"""Who may compare is a site's own rule (`committee` in policy.toml): the server chooses, and cannot overrule it."""

from __future__ import annotations

import pytest

from secfc.agreement.policy import Policy
from secfc.protocol.messages import Phase
from tests.simulation.scene import Scene, deal, make_federation
from tests.simulation.world import World


def job(**committees: tuple[str, ...]) -> World:
    """Four clients, t = 1; whose policies name who may be on the committee."""
    world = World(Scene(make_federation(4, uploads="sealed"), tuple(deal(3, [5, 4, 6, 5]))), 5)
    world.policies.update({name: Policy(committee=names) for name, names in committees.items()})
    world.start()
    return world


@pytest.mark.parametrize("site", ["c0", "c3"])
def test_a_committee_that_a_site_does_not_allow_ends_the_job(site: str) -> None:
    """Whether the site itself would be on it or not; the server is told which rule it was. A site that is asked has given
    nothing; one that is not asked may be heard too late for the first request."""
    world = job(**{site: ("c2", "c3")})
    world.until(lambda: world.server.phase is Phase.FAILED)
    rule = "policy.toml: committee = c2, c3, but c0, c1 would compare"
    assert str(world.server.failure) == f"{site} refuses: {rule}"
    if site == "c0":
        assert not world.server._phase.asking.records


def test_a_committee_that_all_sites_allow_compares() -> None:
    world = job(c0=("c0", "c1"), c2=("c0", "c1", "c2"), c3=())
    world.until(lambda: world.finished)
    world.check_labels()
