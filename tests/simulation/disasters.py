"""What goes wrong in a run, by one seed; and what must hold at its end."""

from __future__ import annotations

import random
import traceback
from dataclasses import dataclass
from functools import partial

from secfc.agreement.federation import SERVER
from secfc.errors import AlreadyJoined, StorageError, Unavailable
from secfc.protocol.messages import Phase
from tests.simulation.scene import random_scene
from tests.simulation.world import LIMIT_SECONDS, Process, World, lying

TROUBLE_SECONDS = 60.0  # from then on nothing goes wrong any more, and the job must end
PASSING = (Unavailable, StorageError, AlreadyJoined)  # errors after which the same command, started again, goes on


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `failure`: what is wrong, with the trace."""

    seed: int
    seconds: float
    starts: int
    failure: str = ""


def run(seed: int, *, sealed: bool | None = None) -> Outcome:
    """One disaster: a scene, its faults and its checks, all from the seed."""
    chance = random.Random(seed)
    scene = random_scene(chance, sealed=sealed)
    world = World(scene, chance.randrange(1 << 30), calm=chance.random() < 0.3)
    world.alter = lying(scene)
    world.crashes = chance.choice([0.0, 0.0, 0.002, 0.01])
    world.piece_bytes = chance.choice([64, 256])
    world.parties[chance.choice(list(world.parties))].busy = chance.choice([0.05, 0.05, 5.0])
    world.carrier.mischief = chance.choice([0.0, 0.0, 0.01, 0.1])
    _plan(world, chance)
    try:
        world.start()
        with world.patched():
            ends = 0
            while not world.finished:
                while world.ends == ends:
                    world.step()
                    assert world.now - 1000 < LIMIT_SECONDS, f"it stands still: {world.describe()}"
                ends = world.ends
                _restart(world)
        world.check_labels()
        _check_centers(world)
    except Exception:  # whatever goes wrong is told with its seed
        return Outcome(seed, world.now - 1000, _starts(world), "\n".join([*world.trace[-60:], traceback.format_exc()]))
    return Outcome(seed, world.now - 1000, _starts(world))


def _starts(world: World) -> int:
    return sum(process.life for process in world.parties.values())


def _restart(world: World) -> None:
    """Who ended with an error that passes is started again, as its operator would; any other error is a failure."""
    if (server := world.parties[SERVER]).alive:
        _end_server(world, server)
    for process in world.parties.values():
        if process.error is None or process.alive or process.done:
            continue
        assert isinstance(process.error, PASSING), f"{process.name} ended with {process.error!r}"
        world.say(f"{process.name} ended: {process.error}")
        process.error, process.disk_fails = None, False
        world.after(world.chance.uniform(1.0, 30.0), partial(world._start, process.name))


def _end_server(world: World, process: Process) -> None:
    """What `secfc_server.__main__` does at the end of a job: it goes when all have their labels, or after a while."""
    machine = process.machine
    if machine.phase is Phase.FAILED:
        failure = machine.failure
        world.kill(SERVER, f"failed: {failure}")
        process.error = failure


def _check_centers(world: World) -> None:
    """Whoever has centres has the same."""
    found = {process.disk["centers.csv"] for process in world.clients if "centers.csv" in process.disk}
    assert len(found) <= 1, "clients have opened different centres"


# --- what goes wrong -------------------------------------------------------------------------------------------------------


def _plan(world: World, chance: random.Random) -> None:
    names = list(world.parties)
    for _ in range(chance.choice([0, 1, 2, 4])):
        at, name = chance.uniform(0.0, TROUBLE_SECONDS / 4), chance.choice(names)
        fault = chance.choice([_kill, _kill, _freeze, _wall, _island, _disk])
        world.after(at, partial(fault, world, chance, name))
    world.after(TROUBLE_SECONDS, partial(_heal, world))


def _kill(world: World, chance: random.Random, name: str) -> None:
    world.kill(name)
    if not world.parties[name].done:
        world.after(chance.choice([0.1, 2.0, 20.0]), partial(world._start, name))


def _freeze(world: World, chance: random.Random, name: str) -> None:
    seconds = chance.choice([1.0, 7.0, 30.0])
    world.say(f"{name} freezes for {seconds:g} s")
    party = world.parties[name]  # never shorter than an earlier freeze: what waits for its end would be overtaken
    party.frozen_until = max(party.frozen_until, world.now + seconds)


def _wall(world: World, chance: random.Random, name: str) -> None:
    other = chance.choice([one for one in world.parties if one != name])
    pair = frozenset((name, other))
    world.say(f"{name} and {other} cannot reach each other")
    world.walls.add(pair)
    _break_streams(world)
    world.after(chance.choice([1.0, 10.0, 40.0]), partial(world.walls.discard, pair))


def _island(world: World, chance: random.Random, name: str) -> None:
    pairs = {frozenset((name, other)) for other in world.parties if other != name}
    world.say(f"{name} is cut off from everybody")
    world.walls |= pairs
    _break_streams(world)
    world.after(chance.choice([1.0, 10.0, 40.0]), partial(world.walls.difference_update, pairs))


def _break_streams(world: World) -> None:
    for stream in list(world._streams.values()):
        if not world._reach(SERVER, stream.client):
            world._cut(stream)


def _disk(world: World, chance: random.Random, name: str) -> None:
    world.say(f"the disk of {name} fails")
    world.parties[name].disk_fails = True


def _heal(world: World) -> None:
    world.say("nothing goes wrong from now on")
    world.lossy, world.crashes, world.carrier.mischief = 0.0, 0.0, 0.0
    world.walls.clear()
    for process in world.parties.values():
        process.disk_fails = False
