"""A process that may not grow hears claims of 2⁶³ words, rows and bytes. Run by test_memory."""

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

from secfc import events, wire
from secfc.errors import SecfcError
from secfc.v1 import secfc_pb2 as pb
from secfc_client import data
from secfc_server.journal import Journal
from tests.fuzz.test_files import resumed, written
from tests.protocol.joined import Joined, deal, introduced, make_federation, resigned, roster, strangers

HUGE, folder = 1 << 63, Path(tempfile.mkdtemp())
owner, me, *_ = introduced(make_federation(4), deal(3, [3, 4, 0, 5]))
job = Joined(make_federation(4), deal(3, [3, 4, 0, 5]), seed=1)
job.until(lambda: job.coordinator.rounds is not None and job.coordinator.rounds.attempt is not None)
asked = job.coordinator.rounds.attempt.name
table = io.BytesIO()
pq.write_table(pa.table({"a": np.arange(1000.0), "b": np.arange(1000.0)}), table)


def share(offset, total):
    return lambda: me.receive(
        "c0",
        owner.session,
        owner.share_set.id,
        wire.chunk_from(pb.ShareChunk(offset=offset, total=total, words=bytes(8))),
    )


def upload(offset, total):
    chunk = pb.UploadChunk(offset=offset, total=total, words=bytes(8))
    return lambda: job.coordinator.upload("c0", asked, wire.chunk_from(chunk), 0, 0)


def event(**kind):
    return lambda: me.handle(wire.event_from(pb.Event(**kind)))


def request(**fields):
    return pb.RoundRequest(number=HUGE, assignment_digest=bytes(32), deadline_seconds=1, **fields)


def introduction():
    wire.introduction_from(
        pb.Introduction(name="c0", rows=HUGE, share_set=bytes(16), x25519=bytes(32), nonce=bytes(32))
    )


def many_rows():
    claims = [resigned(m, AGREED4, rows=(1 << 31)) for m in roster(met).members]
    met[0].handle(events.Roster(tuple(claims)))


def journal(value):
    def call():
        Journal.remove(folder)
        written(folder)
        base = sqlite3.connect(folder / "journal.sqlite")
        base.execute("UPDATE facts SET value = ?", (value,))
        base.execute("UPDATE state SET labels = ?", (value,))
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


AGREED4 = make_federation(4)
met = strangers(AGREED4, deal(3, [3, 4, 0, 5]))
length = len(table.getvalue())
claims = {
    "a share of 2^63 words": share(0, HUGE),
    "a share at 2^62": share(1 << 62, HUGE),
    "an upload of 2^63 words": upload(0, HUGE),
    "an upload at 2^62": upload(1 << 62, HUGE),
    "an assignment of 2^63 bytes": event(assignment=pb.AssignmentChunk(version=1, total=HUGE, data=b"x")),
    "a change of 2^32 rows": event(
        assignment=pb.AssignmentChunk(version=1, base=0, total=6, data=b"\1\xff\xff\xff\xff\x20")
    ),
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
