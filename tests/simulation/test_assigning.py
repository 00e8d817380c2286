"""Disasters while new rows are assigned to an earlier job's clusters, and while shares of these are kept."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from secfc.agreement.federation import SERVER
from secfc.protocol.client.freezing import KeptClusters
from secfc.protocol.messages import Phase
from tests.parties import deal
from tests.protocol.test_assigning import KEEPS, finished, kept, nearest
from tests.simulation.scene import Scene
from tests.simulation.world import World

ROWS = tuple(deal(41, [3, 0, 4, 2]))


def begun(uploads: str, *, calm: bool = True) -> tuple[World, list[list[int]]]:
    """New rows on their way, and the labels that they must get."""
    job = finished(deal(40, [8] * 4), uploads=uploads, dropouts=1)
    clusters = kept(job)
    world = World(Scene(clusters["c0"].public.federation(job.federation), ROWS, clusters=clusters), 11, calm=calm)
    world.start()
    edges = np.cumsum([0, *map(len, ROWS)])
    labels = nearest(job, list(ROWS))
    return world, [labels[a:b] for a, b in itertools.pairwise(edges)]


@pytest.mark.parametrize("uploads", ["masked", "sealed"])
@pytest.mark.parametrize("phase", [Phase.SHARING, Phase.CHECKING, Phase.ROUNDS])
def test_everybody_is_killed_at_once(uploads: str, phase: Phase) -> None:
    world, labels = begun(uploads)
    world.until(lambda: world.server.phase is phase)
    for name in world.parties:
        world.kill(name)
    world.start()
    world.until(lambda: world.finished)
    assert world.labels() == labels


@pytest.mark.parametrize("uploads", ["open", "masked", "sealed"])
def test_a_server_killed_after_every_single_thing_it_keeps(uploads: str) -> None:
    world, labels = begun(uploads, calm=False)
    known = 0
    while not world.finished:
        before = known
        world.until(lambda before=before: world.finished or len(world.parties[SERVER].disk) > before)  # type: ignore[misc]
        known = len(world.parties[SERVER].disk)
        if not world.finished:
            world.kill(SERVER)
            world.start(SERVER)
    assert world.labels() == labels


def test_a_client_killed_at_any_moment_keeps_its_share_of_the_clusters() -> None:
    """It is on disk before the labels, after which a client that restarts is done."""
    job = finished(deal(40, [8] * 4), dropouts=1)
    world = World(Scene(job.federation, tuple(job.rows)), 11)
    world.policies = dict.fromkeys(job.federation.roster, KEEPS)
    world.start()
    process, known = world.parties["c0"], 0
    while not world.finished:
        before = known
        world.until(lambda before=before: world.finished or len(process.disk) > before or process.done)  # type: ignore[misc]
        known = len(process.disk)
        if process.alive:
            world.kill("c0")
            world.start("c0")
        else:
            world.until(lambda: world.finished)
    world.check_labels()
    names = {KeptClusters.from_bytes(one.disk["clusters"]).public.name for one in world.clients}
    assert len(names) == 1
