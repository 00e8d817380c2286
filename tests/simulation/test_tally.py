"""What the rows give away is counted once, whoever restarts and however often a request is tried."""

from __future__ import annotations

from functools import partial

import pytest

from secfc.agreement.federation import SERVER
from secfc.privacy.leakage import Tally
from secfc.protocol.messages import Phase
from tests.simulation.scene import Scene, deal, make_federation
from tests.simulation.world import World


def job(uploads: str, seeding: str) -> World:
    federation = make_federation(4, dropouts=1, uploads=uploads, seeding=seeding)
    return World(Scene(federation, tuple(deal(7, [8, 9, 0, 10]))), 11)


def tallies(world: World) -> list[Tally]:
    """On the clients' disks."""
    return [Tally.from_bytes(process.disk["tally"]) for process in world.clients]


def killed(world: World, names: list[str], version: int) -> None:
    """These die in the rounds, once the server has this assignment, and come back."""
    world.until(lambda: world.server.phase is Phase.ROUNDS and world.server._phase.asking.version >= version)
    for name in names:
        world.kill(name)
        world.after(3.0, partial(world._start, name))


@pytest.mark.parametrize("seeding", ["random", "k-means++"])
@pytest.mark.parametrize("uploads", ["masked", "sealed"])
def test_restarts_and_attempts_count_nothing_twice(uploads: str, seeding: str) -> None:
    found = []
    for troubled in (False, True):
        world = job(uploads, seeding)
        world.start()
        if troubled:
            killed(world, ["c0"], 2)
            killed(world, ["c1", "c3"], 3)
            killed(world, [SERVER], 4)
        world.until(partial(getattr, world, "finished"))
        world.check_labels()
        found.append(tallies(world))
        [assignments] = {tally.assignments for tally in found[-1]}
        rounds = world.server._phase.asking.runs.all[0].rounds
        assert assignments == rounds + (seeding == "k-means++"), "one for each round, and one of the seeding"
        assert {tally.inertias for tally in found[-1]} == {int(uploads == "sealed")}
        assert all((tally.ranks == 0) is (uploads == "sealed") for tally in found[-1])
    assert [tally.assignments for tally in found[0]] == [tally.assignments for tally in found[1]]
