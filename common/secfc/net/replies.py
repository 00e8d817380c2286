"""What a client says to a question that came through the relay, and how its asker understands it."""

from __future__ import annotations

import grpc

from secfc.errors import SecfcError, told
from secfc.net import rpc, wire
from secfc.protocol import messages
from secfc.v1 import secfc_pb2 as pb

_CODES = {code.value[0]: code for code in grpc.StatusCode}


def to(received: int, error: SecfcError | None = None) -> bytes:
    """What we say to a question: how much is here, or why it is refused."""
    if error is None:
        said = pb.Reply(received=received)
    else:
        said = pb.Reply(code=rpc.status_of(error).value[0], text=told(error))
    return bytes(said.SerializeToString())


def of(peer: str, content: bytes) -> int:
    """What a peer says to a question of ours; raises what its refusal stands for."""
    said = wire.content(pb.Reply, content)
    if said.code:
        raise rpc.refusal(_CODES.get(said.code, grpc.StatusCode.UNKNOWN), messages.line(said.text), peer)
    return said.received
