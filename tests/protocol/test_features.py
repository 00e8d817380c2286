"""Another order of features at one site, or other features: noticed by the server and every client before sharing."""

from __future__ import annotations

import random

import pytest

from secfc import config, events
from secfc.config import Federation
from secfc.errors import Malformed
from secfc_client.participant import Participant, Phase
from secfc_server.coordinator import Coordinator
from secfc_server.coordinator import Phase as ServerPhase
from tests.protocol.joined import deal, fresh_secrets, introduce, make_federation, plan_of, roster, unchanged, verifier

NAMES = ("age", "bmi", "pressure")
REORDERED = ("bmi", "age", "pressure")


def named(agreed: Federation, columns: tuple[tuple[str, ...], ...]) -> list[Participant]:
    generator = random.Random(0)
    return [
        Participant(agreed, plan_of(agreed), name, rows, fresh_secrets(generator), verifier(agreed), columns=own)
        for name, rows, own in zip(agreed.roster, deal(1, [4] * agreed.n), columns, strict=True)
    ]


def agree(*names: str) -> Federation:
    """A federation whose file names the features."""
    text = config.dumps(make_federation(3)).replace("features = 3", f"features = {list(names)}")
    return config.parse(text, "federation.toml")


def server(agreed: Federation) -> Coordinator:
    return Coordinator(agreed, plan_of(agreed), verifier(agreed))


def join(coordinator: Coordinator, machine: Participant) -> None:
    digest = coordinator.federation.digest()
    coordinator.join(machine.name, digest, machine.name.encode() * 8, introduce(machine), 0.0)


def test_equal_columns_are_taken() -> None:
    machines = named(make_federation(3), (NAMES,) * 3)
    coordinator = server(machines[0].federation)
    for machine in machines:
        join(coordinator, machine)
        machine.handle(roster(machines))
    assert coordinator.phase is ServerPhase.AGREEING
    assert {machine.phase for machine in machines} == {Phase.AGREEING}


@pytest.mark.parametrize("others", [REORDERED, ("age", "bmi", "weight"), NAMES[:2], ("age,bmi", "pressure")])
def test_the_server_refuses_other_columns_and_says_whose(others: tuple[str, ...]) -> None:
    machines = named(make_federation(3), (NAMES, NAMES, others))
    coordinator = server(machines[0].federation)
    join(coordinator, machines[0])
    join(coordinator, machines[1])
    with (
        unchanged(coordinator),
        pytest.raises(Malformed, match="of c2 and of c0, c1 differ in their names or their order"),
    ):
        join(coordinator, machines[2])


def test_one_that_came_with_wrong_columns_may_come_again() -> None:
    agreed = make_federation(3)
    wrong, *right = named(agreed, (REORDERED, NAMES, NAMES))
    coordinator = server(agreed)
    join(coordinator, wrong)
    with pytest.raises(Malformed, match="of c1 and of c0 differ"):
        join(coordinator, right[0])
    corrected = named(agreed, (NAMES,) * 3)
    for machine in corrected:
        join(coordinator, machine)
    assert coordinator.phase is ServerPhase.AGREEING


def test_the_server_knows_the_agreed_columns_by_itself() -> None:
    agreed = agree(*NAMES)
    machine = named(agreed, (REORDERED,) * 3)[0]
    with pytest.raises(Malformed, match=r"of c0 are not those of federation\.toml: age, bmi, pressure"):
        join(server(agreed), machine)


@pytest.mark.parametrize("names", [(), NAMES])
def test_every_client_refuses_a_roster_with_other_columns(names: tuple[str, ...]) -> None:
    """Also where the server lets it pass: the digest is signed, so the server cannot hide it."""
    agreed = agree(*names) if names else make_federation(3)
    machines = named(agreed, (NAMES, REORDERED, NAMES))
    for machine, whose in zip(machines, ("c1", "c0, c2", "c1"), strict=True):
        with pytest.raises(Malformed, match=f"of {machine.name} and of {whose} differ in their names or their order"):
            machine.handle(roster(machines))
        assert machine.phase is Phase.JOINING


def test_many_names_are_one_short_line() -> None:
    text = events.other_features("c0", [f"client-{j}" for j in range(2000)])
    assert len(text) < 400
    assert "client-4 and 1995 more" in text
