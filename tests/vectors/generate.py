"""Test vectors: small, deterministic, and readable by an implementation in another language.

`python -m tests.vectors.generate` writes tests/vectors/*.json. `tests/unit/test_vectors.py` checks the code against the
files and that this generator still makes them byte for byte. Numbers are decimal; words are hexadecimal, 16 digits a
64-bit word, most significant first; bytes are hexadecimal. A *tampered* vector names the step that must refuse it and the
error of `secfc.errors` it must be refused with.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secfc.agreement import plan
from secfc.coding.field import Field, Layout, Words
from secfc.coding.lagrange import Code
from secfc.coding.prg import uniform
from secfc.coding.sharing import CodedRows, ShareSet
from secfc.kmeans.coins import Coins
from secfc.kmeans.decoding import Decoder, Distances
from secfc.kmeans.distances import CodedClusters, Shape
from secfc.kmeans.fixedpoint import quantise
from secfc.privacy import keys, masks
from secfc.privacy.masks import MaskContext

FOLDER = Path(__file__).parent
SEED = bytes(range(32))


def words_hex(words: Words) -> list[str]:
    return [f"{int(word):016x}" for word in words]


def hex_words(text: list[str]) -> Words:
    return np.array([int(word, 16) for word in text], dtype=np.uint64)


def canonical(field: Field, residues: np.ndarray) -> list[Any]:
    """Residues in [0, p), lane by lane."""
    return [(lane.astype(np.int64) % p).tolist() for lane, p in zip(residues, field.primes, strict=True)]


def crt() -> dict[str, Any]:
    """Integers modulo Q, their residues and mixed-radix digits, and how residues are packed."""
    out = []
    for lanes in (1, 2, 3, 6, 16):
        field = Field.of(lanes)
        q = field.modulus
        values = [0, 1, q - 1, q // 2, q // 3]
        column = field.from_ints(np.array(values, dtype=object).reshape(-1, 1))
        distances = Distances(field, len(values), 1)
        decoder = Decoder(Shape((0,), Layout.uniform(field, len(values), 1)), [0], None)
        words = field.pack(column)
        decoder.add(0, 0, words)
        decoder.finish(distances)
        out.append(
            {
                "primes": list(field.primes),
                "values": values,
                "residues": canonical(field, column[:, :, 0]),
                "digits": distances.digits[:, :, 0].tolist(),
                "words": words_hex(words),
            }
        )
    good = Field.of(2).pack(np.ones((2, 2, 1)))
    top = good.copy()
    top[0] |= np.uint64(1 << 63)
    high = good.copy()
    high[0] = (good[0] & ~np.uint64((1 << 42) - (1 << 21))) | np.uint64(Field.of(2).primes[1] << 21)
    padding = good.copy()
    padding[1] |= np.uint64(1 << 21)
    tampered = {
        "a residue equal to its prime": high,
        "the top bit of a word set": top,
        "padding that is not zero": padding,
        "a word too many": np.append(good, np.uint64(0)),
        "a word too few": good[:1],
    }
    return {
        "vectors": out,
        "tampered": [
            {
                "why": why,
                "step": "unpack",
                "error": "Malformed",
                "lanes": 2,
                "rows": 2,
                "columns": 1,
                "words": words_hex(w),
            }
            for why, w in tampered.items()
        ],
    }


def prg() -> dict[str, Any]:
    """Residue streams; primes just above 2²⁰ reject about half of the candidates."""
    fields = [Field.of(1), Field.of(3), Field((1048583, 1048589))]
    return {
        "vectors": [
            {
                "key": SEED.hex(),
                "primes": list(field.primes),
                "rows": 7,
                "columns": 2,
                "residues": canonical(field, uniform(field, 7, 2, SEED)),
            }
            for field in fields
        ]
    }


ROWS = np.array(
    [[1.5, -2.0, 0.25, 3.0, -0.125], [0.0, 4.0, -4.0, 1.0, 2.0], [-1.5, 2.5, 0.5, -3.75, 1.0], [4, 4, 4, 4, 4]]
)
LABELS = [0, 1, 0, 1]


def example(uploads: str = "open") -> plan.Plan:
    return plan.make(plan.Wishes(6, 1, 2, 5, 4, 4.0, 6, uploads=uploads, segments=2))


def clusters_of_all(agreed: plan.Plan) -> list[CodedClusters]:
    rows = quantise(ROWS, 4.0, 6)
    shares = ShareSet(agreed.code, rows, SEED).shares(range(agreed.wishes.clients))
    out = []
    for words in shares:
        coded = CodedRows(agreed.field, len(rows), agreed.length)
        coded.put(slice(0, len(rows)), words)
        coded.finish()
        out.append(CodedClusters(coded, 2))
        out[-1].assign(np.array(LABELS, dtype=np.int32))
    return out


def encoding() -> dict[str, Any]:
    """Quantisation (eq. 4), public points, the matrix of eq. 2, and every client's share."""
    agreed = example()
    code: Code = agreed.code
    rows = quantise(ROWS, 4.0, 6)
    share_set = ShareSet(code, rows, SEED)
    return {
        "vectors": [
            {
                "clients": 6,
                "segments": 2,
                "privacy": 1,
                "bound": 4.0,
                "precision": 6,
                "primes": list(agreed.field.primes),
                "rows": ROWS.tolist(),
                "quantised": rows.tolist(),
                "alphas": [list(lane) for lane in code.alphas],
                "betas": [list(lane) for lane in code.betas],
                "matrix": canonical(code.field, code.encoding),
                "seed": SEED.hex(),
                "share_set_id": share_set.id.hex(),
                "shares": [words_hex(words) for words in share_set.shares(range(6))],
            }
        ],
        "tampered": [
            {"why": "NaN", "step": "quantise", "error": "DataError", "row": 2, "column": 4, "value": "nan"},
            {"why": "infinite", "step": "quantise", "error": "DataError", "row": 1, "column": 5, "value": "-inf"},
            {
                "why": "beyond the bound",
                "step": "quantise",
                "error": "DataError",
                "row": 4,
                "column": 1,
                "value": "4.001",
            },
        ],
    }


