"""A small federation for tests of the machines: who takes part, what they bring and sign, and what must not change."""

from __future__ import annotations

import dataclasses
import enum
import hmac
import json
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc.agreement import federation as federations
from secfc.agreement import plan, toml
from secfc.agreement.federation import Federation
from secfc.agreement.job import KEYS
from secfc.agreement.plan import Plan
from secfc.agreement.policy import Policy
from secfc.coding.field import Field
from secfc.coding.lagrange import Code
from secfc.errors import WrongSender
from secfc.kmeans.coins import Coins
from secfc.privacy import masks
from secfc.protocol import messages
from secfc.protocol.client.guard import Guard
from secfc.protocol.client.site import Secrets, Site

Rows = npt.NDArray[np.int64]


def make_federation(clients: int = 5, **changes: Any) -> Federation:
    """A federation of clients c0, c1, …; η is 128. Settings as in federation.toml, of the federation and the job."""
    keys = {
        "name": "trial",
        "k": 3,
        "starts": 1,
        "privacy": 1,
        "uploads": "masked",
        "seeding": "k-means++",
        "max_rows": 60,
        "features": 3,
        "segments": 1,
        "bound": 8.0,
        "precision": 4,
    } | changes
    line = {
        key: f"{key} = {toml.dump(value) if isinstance(value, str | dict | bool) else value}"
        for key, value in keys.items()
    }
    lines = [line[key] for key in keys if key not in KEYS] + ["[job]"] + [line[key] for key in keys if key in KEYS]
    lines += ["[server]", 'address = "server.test:1"']
    for j in range(clients):
        lines += ["[[client]]", f'name = "c{j}"', f'address = "c{j}.test:1"']
    return federations.parse("\n".join(lines), "federation.toml")


@cache
def plan_of(agreed: Federation) -> Plan:
    return plan.of(agreed)


def deal(seed: int, sizes: Sequence[int], features: int = 3, spread: int = 128) -> list[Rows]:
    """Rows of every client; a small spread makes ties and duplicate rows."""
    generator = np.random.default_rng(seed)
    return [generator.integers(-spread, spread + 1, (size, features), dtype=np.int64) for size in sizes]


def sign(name: str, statement: bytes) -> bytes:
    """Stands for a signature that only `name` can make."""
    return hmac.digest(name.encode(), statement, "sha256")


def verifier(agreed: Federation) -> Callable[[messages.Signed], None]:
    def verify(signed: messages.Signed) -> None:
        if not hmac.compare_digest(sign(signed.name, signed.statement(agreed.agreed())), signed.signature):
            raise WrongSender(f"the {type(signed).__name__.lower()} of {signed.name} is not signed by it")

    return verify


def fresh_secrets(generator: random.Random) -> Secrets:
    private = X25519PrivateKey.from_private_bytes(generator.randbytes(32))
    return Secrets(generator.randbytes(32), private, generator.randbytes(32), generator.randbytes(32))


def make_site(
    agreed: Federation, name: str, rows: Rows, secrets: Secrets, *, policy: Policy | None = None, **changes: Any
) -> Site:
    """One client; its instance is its number, 16 times. `changes` are fields of its `Site`."""
    any_start = changes.get("any_start", False)
    site = Site(
        federation=agreed,
        plan=plan_of(agreed),
        name=name,
        rows=rows,
        secrets=secrets,
        guard=Guard(agreed, plan_of(agreed), policy, any_start=any_start),
        verify=verifier(agreed),
        sign=lambda text: sign(name, text),
        certificate=b"pem of " + name.encode(),
        instance=bytes([agreed.roster.index(name)]) * 16,
        chance=random.Random(0),
    )
    return dataclasses.replace(site, **changes)


def sites(agreed: Federation, rows: Sequence[Rows], seed: int = 0, **changes: Any) -> list[Site]:
    """All clients; the same seed gives the same secrets."""
    generator = random.Random(seed)
    return [
        make_site(agreed, name, part, fresh_secrets(generator), **changes)
        for name, part in zip(agreed.roster, rows, strict=True)
    ]


def resigned(introduction: messages.Introduction, agreed: Federation, **changes: Any) -> messages.Introduction:
    """An introduction with other content, properly signed by the client it names."""
    bare = dataclasses.replace(introduction, **changes)
    return dataclasses.replace(bare, signature=sign(bare.name, bare.statement(agreed.agreed())))


def digest_of(labels: npt.NDArray[np.int32]) -> bytes:
    return masks.assignment_digest(labels.astype("<i4").tobytes())


# --- what a refused message must not change -------------------------------------------------------------------------

_LOCK = type(threading.Lock())
_SHARED = (Federation, Plan, Field, Code, Coins, X25519PrivateKey, random.Random, _LOCK)  # caches inside are not state


def everything(value: object) -> object:
    """Everything reachable from a machine, as plain values that compare equal exactly if nothing changed."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if value is None or isinstance(value, str | bytes | bytearray | int | float | Fraction | enum.Enum | np.generic):
        return repr(value)
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, _SHARED) or callable(value):
        return id(value)
    if isinstance(value, dict):
        return [(everything(key), everything(item)) for key, item in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, list | tuple):
        return [everything(item) for item in value]
    if dataclasses.is_dataclass(value):
        return [type(value).__name__, *(everything(getattr(value, f.name)) for f in dataclasses.fields(value))]
    return [type(value).__name__, everything(vars(value))]


def difference(before: Any, after: Any, where: str = "") -> str:
    """Where two such pictures differ first; empty if they do not."""
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        found = (
            difference(one, other, f"{where}/{i}") for i, (one, other) in enumerate(zip(before, after, strict=True))
        )
        return next(filter(None, found), "")
    if isinstance(before, tuple) and isinstance(after, tuple) and before[:1] == after[:1]:
        return difference(list(before[1:]), list(after[1:]), f"{where}/{before[0]}")
    return "" if before == after else f"{where}: {before!r} became {after!r}"


@contextmanager
def unchanged(*machines: object) -> Iterator[None]:
    """Nothing that is reachable from these may change in between."""
    before = [everything(machine) for machine in machines]
    yield
    assert not (found := difference(before, [everything(machine) for machine in machines])), found


def admitted(kept: Mapping[str, Any]) -> tuple[int, int]:
    """The last request, with its attempt, that a client has noted on its disk as admitted."""
    given = bytes(kept.get("given", b""))
    asked = json.loads(given[4 : 4 + int.from_bytes(given[:4], "big")] or b"{}").get("asked", {})
    return asked.get("number", 0), asked.get("attempt", 0)
