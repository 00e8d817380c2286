"""SecureKMeans: scikit-learn's own checks, and agreement with its KMeans."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import check_estimator

from secfc import SecureKMeans
from secfc.errors import DataError, InvalidInput, PlanError
from secfc.kmeans import fixedpoint


@pytest.mark.parametrize(
    ("uploads", "membership", "reveal"),
    [("masked", "public", True), ("open", "public", False), ("masked", "private", False)],
)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_passes_scikit_learns_estimator_checks(uploads: str, membership: str, reveal: bool) -> None:
    starts = 1 if membership == "public" else 2
    check_estimator(SecureKMeans(uploads=uploads, membership=membership, n_init=starts, reveal_centers=reveal))


def test_equals_sklearn_from_the_same_start_on_separated_blobs() -> None:
    X, _ = make_blobs(600, n_features=7, centers=5, cluster_std=1.0, random_state=3)
    start = np.arange(600) % 5
    centres = np.stack([X[start == h].mean(axis=0) for h in range(5)])
    theirs = KMeans(5, init=centres, n_init=1, tol=0).fit(X)
    ours = SecureKMeans(5).fit(X, initial_labels=start)
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-4)


def test_labels_do_not_depend_on_who_owns_a_row_or_on_the_code() -> None:
    X = load_iris().data
    base = SecureKMeans(3, random_state=5).fit(X)
    rng = np.random.default_rng(0)
    for options in ({"n_clients": 9, "privacy": 3}, {"uploads": "open", "privacy": 0}, {"segments": 1}):
        other = clone(base).set_params(**options)
        other.fit(X, groups=rng.integers(0, 5, len(X)))
        np.testing.assert_array_equal(other.labels_, base.labels_)
        assert other.inertia_ == base.inertia_


@pytest.mark.parametrize("seeding", ["k-means++", "random", pytest.param("separation", marks=pytest.mark.slow)])
def test_every_seeding_finds_separated_clusters_in_most_starts(seeding: str) -> None:
    X, truth = make_blobs(300, n_features=4, centers=[[-9] * 4, [0] * 4, [9] * 4], cluster_std=0.5, random_state=1)
    scores = [
        adjusted_rand_score(truth, SecureKMeans(3, n_init=1, seeding=seeding, random_state=s).fit(X).labels_)
        for s in range(5)
    ]
    assert max(scores) == 1.0


def test_the_best_of_several_starts_is_taken() -> None:
    """With n_init starts, of which the first is what n_init=1 gives; by default as many as a job has."""
    X, _ = make_blobs(60, n_features=2, centers=6, cluster_std=1.0, random_state=5)
    found = [SecureKMeans(6, n_init=n, seeding="random", random_state=0).fit(X).inertia_ for n in (1, 2, 4, "auto")]
    assert found[0] > found[1] > found[2] == found[3]


@pytest.mark.parametrize("n_init", [0, 201, 1.5, True, "many"])
def test_wrong_numbers_of_starts(n_init: object) -> None:
    with pytest.raises(InvalidInput, match="n_init must be 'auto' or a whole number from 1 to 200, not"):
        SecureKMeans(2, n_init=n_init).fit(np.eye(4))  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [1e-200, 1e-9, 1.0, 1e12, 1e300])
def test_automatic_bound_and_precision_follow_the_scale_of_the_data(scale: float) -> None:
    X, truth = make_blobs(60, n_features=3, centers=2, cluster_std=0.3, random_state=4)
    assert adjusted_rand_score(truth, SecureKMeans(2, random_state=0).fit(X * scale).labels_) == 1.0


def test_candidates_are_those_of_scikit_learn_unless_said_otherwise() -> None:
    """2 + ⌊ln k⌋ by default; 1 is plain k-means++, which starts elsewhere."""
    X, _ = make_blobs(60, n_features=2, centers=6, cluster_std=3.0, random_state=3)
    fitted = {c: SecureKMeans(6, candidates=c, random_state=1).fit(X) for c in (None, 3, 1)}
    assert fitted[None].labels_.tolist() == fitted[3].labels_.tolist() != fitted[1].labels_.tolist()


def test_constant_zero_data_and_one_cluster() -> None:
    model = SecureKMeans(1).fit(np.zeros((4, 2)))
    assert model.labels_.tolist() == [0, 0, 0, 0]
    assert model.inertia_ == 0.0


def test_a_value_beyond_the_given_bound_is_named() -> None:
    with pytest.raises(DataError, match="row 2, column 1 is outside the agreed bound"):
        SecureKMeans(1, bound=1.0).fit([[0.5, 0.5], [2.0, 0.0], [0.0, 0.0]])


def test_impossible_parameters_say_what_fits() -> None:
    with pytest.raises(PlanError, match="use t = 1 or 5 clients"):
        SecureKMeans(2, n_clients=4, privacy=2).fit(np.eye(4))
    with pytest.raises(InvalidInput, match="seeding must be"):
        SecureKMeans(2, seeding="forgy").fit(np.eye(4))
    with pytest.raises(InvalidInput, match="candidates must be a whole number from 1"):
        SecureKMeans(2, candidates=0).fit(np.eye(4))
    with pytest.raises(InvalidInput, match="candidates is for seeding = 'k-means\\+\\+' alone"):
        SecureKMeans(2, candidates=2, seeding="random").fit(np.eye(4))
    with pytest.raises(InvalidInput, match="raise n_clients"):
        SecureKMeans(2, n_clients=3).fit(np.eye(4), groups=[1, 2, 3, 4])


def test_centres_are_revealed_on_request_only() -> None:
    X = np.random.default_rng(3).normal(size=(60, 4))
    model = SecureKMeans(n_clusters=3, random_state=0, reveal_centers=True).fit(X)
    lam = 2.0 ** fixedpoint.precision_for(2.0 ** np.ceil(np.log2(np.abs(X).max())), 20)
    rows = np.floor(X * lam)
    expected = [rows[model.labels_ == h].sum(axis=0) / np.count_nonzero(model.labels_ == h) / lam for h in range(3)]
    np.testing.assert_array_equal(model.cluster_centers_, expected)
    np.testing.assert_allclose(
        model.cluster_centers_, [X[model.labels_ == h].mean(axis=0) for h in range(3)], atol=1e-5
    )
    model.set_params(reveal_centers=False).fit(X)
    assert not hasattr(model, "cluster_centers_")


def test_predict_is_the_nearest_centre_and_that_of_the_training_rows_their_label() -> None:
    X, _ = make_blobs(300, n_features=4, centers=5, random_state=2)
    model = SecureKMeans(5, random_state=0, reveal_centers=True).fit(X[:200])
    np.testing.assert_array_equal(model.predict(X[:200]), model.labels_)
    distances = np.linalg.norm(X[200:, None] - model.cluster_centers_, axis=2)
    np.testing.assert_array_equal(model.predict(X[200:]), distances.argmin(axis=1))
    np.testing.assert_allclose(model.transform(X[200:]), distances, atol=1e-4)
    assert model.score(X[:200]) == pytest.approx(-model.inertia_)
    assert model.score(X[200:]) == pytest.approx(-(distances.min(axis=1) ** 2).sum(), rel=1e-5)
    far = model.predict(1000 * X[200:])  # beyond the bound that was taken from the rows of fit
    distances = np.linalg.norm(1000 * X[200:, None] - model.cluster_centers_, axis=2)
    np.testing.assert_array_equal(far, distances.argmin(axis=1))


def test_rows_beyond_an_agreed_bound_are_refused_in_predict_too() -> None:
    model = SecureKMeans(2, bound=2.0).fit([[0.0], [1.0], [2.0]])
    with pytest.raises(DataError, match="row 1, column 1 is outside the agreed bound"):
        model.predict([[3.0]])


def test_transform_is_there_with_the_centres_only_and_names_its_columns() -> None:
    frame = load_iris(as_frame=True).data
    model = SecureKMeans(3, random_state=0).fit(frame)
    assert not hasattr(model, "transform")
    model.set_params(reveal_centers=True).set_output(transform="pandas").fit(frame)
    out = model.transform(frame)
    assert list(out.columns) == ["securekmeans0", "securekmeans1", "securekmeans2"]
    assert out.to_numpy().argmin(axis=1).tolist() == model.labels_.tolist()
    assert list(model.feature_names_in_) == list(frame.columns)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[frame.columns[::-1]])


def test_a_pickled_model_predicts_the_same() -> None:
    X, _ = make_blobs(80, n_features=3, centers=3, random_state=6)
    model = SecureKMeans(3, random_state=0).fit(X[:60])
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    with pytest.raises(NotFittedError):
        clone(model).predict(X)
