"""`SecureKMeans`: the whole protocol in one process, as a scikit-learn estimator.

It exists to try SecFC on data one already has, to compare it with `sklearn.cluster.KMeans`, and to choose parameters. It
computes exactly what a federation computes; since one process holds all rows, it protects nothing by itself.
"""

from __future__ import annotations

from math import frexp
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from secfc.agreement import plan
from secfc.agreement.features import CLIP
from secfc.agreement.job import MOST_RUNS, PRUNE, STARTS
from secfc.errors import DataError, InvalidInput
from secfc.kmeans import fixedpoint, standard
from secfc.kmeans.coins import Coins
from secfc.kmeans.frozen import FrozenClusters, Rows
from secfc.kmeans.runs import Runs
from secfc.kmeans.standard import LARGEST, Spread, Unscaled
from secfc.privacy import identifiers
from secfc.protocol import memory

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as missing:  # pragma: no cover - the extra is installed wherever tests run
    raise ImportError("SecureKMeans needs scikit-learn; install it with: pip install scikit-learn") from missing

STEPS = 20  # bits on either side of zero when precision is left to us: a step is a millionth of the bound


class SecureKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Secure federated k-means, simulated in one process with the real arithmetic.

    Parameters
    ----------
    n_clusters : number of clusters k.
    n_init : starts that run side by side, from one sharing; the one with the least inertia is taken. "auto" is what a job has
        that does not say, 4. With `initial_labels` there is one.
    n_clients : number of parties n.
    privacy : t; any t clients may collude and learn nothing about others' rows from their shares.
    segments : ℓ, pieces a row is cut into; None takes the largest that fits 2ℓ + 2t − 1 ≤ n.
    uploads : "masked" (the server learns distances, from which it can compute the rows), "open" (the paper's) or "sealed"
        (with one committee member the server learns distances, alone assignments and the inertia; the default of a real
        federation). Here one process holds all rows and plays all parties, so no kind hides anything from it, and the
        quickest, "masked", is the default.
    membership : "public", or "private" (which row is whose is hidden from the server and any t clients). With private
        membership rows are ordered by random IDs, drawn from random_state: a seeding then draws other rows, and ties between
        rows may fall otherwise.
    feature_groups : which client holds each feature, one name per feature, if sites have different columns of the same rows;
        None: sites have different rows. Membership is then private; clients that no feature names are helpers, and two
        holders need n_clients of 3 or more.
    seeding : "k-means++", "random" (the paper's Algorithm 1) or "separation".
    candidates : rows drawn for each seed of "k-means++", of which the one that leaves the least inertia is taken; None takes
        2 + ⌊ln k⌋ as scikit-learn does, 1 is plain k-means++.
    scale : "none", or "standard": every column in deviations from its mean over all clients, which they add up privately
        (docs/privacy.md); values beyond 6 deviations, or beyond `bound` of them, are taken as so far.
    bound : public bound on |x|. None takes the smallest power of two not below max |X|; a real federation must agree on
        it beforehand instead, since a bound taken from the data tells something about them.
    precision : fractional bits kept. None keeps as many as make bound · 2^precision = 2^20, a millionth of the bound;
        the field then gets as many lanes as m²·d·(2η)² < Q asks for, so nothing can overflow.
    max_iter : largest number of Lloyd rounds.
    reveal_centers : whether all clients consent to opening the centres at the end.
    prune : whether distances that cannot change any row's cluster are left out (masked and open uploads only); the result is
        the same.
    random_state : seed of the start; shares and masks always come from the operating system's generator.

    Attributes
    ----------
    labels_ : cluster of every row of X, identical to Lloyd's in exact arithmetic on the quantised rows.
    inertia_ : sum of squared distances to the nearest centre, exact for the quantised rows, in the units of X, or with
        standard scaling in deviations (with sealed uploads within one quantised unit and a rounding error: docs/sealed.md,
        Section 8).
    n_iter_ : Lloyd rounds of the best start; n_features_in_ : features seen in fit.

    cluster_centers_ : only with `reveal_centers`: the exact means of the quantised rows, in the units of X.

    `predict` and `score` compare further rows, scaled as those of `fit`, with the clusters found, in exact arithmetic;
    `transform` is there with `reveal_centers`. As in all of this class, one process holds the rows, so nothing is hidden
    from it.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_init: int | str = "auto",
        n_clients: int = 5,
        privacy: int = 1,
        segments: int | None = None,
        uploads: str = "masked",
        membership: str = "public",
        feature_groups: Any = None,
        seeding: str = "k-means++",
        candidates: int | None = None,
        scale: str = "none",
        bound: float | None = None,
        precision: int | None = None,
        max_iter: int = 300,
        random_state: Any = None,
        reveal_centers: bool = False,
        prune: bool = PRUNE,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.n_clients = n_clients
        self.privacy = privacy
        self.segments = segments
        self.uploads = uploads
        self.membership = membership
        self.feature_groups = feature_groups
        self.seeding = seeding
        self.candidates = candidates
        self.scale = scale
        self.bound = bound
        self.precision = precision
        self.max_iter = max_iter
        self.random_state = random_state
        self.reveal_centers = reveal_centers
        self.prune = prune

    def fit(self, X: Any, y: Any = None, groups: Any = None, initial_labels: Any = None) -> Self:
        """Cluster the rows of X. `groups` says which client owns a row (default: n_clients equal runs); the result does
        not depend on it. `initial_labels` is a start in place of `seeding` (-1: in no cluster). `y` is ignored."""
        X = validate_data(self, X, dtype=np.float64)
        made = self._plan(X)
        columns = self._holders(X.shape[1], groups)
        positions = self._owners(len(X), groups) if columns is None else _all_or_none(len(X), self.n_clients, columns)
        self._scale = (made.wishes.bound, made.wishes.precision)
        self._spread = self._spread_of(X)
        values = self._scaled_rows(X, made.wishes.bound)
        random = check_random_state(self.random_state)
        coins = Coins(random.bytes(32))
        ids = identifiers.fresh(len(X), random.bytes(32)) if made.private else None
        initial = None if initial_labels is None else np.asarray(initial_labels)
        if ids is not None and initial is not None and initial.shape == (len(X),):
            initial = initial[identifiers.order(ids)]

        starts = 1 if initial is not None else self._starts()

        def machine(rows: int) -> Runs:
            return Runs.of(
                rows,
                [made.wishes.clusters] * starts,
                coins,
                start=self.seeding,
                initial=initial,
                max_rounds=self.max_iter,
                candidates=self.candidates,
            )

        result = memory.run(
            made,
            [self._part(X, values, at, j, columns) for j, at in enumerate(positions)],
            machine,
            starts=starts,
            positions=None if made.private else positions,
            ids=None if ids is None else [ids[at] for at in positions],
            reveal_centers=bool(self.reveal_centers),
            columns=None if columns is None else columns.tolist(),
            clip=made.wishes.bound if self._spread else None,
        )
        self.labels_ = np.empty_like(result.labels)
        for at, slots in zip(positions, result.slots, strict=True):
            self.labels_[at] = result.labels[slots]
        self.inertia_ = result.inertia
        self.n_iter_ = result.rounds
        self.__dict__.pop("cluster_centers_", None)  # of an earlier fit
        if result.centers is not None:
            shift, unit = np.array(self._spread or [(0.0, 1.0)]).T
            self.cluster_centers_ = result.centers.means() * unit + shift
        self._clusters = FrozenClusters.of(values, self.labels_, made.wishes.clusters)
        self._n_features_out = made.wishes.clusters
        return self

    def predict(self, X: Any) -> npt.NDArray[np.int32]:
        """The cluster with the nearest centre for every row of X; ties go to the lowest."""
        rows = self._quantised(X)
        return self._clusters.nearest(rows)

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the sum of squared distances of the rows of X to their nearest centres, as scikit-learn's. `y` is ignored."""
        rows = self._quantised(X)
        loss = self._clusters.inertia(rows, self._clusters.nearest(rows))
        return -fixedpoint.in_data_units(loss, self._scale[1])

    def transform(self, X: Any) -> npt.NDArray[np.float64]:
        """The distances of the rows of X to all centres, in the units of X, or with standard scaling in deviations."""
        rows = fixedpoint.dequantise(self._quantised(X), self._scale[1])
        shift, unit = np.array(self._spread or [(0.0, 1.0)]).T
        centers = (self.cluster_centers_ - shift) / unit
        return np.stack([np.linalg.norm(rows - center, axis=1) for center in centers], axis=1)

    def fit_transform(self, X: Any, y: Any = None) -> npt.NDArray[np.float64]:
        """Fit, and the distances of the rows to all centres."""
        return self.fit(X).transform(X)

    def _quantised(self, X: Any) -> Rows:
        """Further rows as those of fit were; a bound that was taken from the data of fit does not bind them."""
        check_is_fitted(self, "labels_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        bound, _ = self._scale
        fixed = self.bound is not None or bool(self._spread)
        return self._scaled_rows(X, bound if fixed else max(bound, _least_bound(X)))

    def _spread_of(self, X: npt.NDArray[np.float64]) -> Spread:
        """The scale that the clients of a federation would find; nothing if rows stay as they are."""
        if self.scale not in ("none", "standard"):
            raise InvalidInput(f"scale must be 'none' or 'standard', not {self.scale!r}")
        if self.scale == "none":
            return ()
        if np.abs(X).max() >= LARGEST:
            raise DataError(f"a value of {LARGEST:g} or more cannot be scaled; write it in other units")
        rows = Unscaled(X, np.ones(X.shape[1], bool))
        return rows.spread(rows.moments(), [f"column {f + 1}" for f in range(X.shape[1])])

    def _part(self, X: Any, values: Rows, at: Any, client: int, columns: Any) -> Rows | Unscaled:
        """What a client brings: with standard scaling its rows as they are."""
        if self._spread:
            return Unscaled(X[at], np.ones(X.shape[1], bool))
        own: Rows = values[at] if columns is None else values[at] * (columns == client)
        return own

    def _scaled_rows(self, X: npt.NDArray[np.float64], bound: float) -> Rows:
        scaled = standard.scaled(X, self._spread, bound) if self._spread else X
        return fixedpoint.quantise(scaled, bound, self._scale[1])

    def _starts(self) -> int:
        if self.n_init == "auto":
            return STARTS
        whole = isinstance(self.n_init, int | np.integer) and not isinstance(self.n_init, bool)
        if not whole or not 1 <= int(self.n_init) <= MOST_RUNS:
            raise InvalidInput(f"n_init must be 'auto' or a whole number from 1 to {MOST_RUNS}, not {self.n_init!r}")
        return int(self.n_init)

    def _plan(self, X: npt.NDArray[np.float64]) -> plan.Plan:
        if isinstance(self.n_clusters, int | np.integer) and len(X) < self.n_clusters:
            raise DataError(f"n_samples={len(X)} should be >= n_clusters={self.n_clusters}.")
        least = CLIP if self.scale == "standard" else _least_bound(X)
        bound = least if self.bound is None else self.bound
        precision = fixedpoint.precision_for(bound, STEPS) if self.precision is None else self.precision
        return plan.make(
            plan.Wishes(
                clients=self.n_clients,
                privacy=self.privacy,
                clusters=self.n_clusters,
                features=X.shape[1],
                max_rows=len(X),
                bound=bound,
                precision=precision,
                uploads=self.uploads,
                membership=self.membership if self.feature_groups is None else "private",
                seeding=self.seeding,
                candidates=self.candidates,
                segments=self.segments,
                prune=bool(self.prune),
            )
        )

    def _holders(self, features: int, groups: Any) -> npt.NDArray[np.int64] | None:
        """The client that holds each column, if they are split."""
        if self.feature_groups is None:
            return None
        if groups is not None:
            raise InvalidInput("groups deals rows and feature_groups columns; give one of them")
        if self.scale != "none":
            raise InvalidInput(
                "one client holds each column of feature_groups, so it can scale it itself; leave out scale"
            )
        named = np.asarray(self.feature_groups)
        if named.shape != (features,):
            raise InvalidInput(f"feature_groups must name one client per feature: {features}, not shape {named.shape}")
        names, index = np.unique(named, return_inverse=True)
        if not 2 <= len(names) <= self.n_clients:
            raise InvalidInput(
                f"feature_groups names {len(names)} clients; it must be 2 to n_clients = {self.n_clients}"
            )
        return np.asarray(index)

    def _owners(self, rows: int, groups: Any) -> list[npt.NDArray[np.int64]]:
        """The positions of each client's rows."""
        if groups is None:
            return [np.asarray(part) for part in np.array_split(np.arange(rows), self.n_clients)]
        owners = np.asarray(groups)
        if owners.shape != (rows,):
            raise InvalidInput(f"groups must name one client per row: {rows} of them, not shape {owners.shape}")
        names, index = np.unique(owners, return_inverse=True)
        if len(names) > self.n_clients:
            raise InvalidInput(f"groups names {len(names)} clients but n_clients is {self.n_clients}; raise n_clients")
        return [np.flatnonzero(index == j) for j in range(self.n_clients)]


def _all_or_none(rows: int, clients: int, columns: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Where columns are split, a holder of some has every row, and a helper none."""
    return [np.arange(rows if j in columns else 0) for j in range(clients)]


def _reveals(model: SecureKMeans) -> bool:
    if not model.reveal_centers:
        raise AttributeError("transform gives distances to the centres, which are opened with reveal_centers=True only")
    return True


# Here, since the class wraps both for `set_output` when it is made, and would forget that they may be absent.
SecureKMeans.transform = available_if(_reveals)(SecureKMeans.transform)  # type: ignore[method-assign]
SecureKMeans.fit_transform = available_if(_reveals)(SecureKMeans.fit_transform)  # type: ignore[method-assign]


def _least_bound(X: npt.NDArray[np.float64]) -> float:
    """The smallest power of two not below max |X|; 1 if all values are zero."""
    largest = float(np.abs(X).max())
    mantissa, exponent = frexp(largest)
    if largest == 0.0:
        return 1.0
    if exponent > 1023:
        return largest
    return 2.0 ** (exponent - 1 if mantissa == 0.5 else exponent)
