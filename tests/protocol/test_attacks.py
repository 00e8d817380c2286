"""docs/privacy.md in action: what the server, alone or with one client, gets out of what the real protocol transmits.

Open uploads are attacked successfully. On masked uploads the attacks on segments and shares fail, and those on the distances
succeed: the server can compute the rows. The attacks take a transcript, so they can be tried on any kind of uploads.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from experiments import attacks, lattice, recovery, yes_no
from experiments.transcript import Setting, Transcript, record
from secfc.agreement.plan import Plan
from secfc.coding.field import Words
from secfc.errors import JobFailed
from secfc.kmeans.lloyd import Question
from secfc.protocol import memory
from secfc.protocol.client.stages import ShareBody
from secfc.protocol.effects import Send
from secfc.protocol.parcels import Data, Kind, Parcel, of_words
from tests.federations import Job, decoded, run

ROOT = Path(__file__).parents[2]
SETTINGS = {"Iris": attacks.iris, "20-d": lambda: attacks.mixture(20, 400, 4, 11, 2, 4)}
both = pytest.mark.parametrize("data", SETTINGS)


@cache
def transcript(data: str, uploads: str) -> Transcript:
    return record(SETTINGS[data](), uploads)


def small(**changes: object) -> Setting:
    """A mixture of 60 rows, 7 features; ℓ = 3 does not divide them."""
    return dataclasses.replace(attacks.mixture(7, 60, 3, 11, 3, 3), **changes)  # type: ignore[arg-type]


@both
def test_open_uploads_show_the_server_the_geometry_of_every_segment(data: str) -> None:
    """Attack (a): from φ(β_u), after ⌈d/ℓ⌉ directions, where the distances d′ alone do not determine it yet."""
    seen = transcript(data, "open")
    found = attacks.segments(seen)
    assert found.error < 1e-9
    assert found.directions == seen.plan.length < seen.plan.wishes.features


@both
def test_open_uploads_and_one_client_give_every_row_exactly(data: str) -> None:
    """Attack (b), although t = 2: linear algebra in each lane, from ⌈d/ℓ⌉ directions."""
    found = attacks.insider(transcript(data, "open"))
    assert found.exact == 1.0
    assert found.error == 0.0


@pytest.mark.parametrize(("clients", "privacy", "segments"), [(3, 1, 1), (11, 5, 1), (7, 1, 3), (11, 3, 3), (5, 1, 2)])
def test_no_t_protects_open_uploads(clients: int, privacy: int, segments: int) -> None:
    """Attack (b) whatever t and ℓ are, padded segments included."""
    seen = record(small(clients=clients, privacy=privacy, segments=segments), "open")
    assert attacks.insider(seen).exact == 1.0


@both
def test_masked_uploads_do_not_show_segments(data: str) -> None:
    """Attack (a) on masked uploads has the error of a guess, after the best alignment and scale."""
    seen = transcript(data, "masked")
    found = attacks.segments(seen)
    assert found.error > 0.85  # noise of 150 rows reaches this by chance once in 10⁸ runs
    assert attacks.guess(seen) > 0.95


@both
def test_masked_uploads_and_one_client_give_no_row(data: str) -> None:
    """Attack (b) on masked uploads, with the insider's own masks taken off: contradictions, no row, the error of a guess."""
    seen = transcript(data, "masked")
    assert recovery.rows_with_insider(seen).contradictions > 0
    found = attacks.insider(seen)
    assert found.exact == 0.0
    assert found.error > 0.85  # noise of 150 rows reaches this by chance once in 10⁸ runs
    assert attacks.guess(seen) > 0.95


@pytest.mark.parametrize("uploads", ["masked", "open"])
@both
def test_distances_between_rows_are_known_once_d_directions_are(data: str, uploads: str) -> None:
    """Attack (c): the server alone, whatever the uploads; every direction leaves less open, with d nothing."""
    seen = transcript(data, uploads)
    steps = attacks.curve(seen)
    assert steps[-1].directions == seen.plan.wishes.features
    assert len(steps) >= 3
    assert all(earlier.error > later.error for earlier, later in itertools.pairwise(steps))
    assert steps[-1].error < 1e-6
    assert seen.meter().complete


# --- whole numbers: the server computes the rows ----------------------------------------------------------------------


