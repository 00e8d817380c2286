"""A process that may not grow hears claims of 2⁶³ rows and bytes. Run by test_memory."""

import io
import resource
import sqlite3
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from secfc.errors import SecfcError
from secfc.net import wire
from secfc.protocol import messages
from secfc.protocol.client.inputs import Told
from secfc.protocol.messages import Phase
from secfc.protocol.parcels import Kind, Parcel, attempt_name, pair_name
from secfc.v1 import secfc_pb2 as pb
from secfc_client import data
from secfc_server.journal import FILE, Journal
from tests.fuzz.test_files import journalled, resumed
from tests.fuzz.trial import Trial
from tests.parties import resigned

HUGE, folder = 1 << 63, Path(tempfile.mkdtemp())


def stopped(phase):
    """A job whose c0 has come to a phase."""
    job = Trial()
    while job.me.phase is not phase:
        job.step()
    return job


sharing, rounds = stopped(Phase.SHARING), stopped(Phase.ROUNDS)
while rounds.asks() is None:
    rounds.step()
asked = attempt_name(rounds.asks().number, rounds.asks().attempt)
table = io.BytesIO()
pq.write_table(pa.table({"a": np.arange(1000.0), "b": np.arange(1000.0)}), table)


def delivered(job, machine, sender, kind, name, offset, total):
    piece = wire.piece_to(Parcel(job.me.session, kind, name), offset, total, bytes(8))
    return lambda: machine.handle(wire.arrived_from(sender, piece), job.now)


def share(offset, total):
    name = sharing.clients["c1"].site.share_set.id
    return delivered(sharing, sharing.me, "c1", Kind.SHARES, name, offset, total)


def upload(offset, total):
    return delivered(rounds, rounds.server, "c0", Kind.UPLOAD, asked, offset, total)


def heard(me, event):
    """Whatever the server says ends a client, or is taken; it never raises."""
    me.handle(Told(event), 1.0)
    if me.ended is not None:
        raise me.ended.error


def event(**kind):
    me = stopped(Phase.SHARING).me
    return lambda: heard(me, wire.event_from(pb.Event(**kind)))


def assignment(total, content):
    parcel = Parcel(sharing.me.session, Kind.ASSIGNMENT, pair_name(1, 0))
    return event(piece=wire.piece_to(parcel, 0, total, content))


def request(**fields):
    return pb.RoundRequest(number=HUGE, assignment_digest=bytes(32), deadline_seconds=1, **fields)


def introduction():
    claim = pb.Introduction(name="c0", rows=HUGE, share_set=bytes(16), x25519=bytes(32), nonce=bytes(32))
    wire.join_from(pb.JoinRequest(instance=bytes(16), introduction=claim))


def many_rows():
    job = Trial()
    claimed = tuple(
        resigned(client.site.introduction(), job.federation, rows=1 << 31) for client in job.clients.values()
    )
    heard(job.me, messages.Roster(claimed))


def journal(value):
    def call():
        Journal.remove(folder)
        (folder / FILE).write_bytes(content)
        base = sqlite3.connect(folder / FILE)
        base.execute("UPDATE kept SET value = ?", (value,))
        base.commit()
        base.close()
        resumed(folder)

    return call


def parquet(at, value):
    def call():
        raw = bytearray(table.getvalue())
        raw[at : at + len(value)] = value
        (folder / "x.parquet").write_bytes(raw)
        data.load(folder / "x.parquet", feature_count=2, feature_names=("a", "b"))

    return call


content, _ = journalled()
length = len(table.getvalue())
claims = {
    "a share of 2^63 bytes": share(0, HUGE),
    "a share at 2^62": share(1 << 62, HUGE),
    "an upload of 2^63 bytes": upload(0, HUGE),
    "an upload at 2^62": upload(1 << 62, HUGE),
    "an assignment of 2^63 bytes": assignment(HUGE, b"x"),
    "a share of 2^47 bytes": share(0, 1 << 47),
    "an upload of 2^47 bytes": upload(0, 1 << 47),
    "an assignment of 2^47 bytes": assignment(1 << 47, b"x"),
    "a change of 2^32 rows": assignment(6, b"\1\xff\xff\xff\xff\x20"),
    "responders beyond all": event(round=request(responders=[0xFFFFFFFF] * 2048)),
    "columns beyond all": event(round=request(columns=[0xFFFFFFFF] * ((1 << 20) + 1))),
    "an introduction of 2^63 rows": introduction,
    "a roster of 2^31 rows each": many_rows,
    "a journal of 2^62": journal(1 << 62),
    "a journal of text": journal("x" * 100),
    "a footer of 2^31 bytes": parquet(length - 8, struct.pack("<I", (1 << 31) - 1)),
    "a footer of 2^32 bytes": parquet(length - 8, b"\xff" * 4),
}
for at in range(4, length - 8, max((length - 12) // 60, 1)):
    claims[f"a parquet file with a long number at {at}"] = parquet(at, b"\xff" * 9 + b"\x7f")

with open("/proc/self/statm") as file:
    now = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (256 << 20), now + (256 << 20)))
may_pass = ("a parquet file",)
for what, claim in claims.items():
    try:
        claim()
        if not what.startswith(may_pass):
            sys.exit(f"{what}: was taken")
    except SecfcError as error:
        if not str(error).isprintable():
            sys.exit(f"{what}: not one line")
        print(f"{what}: {error}")
print("all", len(claims))
