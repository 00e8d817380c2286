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


class Registry:
    """`current` is the party whose machine is at work."""

    def __init__(self) -> None:
        self.current = ""
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
            mock.patch.object(CodedClusters, "upload", watched_upload),
            mock.patch.object(zerosum, "covered", watched_covered),
            mock.patch.object(sharing.Shares, "_segments", watched_segments),
        ):
            yield
