"""A site's `committee`: no client goes along with sealed rounds in which others compare, whether it is asked or not."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from secfc.agreement.policy import Policy
from secfc.errors import JobFailed, Malformed, OutOfTurn, Refused
from secfc.protocol.messages import Event, Phase
from secfc.protocol.rounds.sealing import Detail
from secfc.protocol.server.job import ServerJob
from secfc_server.progress import Monitor
from tests.protocol.helpers import Client, answer, asked, introduced, met, refused, reveals
from tests.simulation.scene import Scene, deal, make_federation
from tests.simulation.world import World

AGREED = make_federation(5, seeding="random", uploads="sealed")  # R = 3, two members
ROWS = deal(1, [8, 6, 9, 7, 10])
LABELS = np.arange(40, dtype=np.int32) % 3
R = (0, 2, 4)


def shown(client: Client, committee: tuple[int, ...], **changes: Any) -> list[Event]:
    """The first request, with that committee."""
    said = {"changed": [0, 1, 2], "doubted": "all", "separate": False}
    return asked(client, 1, LABELS, R, detail=Detail(1, committee, (said,)).to_bytes(), **changes)


def world(policies: dict[str, Policy]) -> World:
    made = World(Scene(AGREED, tuple(ROWS)), 3)
    made.policies = policies
    made.start()
    made.until(lambda: not any(process.alive for process in made.clients))
    return made


# --- every client ---------------------------------------------------------------------------------------------------------


FIRST, *OTHERS = AGREED.roster


@pytest.mark.parametrize("name", [FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_any_site_ends_a_job_in_which_others_compare(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a server does not heed what sites accept. Members, other responders and clients that are not asked at all: the
    distances are those of their rows too."""
    monkeypatch.setattr(ServerJob, "accepted", property(lambda job: job.names))
    free = world({})
    assert free.server.phase is Phase.FINISHED
    outcome = free.server.snapshot(free.now).outcome
    assert outcome is not None
    members = outcome.committee
    assert len(members) == 2
    allowed = tuple(one for one in AGREED.roster if one != members[1])
    ended = world({name: Policy(committee=allowed)})
    assert isinstance(ended.server.failure, JobFailed)
    assert str(ended.server.failure) == (
        f"{name} refuses: policy.toml: committee = {', '.join(allowed)}, but {members[1]} would compare"
    )


def test_a_job_with_an_accepted_committee_ends_well() -> None:
    rules = Policy(committee=AGREED.roster[:4], uploads=("sealed",))
    ended = world(dict.fromkeys(AGREED.roster, rules))
    assert ended.server.phase is Phase.FINISHED
    ended.check_labels()


@pytest.mark.parametrize("place", [0, 1])
def test_it_is_checked_by_clients_that_are_asked_and_by_others(place: int) -> None:
    """c0 is asked, c1 is not."""
    client = met(AGREED, ROWS, policy=Policy(committee=("c0", "c1", "c4")))[place]
    refused(client, shown(client, (0, 2)), Refused, "committee = c0, c1, c4, but c2 would compare")
    client.tell(*shown(client, (0, 4)))
    assert client.error is None


def test_it_is_checked_by_a_client_that_has_no_shares_yet() -> None:
    """Its rows are in the others' shares. Asked itself, it would not answer in any case."""
    clients = introduced(AGREED, ROWS, policy=Policy(committee=("c0", "c1", "c4")), any_start=True)
    for client in clients[:2]:
        client.tell(reveals(clients))
    refused(clients[1], shown(clients[1], (0, 2)), Refused, "committee = c0, c1, c4, but c2 would compare")
    refused(clients[0], shown(clients[0], (0, 4)), OutOfTurn, "before all shares have arrived")


def test_a_request_that_is_known_is_checked_again_under_a_new_policy() -> None:
    """c2 has no objection, answers, and is started again with rules that do not let c0 compare."""
    client = met(AGREED, ROWS)[2]
    client.tell(*shown(client, (0, 4)))
    assert answer(client, 1) is not None
    client.site.guard.policy = Policy(committee=("c1", "c2", "c4"))
    client.tell(*shown(client, (0, 4)))
    assert isinstance(client.error, Refused)
    assert "but c0 would compare" in str(client.error)


@pytest.mark.parametrize("committee", [(0,), (0, 2, 4), (0, 0), (0, 5), (0, -1), (0, 1)])
def test_a_committee_that_cannot_be_is_refused_by_everybody(committee: tuple[int, ...]) -> None:
    """t+1 distinct responders: the last one given is a client that is not asked."""
    for client in met(AGREED, ROWS)[:2]:
        refused(client, shown(client, committee), Malformed, "committee")


# --- seeing it ------------------------------------------------------------------------------------------------------------


def test_the_servers_log_and_status_name_the_committee(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "secfc.server")
    made = World(Scene(AGREED, tuple(ROWS)), 3)
    made.start()
    monitor = Monitor(made.server.snapshot(made.now))
    made.until(lambda: made.server.phase is Phase.ROUNDS)
    outcome = made.server.snapshot(made.now).outcome
    assert outcome is not None
    assert len(outcome.committee) == 2
    monitor.look(made.server.snapshot(made.now), made.now)
    said = [vars(record)["fields"] for record in caplog.records if record.getMessage() == "committee"]
    assert said == [{"members": outcome.committee}]
