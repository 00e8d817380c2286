"""Labels do not depend on where a client holds its shares."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secfc.protocol import memory, memorysites
from secfc.protocol.effects import Effects, PutSpool
from secfc.protocol.parcels import Chained, Made
from secfc_client.engines.stored import StoredRows
from secfc_client.store import Store


class OnDisk:
    """Puts every simulated client's shares on disk, 12 rows a block, and counts what is sent as it is made."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.made, self.sealed = folder, 0, 0
        site, carry_out = memorysites.site_of, memory.Memory._carry_out

        def on_disk(*args: Any) -> Any:
            found = site(*args)
            store = Store(folder / found.name)

            def hold(field: Any, rows: int, length: int) -> StoredRows:
                return StoredRows(store.folder, field, rows, length, 8 * field.lanes * (length + 2) * 12, store.spool)

            return dataclasses.replace(found, hold=hold, places=None)

        def keeping(memory: Any, name: str, effects: Effects) -> None:
            for one in effects.keep:
                if isinstance(one, PutSpool):
                    one.spool.seal()
                    self.sealed += 1
            self.made += sum(isinstance(send.body, Made | Chained) for send in effects.send)
            carry_out(memory, name, effects)

        patch.setattr(memorysites, "site_of", on_disk)
        patch.setattr(memory.Memory, "_carry_out", keeping)


KINDS = [
    ("open", "public", False),
    ("masked", "private", False),
    ("masked", "public", True),
    ("sealed", "public", False),
]


@pytest.mark.parametrize(("uploads", "membership", "prune"), [*KINDS, ("sealed", "private", False)])
def test_labels_are_those_of_shares_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uploads: str, membership: str, prune: bool
) -> None:
    from secfc import SecureKMeans

    rows = np.random.default_rng(3).normal(size=(101, 3)) + np.repeat([[0], [4], [9]], [40, 40, 21], axis=0)

    def labels() -> Any:
        how = {"uploads": uploads, "membership": membership, "prune": prune}
        model = SecureKMeans(3, n_clients=5, privacy=1, n_init=2, random_state=1, **how)
        return model.fit_predict(rows)

    before = labels()
    seen = OnDisk(tmp_path, monkeypatch)
    assert (labels() == before).all()
    assert seen.made > 10
    assert seen.sealed == 5 * 4
