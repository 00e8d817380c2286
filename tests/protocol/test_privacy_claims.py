"""That t clients learn nothing, and what masked uploads hide (docs/protocol.md, Sections 2 and 3): shown
by algebra or by counting all cases."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import Counter
from math import comb

import numpy as np
import pytest

from secfc.coding.field import Field
from secfc.coding.lagrange import Code
from secfc.coding.sharing import CodedRows, ShareSet
from secfc.errors import Unavailable, WrongSender
from secfc.kmeans.distances import CodedClusters, Shape
from secfc.kmeans.lloyd import Question
from secfc.privacy import masks
from secfc.protocol import memory
from secfc.protocol.client.inputs import Told
from secfc.protocol.effects import Effects
from secfc.protocol.messages import RoundRequest
from secfc.protocol.parcels import Kind, Parcel
from tests import reference
from tests.federations import Holder, Job, decoded, holders
from tests.oracle import galois_field, in_galois, small_field


def invertible(matrix: list[list[int]], p: int) -> bool:
    """Gaussian elimination in Python integers."""
    rows = [list(row) for row in matrix]
    for column in range(len(rows)):
        pivot = next((r for r in range(column, len(rows)) if rows[r][column] % p), None)
        if pivot is None:
            return False
        rows[column], rows[pivot] = rows[pivot], rows[column]
        inverse = pow(rows[column][column], -1, p)
        for r in range(column + 1, len(rows)):
            factor = rows[r][column] * inverse % p
            rows[r] = [(a - factor * b) % p for a, b in zip(rows[r], rows[column], strict=True)]
    return True


@pytest.mark.parametrize(
    ("n", "segments", "privacy"),
    [(3, 1, 1), (5, 1, 2), (5, 2, 1), (7, 1, 3), (8, 2, 2), (9, 2, 3), (16, 3, 5), (50, 5, 20)],
)
def test_any_t_shares_are_masked_by_full_rank_noise(n: int, segments: int, privacy: int) -> None:
    """docs/protocol.md, Section 2: I(x_i; (x̃_ij)_{j∈C}) = 0 for |C| ≤ t, since every t×t minor of the noise block is
    invertible."""
    code = Code(Field.of(3), n, segments, privacy)
    pick = random.Random(n)
    if comb(n, privacy) <= 200:
        subsets = list(itertools.combinations(range(n), privacy))
    else:
        subsets = [tuple(pick.sample(range(n), privacy)) for _ in range(40 if n < 50 else 8)]
    for lane, p in enumerate(code.field.primes):
        noise = code.encoding[lane][:, segments:].astype(int)
        for subset in subsets:
            assert invertible([[int(v) % p for v in noise[j]] for j in subset], p), (lane, subset)


@pytest.mark.parametrize(
    ("p", "n", "segments", "privacy"), [(31, 4, 1, 1), (31, 4, 2, 1), (13, 5, 1, 2), (13, 5, 2, 2)]
)
def test_t_shares_tell_nothing_by_counting_all_noise(p: int, n: int, segments: int, privacy: int) -> None:
    """Over all noise values, the joint distribution of any t shares is uniform, whatever the row; t+1 shares do tell."""
    field = small_field(p)
    code = Code(field, n, segments, privacy)
    coefficients = code.encoding
    every = list(itertools.product(range(p), repeat=privacy))
    views: list[dict[tuple[int, ...], Counter[tuple[int, ...]]]] = []
    for row in ((0,) * segments, tuple(range(5, 5 + segments))):
        segments_and_noise = np.array([[*row, *noise] for noise in every]).T
        shares = field.matmul(coefficients, field.from_ints(segments_and_noise))[0].astype(int) % p
        views.append(
            {
                who: Counter(map(tuple, shares[list(who)].T.tolist()))
                for size in (privacy, privacy + 1)
                for who in itertools.combinations(range(n), size)
            }
        )
    for who, seen in views[0].items():
        if len(who) == privacy:
            assert set(seen.values()) == {1}
            assert len(seen) == p**privacy
            assert seen == views[1][who]
    assert any(seen != views[1][who] for who, seen in views[0].items() if len(who) == privacy + 1)


@pytest.mark.parametrize(("p", "n", "segments", "privacy"), [(13, 5, 1, 2), (13, 6, 2, 2), (13, 7, 1, 3)])
def test_t_real_shares_are_uniform_over_all_noise(
    p: int, n: int, segments: int, privacy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same of what a `ShareSet` gives out: p^t equal rows, row by row with every possible noise, once each."""
    field = small_field(p)
    code = Code(field, n, segments, privacy)
    every = np.array(list(itertools.product(range(p), repeat=privacy)), dtype=np.float64)

    def all_noise(_field: Field, rows: int, values: int, _key: bytes) -> np.ndarray:
        assert (rows, values) == every.shape
        return every[None].copy()

    monkeypatch.setattr("secfc.coding.prg.uniform", all_noise)
    for row in ((0,) * segments, tuple(range(1, 1 + segments))):
        shares = ShareSet(code, np.tile(np.array(row), (len(every), 1)), b"s" * 32).shares(range(n))
        values = [field.unpack(words, len(every), 1)[0, :, 0].astype(int) % p for words in shares]
        for who in itertools.combinations(range(n), privacy):
            seen = Counter(zip(*(values[j].tolist() for j in who), strict=True))
            assert len(seen) == p**privacy, who
            assert set(seen.values()) == {1}


