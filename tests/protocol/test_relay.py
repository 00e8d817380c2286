"""What a server that carries envelopes between clients can do to them, and what they notice; real couriers, by hand."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secfc.privacy import envelopes, keys
from secfc.privacy.envelopes import Altered, Envelope, Pair, Sort
from secfc.protocol.courier import Answered, Asked, Broke, Courier, Met, Noticed, Outcome

NAMES = ("a", "b", "c")
SESSION = b"s" * 32
Server = Callable[[str, Envelope], list[tuple[str, Envelope]]]  # (from, envelope) to (to, envelope as it is carried)


def secret(one: str, other: str) -> bytes:
    return ("".join(sorted((one, other))) * 16).encode()


def honest(sender: str, envelope: Envelope) -> list[tuple[str, Envelope]]:
    return [(envelope.peer, replace(envelope, peer=sender))]


class Trio:
    """Three clients and their relay."""

    def __init__(self) -> None:
        self.chance = random.Random(1)
        self.server: Server = honest
        self.ends = {name: self.fresh(name) for name in NAMES}
        self.heard: dict[str, list[Outcome]] = {name: [] for name in NAMES}
        self.carried: list[tuple[str, Envelope]] = []  # by whom it was sent
        self.carry()
        assert all(self.ends[one].ready(other) for one, other in itertools.permutations(NAMES, 2))
        self.first = self.carried  # hellos
        self.forget()

    def fresh(self, name: str) -> Courier:
        shared = {other: secret(name, other) for other in NAMES if other != name}
        return Courier(name, SESSION, shared, self.chance.randbytes)

    def carry(self) -> None:
        """Until nobody has anything to say, which must come soon."""
        most = len(self.carried) + 1000
        while any(end.out for end in self.ends.values()):
            for sender, end in self.ends.items():
                sent, end.out = end.out, []
                for envelope in sent:
                    self.carried.append((sender, envelope))
                    assert len(self.carried) < most, "they never come to an end"
                    for to, given in self.server(sender, envelope):
                        self.heard[to] += self.ends[to].take(given)

    def forget(self) -> None:
        self.heard = {name: [] for name in NAMES}
        self.carried = []

    def asked(self, name: str) -> list[bytes]:
        return [one.content for one in self.heard[name] if isinstance(one, Asked)]

    def noticed(self, name: str) -> list[str]:
        return [one.what for one in self.heard[name] if isinstance(one, Noticed) and not one.usual]

    def works(self, sender: str = "a", to: str = "b") -> None:
        """Whatever happened, an honest server's clients go on."""
        self.server = honest
        self.carry()
        self.forget()
        number = self.ends[sender].ask(to, Sort.PIECE, 9, b"and now?")
        self.carry()
        (asked,) = (one for one in self.heard[to] if isinstance(one, Asked))
        assert (asked.peer, asked.total, asked.content) == (sender, 9, b"and now?")
        self.ends[to].answer(asked, b"yes")
        self.carry()
        assert self.heard[sender] == [Answered(to, number, b"yes")]
        assert not self.noticed(sender) + self.noticed(to)


@pytest.fixture
def trio() -> Trio:
    return Trio()


def ask(trio: Trio, *contents: bytes) -> None:
    for content in contents:
        trio.ends["a"].ask("b", Sort.PIECE, 100, content)
    trio.carry()


def test_questions_and_answers_arrive(trio: Trio) -> None:
    trio.works()
    trio.works("b", "a")
    trio.works("c", "a")


def test_the_server_sees_neither_content_nor_two_times_the_same(trio: Trio) -> None:
    ask(trio, b"the same words", b"the same words")
    first, second = (envelope.sealed for _, envelope in trio.carried)
    assert first != second
    assert b"words" not in first + second


@pytest.mark.parametrize(
    "change",
    [
        lambda one: replace(one, sealed=one.sealed[:-1] + bytes([one.sealed[-1] ^ 1])),
        lambda one: replace(one, sealed=bytes([one.sealed[0] ^ 128]) + one.sealed[1:]),
        lambda one: replace(one, sealed=one.sealed[:-1]),
        lambda one: replace(one, number=one.number + 1),
        lambda one: replace(one, total=one.total + 1),
        lambda one: replace(one, sort=Sort.ASK),
        lambda one: replace(one, ours=bytes(32)),
        lambda one: replace(one, yours=bytes(32)),
    ],
)
def test_an_altered_envelope_is_noticed_and_named(trio: Trio, change: Callable[[Envelope], Envelope]) -> None:
    trio.server = lambda sender, one: honest(sender, change(one) if one.sort is Sort.PIECE else one)
    ask(trio, b"content")
    assert trio.asked("b") == []
    assert "from a is not what a sealed for us" in trio.noticed("b")[0]
    assert any(isinstance(one, Broke) and one.peer == "b" for one in trio.heard["a"]), "a sends it again"
    trio.works()


