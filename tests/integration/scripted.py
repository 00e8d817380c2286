"""A client that the test plays: the real machine over real gRPC and TLS. What it sends leaves when the test says so."""

from __future__ import annotations

import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc.agreement import plan
from secfc.agreement.federation import SERVER
from secfc.coding import prg
from secfc.errors import OutOfTurn, SecfcError
from secfc.kmeans import fixedpoint
from secfc.net import rpc, wire
from secfc.pki import kit
from secfc.protocol import messages, transfer
from secfc.protocol.client.guard import Guard
from secfc.protocol.client.inputs import Linked, Sent, Told, Unsent
from secfc.protocol.client.participant import Participant
from secfc.protocol.client.site import Secrets, Site
from secfc.protocol.effects import Put, Send, Work, Worked
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel, attempt_name
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as stubs
from tests.integration.helpers import dial, until

CALL = 20.0


class Scripted(stubs.ExchangeServicer):
    """One client of the roster. Signatures and its part of the check of all shares leave by themselves; shares, what it
    holds and uploads when a method says so. Close it at the end."""

    def __init__(self, folder: Path, values: npt.NDArray[np.float64]) -> None:
        self.kit = kit.load(folder)
        made = self.kit.federation
        rows = fixedpoint.quantise(values, made.job.bound, made.job.precision)
        agreed = plan.of(made)
        self.me = Participant(
            Site(
                federation=made,
                plan=agreed,
                name=self.kit.party_name,
                rows=rows,
                secrets=Secrets(prg.fresh_key(), X25519PrivateKey.generate(), os.urandom(32), os.urandom(32)),
                guard=Guard(made, agreed),
                verify=kit.verifier(self.kit),
                sign=self.kit.sign,
                certificate=self.kit.certificate_pem,
                instance=os.urandom(16),
                chance=random.Random(1),
            ),
            now=time.monotonic(),
        )
        self.name, self.instance = self.kit.party_name, self.me.site.instance
        self.requests: queue.Queue[messages.RoundRequest] = queue.Queue()
        self.labels: npt.NDArray[np.int32] | None = None  # of our rows, at the end
        self.members: tuple[messages.Introduction, ...] = ()
        self.refuse: grpc.StatusCode | None = None  # what others' deliveries are answered with
        self._order = threading.Lock()
        self._wanted: list[Send] = []  # by the machine, in their order
        self._channel = dial(self.kit, "server")
        self.stub, self.exchange = stubs.CoordinatorStub(self._channel), stubs.ExchangeStub(self._channel)
        self._listener: grpc.Server | None = None
        self._stream: Any = None
        self._thread: threading.Thread | None = None

    # --- the machine -----------------------------------------------------------------------------------------------

    def handle(self, given: Any) -> None:
        """Hand an input to the machine, and compute what it wants computed."""
        leaves: list[Send] = []
        with self._order:
            inputs = [given]
            while inputs:
                effects = self.me.handle(inputs.pop(0), time.monotonic())
                for one in effects.keep:
                    if isinstance(one, Put) and one.key == "labels":
                        self.labels = np.frombuffer(one.value[32:], dtype="<i4").astype(np.int32)
                inputs += [Worked(work.name, work.run()) for work in effects.work if isinstance(work, Work)]
                leaves += [send for send in effects.send if _by_itself(send)]
                self._wanted += [send for send in effects.send if not _by_itself(send)]
        for send in leaves:
            self.transmit(send)

    def wanted(self, fits: Callable[[Send], bool], what: str, seconds: float = 60.0) -> Send:
        """What the machine wants to send, once it does."""
        found = until(lambda: [send for send in self._wanted if fits(send)][-1:], f"{self.name} has {what}", seconds)
        return found[0]

    def transmit(self, send: Send) -> None:
        """Let a message leave, whole, and tell the machine."""
        try:
            if isinstance(send.message, Parcel):
                body = data_of(send)
                self.deliver(send.to, *pieces(send.message, body), kind=send.message.kind)
            else:
                self.report(send.message)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
                raise
            self.handle(Unsent(send, OutOfTurn("it is over")))
        else:
            self.handle(Sent(send))

    # --- others' calls ---------------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Take in what the other clients deliver."""
        self._listener = grpc.server(ThreadPoolExecutor(4))
        stubs.add_ExchangeServicer_to_server(self, self._listener)
        pair = [(self.kit.key_pem, self.kit.certificate_pem)]
        credentials = grpc.ssl_server_credentials(pair, self.kit.ca_pem, require_client_auth=True)
        self._listener.add_secure_port(self.kit.federation.client(self.name).bind, credentials)
        self._listener.start()

    def Progress(self, request: pb.Parcel, context: Any) -> pb.Received:
        owner = rpc.caller(context, self.kit.federation.name)
        return self._answer(context, lambda: pb.Received(received=self.me.progress(owner, wire.parcel_from(request))))

    def Deliver(self, request_iterator: Iterator[pb.Piece], context: Any) -> pb.Received:
        owner = rpc.caller(context, self.kit.federation.name)

        def take() -> pb.Received:
            received = 0
            for message in request_iterator:
                piece = wire.arrived_from(owner, message)
                self.handle(piece)
                received = piece.offset + len(piece.data)
            return pb.Received(received=received)

        return self._answer(context, take)

    def Hand(self, request: pb.Piece, context: Any) -> pb.Received:
        return self.Deliver(iter([request]), context)

    def _answer(self, context: Any, take: Callable[[], Any]) -> Any:
        if self.refuse is not None:
            context.abort(self.refuse, "refused by the script")
        try:
            return take()
        except SecfcError as error:
            context.abort(rpc.status_of(error), str(error))

    # --- what it does ----------------------------------------------------------------------------------------------

    def introduction(self) -> messages.Introduction:
        return self.me.site.introduction()

    def join(self, **changes: Any) -> None:
        """Join, truthfully but for the given fields of the request."""
        fields: dict[str, Any] = {
            "federation_digest": self.kit.federation.agreed(),
            "instance": self.instance,
            "introduction": wire.to_message(self.introduction()),
        }
        self.stub.Join(pb.JoinRequest(**(fields | changes)), timeout=CALL)

    def follow(self) -> None:
        """Listen to the server on a thread."""
        self.handle(Linked())
        self._stream = self.stub.Follow(pb.FollowRequest(instance=self.instance))
        self._thread = threading.Thread(target=self._hear, args=(self._stream,), daemon=True)
        self._thread.start()

    def listens(self) -> bool:
        """Whether the server still talks to us."""
        return self._thread is not None and self._thread.is_alive()

    def _hear(self, stream: Any) -> None:
        try:
            for message in stream:
                event = wire.event_from(message)
                if isinstance(event, messages.Roster):
                    self.members = event.members
                self.handle(Told(event))
                asked = isinstance(event, messages.RoundRequest) and not event.past
                if asked and self.me.site.index in event.responders:
                    self.requests.put(event)
        except grpc.RpcError:
            return  # closed by either side; whoever waits for more says so at its deadline

    def met(self) -> None:
        """Wait until everybody has agreed on the session."""
        before = (Phase.JOINING, Phase.AGREEING)
        until(lambda: self.me.phase not in before, f"{self.name} knows that everybody agrees")

    # --- shares ----------------------------------------------------------------------------------------------------

    def shares(self, peer: str) -> bytes:
        """Our shares for another client."""
        return data_of(self._shares(peer))

    def _shares(self, peer: str) -> Send:
        return self.wanted(lambda send: send.to == peer and _kind(send) is Kind.SHARES, f"shares for {peer}")

    def share_piece(self, whole: bytes, first: int = 0, **changes: Any) -> pb.Piece:
        """One piece of a delivery, truthful but for the given fields."""
        return piece(Parcel(self.me.session, Kind.SHARES, self.me.site.share_set.id), whole, first, **changes)

    def peer(self, name: str) -> tuple[grpc.Channel, stubs.ExchangeStub]:
        channel = dial(self.kit, name)
        return channel, stubs.ExchangeStub(channel)

    def received_by(self, name: str) -> int:
        """How many bytes of our shares another client says it has."""
        channel, stub = self.peer(name)
        with channel:
            parcel = Parcel(self.me.session, Kind.SHARES, self.me.site.share_set.id)
            return int(stub.Progress(wire.to_message(parcel), timeout=CALL).received)

    def deliver(self, name: str, *parts: pb.Piece, kind: Kind = Kind.SHARES) -> int:
        """Deliver these pieces, or all our shares, to another party."""
        if not parts and kind is Kind.SHARES:
            send = self._shares(name)
            assert isinstance(send.message, Parcel)
            parts = tuple(pieces(send.message, data_of(send)))
        channel, stub = self.peer(name)
        with channel:
            return int(stub.Deliver(iter(parts), timeout=CALL).received)

    def share(self) -> None:
        """Deliver to all others, wait for theirs, and report it."""
        for name in self.kit.federation.roster:
            if name != self.name:
                self.deliver(name)
        self.hold()

    def hold(self) -> None:
        """Once we hold everybody's shares, say so."""
        self.transmit(self.wanted(lambda send: isinstance(send.message, messages.Held), "all shares"))

    def report(self, report: messages.Report, instance: bytes | None = None) -> None:
        self.stub.Report(wire.report_to(report, instance or self.instance), timeout=CALL)

    # --- rounds ----------------------------------------------------------------------------------------------------

    def request(self, seconds: float = 60.0) -> messages.RoundRequest:
        """The next question to us."""
        return self.requests.get(timeout=seconds)

    def answer(self, request: messages.RoundRequest) -> bytes:
        """Our answer to a question."""
        return data_of(self._upload(request))

    def _upload(self, request: messages.RoundRequest) -> Send:
        parcel = self.upload_parcel(request)
        return self.wanted(lambda send: send.message == parcel, f"an answer to request {request.number}")

    def upload_parcel(self, request: messages.RoundRequest) -> Parcel:
        return Parcel(self.me.session, Kind.UPLOAD, attempt_name(request.number, request.attempt))

    def upload_piece(self, request: messages.RoundRequest, whole: bytes, first: int = 0, **changes: Any) -> pb.Piece:
        """An upload as one piece, truthful but for the given fields."""
        return piece(self.upload_parcel(request), whole, first, **changes)

    def upload(self, *parts: pb.Piece) -> int:
        return int(self.exchange.Deliver(iter(parts), timeout=CALL).received)

    def uploaded(self, request: messages.RoundRequest, own: kit.Kit | None = None) -> int:
        """How many bytes of an answer to a question the server has, of ours or of another client's."""
        with dial(own or self.kit, "server") as channel:
            return int(
                stubs.ExchangeStub(channel)
                .Progress(wire.to_message(self.upload_parcel(request)), timeout=CALL)
                .received
            )

    def go_on(self, seconds: float = 60.0) -> None:
        """Answer every question until the job is finished."""
        deadline = time.monotonic() + seconds
        while self.me.phase is Phase.ROUNDS:
            assert time.monotonic() < deadline, f"after {seconds:.0f} s the job is not finished"
            try:
                request = self.requests.get(timeout=0.2)
            except queue.Empty:
                continue
            self.transmit(self._upload(request))
        assert self.me.phase is Phase.FINISHED, self.me.ended
        self.transmit(self.wanted(lambda send: isinstance(send.message, messages.Done), "nothing left to do"))

    def close(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
        if self._thread is not None:
            self._thread.join(10.0)
        self._channel.close()
        if self._listener is not None:
            self._listener.stop(None).wait(10.0)


def piece(parcel: Parcel, whole: bytes, first: int = 0, **changes: Any) -> pb.Piece:
    """What is there of a parcel from byte `first` on as one piece, truthful but for the given fields of piece and parcel."""
    named = {name: changes.pop(name) for name in ("session", "kind", "name") if name in changes}
    message = wire.to_message(parcel)
    for name, value in named.items():
        setattr(message, name, value)
    fields: dict[str, Any] = {"parcel": message, "offset": first, "total": len(whole), "data": whole[first:]}
    return pb.Piece(**(fields | changes))


def pieces(parcel: Parcel, data: bytes) -> list[pb.Piece]:
    """A whole parcel."""
    size = transfer.PIECE_BYTES
    places = range(0, max(len(data), 1), size)
    return [piece(parcel, data, at, data=data[at : at + size]) for at in places]


def data_of(send: Send) -> bytes:
    """All bytes of a message."""
    return b"" if send.body is None else b"".join(bytes(data) for _, data in send.body.pieces(0))


def _kind(send: Send) -> Kind | None:
    return send.message.kind if isinstance(send.message, Parcel) else None


def _by_itself(send: Send) -> bool:
    return isinstance(send.message, messages.Agreed) or (send.to == SERVER and _kind(send) is Kind.SUM)
