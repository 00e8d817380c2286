"""The JSON test vectors: good ones are reproduced, tampered ones are refused at their named step, files are current."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from secfc import errors
from secfc.coding.field import Field, Layout
from secfc.coding.lagrange import Code
from secfc.coding.prg import uniform
from secfc.coding.sharing import CodedRows, ShareSet, segment_length
from secfc.kmeans.coins import Coins
from secfc.kmeans.decoding import Decoder, Distances
from secfc.kmeans.distances import Shape
from secfc.kmeans.fixedpoint import quantise
from secfc.privacy import keys, masks
from tests import reference
from tests.vectors import generate
from tests.vectors.generate import FOLDER, canonical, hex_words, words_hex

STORED: dict[str, Any] = {
    name: json.loads(path.read_text(encoding="utf-8"))
    for name in generate.FILES
    if (path := FOLDER / f"{name}.json").exists()
}


def cases(name: str, kind: str = "vectors", step: str | None = None) -> list[Any]:
    found = [case for case in STORED[name][kind] if step is None or case["step"] == step]
    return [pytest.param(case, id=case.get("why", str(i))) for i, case in enumerate(found)]


def error(case: dict[str, Any]) -> type[Exception]:
    found = getattr(errors, case["error"])
    assert issubclass(found, errors.SecfcError)
    return found


@pytest.mark.parametrize("name", generate.FILES)
def test_the_files_are_current(name: str) -> None:
    """`python -m tests.vectors.generate` would write them again byte for byte."""
    assert (FOLDER / f"{name}.json").read_text(encoding="utf-8") == generate.text(name)


def test_the_files_are_small_and_every_one_is_known() -> None:
    files = list(FOLDER.glob("*.json"))
    assert {path.stem for path in files} == set(generate.FILES)
    assert sum(path.stat().st_size for path in files) < 100_000


@pytest.mark.parametrize("case", cases("crt"))
def test_crt(case: dict[str, Any]) -> None:
    field = Field(tuple(case["primes"]))
    rows = len(case["values"])
    assert case["residues"] == [[v % p for v in case["values"]] for p in field.primes]
    residues = field.unpack(hex_words(case["words"]), rows, 1)
    assert canonical(field, residues[:, :, 0]) == case["residues"]
    assert field.to_ints(residues)[:, 0].tolist() == case["values"]
    decoder = Decoder(Shape((0,), Layout.uniform(field, rows, 1)), [0], None)
    decoder.add(0, 0, hex_words(case["words"]))
    distances = Distances(field, rows, 1)
    decoder.finish(distances)
    assert distances.digits[:, :, 0].tolist() == case["digits"]


@pytest.mark.parametrize("case", cases("crt", "tampered", "unpack"))
def test_unpack_refuses(case: dict[str, Any]) -> None:
    with pytest.raises(error(case)):
        Field.of(case["lanes"]).unpack(hex_words(case["words"]), case["rows"], case["columns"])


@pytest.mark.parametrize("case", cases("prg"))
def test_prg(case: dict[str, Any]) -> None:
    field = Field(tuple(case["primes"]))
    got = uniform(field, case["rows"], case["columns"], bytes.fromhex(case["key"]))
    assert canonical(field, got) == case["residues"]


@pytest.mark.parametrize("case", cases("encoding"))
def test_encoding(case: dict[str, Any]) -> None:
    code = Code(Field(tuple(case["primes"])), case["clients"], case["segments"], case["privacy"])
    rows = quantise(case["rows"], case["bound"], case["precision"])
    assert rows.tolist() == case["quantised"]
    assert [list(lane) for lane in code.alphas] == case["alphas"]
    assert [list(lane) for lane in code.betas] == case["betas"]
    assert canonical(code.field, code.encoding) == case["matrix"]
    share_set = ShareSet(code, rows, bytes.fromhex(case["seed"]))
    assert share_set.id.hex() == case["share_set_id"]
    assert [words_hex(words) for words in share_set.shares(range(case["clients"]))] == case["shares"]
    coded = CodedRows(code.field, len(rows), segment_length(rows.shape[1], code.segments))
    coded.put(slice(0, len(rows)), hex_words(case["shares"][0]))


@pytest.mark.parametrize("case", cases("encoding", "tampered", "quantise"))
def test_quantise_refuses(case: dict[str, Any]) -> None:
    rows = generate.ROWS.copy()
    rows[case["row"] - 1, case["column"] - 1] = float(case["value"])
    with pytest.raises(error(case), match=f"row {case['row']}, column {case['column']} "):
        quantise(rows, 4.0, 6)


def new_decoder(responders: list[int]) -> Decoder:
    agreed = generate.example()
    stored = STORED["decoding"]
    shape = Shape(tuple(stored["columns"]), Layout(agreed.field, 4, tuple(stored["widths"])))
    return Decoder(shape, responders, agreed.code.weights(responders))


@pytest.mark.parametrize("case", cases("decoding"))
def test_decoding(case: dict[str, Any]) -> None:
    agreed = generate.example()
    assert canonical(agreed.field, agreed.code.weights(case["responders"])) == case["weights"]
    decoder = new_decoder(case["responders"])
    for j in case["responders"]:
        decoder.add(j, 0, hex_words(STORED["decoding"]["uploads"][j]))
    distances = Distances(agreed.field, 4, 2)
    decoder.finish(distances)
    assert distances.integers([0, 1]).tolist() == case["distances"]
    rows = reference.as_rows(STORED["encoding"]["vectors"][0]["quantised"])
    for h in range(2):
        assert reference.scaled(rows, STORED["decoding"]["labels"], h) == [line[h] for line in case["distances"]]


@pytest.mark.parametrize("case", cases("decoding", "tampered", "decode-add"))
def test_decoder_refuses(case: dict[str, Any]) -> None:
    decoder = new_decoder([0, 1, 2, 3, 4])
    with pytest.raises(error(case)):
        decoder.add(case["responder"], case["offset"], hex_words(case["words"]))
    assert decoder.missing() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("case", cases("decoding", "tampered", "decode-finish"))
def test_decoder_refuses_to_finish(case: dict[str, Any]) -> None:
    decoder = new_decoder([0, 1, 2, 3, 4])
    for j in range(5):
        words = case["words"] if j == case["responder"] else STORED["decoding"]["uploads"][j]
        decoder.add(j, 0, hex_words(words))
    with pytest.raises(error(case)):
        decoder.finish(Distances(generate.example().field, 4, 2))


@pytest.mark.parametrize("case", cases("decoding", "tampered", "responders"))
def test_responder_sets_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(error(case)):
        generate.example().code.weights(case["set"])


@pytest.mark.parametrize("case", cases("masks", "graphs"))
def test_graphs(case: dict[str, Any]) -> None:
    r, t = case["responders"], case["privacy"]
    assert [masks.neighbours(i, r, t) for i in range(r)] == case["neighbours"]


@pytest.mark.parametrize("case", cases("masks"))
def test_masks(case: dict[str, Any]) -> None:
    context = generate.context_of(case["context"])
    agreed = generate.example("masked")
    clusters = generate.clusters_of_all(agreed)
    decoder = Decoder(agreed.shape(4, np.array([2, 2]), context.columns), context.responders, None)
    for j in context.responders:
        secrets = {o: generate.secret(j, o) for o in context.responders if o != j}
        signed = masks.signed_keys(j, 1, context, secrets)
        assert [{"key": key.hex(), "sign": sign} for key, sign in signed] == case["keys"][str(j)]
        upload = generate.masked_upload(agreed, clusters[j], j, context)
        assert words_hex(upload) == case["uploads"][str(j)]
        decoder.add(j, 0, hex_words(case["uploads"][str(j)]))
    distances = Distances(agreed.field, 4, 2)
    decoder.finish(distances)
    assert distances.integers([0, 1]).tolist() == case["distances"] == STORED["decoding"]["vectors"][0]["distances"]


@pytest.mark.parametrize("case", cases("masks", "tampered", "context"))
def test_another_context_has_other_masks(case: dict[str, Any]) -> None:
    """Its keys are as stored, none is a key of the good context, and one upload in it spoils the sum."""
    good = generate.context_of(STORED["masks"]["vectors"][0]["context"])
    other = generate.context_of(case["context"])
    changed = [name for name in case["context"] if getattr(good, name) != getattr(other, name)]
    assert changed == [case["component"]]
    key = masks.stream_key(generate.secret(0, 1), other)
    assert key.hex() == case["key_of_0_and_1"] != masks.stream_key(generate.secret(0, 1), good).hex()
    if other.columns != good.columns:
        return
    agreed = generate.example("masked")
    clusters = generate.clusters_of_all(agreed)
    decoder = Decoder(agreed.shape(4, np.array([2, 2]), good.columns), good.responders, None)
    for j in good.responders:
        words = generate.masked_upload(agreed, clusters[j], j, other if j == 0 else good)
        decoder.add(j, 0, words)
    distances = Distances(agreed.field, 4, 2)
    decoder.finish(distances)
    assert (distances.integers([0, 1]) != np.array(STORED["masks"]["vectors"][0]["distances"], dtype=object)).all()


@pytest.mark.parametrize("case", cases("keys"))
def test_pair_keys_and_proofs(case: dict[str, Any]) -> None:
    session, me = bytes.fromhex(STORED["keys"]["session"]), case["client"]
    pairs = keys.pair_keys(generate.privates()[me], session, generate.parties(), me)
    assert {str(j): key.hex() for j, key in pairs.items()} == case["pair_keys"]
    assert [proof.hex() for proof in keys.proofs(pairs, session, generate.NAMES, me)] == case["proofs"]
    others = [one["proofs"][me] for one in STORED["keys"]["vectors"]]
    keys.check_proofs([bytes.fromhex(proof) for proof in others], pairs, session, generate.NAMES, me)


@pytest.mark.parametrize("case", cases("keys", "tampered", "agree"))
def test_a_bad_public_key_is_refused(case: dict[str, Any]) -> None:
    parties = [generate.parties()[0], ("bb", bytes.fromhex(case["public"]))]
    with pytest.raises(error(case)):
        keys.pair_keys(generate.privates()[0], b"session", parties, 0)


@pytest.mark.parametrize("case", cases("masks", "tampered", "signed-keys"))
def test_signed_keys_refuse(case: dict[str, Any]) -> None:
    with pytest.raises(error(case)):
        masks.signed_keys(case["client"], 1, generate.CONTEXT, {})


@pytest.mark.parametrize("case", cases("coins"))
def test_coins(case: dict[str, Any]) -> None:
    draw = Coins(bytes.fromhex(STORED["coins"]["seed"]))
    assert draw.below(case["label"], case["bound"]) == case["value"]
    start = STORED["coins"]["random_start"]
    assert draw.integers("random start", start["bound"], len(start["values"])).tolist() == start["values"]
