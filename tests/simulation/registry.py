"""Every stream of masks and noise that was ever used, by whom, and what it covered: none may cover two plaintexts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from secfc.coding import sharing, zerosum
from secfc.coding.field import Words
from secfc.kmeans.distances import CodedClusters
from secfc.privacy.sealed.comparer import Comparer
from secfc.privacy.sealed.referee import Referee
from secfc.privacy.sealed.sides import Side


class Registry:
    """`current` is the party whose machine is at work."""

    def __init__(self) -> None:
        self.current = ""
        self.purposes: set[str] = set()  # of the streams of sealed rounds that were seen
        self._covered: dict[tuple[str, bytes], bytes] = {}

    def note(self, key: bytes, content: bytes) -> None:
        digest = hashlib.sha256(content).digest()
        before = self._covered.setdefault((self.current, key), digest)
        assert before == digest, f"{self.current} has used one stream for two plaintexts"

    @contextmanager
    def watching(self) -> Iterator[None]:
        upload, covered, segments = CodedClusters.upload, zerosum.covered, sharing.Shares._segments
        noted = self

        def watched_upload(self: Any, shape: Any, weights: Any = None, masks: Sequence[Any] = ()) -> Words:
            words = upload(self, shape, weights, masks)
            for key, _ in masks:
                noted.note(key, words.tobytes())
            return words

        def watched_covered(field: Any, values: Any, keys: Sequence[Any]) -> Any:
            for key, _ in keys:
                noted.note(key, np.asarray(values).tobytes())
            return covered(field, values, keys)

        def watched_segments(self: Any, first: int, rows: int) -> Any:
            made = segments(self, first, rows)
            if self.code.privacy:
                noted.note(self._block_key(first // sharing._BLOCK), made.tobytes())
            return made

        with (
            self._watching_sealed(),
            mock.patch.object(CodedClusters, "upload", watched_upload),
            mock.patch.object(zerosum, "covered", watched_covered),
            mock.patch.object(sharing.Shares, "_segments", watched_segments),
        ):
            yield

    @contextmanager
    def _watching_sealed(self) -> Iterator[None]:
        """Streams of sealed rounds come from K and from what a member shares with the server. What one end of a conversation
        says is made of the streams it has opened since it said something last, and none of them may go into anything else.
        The pad covers an upload, which is seen above."""
        own, shared, dealt, say = Comparer._key, Comparer._share, Referee._keys, Side.say
        noted = self

        def watched_own(self: Comparer, purpose: str) -> bytes:
            return noted._open(self, purpose, own(self, purpose))

        def watched_shared(self: Comparer, purpose: str) -> bytes:
            return noted._open(self, purpose, shared(self, purpose))

        def watched_dealt(self: Referee, purpose: str) -> list[bytes]:
            return [noted._open(self, purpose, key) for key in dealt(self, purpose)]

        def watched_say(self: Side, to: int, kind: Any, data: Any) -> None:
            for key in self.__dict__.pop("opened", []):
                noted.note(key, f"{kind} ".encode() + np.ascontiguousarray(data).tobytes())
            say(self, to, kind, data)

        with (
            mock.patch.object(Comparer, "_key", watched_own),
            mock.patch.object(Comparer, "_share", watched_shared),
            mock.patch.object(Referee, "_keys", watched_dealt),
            mock.patch.object(Side, "say", watched_say),
        ):
            yield

    def _open(self, side: Side, purpose: str, key: bytes) -> bytes:
        self.purposes.add(purpose.partition("/")[0])
        if purpose == "blur":  # of all attempts in an epoch, under other pads: they add it to the same total
            return key
        side.__dict__.setdefault("opened", []).append(key)
        return key
