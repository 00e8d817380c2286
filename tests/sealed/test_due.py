"""What a sealed request asks must be what its number stands for: assignments are counted by numbers."""

from __future__ import annotations

import pytest

from secfc.errors import Malformed
from secfc.kmeans.lloyd import Clustering
from secfc.protocol import start
from secfc.protocol.rounds.sealing import Detail
from tests.parties import deal, make_federation
from tests.protocol.helpers import asked, met, refused


@pytest.mark.parametrize("separate", [False, True])
def test_no_assignment_is_given_while_seeding(separate: bool) -> None:
    agreed = make_federation(5, seeding="k-means++", uploads="sealed", k=3, starts=1, seed="x")
    client = met(agreed, deal(1, [8, 6, 9, 7, 10]), any_start=False)[2]
    labels = Clustering(40, 3, coins=start.agreed("x"), candidates=3).labels
    said = {"changed": [0], "doubted": "all", "separate": separate}
    told = asked(client, 1, labels, (0, 2, 4), detail=Detail(1, (0, 4), (said,)).to_bytes(), columns=(0,))
    refused(client, told, Malformed, "what is not due there")


def test_nothing_is_separated_in_a_job_that_does_not_begin_so() -> None:
    agreed = make_federation(5, seeding="random", uploads="sealed", k=3, starts=1, seed="x")
    client = met(agreed, deal(1, [8, 6, 9, 7, 10]), any_start=False)[2]
    labels = Clustering(40, 3, coins=start.agreed("x"), start="random").labels
    said = {"changed": [0, 1, 2], "doubted": "all", "separate": True}
    told = asked(client, 1, labels, (0, 2, 4), detail=Detail(1, (0, 4), (said,)).to_bytes())
    refused(client, told, Malformed, "what is not due there")
