"""Standard scaling in exact arithmetic: sums against big integers, mean and deviation against fractions and scikit-learn."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from secfc.agreement import job as jobs
from secfc.agreement.job import Job
from secfc.agreement.policy import Policy, complaints
from secfc.agreement.policy import parse as parse_policy
from secfc.errors import ConfigError, DataError, JobFailed
from secfc.kmeans import standard
from secfc.kmeans.standard import GRID_BITS, LARGEST, Moments, Unscaled
from tests.parties import make_federation

values_of_any_size = st.floats(-LARGEST, LARGEST, exclude_min=True, exclude_max=True)


def on_the_grid(values: list[float]) -> Moments:
    """The definition, in big integers."""
    whole = [math.floor(Fraction(x) * 2**GRID_BITS) for x in values if not math.isnan(x)]
    return Moments(len(whole), sum(whole), sum(x * x for x in whole))


@given(st.lists(values_of_any_size | st.just(math.nan) | st.sampled_from([0.0, -0.0, 5e-324, -1e-30]), max_size=40))
def test_sums_are_exact(values: list[float]) -> None:
    assert standard.moments(np.array(values, dtype=float)) == on_the_grid(values)


def test_sums_of_many_rows_are_exact() -> None:
    """More than a block, and all as large as can be, so that nothing overflows."""
    values = np.full(standard._BLOCK + 5, -np.nextafter(LARGEST, 0))
    one = math.floor(Fraction(float(values[0])) * 2**GRID_BITS)
    assert standard.moments(values) == Moments(len(values), one * len(values), one**2 * len(values))


@given(st.lists(st.lists(st.floats(-1e9, 1e9), max_size=12), min_size=1, max_size=4))
def test_mean_and_deviation_are_those_of_the_pooled_rows_however_they_are_dealt(parts: list[list[float]]) -> None:
    pooled = sorted(itertools.chain(*parts))
    if not pooled:
        return
    total = sum((standard.moments(np.array(part, dtype=float)) for part in parts), Moments(0, 0, 0))
    mean, unit = standard.spread_of(total, "x")
    whole = [Fraction(math.floor(Fraction(x) * 2**GRID_BITS), 2**GRID_BITS) for x in pooled]
    exact = sum(whole, Fraction(0)) / len(whole)
    variance = sum(((x - exact) ** 2 for x in whole), Fraction(0)) / len(whole)
    assert mean == float(exact)
    if variance == 0:
        assert unit == 1.0
    else:
        below, above = (Fraction(float(np.nextafter(unit, end))) for end in (0.0, np.inf))
        assert below**2 < variance < above**2, "the deviation is one of the two nearest floats"


def test_as_scikit_learn_scales() -> None:
    rows = np.random.default_rng(0).normal([3, -1e6, 1e-3], [1, 1e4, 1e-5], (500, 3))
    rows[7, 1] = np.nan
    one = Unscaled(rows, np.ones(3, bool))
    scaled = standard.scaled(rows, one.spread(one.moments(), "abc"), None)
    expected = StandardScaler().fit_transform(rows)
    assert scaled[7, 1] == 0.0
    assert np.allclose(scaled, np.nan_to_num(expected), rtol=0, atol=1e-9)


def test_constants_clip_and_categories() -> None:
    rows = np.array([[5.0, 1.0, 0.0], [5.0, 2.0, 1.0], [5.0, 99.0, 1.0]])
    one = Unscaled(rows, np.array([True, True, False]))
    spread = one.spread(one.moments(), "abc")
    assert spread[0] == (5.0, 1.0)
    assert spread[2] == (0.0, 1.0)
    quantised = one.quantised(spread, "abc", (1.0, 2.0, 4))
    assert quantised[:, 0].tolist() == [0, 0, 0]
    assert quantised[2, 1] == 16, "clipped at one deviation"
    assert quantised[:, 2].tolist() == [0, 16, 16]


def test_a_value_beyond_the_bound_names_its_row() -> None:
    rows = np.array([[0.0, 0.0]] * 20 + [[0.0, 1.0]])
    one = Unscaled(rows, np.ones(2, bool), np.arange(1, 22) * 10)
    with pytest.raises(
        DataError, match=r"^data row 210, column age: the value is more than 2 deviations .* agree on clip"
    ):
        one.quantised(one.spread(one.moments(), ["sex", "age"]), ["sex", "age"], (None, 2.0, 4))


@pytest.mark.parametrize(
    "total", [Moments(2, 5, 1), Moments(1, 1 << 145, 1 << 290), Moments(1, -(1 << 145), 1 << 290), Moments(-3, 0, 5)]
)
def test_sums_of_no_values(total: Moments) -> None:
    with pytest.raises(JobFailed, match="age"):
        standard.spread_of(total, "age")


def test_no_site_has_a_value() -> None:
    with pytest.raises(JobFailed, match="no site has a value of age"):
        standard.spread_of(Moments(0, 0, 0), "age")


# --- what a job says -------------------------------------------------------------------------------------------------------


def job(text: str) -> Job:
    return jobs.parse(f"k = 2\nmax_rows = 1000\n{text}", "job.toml")


def test_bound_and_precision_follow() -> None:
    made = job('features = ["age", "bmi"]\nscale = "standard"')
    assert (made.clip, made.bound, made.precision, made.standard) == (6.0, 6.0, 13, True)
    assert made.numeric == (True, True)
    assert jobs.parse(jobs.dumps(made), "again") == made
    assert job('features = 3\nscale = "standard"\nclip = 4').bound == 4.0
    set_by_hand = job('features = 3\nscale = "standard"\nbound = 20\nprecision = 5')
    assert (set_by_hand.clip, set_by_hand.bound, set_by_hand.precision) == (None, 20.0, 5)
    assert jobs.parse(jobs.dumps(set_by_hand), "again") == set_by_hand
    mixed = job('scale = "standard"\nmissing = "mean"\nfeatures = { sex = { levels = ["f", "m"] }, age = {} }')
    assert mixed.numeric == (False, False, True)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('features = 3\nscale = "standard"\nclip = 0.5', "clip: must be at least 1"),
        ("features = 3\nbound = 4\nclip = 6", 'clip: is in deviations and needs scale = "standard"'),
        (
            'features = 3\nscale = "standard"\nbound = 4\nclip = 6',
            "bound = 4 is in deviations here and must be at least 6",
        ),
        ('features = 3\nscale = "standard"\nbound = 0.5', "must be at least 1"),
        ('scale = "standard"\nfeatures = { sex = { levels = ["f", "m"] } }', "every feature has levels"),
        ("features = 3", 'agree on scale = "standard"'),
    ],
)
def test_what_a_job_cannot_say(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        job(text)


def test_a_policy_may_refuse_it() -> None:
    federation = make_federation(5, scale="standard")
    assert not complaints(Policy(), federation)
    strict = parse_policy('scales = ["none", "range"]', "policy.toml")
    assert complaints(strict, federation) == ['scales = ["none", "range"], but scale = "standard"']
    with pytest.raises(ConfigError, match="must list one or more of none, range, standard"):
        parse_policy('scales = ["log"]', "policy.toml")