def test_a_repeated_envelope_is_noticed_and_taken_once(trio: Trio) -> None:
    trio.server = lambda sender, one: honest(sender, one) * (2 if one.sort is Sort.PIECE else 1)
    ask(trio, b"first", b"second")
    assert trio.asked("b") == [b"first", b"second"]
    assert [text.split(" from")[0] for text in trio.noticed("b")] == ["envelope 1", "envelope 2"]
    assert "came a second time" in trio.noticed("b")[0]
    trio.works()


def test_swapped_envelopes_are_noticed_and_neither_is_taken_out_of_order(trio: Trio) -> None:
    held: list[Envelope] = []

    def swapping(sender: str, one: Envelope) -> list[tuple[str, Envelope]]:
        if one.sort is Sort.PIECE and not held:
            held.append(one)
            return []
        found = honest(sender, one)
        return found + honest(sender, held[0]) if one.sort is Sort.PIECE and len(held) == 1 else found

    trio.server = swapping
    ask(trio, b"first", b"second")
    assert trio.asked("b") == []
    assert "envelope 1 from a is missing where 2 came" in trio.noticed("b")[0]
    trio.works()


def test_a_dropped_envelope_is_noticed_with_the_next(trio: Trio) -> None:
    dropped: list[Envelope] = []

    def dropping(sender: str, one: Envelope) -> list[tuple[str, Envelope]]:
        if one.sort is Sort.PIECE and not dropped:
            dropped.append(one)
            return []
        return honest(sender, one)

    trio.server = dropping
    ask(trio, b"first", b"second")
    assert trio.asked("b") == []
    assert "is missing" in trio.noticed("b")[0]
    trio.works()


def test_an_envelope_for_another_client_is_noticed(trio: Trio) -> None:
    trio.server = lambda sender, one: honest(sender, replace(one, peer="c") if one.sort is Sort.PIECE else one)
    ask(trio, b"for b")
    assert trio.asked("c") == trio.asked("b") == []
    assert "put in another's place" in trio.noticed("c")[0]
    trio.works("a", "c")


def test_an_envelope_in_the_name_of_another_client_is_noticed(trio: Trio) -> None:
    trio.server = lambda sender, one: honest("c" if one.sort is Sort.PIECE else sender, one)
    ask(trio, b"of a")
    assert trio.asked("b") == []
    assert "from c is not what c sealed for us" in trio.noticed("b")[0]
    trio.server = honest
    ask(trio, b"the next")
    assert "envelope 1 from a is missing where 2 came" in trio.noticed("b")[-1]
    trio.works()


def test_an_envelope_sent_back_to_its_sender_is_noticed(trio: Trio) -> None:
    trio.server = lambda sender, one: [(sender, one)] if one.sort is Sort.PIECE else honest(sender, one)
    ask(trio, b"of a")
    assert trio.asked("a") == []
    assert "from b is not what b sealed for us" in trio.noticed("a")[0]


@pytest.mark.parametrize("restarts", [("a",), ("b",), ("a", "b")])
def test_what_was_sent_before_a_restart_does_not_pass_for_new(trio: Trio, restarts: tuple[str, ...]) -> None:
    """Not even if the server shows all of an earlier life again, from its first hello on."""
    ask(trio, b"old")
    record = trio.first + trio.carried
    for name in restarts:
        trio.ends[name] = trio.fresh(name)
    trio.carry()
    trio.forget()
    for sender, envelope in record:
        for to, given in honest(sender, envelope):
            trio.heard[to] += trio.ends[to].take(given)
    trio.carry()
    assert trio.asked("a") == trio.asked("b") == []
    trio.works()


def test_no_key_serves_two_lives(trio: Trio) -> None:
    """The first envelope after a restart has the number and the content of the one before, and another key."""
    ask(trio, b"the same")
    before = trio.carried[0][1]
    trio.ends["a"] = trio.fresh("a")
    trio.carry()
    trio.forget()
    ask(trio, b"the same")
    after = next(one for _, one in trio.carried if one.sort is Sort.PIECE)
    assert (before.number, before.total) == (after.number, after.total)
    assert before.ours != after.ours
    assert before.sealed != after.sealed


