"""One picture of a job as a client sees it, from which its page and its report are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from secfc.errors import SecfcError
from secfc.kmeans.distances import Labels
from secfc.protocol.client.site import Site
from secfc.protocol.messages import Finished, Phase


@dataclass(frozen=True, eq=False)
class Snapshot:
    """`labels` are those of our own rows in the run that is shown: the first that moves, at the end the one that is chosen.
    `taken`: which of our rows take part. `rows`: of all parties, 0 before they are assigned. `course`: rows that each
    request moved, over all runs and parties."""

    site: Site
    phase: Phase
    linked: bool
    missing: tuple[str, ...]
    failure: SecfcError | None
    unreachable_by: tuple[str, ...]
    run: int
    labels: Labels | None = field(repr=False)
    taken: npt.NDArray[np.bool_] | None = field(repr=False)
    rows: int
    course: Mapping[int, int]
    found: Finished | None