def decoding() -> dict[str, Any]:
    """Open uploads of all clients, the weights of some responder sets, and d′."""
    agreed = example()
    shape = agreed.shape(4, np.array([2, 2]), (0, 1))
    uploads = [clusters.upload(shape) for clusters in clusters_of_all(agreed)]
    vectors = []
    for responders in ((0, 1, 2, 3, 4), (5, 1, 4, 0, 2)):
        weights = agreed.code.weights(responders)
        decoder = Decoder(shape, responders, weights)
        for j in responders:
            decoder.add(j, 0, uploads[j])
        distances = Distances(agreed.field, 4, 2)
        decoder.finish(distances)
        vectors.append(
            {
                "responders": list(responders),
                "weights": canonical(agreed.field, weights),
                "distances": distances.integers([0, 1]).tolist(),
            }
        )
    bad = uploads[1].copy()
    bad[0] |= np.uint64((1 << 21) - 1)
    top = uploads[1].copy()
    top[-1] |= np.uint64(1 << 63)
    tampered = [
        ("decode-add", "Malformed", "a residue not below its prime", 1, 0, bad),
        ("decode-add", "Malformed", "the top bit of a word set", 1, 0, top),
        ("decode-add", "Malformed", "words out of order", 1, 1, uploads[1][1:]),
        ("decode-add", "Malformed", "a word too many", 1, 0, np.append(uploads[1], np.uint64(0))),
        ("decode-add", "OutOfTurn", "not a responder", 5, 0, uploads[5]),
        ("decode-finish", "JobFailed", "an upload that is not complete", 1, 0, uploads[1][:1]),
    ]
    sets = [[0, 1, 2, 3], [0, 1, 2, 3, 3], [0, 1, 2, 3, 6], [-1, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]
    return {
        "labels": LABELS,
        "widths": list(shape.layout.widths),
        "columns": list(shape.columns),
        "uploads": [words_hex(words) for words in uploads],
        "vectors": vectors,
        "tampered": [
            {"why": why, "step": step, "error": error, "responder": j, "offset": offset, "words": words_hex(words)}
            for step, error, why, j, offset, words in tampered
        ]
        + [
            {"why": "not exactly R of the roster", "step": "responders", "error": "InvalidInput", "set": s}
            for s in sets
        ],
    }


CONTEXT = MaskContext(b"session", bytes(32), 3, 1, (0, 1, 2, 4, 5), masks.assignment_digest(b""), (0, 1))
CHANGES: dict[str, Any] = {
    "session": b"Session",
    "parameters": bytes(31) + b"\x01",
    "round": 4,
    "attempt": 2,
    "responders": (0, 1, 3, 4, 5),
    "assignment": masks.assignment_digest(b"\x01"),
    "columns": (0,),
}


def context_of(values: dict[str, Any]) -> MaskContext:
    """A context from its JSON form."""
    raw = {name: bytes.fromhex(values[name]) for name in ("session", "parameters", "assignment")}
    lists = {name: tuple(values[name]) for name in ("responders", "columns")}
    return MaskContext(round=values["round"], attempt=values["attempt"], **raw, **lists)


def json_context(context: MaskContext) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in MaskContext.__dataclass_fields__:
        value = getattr(context, name)
        if name == "rows" and not value:  # all of them, as ever
            continue
        out[name] = value.hex() if isinstance(value, bytes) else list(value) if isinstance(value, tuple) else value
    return out


def secret(one: int, two: int) -> bytes:
    """What two clients share, in these vectors."""
    return bytes([min(one, two), max(one, two)]) * 16


def masked_upload(agreed: plan.Plan, clusters: CodedClusters, me: int, context: MaskContext) -> Words:
    shape = agreed.shape(4, np.array([2, 2]), context.columns)
    agreed.code.check_responders(context.responders)
    weights = agreed.code.weights(context.responders)[:, context.responders.index(me)]
    secrets = {j: secret(me, j) for j in context.responders if j != me}
    return clusters.upload(shape, weights, masks.signed_keys(me, 1, context, secrets))


def masking() -> dict[str, Any]:
    """The graph, the keys of every edge in a context, masked uploads, and contexts whose keys must differ."""
    agreed = example("masked")
    clusters = clusters_of_all(agreed)
    uploads = {j: masked_upload(agreed, clusters[j], j, CONTEXT) for j in CONTEXT.responders}
    decoder = Decoder(agreed.shape(4, np.array([2, 2]), CONTEXT.columns), CONTEXT.responders, None)
    for j, words in uploads.items():
        decoder.add(j, 0, words)
    distances = Distances(agreed.field, 4, 2)
    decoder.finish(distances)
    edges = {}
    for me in CONTEXT.responders:
        signed = masks.signed_keys(me, 1, CONTEXT, {j: secret(me, j) for j in CONTEXT.responders if j != me})
        edges[str(me)] = [{"key": key.hex(), "sign": sign} for key, sign in signed]
    import dataclasses

    return {
        "graphs": [
            {"responders": r, "privacy": t, "neighbours": [masks.neighbours(i, r, t) for i in range(r)]}
            for r, t in ((3, 1), (5, 1), (5, 2), (7, 2), (9, 3))
        ],
        "vectors": [
            {
                "context": json_context(CONTEXT),
                "keys": edges,
                "uploads": {str(j): words_hex(words) for j, words in uploads.items()},
                "distances": distances.integers([0, 1]).tolist(),
            }
        ],
        "tampered": [
            {
                "why": f"another {name}: every mask differs, so uploads of the two contexts do not decode together",
                "step": "context",
                "component": name,
                "context": json_context(dataclasses.replace(CONTEXT, **{name: value})),
                "key_of_0_and_1": masks.stream_key(secret(0, 1), dataclasses.replace(CONTEXT, **{name: value})).hex(),
            }
            for name, value in CHANGES.items()
        ]
        + [
            {"why": "no responder", "step": "signed-keys", "error": "InvalidInput", "client": 3},
        ],
    }


NAMES = ("a", "bb", "c")


def privates() -> list[X25519PrivateKey]:
    """The private keys of these vectors: 32 bytes 1, 2 and 3."""
    return [X25519PrivateKey.from_private_bytes(bytes([j + 1]) * 32) for j in range(len(NAMES))]


def parties() -> list[keys.Party]:
    return [(name, own.public_key().public_bytes_raw()) for name, own in zip(NAMES, privates(), strict=True)]


def pairing() -> dict[str, Any]:
    """What each pair of three clients shares, and the proofs each gives the others."""
    session = b"session"
    pairs = [keys.pair_keys(own, session, parties(), me) for me, own in enumerate(privates())]
    return {
        "session": session.hex(),
        "parties": [{"name": name, "public": public.hex()} for name, public in parties()],
        "vectors": [
            {
                "client": me,
                "pair_keys": {str(j): key.hex() for j, key in mine.items()},
                "proofs": [proof.hex() for proof in keys.proofs(mine, session, NAMES, me)],
            }
            for me, mine in enumerate(pairs)
        ],
        "tampered": [
            {"why": "a public key of low order", "step": "agree", "error": "WrongSender", "public": bytes(32).hex()},
            {"why": "a public key too short", "step": "agree", "error": "WrongSender", "public": "00ff"},
        ],
    }


def coins() -> dict[str, Any]:
    """Public coins."""
    draw = Coins(b"seed")
    bounds = [1, 2, 3, 255, 256, 257, 10**6, 10**30]
    return {
        "seed": b"seed".hex(),
        "vectors": [{"label": "k-means++ 1", "bound": b, "value": draw.below("k-means++ 1", b)} for b in bounds],
        "random_start": {"bound": 5, "values": draw.integers("random start", 5, 20).tolist()},
    }


FILES = {
    "crt": crt,
    "prg": prg,
    "encoding": encoding,
    "decoding": decoding,
    "masks": masking,
    "keys": pairing,
    "coins": coins,
}


def text(name: str) -> str:
    """The file of that name, as it must be."""
    return json.dumps(FILES[name](), indent=1, sort_keys=True) + "\n"


def main() -> None:
    for name in FILES:
        (FOLDER / f"{name}.json").write_text(text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