def test_repeated_hellos_are_noticed_and_end_nothing(trio: Trio) -> None:
    trio.ends["a"] = trio.fresh("a")
    trio.server = lambda sender, one: honest(sender, one) * 2
    trio.carry()
    assert any("hello" in text and "came a second time" in text for text in trio.noticed("b"))
    trio.works()


def test_a_client_that_is_away_is_named_and_met_again(trio: Trio) -> None:
    (broke,) = (one for one in trio.ends["a"].away("b") if isinstance(one, Broke))
    assert str(broke.why) == "b is not connected to the server"
    assert not trio.ends["a"].ready("b")
    trio.ends["a"].greet("b")
    trio.carry()
    assert Met("b") in trio.heard["a"]
    trio.works()


def test_a_late_answer_is_not_taken_for_that_to_a_newer_question(trio: Trio) -> None:
    ask(trio, b"before")
    (asked,) = (one for one in trio.heard["b"] if isinstance(one, Asked))
    trio.ends["a"].give_up("b", "b does not answer")
    trio.carry()
    trio.forget()
    assert trio.ends["a"].ask("b", Sort.PIECE, 1, b"after") == asked.number, "numbers begin again"
    trio.ends["b"].answer(asked, b"to the first")
    trio.carry()
    assert not any(isinstance(one, Answered) for one in trio.heard["a"])


def test_who_has_a_client_s_keys_opens_what_was_recorded(trio: Trio) -> None:
    """There is no forward secrecy within a job: epochs are shown, and the pair key lasts as long as the job."""
    ask(trio, b"recorded by the server")
    (recorded,) = (one for _, one in trio.carried)
    epochs = (recorded.ours, recorded.yours)
    key = AESGCM(keys.derive(secret("a", "b"), SESSION, b"relay", b"a", b"b", *epochs))
    opened = key.decrypt(recorded.number.to_bytes(12, "big"), recorded.sealed, recorded.bound("a", "b"))
    assert opened == b"recorded by the server"


def test_two_clients_that_begin_again_at_the_same_time_meet_at_once(trio: Trio) -> None:
    """Their hellos cross, and each shows an epoch of the other that is over; nobody waits for a deadline."""
    trio.ends["a"].give_up("b", "b does not answer")
    trio.ends["b"].give_up("a", "a does not answer")
    trio.works()
    trio.works("b", "a")


def test_a_hello_that_was_dropped_is_made_up_for_by_the_next_envelopes(trio: Trio) -> None:
    dropped: list[Envelope] = []

    def dropping(sender: str, one: Envelope) -> list[tuple[str, Envelope]]:
        if one.sort is Sort.HELLO and not dropped:
            dropped.append(one)
            return []
        return honest(sender, one)

    trio.server = dropping
    trio.ends["a"].give_up("b", "b does not answer")
    ask(trio, b"under an epoch that b does not know")
    assert trio.asked("b") == []
    ask(trio, b"whether anybody is there")
    assert any(isinstance(one, Broke) for one in trio.heard["a"]), "a sends it again"
    trio.works()


def test_contents_that_change_places_are_noticed(trio: Trio) -> None:
    """Splicing: the headers of one envelope with the content of another, or the end of one after the beginning of another."""
    held: list[Envelope] = []

    def splicing(sender: str, one: Envelope) -> list[tuple[str, Envelope]]:
        if one.sort is not Sort.PIECE or len(held) == 2:
            return honest(sender, one)
        held.append(one)
        if len(held) < 2:
            return []
        first, second = held
        halves = replace(second, sealed=second.sealed[:8] + first.sealed[8:])
        return honest(sender, replace(first, sealed=second.sealed)) + honest(sender, halves)

    trio.server = splicing
    ask(trio, b"first of the same length", b"second, of equal length")
    assert trio.asked("b") == []
    assert [text.split(" is not")[0] for text in trio.noticed("b")[:2]] == [
        "what the server says is envelope 1 from a",
        "what the server says is envelope 2 from a",
    ]
    trio.works()


@pytest.mark.parametrize("keep", [0, 1, 15, 16, 17])
def test_a_truncated_envelope_is_noticed(trio: Trio, keep: int) -> None:
    trio.server = lambda sender, one: honest(
        sender, replace(one, sealed=one.sealed[:keep]) if one.sort is Sort.PIECE else one
    )
    ask(trio, b"content")
    assert trio.asked("b") == []
    assert "from a is not what a sealed for us" in trio.noticed("b")[0]
    trio.works()


KEYS = {name: X25519PrivateKey.from_private_bytes(bytes([i + 1]) * 32) for i, name in enumerate("abcd")}


def introduced(*parties: tuple[str, str]) -> list[tuple[str, bytes]]:
    """A roster: names, and whose key each has introduced."""
    return [(name, KEYS[key].public_key().public_bytes_raw()) for name, key in parties]


