"""A client that the test plays: a real participant over real gRPC and TLS, which does what it is told and when."""

from __future__ import annotations

import os
import queue
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

from secfc import events, fixedpoint, kit, plan, prg, rpc, wire
from secfc.errors import SecfcError
from secfc.field import Words
from secfc.v1 import secfc_pb2 as pb
from secfc.v1 import secfc_pb2_grpc as stubs
from secfc_client.participant import Participant, Phase, Secrets
from tests.integration.helpers import dial, until

CALL = 20.0


class Scripted(stubs.ShareExchangeServicer):
    """One client of the roster; every step is a method. Close it at the end."""

    def __init__(self, folder: Path, values: npt.NDArray[np.float64]) -> None:
        self.kit = kit.load(folder)
        made = self.kit.federation
        rows = fixedpoint.quantise(values, made.bound, made.precision)
        secrets = Secrets(prg.fresh_key(), X25519PrivateKey.generate(), os.urandom(32), os.urandom(32))
        self.me = Participant(made, plan.of(made), self.kit.party_name, rows, secrets, kit.verifier(self.kit))
        self.instance = os.urandom(16)
        self.requests: queue.Queue[events.RoundRequest] = queue.Queue()
        self.refuse: grpc.StatusCode | None = None  # what others' deliveries are answered with
        self._channel = dial(self.kit, "server")
        self.stub = stubs.CoordinatorStub(self._channel)
        self._listener: grpc.Server | None = None
        self._stream: Any = None
        self._thread: threading.Thread | None = None

    # --- others' calls ---------------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Take in what the other clients deliver."""
        self._listener = grpc.server(ThreadPoolExecutor(4))
        stubs.add_ShareExchangeServicer_to_server(self, self._listener)
        pair = [(self.kit.key_pem, self.kit.certificate_pem)]
        credentials = grpc.ssl_server_credentials(pair, self.kit.ca_pem, require_client_auth=True)
        self._listener.add_secure_port(self.kit.federation.client(self.me.name).bind, credentials)
        self._listener.start()

    def Progress(self, request: pb.ProgressRequest, context: Any) -> pb.ProgressReply:
        owner = rpc.caller(context, self.kit.federation.name)
        return self._answer(
            context, lambda: pb.ProgressReply(received=self.me.progress(owner, request.session, request.share_set))
        )

    def Deliver(self, request_iterator: Iterator[pb.ShareChunk], context: Any) -> pb.ShareReceipt:
        owner = rpc.caller(context, self.kit.federation.name)

        def take() -> pb.ShareReceipt:
            received = 0
            for message in request_iterator:
                received = self.me.receive(owner, message.session, message.share_set, wire.chunk_from(message))
            whole = self.me.complete(owner)
            if whole is not None:
                self.me.settle(owner, whole)
            return pb.ShareReceipt(received=received)

        return self._answer(context, take)

    def _answer(self, context: Any, take: Callable[[], Any]) -> Any:
        if self.refuse is not None:
            context.abort(self.refuse, "refused by the script")
        try:
            return take()
        except SecfcError as error:
            context.abort(rpc.status_of(error), str(error))

    # --- what it does ----------------------------------------------------------------------------------------------

    def introduction(self) -> events.Introduction:
        return self.me.introduction(self.kit.certificate_pem, self.kit.sign)

    def join(self, **changes: Any) -> None:
        """Join, truthfully but for the given fields of the request."""
        fields: dict[str, Any] = {
            "federation_digest": self.kit.federation.digest(),
            "instance": self.instance,
            "introduction": wire.introduction_to(self.introduction()),
        }
        self.stub.Join(pb.JoinRequest(**(fields | changes)), timeout=CALL)

    def follow(self) -> None:
        """Listen to the server on a thread."""
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
                request = self.me.handle(event)
                if isinstance(event, events.Roster) and self.me.phase is Phase.AGREEING:
                    self.report(self.me.agreement(self.kit.sign))
                if isinstance(event, events.Reveals) and self.me.verifiable:
                    self.verify()
                if request is not None:
                    self.requests.put(request)
        except grpc.RpcError:
            return  # closed by either side; whoever waits for more says so at its deadline

    def met(self) -> None:
        """Wait until everybody has agreed on the session."""
        before = (Phase.JOINING, Phase.AGREEING)
        until(lambda: self.me.phase not in before, f"{self.me.name} knows that everybody agrees")

    def shares(self, peer: str) -> Words:
        return self.me.outgoing(peer)

    def chunk(self, shares: Words, first: int = 0, **changes: Any) -> pb.ShareChunk:
        """One chunk of a delivery, truthful but for the given fields."""
        fields: dict[str, Any] = {
            "session": self.me.session,
            "share_set": self.me.share_set.id,
            "offset": first,
            "total": len(shares),
            "words": wire.word_bytes(shares[first:]),
        }
        return pb.ShareChunk(**(fields | changes))

    def peer(self, name: str) -> tuple[grpc.Channel, stubs.ShareExchangeStub]:
        channel = dial(self.kit, name)
        return channel, stubs.ShareExchangeStub(channel)

    def received_by(self, name: str) -> int:
        """How many words of ours another client says it has."""
        channel, stub = self.peer(name)
        with channel:
            request = pb.ProgressRequest(session=self.me.session, share_set=self.me.share_set.id)
            return int(stub.Progress(request, timeout=CALL).received)

    def deliver(self, name: str, *chunks: pb.ShareChunk) -> int:
        """Deliver these chunks, or all our shares, to another client."""
        words = self.shares(name)
        whole = [self.chunk(words[: c.offset + len(c.words)], c.offset, total=c.total) for c in wire.chunks(words)]
        channel, stub = self.peer(name)
        with channel:
            return int(stub.Deliver(iter(chunks or whole), timeout=CALL).received)

    def share(self) -> None:
        """Deliver to all others, wait for theirs, and report it."""
        for name in self.kit.federation.roster:
            if name != self.me.name:
                self.deliver(name)
        self.hold()

    def hold(self) -> None:
        self.me.keep_own()
        until(lambda: not self.me.missing(), f"{self.me.name} has all shares")
        self.report(events.Held(self.me.holdings(), 0, 0, 0.0, self.me.coin()))

    def verify(self) -> None:
        """Our part of the check of all shares, unless that is over."""
        purpose, words = self.me.verification()
        whole = pb.SumChunk(context=purpose, offset=0, total=len(words), words=wire.word_bytes(words))
        try:
            self.stub.Contribute(iter([whole]), timeout=CALL)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
                raise

    def report(self, report: events.Report, instance: bytes | None = None) -> None:
        self.stub.Report(wire.report_to(report, instance or self.instance), timeout=CALL)

    def request(self, seconds: float = 60.0) -> events.RoundRequest:
        """The next question to us."""
        return self.requests.get(timeout=seconds)

    def upload_chunk(self, request: events.RoundRequest, answer: Words, **changes: Any) -> pb.UploadChunk:
        """A whole upload as one chunk, truthful but for the given fields."""
        fields: dict[str, Any] = {
            "session": self.me.session,
            "round": request.number,
            "attempt": request.attempt,
            "offset": 0,
            "total": len(answer),
            "words": wire.word_bytes(answer),
        }
        return pb.UploadChunk(**(fields | changes))

    def upload(self, *chunks: pb.UploadChunk) -> int:
        return int(self.stub.Upload(iter(chunks), timeout=CALL).received)

    def go_on(self, seconds: float = 60.0) -> None:
        """Answer every question until the job is finished."""
        deadline = time.monotonic() + seconds
        while self.me.phase is Phase.ROUNDS:
            assert time.monotonic() < deadline, f"after {seconds:.0f} s the job is not finished"
            try:
                request = self.requests.get(timeout=0.2)
            except queue.Empty:
                continue
            self.upload(self.upload_chunk(request, self.me.answer(request)))
        assert self.me.phase is Phase.FINISHED, self.me.failure
        self.report(events.Done())

    def close(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
        if self._thread is not None:
            self._thread.join(10.0)
        self._channel.close()
        if self._listener is not None:
            self._listener.stop(None).wait(10.0)
