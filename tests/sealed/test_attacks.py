"""docs/privacy.md on sealed rounds: attacks that succeed on masked uploads fail on what the server of a real sealed job
holds, succeed again with the help of one member of the committee, and labels tell something all the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest

from experiments import attacks, labels, recovery
from experiments.attacks import Outcome
from experiments.sealedview import SealedTranscript
from experiments.transcript import Setting, Transcript, machine, record
from secfc.agreement.federation import SERVER
from secfc.agreement.policy import assignments_given
from secfc.coding.field import Words
from secfc.kmeans import fixedpoint
from secfc.kmeans.lloyd import Question
from secfc.privacy.sealed.comparer import Comparer
from secfc.privacy.sealed.messages import Talk
from secfc.privacy.sealed.questions import places
from secfc.privacy.sealed.referee import Referee
from secfc.protocol import memory
from secfc.protocol.effects import Send
from secfc.protocol.parcels import Kind, Parcel
from secfc.protocol.rounds import sealing
from secfc.protocol.server.attempt import Attempt
from tests.parties import make_federation

Attack = Callable[[Transcript], Outcome]


def mixture() -> Setting:
    return attacks.mixture(6, 80, 6, 5, 1, 1)


@cache
def transcript(setting: Callable[[], Setting], uploads: str) -> Transcript:
    return record(setting(), uploads)


def with_member(seen: Transcript, attack: Attack) -> Outcome:
    """The attack once a member of the committee has put its pads back."""
    assert isinstance(seen, SealedTranscript)
    seen.member = True
    try:
        return attack(seen)
    finally:
        seen.member = False


SOLVED: list[tuple[Callable[[], Setting], Attack]] = [
    (attacks.iris, attacks.own_rows),
    (attacks.iris, attacks.axes),
    (attacks.iris, attacks.few_rows),
    (mixture, attacks.axes),
    (lambda: attacks.answers(6, 80), attacks.bits),
    (lambda: attacks.planted(24, 100, 3), attacks.chosen),
]


@pytest.mark.parametrize(("setting", "attack"), SOLVED, ids=["e", "f", "i", "f-mixture", "g", "h"])
def test_attacks_that_give_every_row_on_masked_give_none_on_sealed(
    setting: Callable[[], Setting], attack: Attack
) -> None:
    """(e) to (i): own rows, lattice reduction, yes/no features. The server and one member have them all again."""
    masked, sealed = attack(transcript(setting, "masked")), attack(transcript(setting, "sealed"))
    assert (masked.exact, masked.error) == (1.0, 0.0)
    assert sealed.exact == 0.0
    helped = with_member(transcript(setting, "sealed"), attack)
    assert (helped.exact, helped.error) == (1.0, 0.0)


def test_sealed_rounds_do_not_show_distances_between_rows() -> None:
    """Attack (c), in floats; the cloud it finds is laid over the rows by the best motion and scale, and is worth a guess."""
    masked, sealed = transcript(attacks.iris, "masked"), transcript(attacks.iris, "sealed")
    assert attacks.distances(masked).error < 1e-6
    truth = sealed.rows.astype(np.float64)
    found = recovery.aligned(attacks.distances(sealed).estimate, truth, scale=True)[1]
    assert found > 0.85  # as tests/protocol/test_attacks.py has it for noise
    assert with_member(sealed, attacks.distances).error < 1e-6


def sixteenths(seen: SealedTranscript) -> list[int]:
    """Where in their ranges the values stand that are in the place of d′, in sixteenths."""
    out: list[int] = []
    for step, request in enumerate(seen.requests):
        columns, lanes = places(seen.seen[step].question.shape(seen.plan.sealed(len(seen.rows))))
        for at, h in enumerate(request.columns):
            modulus = prod(seen.plan.field.primes[lane] for lane in lanes[columns == h])
            out += [16 * value // modulus for value in seen.integers(step)[:, at].tolist()]
    return out


def test_what_stands_for_distances_is_uniform() -> None:
    """ρ of all requests fills the modulus evenly; d′, which a member and the server have, is at its low end."""
    seen = transcript(mixture, "sealed")
    assert isinstance(seen, SealedTranscript)
    counts = np.bincount(sixteenths(seen), minlength=16)
    even = counts.sum() / 16
    assert even > 100
    assert (abs(counts - even) < 6 * np.sqrt(even)).all()  # missed once in 10⁷ runs
    seen.member = True
    helped = np.bincount(sixteenths(seen), minlength=16)
    seen.member = False
    assert helped[0] > 0.9 * helped.sum()


def test_clients_that_are_no_members_hear_nothing_of_the_committee() -> None:
    """So they cannot help the server more than with masked uploads, of which it gets the sum less the pad."""
    setting = mixture()
    rows = fixedpoint.quantise(setting.values, setting.bound, setting.precision)
    parts = [rows[at] for at in labels.dealt(setting)]
    job = memory.Memory(setting.plan("sealed"), parts, machine(setting, 0))
    talks: set[tuple[str, str]] = set()
    committees: set[tuple[int, ...]] = set()

    def alter(sender: str, send: Send) -> Send:
        if isinstance(send.message, Parcel) and send.message.kind is Kind.STEP:
            talks.add((sender, send.to))
        return send

    def asked(attempt: Attempt) -> None:
        committees.add(sealing.Detail.from_bytes(attempt.exchange.requests(attempt.digests)[0].detail).committee)

    job.alter, job.asked = alter, asked
    job.run()
    [committee] = committees
    names = {job.federation.roster[j] for j in committee}
    assert len(names) == setting.privacy + 1 < setting.clients
    assert talks
    assert all({one, other} <= names | {SERVER} for one, other in talks)


def test_a_comparison_tells_the_server_which_is_nearer_as_often_as_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """All bits that the server gets out of the comparisons of a job, against what they are about: it knows half of them, as
    with a coin; a member's blind makes them all right."""
    seen: dict[bool, list[Any]] = {True: [], False: []}
    for side, serves in ((Referee, True), (Comparer, False)):

        def compare(self: Any, parts: Any, *, old: Any = side.compare, serves: bool = serves) -> Talk[Any]:
            name = (self.line.context, self.line.chunk)
            found = yield from old(self, parts)
            if serves or self.place == 0:
                seen[serves].append((name, self.line.stage, self.line.step, np.array(found, dtype=bool)))
            return found

        monkeypatch.setattr(side, "compare", compare)
    record(attacks.mixture(6, 100, 6, 5, 1, 1), "sealed")
    monkeypatch.undo()
    ours = {entry[:3]: entry[3] for entry in seen[True]}
    theirs = {entry[:3]: entry[3] for entry in seen[False]}
    both = [name for name in ours if len(ours[name]) and name in theirs]
    g = np.concatenate([ours[name] for name in both])
    truth = g ^ np.concatenate([theirs[name] for name in both])
    assert len(g) > 3000
    for nearer in (True, False):  # within 6 deviations of one half: missed once in 10⁸ runs
        guessed = g[truth == nearer]
        assert abs(guessed.mean() - 0.5) < 3 / np.sqrt(len(guessed))