@pytest.mark.parametrize("features", [4, 6, 10, 24])
def test_a_full_meter_gives_the_server_every_feature(features: int) -> None:
    """Attack (f): masked uploads, no colluder, no known row. All that is open is order, sign and shift of the features."""
    seen = record(attacks.mixture(features, 160, 6, 5, 1, 1), "masked")
    assert seen.meter().complete
    found = attacks.axes(seen)
    assert (found.exact, found.error) == (1.0, 0.0)


def test_every_feature_of_iris_is_known_after_one_round() -> None:
    """Attack (f) on real data: three requests for single rows and the first round of Lloyd."""
    seen = transcript("Iris", "masked")
    found = lattice.axes(seen, steps=4)
    assert np.array_equal(lattice.placed(found, seen.rows), seen.rows)


@both
def test_a_few_known_rows_settle_order_sign_and_shift(data: str) -> None:
    """Attack (i): six rows of one client and the server's distances are all rows, to the last bit."""
    assert attacks.few_rows(transcript(data, "masked"), 6).exact == 1.0


def test_yes_no_features_are_read_after_one_round() -> None:
    """Attack (g): d = 10, one round of Lloyd, 2 of 10 directions, the server alone: all of 1000 rows."""
    seen = record(attacks.answers(), "masked")
    assert len(seen.requests) == 1
    assert (seen.meter().count, seen.meter().total) == (2, 10)
    found = attacks.bits(seen)
    assert (found.exact, found.error) == (1.0, 0.0)


def test_a_client_with_four_chosen_rows_reads_forty_yes_no_features() -> None:
    """Attack (h): k-means++ draws the chosen rows; 4 of 40 directions; all 1000 rows of the others, as they are."""
    seen = record(attacks.planted(), "masked")
    assert (seen.meter(5).count, seen.meter().total) == (4, 40)
    assert len(seen.rows) - len(seen.insider.own) == 1000
    assert attacks.chosen(seen).exact == 1.0