def hello_of(me: str, roster: list[tuple[str, bytes]], session: bytes = SESSION) -> Pair:
    """a's or b's end of their pair, as that roster and session make it."""
    place = 0 if me == "a" else 1
    shared = keys.pair_keys(KEYS[me], session, roster, place)[1 - place]
    return Pair(shared, session, me, roster[1 - place][0], random.Random(me).randbytes)


def test_keys_are_bound_to_names_public_keys_session_and_direction() -> None:
    plain = introduced(("a", "a"), ("b", "b"))
    known, _ = hello_of("b", plain).greeted(replace(hello_of("a", plain).hello(), peer="a"))
    assert known is False, "it opens"
    greeting = replace(hello_of("a", plain).hello(), peer="a")
    strangers = {
        "another session": hello_of("b", plain, b"t" * 32),
        "another name of the sender": hello_of("b", [("c", plain[0][1]), plain[1]]),
        "another public key of the sender": hello_of("b", introduced(("a", "c"), ("b", "b"))),
        "another public key of the receiver": hello_of("b", introduced(("a", "a"), ("b", "d"))),
    }
    for what, stranger in strangers.items():
        try:
            stranger.greeted(greeting)
        except Altered:
            continue
        pytest.fail(f"{what}: it opens")
    with pytest.raises(Altered):
        hello_of("a", plain).greeted(replace(greeting, peer="b"))  # a's own, sent back


class Recorded:
    """AES-GCM that never seals twice under one key and nonce, whoever asks, in whatever life of whichever end."""

    used: ClassVar[set[tuple[bytes, bytes]]] = set()

    def __init__(self, key: bytes) -> None:
        self._key, self._cipher = key, AESGCM(key)
        self.decrypt = self._cipher.decrypt

    def encrypt(self, nonce: bytes, data: bytes, bound: bytes) -> bytes:
        assert (self._key, nonce) not in self.used, "a nonce is used a second time"
        self.used.add((self._key, nonce))
        return self._cipher.encrypt(nonce, data, bound)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_server_does_everything_is_taken_at_most_once_and_in_order(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it turns honest, and two questions are enough to go on. Clients restart and the server does; whatever happens, no
    key and nonce serve twice."""
    monkeypatch.setattr(envelopes, "AESGCM", Recorded)
    monkeypatch.setattr(Recorded, "used", set())
    trio, chance = Trio(), random.Random(seed)
    record: list[tuple[str, Envelope]] = []

    def any_trick(sender: str, one: Envelope) -> list[tuple[str, Envelope]]:
        record.append((sender, one))
        match chance.randrange(12):
            case 0:
                return []
            case 1:
                return honest(sender, one) * 2
            case 2:
                return honest(*chance.choice(record))
            case 3:
                return [(chance.choice(NAMES), given) for _, given in honest(*chance.choice(record))]
            case 4:
                return honest(sender, replace(one, sealed=chance.choice(record)[1].sealed))
            case 5:
                return honest(sender, replace(one, number=one.number + 1, total=one.total ^ 1))
        return honest(sender, one)

    trio.server, sent = any_trick, 0
    for turn in range(30):
        sender, other = chance.sample(NAMES, 2)
        if turn == 15:  # the server restarts: everybody connects again
            trio.ends = {name: trio.fresh(name) for name in NAMES}
        match chance.randrange(8):
            case 0:
                trio.ends[sender] = trio.fresh(sender)
            case 1:
                trio.heard[sender] += trio.ends[sender].away(other)
            case 2:
                trio.heard[sender] += trio.ends[sender].give_up(other, "no answer")
            case _ if trio.ends[sender].ready(other):
                sent += 1
                trio.ends[sender].ask(other, Sort.PIECE, 1, b"%s%s%06d" % (sender.encode(), other.encode(), sent))
        trio.carry()
    for name in NAMES:
        for sender in NAMES:
            taken = [one.content for one in trio.heard[name] if isinstance(one, Asked) and one.peer == sender]
            assert all(content[:2] == (sender + name).encode() for content in taken)
            assert taken == sorted(set(taken))
    trio.server = honest
    for sender, other in (*itertools.permutations(NAMES, 2), *itertools.permutations(NAMES, 2)):
        trio.ends[sender].greet(other)
        trio.carry()
        trio.ends[sender].ask(other, Sort.ASK, 0, b"")
        trio.carry()
    for sender, other in itertools.permutations(NAMES, 2):
        trio.works(sender, other)
    assert len(Recorded.used) > sent
