"""Another order of features at one site, or other features: noticed by the server and every client before sharing."""

from __future__ import annotations

import random

import pytest

from secfc.agreement import federation as federations
from secfc.agreement.federation import Federation
from secfc.errors import Malformed
from secfc.protocol import messages
from secfc.protocol.messages import Phase
from secfc.protocol.server.coordinator import Coordinator
from secfc.protocol.server.inputs import Joined
from tests.parties import deal, fresh_secrets, make_federation, make_site, plan_of, unchanged, verifier
from tests.protocol.helpers import Client, refused, roster

NAMES = ("age", "bmi", "pressure")
REORDERED = ("bmi", "age", "pressure")


def named(agreed: Federation, columns: tuple[tuple[str, ...], ...]) -> list[Client]:
    generator = random.Random(0)
    return [
        Client(make_site(agreed, name, rows, fresh_secrets(generator), columns=own))
        for name, rows, own in zip(agreed.roster, deal(1, [4] * agreed.n), columns, strict=True)
    ]


def agree(*names: str) -> Federation:
    """A federation whose file names the features."""
    text = federations.dumps(make_federation(3)).replace("features = 3", f"features = {list(names)}")
    return federations.parse(text, "federation.toml")


def server(agreed: Federation) -> Coordinator:
    return Coordinator(agreed, plan_of(agreed), verifier(agreed))


def join(coordinator: Coordinator, client: Client) -> None:
    site = client.site
    coordinator.handle(
        Joined(site.name, messages.Join(site.federation.agreed(), site.instance, site.introduction())), 0.0
    )


def test_equal_columns_are_taken() -> None:
    clients = named(make_federation(3), (NAMES,) * 3)
    coordinator = server(clients[0].site.federation)
    for client in clients:
        join(coordinator, client)
        client.tell(roster(clients))
    assert coordinator.phase is Phase.AGREEING
    assert {client.phase for client in clients} == {Phase.AGREEING}


@pytest.mark.parametrize("others", [REORDERED, ("age", "bmi", "weight"), NAMES[:2], ("age,bmi", "pressure")])
def test_the_server_refuses_other_columns_and_says_whose(others: tuple[str, ...]) -> None:
    clients = named(make_federation(3), (NAMES, NAMES, others))
    coordinator = server(clients[0].site.federation)
    join(coordinator, clients[0])
    join(coordinator, clients[1])
    with (
        unchanged(coordinator),
        pytest.raises(Malformed, match="of c2 and of c0, c1 differ in their names or their order"),
    ):
        join(coordinator, clients[2])


def test_one_that_came_with_wrong_columns_may_come_again() -> None:
    agreed = make_federation(3)
    wrong, *right = named(agreed, (REORDERED, NAMES, NAMES))
    coordinator = server(agreed)
    join(coordinator, wrong)
    with unchanged(coordinator), pytest.raises(Malformed, match="of c1 and of c0 differ"):
        join(coordinator, right[0])
    corrected = named(agreed, (NAMES,) * 3)
    for client in corrected:
        join(coordinator, client)
    assert coordinator.phase is Phase.AGREEING


def test_the_server_knows_the_agreed_columns_by_itself() -> None:
    agreed = agree(*NAMES)
    client = named(agreed, (REORDERED,) * 3)[0]
    with pytest.raises(Malformed, match=r"of c0 are not those of the job: age, bmi, pressure"):
        join(server(agreed), client)


@pytest.mark.parametrize("names", [(), NAMES])
def test_every_client_refuses_a_roster_with_other_columns(names: tuple[str, ...]) -> None:
    """Also where the server lets it pass: the digest is signed, so the server cannot hide it."""
    agreed = agree(*names) if names else make_federation(3)
    clients = named(agreed, (NAMES, REORDERED, NAMES))
    for client, whose in zip(clients, ("c1", "c0, c2", "c1"), strict=True):
        words = f"of {client.name} and of {whose} differ in their names or their order"
        refused(client, roster(clients), Malformed, words)
        assert client.phase is Phase.JOINING


def test_many_names_are_one_short_line() -> None:
    text = messages.other_features("c0", [f"client-{j}" for j in range(2000)])
    assert len(text) < 400
    assert "client-4 and 1995 more" in text
