"""A client's half of the runs of a job (`several`): one attempt is one exchange per run."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from secfc.errors import OutOfTurn
from secfc.kmeans.coins import Coins
from secfc.kmeans.distances import Labels
from secfc.protocol.messages import RoundRequest
from secfc.protocol.parcels import Body, joined
from secfc.protocol.rounds.kinds import SERVER, ClientExchange, ClientHalf, Holding, Outgoing, RoundKind
from secfc.protocol.rounds.several import Names, session_of
from secfc.protocol.transfer import Sink


class ClientRounds:
    """A client's half over all requests of a job; `clusters` of every run, by its number."""

    def __init__(self, kind: RoundKind, holding: Holding, clusters: Sequence[int]) -> None:
        self._names = Names(len(clusters))
        self._several = len(clusters) > 1
        self._noted = _noted_by_run(holding.noted) if self._several else {0: holding.noted}
        self._halves: dict[int, ClientHalf] = {
            run: kind.client(
                replace(
                    holding,
                    plan=holding.plan.of_run(k),
                    session=session_of(holding.session, run),
                    coins=partial(_coins_of, holding, run),
                    noted=self._noted.get(run, b""),
                )
            )
            for run, k in enumerate(clusters)
        }

    def note(self, request: RoundRequest) -> bytes:
        """What must be on disk before a request is answered; nothing if nothing must."""
        asked = {run: one for run, one in request.by_run.items() if run in self._halves}  # a newer one may be here
        notes = {run: note for run, one in asked.items() if (note := self._halves[run].note(one))}
        if not notes or not self._several:
            return notes.get(0, b"")
        self._noted |= notes
        return json.dumps({run: note.hex() for run, note in self._noted.items()}).encode()

    def answer(self, request: RoundRequest, labels: Mapping[int, Labels]) -> Answering:
        """Begin to answer; see `ClientHalf.answer`. What was held for runs that are over is freed."""
        asked = request.by_run
        if not set(asked) <= set(self._halves):
            raise OutOfTurn("the server asks about a run that is over")
        self._halves = {run: self._halves[run] for run in asked}
        return Answering(self._names, {run: self._halves[run].answer(one, labels[run]) for run, one in asked.items()})


def _coins_of(holding: Holding, run: int) -> Coins | None:
    coins = holding.coins()
    return None if coins is None else coins.of_run(run)


def _noted_by_run(noted: bytes) -> dict[int, bytes]:
    """What was noted by an earlier process; nothing if that was another job, of one run."""
    try:
        return {int(run): bytes.fromhex(note) for run, note in json.loads(noted or b"{}").items()}
    except (ValueError, AttributeError, TypeError):
        return {}


class Answering:
    """One attempt about all runs, as a responder sees it; see `ClientExchange`."""

    def __init__(self, names: Names, exchanges: Mapping[int, ClientExchange]) -> None:
        self._names, self._exchanges = names, exchanges
        self._first: dict[int, Body] = {}  # uploads that wait for those of the other runs
        self._lock = threading.Lock()  # several runs may be at work

    def begin(self) -> Sequence[Outgoing]:
        """Its first messages (heavy)."""
        return [one for run, exchange in self._exchanges.items() for one in self._named(run, exchange.begin())]

    def sink(self, sender: int, name: bytes) -> Sink | None:
        """Where a message of the server or of another responder goes; None if it is not due."""
        run, rest = self._names.run_of(name, self._exchanges)
        return self._exchanges[run].sink(sender, rest)

    def take(self, sender: int, name: bytes) -> Sequence[Outgoing]:
        """A message is here whole: what follows from it (heavy)."""
        run, rest = self._names.run_of(name, self._exchanges)
        return self._named(run, self._exchanges[run].take(sender, rest))

    def due(self) -> Callable[[], Sequence[Outgoing]] | None:
        """What can be computed besides, for one of the runs; handed out once, so there may be more."""
        for run, exchange in self._exchanges.items():
            if (work := exchange.due()) is not None:
                return lambda run=run, work=work: self._named(run, work())  # type: ignore[misc]
        return None

    def _named(self, run: int, said: Sequence[Outgoing]) -> list[Outgoing]:
        """Messages as they leave: first uploads once they are there for all runs."""
        out: list[Outgoing] = []
        for one in said:
            if one.to == SERVER and not one.name:
                out += self._together(run, one)
            else:
                out.append(self._names.named(run, one))
        return out

    def _together(self, run: int, one: Outgoing) -> list[Outgoing]:
        if len(self._exchanges) == 1:
            return [one]
        with self._lock:
            self._first[run] = one.body
            if len(self._first) < len(self._exchanges):
                return []
            return [replace(one, body=joined([self._first.pop(run) for run in self._exchanges]))]