def test_distances_that_are_not_those_of_the_rows_give_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attacks can fail: on numbers of the same size that are not d′ they find nothing, and say so."""
    general, answers = record(attacks.mixture(4, 60, 6, 5, 1, 1), "masked"), record(attacks.answers(6, 80), "masked")
    chosen = record(attacks.planted(24, 100, 3), "masked")
    assert [attacks.axes(general).exact, attacks.bits(answers).exact, attacks.chosen(chosen).exact] == [1.0, 1.0, 1.0]
    honest, pick = Transcript.integers, np.random.default_rng(0)

    def noise(seen: Transcript, step: int) -> object:
        true = honest(seen, step)
        return (pick.random(true.shape) * float(true.max())).astype(np.int64).astype(object)

    monkeypatch.setattr(Transcript, "integers", noise)
    assert attacks.axes(general).exact == 0.0
    assert attacks.bits(answers).exact == 0.0
    assert attacks.chosen(chosen).exact == 0.0


def test_too_few_directions_for_the_lattice_are_said() -> None:
    seen = record(dataclasses.replace(attacks.mixture(20, 60, 3, 5, 1, 1), max_rounds=1), "masked")
    with pytest.raises(lattice.NotFound, match="2 directions are known, 20 are needed"):
        lattice.axes(seen)
    assert attacks.axes(seen).error == pytest.approx(1.0)
    with pytest.raises(lattice.NotFound, match="20 features are more than the 12"):
        yes_no.bits_of_all(seen)


def test_order_signs_and_shifts_of_features_are_not_in_the_distances() -> None:
    """Features in another order, mirrored and shifted give the server the same d′ in every round."""
    rows = np.random.default_rng(3).integers(-50, 50, (40, 5))
    moved = rows[:, [3, 0, 4, 1, 2]] * np.array([1, -1, 1, 1, -1]) + np.array([7, -3, 0, 11, 5])
    views = []
    for data in (rows, moved):
        job = Job(tuple(map(tuple, data.tolist())), 3, (0, 1, 2, 3) * 10, clients=5, eta=70, initial=(0, 1, 2, 0) * 10)
        parts, positions = job.parts()
        agreed, view = job.plan(), []

        def tap(
            question: Question, uploads: dict[int, Words], agreed: Plan = agreed, view: list[object] = view
        ) -> None:
            distances = decoded(agreed, question, uploads)
            view.append((question.labels.tolist(), distances.integers(question.columns).tolist()))

        memory.run(agreed, parts, lambda _, job=job: job.clustering(), positions=positions, tap=tap)
        views.append(view)
    assert len(views[0]) > 2
    assert views[0] == views[1]


@both
def test_known_rows_turn_geometry_into_rows(data: str) -> None:
    """Attack (e): masked uploads, d directions, and one client with more than d rows: all rows, to the last bit."""
    seen = transcript(data, "masked")
    assert len(seen.insider.own) > seen.plan.wishes.features
    assert attacks.own_rows(seen).exact == 1.0


def test_jobs_on_the_same_shares_add_up() -> None:
    """Neither job tells the geometry, both together do, and the meter that is kept says so."""
    setting = dataclasses.replace(attacks.mixture(6, 60, 4, 3, 1, 1), max_rounds=1)
    seen = record(setting, "masked", jobs=2)
    assert [len(seen.requests), seen.meter(1).count, seen.meter().count] == [2, 3, 6]
    assert attacks.distances(seen, 1).error > 0.1
    assert attacks.distances(seen).error < 1e-6


def test_the_main_directions_are_known_first() -> None:
    """Half of the directions leave half of the spread open, but next to nothing of the two principal components."""
    seen = transcript("20-d", "masked")
    half = next(step for step in attacks.curve(seen) if step.directions >= 9)
    centred = seen.rows - seen.rows.mean(axis=0)
    main = np.linalg.svd(centred, full_matrices=False)[2][:2].T
    left = np.linalg.norm((half.estimate - seen.rows) @ main) / np.linalg.norm(centred @ main)
    assert half.directions < 12
    assert half.error > 0.4
    assert left < 0.1


def test_iris_is_known_after_one_round() -> None:
    """Four features, k = 3: three requests for single rows and the first round of Lloyd give all directions."""
    last = attacks.curve(transcript("Iris", "masked"))[-1]
    assert (last.requests, last.directions) == (4, 4)


def test_one_direction_short_only_a_sign_a_row_is_missing() -> None:
    """d − 1 directions: the distance to one centre gives the size of the last component of every row."""
    seen = transcript("20-d", "masked")
    columns, known = seen.independent(20), seen.rows.astype(np.float64)
    squared = np.stack(
        [seen.decoded(c.step)[:, seen.requests[c.step].columns.index(c.cluster)] for c in columns], axis=1
    )
    found = recovery.geometry(squared, columns, 19)
    centre = found[columns[0].group].mean(axis=0)
    last = np.sqrt(np.maximum(squared[:, 0] - ((found - centre) ** 2).sum(axis=1), 0.0))
    means = np.stack([known[column.group].mean(axis=0) for column in columns])
    normal = np.linalg.svd(means[1:] - means[0])[2][-1]
    assert np.abs(last - np.abs((known - means[0]) @ normal)).max() < 1e-3 * last.max()


def test_flat_rows_are_known_before_the_meter_says_so() -> None:
    """Rows of three dimensions in six features: three directions give all, and the count says three of six."""
    setting = attacks.mixture(3, 60, 4, 3, 1, 1)
    values = np.concatenate([setting.values, setting.values[:, ::-1]], axis=1)
    seen = record(dataclasses.replace(setting, values=values, max_rounds=1), "masked")
    assert (seen.meter().count, seen.meter().total) == (3, 6)
    assert attacks.distances(seen).error < 1e-6


SPOILT = Job(tuple((x, x * x) for x in range(12)), 2, (0, 1, 2) * 4, clients=3, initial=(0, 1) * 6)


def spoil(number: int) -> memory.Result:
    """A run in which client 2 uploads zeros for that request."""

    def lie(client: int, question: Question, words: Words) -> Words:
        return np.zeros_like(words) if (client, question.number) == (1, number) else words

    parts, positions = SPOILT.parts()
    return memory.run(SPOILT.plan(), parts, lambda _: SPOILT.clustering(), positions=positions, lie=lie)


def test_what_a_lying_client_spoils_is_not_noticed() -> None:
    """Masked uploads: a wrong upload gives wrong distances, and no error unless the inertia rises with them."""
    assert spoil(1).history[0].inertia != run(SPOILT)[0].history[0].inertia


def test_a_lie_that_makes_the_inertia_rise_is_noticed() -> None:
    with pytest.raises(JobFailed, match="the inertia rises in Lloyd round 2"):
        spoil(2)


class OneOff:
    """Shares of which the first residue is one too large, or zero."""

    def __init__(self, body: ShareBody) -> None:
        self._layout, self._words = body.shares.layout, body.shares.shares([body.receiver])[0]

    @property
    def total(self) -> int:
        return 8 * len(self._words)

    def pieces(self, first: int) -> Iterator[tuple[int, Data]]:
        lanes = [np.empty((self._layout.rows, width)) for width in self._layout.widths]
        self._layout.unpack(self._words, lanes)
        lanes[0][0, 0] = (lanes[0][0, 0] + 1) % self._layout.field.primes[0]
        yield from of_words(self._layout.pack(lanes)).pieces(first)


def test_a_share_off_its_polynomial_is_noticed_before_the_first_round() -> None:
    parts, positions = SPOILT.parts()
    job = memory.Memory(SPOILT.plan(), parts, lambda _: SPOILT.clustering(), positions=positions)
    uploads: list[Send] = []

    def alter(sender: str, send: Send) -> Send:
        if not isinstance(send.message, Parcel):
            return send
        if send.message.kind is Kind.UPLOAD:
            uploads.append(send)
        spoils = (sender, send.to, send.message.kind) == ("client-1", "client-2", Kind.SHARES)
        return dataclasses.replace(send, body=OneOff(send.body)) if spoils else send  # type: ignore[arg-type]

    job.alter = alter
    with pytest.raises(JobFailed, match="the shares that the clients hold do not fit together"):
        job.run()
    assert not uploads, "nothing was uploaded"


@pytest.mark.parametrize("uploads", ["masked", "open"])
def test_the_attacks_do_not_look_at_the_rows(uploads: str) -> None:
    """With the rows hidden after the run, what the attacks compute is the same."""
    seen = record(small(), uploads)
    columns = seen.independent(seen.plan.length + 1)
    before = recovery.rows_with_insider(seen).rows, recovery.segment_distances(seen, columns, 1), seen.decoded(0)
    seen.rows = np.zeros_like(seen.rows)
    after = recovery.rows_with_insider(seen).rows, recovery.segment_distances(seen, columns, 1), seen.decoded(0)
    for one, other in zip(before, after, strict=True):
        assert np.array_equal(one, other)


def test_too_few_directions_are_said() -> None:
    with pytest.raises(ValueError, match="2 directions are known, 7 are needed"):
        recovery.rows_with_insider(record(small(clients=3, privacy=1, segments=1, max_rounds=1), "open"))


@pytest.mark.slow
def test_the_command_prints_figures_and_draws_plots(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments", "attacks", "--json", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout)
    assert [report["data"] for report in reports] == [
        *("Iris", "20-d mixture", "24-d mixture", "100-d mixture", "10 yes/no features", "40 yes/no features"),
        *("Iris", "6-d mixture", "6 yes/no features", "24 yes/no features"),
        *("Iris", "Wine", "Breast cancer", "20-d mixture"),
    ]
    for report in reports[:4]:
        results = {(found["attack"], found["uploads"]): found for found in report["attacks"]}
        assert results["a", "open"]["error"] < 1e-6
        assert results["b", "open"]["exact"] == 1.0
        assert results["b", "masked"]["exact"] == 0.0
        assert min(results["a", "masked"]["error"], results["b", "masked"]["error"]) > 0.85
        known = 1.0 if results["f", "masked"]["directions"] == report["d"] else 0.0
        assert [results[name, "masked"]["exact"] for name in "fi"] == [known, known]
    assert [found["exact"] for report in reports[4:6] for found in report["attacks"]] == [1.0, 1.0]
    for report in reports[6:10]:
        exact = {(one["uploads"], one["exact"]) for one in report["attacks"] if one["attack"] != "c"}
        assert exact == {("sealed", 0.0), (attacks.MEMBER, 1.0)}
    for report in reports[10:]:
        assert [one["jobs"] for one in report["labels"]] == [1, 5, 20]
        assert all(one["r2"] > report["guess_r2"] + 0.3 for one in report["labels"])
    assert json.loads((tmp_path / "attacks.json").read_text()) == reports
    plots = sorted(path.name for path in tmp_path.glob("*.png"))
    assert plots == [
        f"attacks-{name}.png" for name in ("100-d-mixture", "20-d-mixture", "24-d-mixture", "directions", "iris")
    ]
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in plots)