@pytest.mark.parametrize(("n", "segments", "privacy"), [(5, 1, 2), (9, 2, 3), (11, 1, 5)])
def test_t_real_shares_have_t_independent_noises(n: int, segments: int, privacy: int) -> None:
    """With the noise of the stream itself: over rows that are all alike, no combination of any t shares stays the same."""
    code = Code(Field.of(3), n, segments, privacy)
    rows = np.full((40, 2 * segments), 7)
    shares = ShareSet(code, rows, b"k" * 32).shares(range(n))
    for lane, p in enumerate(code.field.primes):
        values = np.stack([code.field.unpack(words, 40, 2)[lane, :, 0].astype(int) % p for words in shares])
        steps = (values[:, 1:] - values[:, :1]) % p
        for who in itertools.islice(itertools.combinations(range(n), privacy), 0, None, 7):
            assert np.linalg.matrix_rank(in_galois(p, steps[list(who), : 2 * privacy])) == privacy


def uploads_of_all(code: Code, rows: np.ndarray, labels: np.ndarray, shape: Shape) -> dict[int, np.ndarray]:
    shares = ShareSet(code, rows, b"s" * 32)
    out = {}
    for j, words in enumerate(shares.shares(range(code.clients))):
        coded = CodedRows(code.field, len(rows), shares.length)
        coded.put(slice(0, len(rows)), words)
        coded.finish()
        clusters = CodedClusters(coded, int(labels.max()) + 1)
        clusters.assign(labels)
        out[j] = clusters.upload(shape)
    return out