def test_what_a_lying_client_spoils_is_not_noticed() -> None:
    """With two clusters a wrong upload always gives some order; nobody sees that it is not that of the rows."""
    values = np.random.default_rng(3).normal(size=(60, 3))
    setting = Setting("noise", values, 2, 5, 1, 1, bound=8.0, precision=8, start="random", max_rounds=1)
    rows = fixedpoint.quantise(values, setting.bound, setting.precision)
    parts = [rows[at] for at in labels.dealt(setting)]

    def lie(client: int, question: Question, words: Words) -> Words:
        return np.zeros_like(words) if client == 1 else words

    honest, spoilt = (
        memory.run(setting.plan("sealed"), parts, machine(setting, 0), lie=who).labels for who in (None, lie)
    )
    assert honest.tolist() != spoilt.tolist()


# --- what labels tell ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting",
    [labels.settings()[0], pytest.param(labels.settings()[1], marks=pytest.mark.slow)],
    ids=lambda one: getattr(one, "name", None),
)
def test_labels_alone_tell_every_party_much_of_the_rows(setting: Setting) -> None:
    """Attacks (j) and (k): nobody may write that sealed rounds tell nothing. A start is its number, so this is repeatable."""
    report = labels.attack(setting, jobs=(1, 3))
    assert report.guess < 0.1
    for learnt in report.learnt:
        assert learnt.r2 > 0.4
        assert learnt.others_r2 > 0.35
    assert report.learnt[1].assignments > report.learnt[0].assignments


def test_the_attack_on_labels_can_fail() -> None:
    """On labels that have nothing to do with the rows it finds nothing."""
    setting, chance = labels.settings()[0], np.random.default_rng(1)
    dealt = [chance.integers(0, 3, len(setting.values)).astype(np.int32) for _ in range(20)]
    found = labels.learn(setting, [dealt])
    assert found.r2 < 0.1
    assert found.others_r2 < 0.1


@pytest.mark.slow
def test_the_labels_attacked_are_those_that_the_meter_counts() -> None:
    setting = labels.settings()[0]
    given, federation = labels.published(setting, 0), make_federation(5, k=setting.clusters, seeding=setting.start)
    seen = record(setting, "sealed", candidates=setting.plan("sealed").candidates)
    counted = assignments_given(federation.job, federation.job.k, len(seen.requests) - 1)
    assert len(given) == counted, "the last request opens the inertia"
