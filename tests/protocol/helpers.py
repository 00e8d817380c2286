"""Machines of clients by hand: a test plays server and network."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from secfc.agreement.federation import SERVER, Federation
from secfc.coding.field import Words
from secfc.errors import SecfcError
from secfc.kmeans import assignments
from secfc.kmeans.distances import Labels
from secfc.protocol import messages, parcels, transfer
from secfc.protocol.client.guard import Guard
from secfc.protocol.client.inputs import Linked, Sent, Told, Unsent
from secfc.protocol.client.participant import Participant
from secfc.protocol.client.site import Secrets, Site
from secfc.protocol.effects import Arrived, Drop, Load, Send, Started, Tick, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel, Whole, of_words, to_words
from tests.parties import Rows, digest_of, fresh_secrets, make_site

# --- one client --------------------------------------------------------------------------------------------------------


class Client:
    """A machine whose effects are carried out at once, but for what it sends: that to other clients waits in `waiting`, and
    what it has told the server is in `told`. `disk` is what it keeps."""

    def __init__(self, site: Site, disk: dict[str, bytes] | None = None, *, begins_anywhere: bool = False) -> None:
        self._first = (site, None if disk is None else dict(disk))
        self._begins_anywhere = begins_anywhere
        self._log: list[tuple[float, Any]] = []
        self._depth = 0
        self.disk = {} if disk is None else dict(disk)
        kept = {key: value for key, value in self.disk.items() if not key.startswith(("shares/", "lasting/"))}
        guard = Guard(site.federation, site.plan, site.guard.policy, self.disk.get("given", b""))
        if begins_anywhere:
            vars(guard)["_check_first"] = lambda request: None
        self.machine = Participant(replace(site, guard=guard), kept=kept, resumed=disk is not None)
        self.now = 0.0
        self.told: list[Send] = []
        self.waiting: list[Send] = []
        self._begin()

    def _begin(self) -> None:
        self.give(Started())
        self.give(Linked())

    @property
    def site(self) -> Site:
        return self.machine.site

    @property
    def name(self) -> str:
        return self.site.name

    @property
    def phase(self) -> Phase:
        return self.machine.phase

    @property
    def secrets(self) -> Secrets:
        return self.site.secrets

    @property
    def error(self) -> SecfcError | None:
        """Why it has ended."""
        return self.machine.ended.error if self.machine.ended is not None else None

    def give(self, given: Any) -> None:
        """An input, and all that follows from it here."""
        if not self._depth:
            self._log.append((self.now, given))
        self._depth += 1
        try:
            self._give(given)
        finally:
            self._depth -= 1

    def _give(self, given: Any) -> None:
        effects = self.machine.handle(given, self.now)
        for one in effects.keep:
            if isinstance(one, Drop):
                self.disk.pop(one.key, None)
            else:
                self.disk[one.key] = bytes(one.value)
        for send in effects.send:
            if send.to != SERVER:
                self.waiting.append(send)
            elif not isinstance(send.message, messages.Join):
                self.told.append(send)
                self.give(Sent(send))
        for work in effects.work:
            try:
                done = Worked(work.name, self.disk.get(work.key) if isinstance(work, Load) else work.run())
            except SecfcError as error:
                done = Worked(work.name, error=error)
            self.give(done)

    def tell(self, *events: messages.Event) -> None:
        """The server says something."""
        for event in events:
            self.give(Told(event))

    def report(self, kind: type[Any]) -> Any:
        """What it told the server last of one kind."""
        return next(send.message for send in reversed(self.told) if isinstance(send.message, kind))

    def parcels(self, kind: Kind) -> list[Send]:
        """Parcels of a kind that the server was given."""
        return [send for send in self.told if isinstance(send.message, Parcel) and send.message.kind is kind]

    def copy(self) -> Client:
        """The same client in the same place, to try something with: a machine is what it was given."""
        again = Client.__new__(Client)
        with mock.patch.object(Client, "_begin"):
            again.__init__(*self._first, begins_anywhere=self._begins_anywhere)  # type: ignore[misc]
        for now, given in self._log:
            again.now = now
            try:
                again.give(given)
            except SecfcError:  # as it did before
                continue
        again.now, again.waiting = self.now, list(self.waiting)
        return again

    def restarted(self, **changes: Any) -> Client:
        """The next process of this client: its state folder is all that is left."""
        secrets = replace(self.secrets, revealed=self.disk.get("revealed", b""))
        site = replace(self.site, secrets=secrets, **changes)
        return Client(site, self.disk, begins_anywhere=self._begins_anywhere)


def refused(
    client: Client, events: messages.Event | Sequence[messages.Event], error: type[Exception], words: str
) -> None:
    """What no honest server says ends a client; it keeps nothing of it, and nothing leaves it but why. The client itself goes
    on: a copy is told."""
    trial = client.copy()
    trial.waiting = []
    disk, before = dict(trial.disk), len(trial.told)
    trial.tell(*(events if isinstance(events, Sequence) else [events]))
    assert trial.error is not None, "it was not refused"
    assert type(trial.error) is error, repr(trial.error)
    assert re.search(words, str(trial.error)), str(trial.error)
    assert trial.disk == disk
    assert not trial.waiting
    assert {type(send.message) for send in trial.told[before:]} <= {messages.Stopped, messages.Refused}


# --- several clients, and a server played by the test -------------------------------------------------------------------


def strangers(
    agreed: Federation, rows: Sequence[Rows], seed: int = 0, *, begins_anywhere: bool = False, **changes: Any
) -> list[Client]:
    """Clients that have joined, and know of nobody."""
    generator = random.Random(seed)
    return [
        Client(make_site(agreed, name, part, fresh_secrets(generator), **changes), begins_anywhere=begins_anywhere)
        for name, part in zip(agreed.roster, rows, strict=True)
    ]


def roster(clients: Sequence[Client]) -> messages.Roster:
    return messages.Roster(tuple(client.site.introduction() for client in clients))


def agreements(clients: Sequence[Client]) -> list[messages.Agreements]:
    """What the server tells each of them, once all have signed."""
    given = [client.report(messages.Agreed) for client in clients]
    signatures = tuple(one.signature for one in given)
    return [messages.Agreements(signatures, tuple(one.proofs[j] for one in given)) for j in range(len(given))]


def introduced(agreed: Federation, rows: Sequence[Rows], seed: int = 0, **changes: Any) -> list[Client]:
    """Clients that have agreed on the session and hold no shares yet."""
    clients = strangers(agreed, rows, seed, **changes)
    agree(clients)
    return clients


def agree(clients: Sequence[Client]) -> None:
    met = roster(clients)
    for client in clients:
        client.tell(met)
    for client, said in zip(clients, agreements(clients), strict=True):
        client.tell(said)


def deliver(sender: Client, receiver: Client, send: Send) -> None:
    """One parcel, whole; raises what the receiver refuses."""
    body = send.body or Whole(b"")
    for offset, data in transfer.pieces(body):
        receiver.give(Arrived(sender.name, send.message, offset, body.total, data))


Seen = list[tuple[str, str, str, int]]


def exchange(clients: Sequence[Client], passes: Callable[[Send], bool] = lambda _: True) -> Seen:
    """All that they have for each other arrives; returns who sent whom how many bytes of what, the server included. What does
    not pass stays where it is."""
    by_name = {client.name: client for client in clients}
    found: Seen = []
    for _ in range(60):
        moved = False
        for client in clients:
            before = len(client.told)
            sends, client.waiting = client.waiting, []
            for send in sends:
                if send.to not in by_name or not passes(send):
                    client.waiting.append(send)
                    continue
                moved = True
                found.append(seen(client, send))
                try:
                    deliver(client, by_name[send.to], send)
                except SecfcError as error:
                    client.give(Unsent(send, error))
                else:
                    client.give(Sent(send))
            found += [seen(client, send) for send in client.told[before:]]
        if not moved:
            break
        for client in clients:
            client.now += 0.5
            client.give(Tick())
    return found


def seen(client: Client, send: Send) -> tuple[str, str, str, int]:
    """What a network shows of a message: from whom, to whom, of what kind and how large."""
    parcel = isinstance(send.message, Parcel)
    kind = send.message.kind.name if parcel else type(send.message).__name__
    return client.name, send.to, kind, send.body.total if parcel and send.body else 0


def met(
    agreed: Federation, rows: Sequence[Rows], seed: int = 0, *, any_start: bool = True, **changes: Any
) -> list[Client]:
    """Clients that hold everybody's shares, know the coins and wait for the first request.

    `any_start` lets a test of rounds begin with whatever request and assignment it likes; what clients check of the start is
    the subject of test_start.py and test_agreement.py.
    """
    clients = introduced(agreed, rows, seed, any_start=any_start, begins_anywhere=any_start, **changes)
    exchange(clients)
    for client in clients:
        assert client.phase is Phase.ROUNDS
        client.tell(reveals(clients))
    return clients


def reveals(clients: Sequence[Client]) -> messages.Reveals:
    return messages.Reveals(tuple(client.secrets.coin for client in clients))


def assignment(client: Client, version: int, labels: Labels) -> messages.Piece:
    """The server publishes an assignment."""
    data = assignments.encode(labels, client.site.plan.slots)
    parcel = Parcel(client.machine.session, Kind.ASSIGNMENT, parcels.pair_name(version, 0))
    return messages.Piece(parcel, 0, len(data), data)


def opened(client: Client, step: int, left: int, ids: Any = None) -> messages.Piece:
    """The server shows what a sum over all clients opens to."""
    data = b"" if ids is None else ids.astype("<u8").tobytes()
    parcel = Parcel(client.machine.session, Kind.OPENED, parcels.pair_name(step, left))
    return messages.Piece(parcel, 0, len(data), data)


def asked(
    client: Client, number: int, labels: Labels, responders: tuple[int, ...], /, **changes: Any
) -> list[messages.Event]:
    """An assignment and a request for it, truthful but for the changes."""
    columns = tuple(np.unique(labels[labels >= 0]).tolist())
    request = messages.RoundRequest(number, 1, responders, columns, digest_of(labels), 60.0)
    return [assignment(client, number, labels), replace(request, **changes)]


def answer(client: Client, number: int, attempt: int = 1) -> Words | None:
    """What it uploads for a request; None if it does not."""
    name = parcels.attempt_name(number, attempt)
    found = [send.body for send in client.parcels(Kind.UPLOAD) if send.message.name == name]
    return to_words(found[-1].data) if found and isinstance(found[-1], Whole) else None


def flipped(words: Words, bit: int = 0) -> Words:
    """One bit of a residue is another; in a small one, so that it stays a residue."""
    out = words.copy()
    out[0] ^= np.uint64(1 << bit)
    return out


def tampered(send: Send) -> Send:
    """The same parcel with one bit of its first residue flipped."""
    whole = b"".join(bytes(data) for _, data in (send.body or Whole(b"")).pieces(0))
    return replace(send, body=of_words(flipped(to_words(whole))))