@pytest.mark.parametrize(("n", "segments", "privacy"), [(5, 1, 1), (9, 2, 2), (9, 3, 1), (16, 3, 4)])
def test_uploads_are_values_of_phi(n: int, segments: int, privacy: int) -> None:
    """docs/protocol.md, Section 3: φ_ih has degree 2(ℓ+t−1); R uploads determine it, R − 1 do not; φ(β_u) is
    segment u's distance, and every other client's upload is φ(α_j)."""
    import galois

    pick = np.random.default_rng(n)
    rows = pick.integers(-9, 10, size=(6, 5))
    labels = np.array([0, 1, 0, 1, 1, 0], dtype=np.int32)
    code = Code(Field.of(1), n, segments, privacy)
    p, gf = code.field.primes[0], galois_field(code.field.primes[0])
    shape = Shape.of(code.field, 6, np.array([3, 3]), (0, 1), 5 * 18**2)
    uploads = uploads_of_all(code, rows, labels, shape)
    values = {j: code.field.unpack(words, 6, 2)[0] for j, words in uploads.items()}
    R, degree = code.responders, 2 * (segments + privacy - 1)
    first, rest = list(range(R)), list(range(R, n))
    length = -(-5 // segments)
    padded = np.zeros((6, segments * length), dtype=int)
    padded[:, :5] = rows
    alphas = code.alphas[0]
    for i, h in [(0, 0), (4, 0), (5, 1)]:
        phi = galois.lagrange_poly(gf([alphas[j] for j in first]), in_galois(p, [values[j][i, h] for j in first]))
        assert phi.degree == degree
        for u in range(segments):
            part = [tuple(row[u * length : (u + 1) * length]) for row in padded.tolist()]
            assert int(phi(gf(code.betas[0][u]))) == reference.scaled(part, labels.tolist(), h)[i] % p
        for j in rest:
            assert int(phi(gf(alphas[j]))) == int(values[j][i, h]) % p
        fewer = galois.lagrange_poly(
            gf([alphas[j] for j in first[1:]]), in_galois(p, [values[j][i, h] for j in first[1:]])
        )
        assert int(fewer(gf(alphas[0]))) != int(values[0][i, h]) % p
        whole = reference.scaled(reference.as_rows(rows), labels.tolist(), h)[i]
        folded = (in_galois(p, code.weights(first)[0]) * in_galois(p, [values[j][i, h] for j in first])).sum()
        assert int(folded) == whole % p == sum(int(phi(gf(code.betas[0][u]))) for u in range(segments)) % p


def masked_round(job: Job) -> tuple[dict[int, np.ndarray], Question, list[Holder]]:
    """The uploads of a job's first question, and all clients."""
    agreed = job.plan()
    clients = holders(agreed, *job.parts())
    question = job.clustering().question
    responders = tuple(range(agreed.responders))
    return {j: clients[j].answer(question, b"session", responders, 1) for j in responders}, question, clients


ROUND = Job(
    tuple((x, 7 - x, x * x) for x in range(8)), 2, (0, 1, 2, 3, 4) * 1 + (0, 1, 2), initial=(0, 1) * 4, privacy=2
)


def test_the_sum_of_masked_uploads_is_d_prime() -> None:
    """docs/protocol.md, Section 3: the server adds, and what it learns is d′."""
    uploads, question, _ = masked_round(ROUND)
    distances = decoded(ROUND.plan(), question, uploads)
    for h in range(2):
        assert distances.integers([h])[:, 0].tolist() == reference.scaled(ROUND.rows, ROUND.initial or (), h)


def test_all_but_one_masked_uploads_do_not_decode() -> None:
    """R − 1 uploads and a zero one add up to something else, in every residue: a mask is missing."""
    uploads, question, _ = masked_round(ROUND)
    for left_out in uploads:
        rest = {j: words if j != left_out else np.zeros_like(words) for j, words in uploads.items()}
        distances = decoded(ROUND.plan(), question, rest)
        expected = np.array([reference.scaled(ROUND.rows, ROUND.initial or (), h) for h in range(2)], dtype=object).T
        assert (distances.integers([0, 1]) != expected).mean() > 0.9


def test_repeating_an_answer_is_byte_identical_and_an_attempt_is_fresh() -> None:
    """docs/protocol.md, Section 5: repeating the same attempt gives byte-identical uploads; another has fresh masks."""
    uploads, question, holders = masked_round(ROUND)
    responders = tuple(uploads)
    for j in responders:
        assert holders[j].answer(question, b"session", responders, 1).tobytes() == uploads[j].tobytes()
        for session, attempt in [(b"session", 2), (b"other", 1)]:
            other = holders[j].answer(question, session, responders, attempt)
            assert (other != uploads[j]).all()


def test_masked_uploads_look_uniform() -> None:
    """Same rows, many contexts: the residues of one upload, and the sum of any R − 1 of them, spread evenly over the
    field. Chi-squares of 16 cells with fixed keys: 15 degrees of freedom, 45 is beyond one in 10⁴."""
    field = Field.of(1)
    code = Code(field, 3, 1, 1)
    rows = np.array([[1], [2], [4], [8], [16], [32]])
    labels = np.zeros(6, dtype=np.int32)
    shape = Shape.of(field, 6, np.array([6]), (0,), 100)
    secrets = {(a, b): bytes([a, b]) * 16 for a in range(3) for b in range(3) if a < b}
    clusters = []
    for words in ShareSet(code, rows, b"n" * 32).shares(range(3)):
        coded = CodedRows(field, 6, 1)
        coded.put(slice(0, 6), words)
        coded.finish()
        clusters.append(CodedClusters(coded, 1))
        clusters[-1].assign(labels)
    p = field.primes[0]
    seen = np.empty((400, 3, 6), dtype=np.int64)
    for number in range(400):
        context = masks.MaskContext(b"session", b"parameters", number, 1, (0, 1, 2), b"assignment", (0,))
        for j in range(3):
            mine = {o: secrets[min(j, o), max(j, o)] for o in range(3) if o != j}
            keys = masks.signed_keys(j, 1, context, mine)
            upload = clusters[j].upload(shape, code.weights((0, 1, 2))[:, j], keys)
            seen[number, j] = field.unpack(upload, 6, 1)[0, :, 0].astype(np.int64) % p
    total = seen.sum(axis=1) % p
    assert (total == total[0]).all()
    assert total[0].tolist() == reference.scaled(reference.as_rows(rows), [0] * 6, 0)

    def chi_square(values: np.ndarray) -> float:
        counts = np.bincount((values % p * 16 // p).reshape(-1), minlength=16)
        return float(((counts - counts.mean()) ** 2 / counts.mean()).sum())

    for j in range(3):
        assert 2 < chi_square(seen[:, j]) < 45
        assert 2 < chi_square(seen.sum(axis=1) - seen[:, j]) < 45
    for a, b in itertools.combinations(range(3), 2):  # two of three uploads together: still no relation
        assert chi_square(seen[:, a] + seen[:, b] * 12345) < 45


@pytest.mark.parametrize(
    "responders", [(0, 1, 2, 3), (0, 1, 2, 3, 3), (0, 1, 2, 3, 5), (0, 1, 2, 3, -1), (0, 1, 2, 3, 4, 4)]
)
def test_a_client_refuses_a_wrong_responder_set(responders: tuple[int, ...]) -> None:
    """docs/protocol.md, Section 3: a client refuses responders that are not exactly R distinct clients of the roster."""
    rows, positions = ROUND.parts()
    job = memory.Memory(ROUND.plan(), rows, lambda _: ROUND.clustering(), positions=positions)
    victim, heard = job.clients["client-1"], []
    handle = victim.handle

    def lied_to(given: object, now: float) -> Effects:
        if isinstance(given, Told) and isinstance(given.event, RoundRequest):
            given = Told(dataclasses.replace(given.event, responders=responders))
        effects = handle(given, now)  # type: ignore[arg-type]
        heard.extend(send for send in effects.send if _is_upload(send.message))
        return effects

    victim.handle = lied_to  # type: ignore[method-assign, assignment]
    with pytest.raises(Unavailable, match="the server names a wrong responder set"):
        job.run()
    assert victim.ended is not None
    assert isinstance(victim.ended.error, WrongSender)
    assert not heard, "nothing is computed for it"


def _is_upload(message: object) -> bool:
    return isinstance(message, Parcel) and message.kind is Kind.UPLOAD
