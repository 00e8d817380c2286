"""A site's rules: what the file may say, and which federation files they allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from secfc.agreement import policy
from secfc.agreement.policy import Policy
from secfc.errors import ConfigError
from tests.parties import make_federation

WHOLE = """
least_privacy = 2
uploads = ["masked"]
max_requests = 40
max_directions = 12
max_assignments = 30
smallest_cluster = 5
open_centers = "clients"
centers_smallest = 20
committee = ["a", "b"]
keep_shares = true
scales = ["none"]
keep_clusters = true
least_rows = 7
least_rows_in_all = 90
"""


def test_every_key() -> None:
    rules = Policy(2, ("masked",), 40, 12, 30, 5, "clients", 20, ("a", "b"), True, 7, 90, ("none",), True)
    assert policy.parse(WHOLE, "policy.toml") == rules


def test_an_empty_file_is_the_defaults() -> None:
    assert policy.parse("# nothing\n", "policy.toml") == Policy()


def test_the_file_of_the_kit_the_chosen_one_or_none(tmp_path: Path) -> None:
    assert policy.of_kit(tmp_path) == Policy()
    (tmp_path / "policy.toml").write_text("max_requests = 3")
    (tmp_path / "other.toml").write_text("max_requests = 4")
    assert policy.of_kit(tmp_path).max_requests == 3
    assert policy.of_kit(tmp_path, tmp_path / "other.toml").max_requests == 4
    with pytest.raises(ConfigError, match=r"nowhere\.toml: cannot be read"):
        policy.of_kit(tmp_path, tmp_path / "nowhere.toml")


def test_a_required_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy\.toml: there is no such file, and --require-policy asks for one"):
        policy.of_kit(tmp_path, required=True)
    (tmp_path / "policy.toml").touch()
    assert policy.of_kit(tmp_path, required=True) == Policy()


def test_a_link_that_leads_nowhere_is_not_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").symlink_to("gone.toml")
    with pytest.raises(ConfigError, match=r"policy\.toml: cannot be read"):
        policy.of_kit(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("least_privacy = -1", "least_privacy: must be a whole number from 0"),
        ("least_privacy = true", "least_privacy: must be a whole number"),
        ("least_privacy = 1.5", "least_privacy: must be a whole number"),
        ('uploads = "masked"', "uploads: must be a list of strings"),
        ("uploads = []", "uploads: must list one or more of sealed, masked, open"),
        ('uploads = ["secret"]', "uploads: must list one or more of sealed, masked, open"),
        ('uploads = ["open", "open"]', "is listed twice"),
        ("max_requests = 0", "max_requests: must be a whole number from 1"),
        ("max_directions = -1", "max_directions: must be a whole number from 0"),
        ("smallest_cluster = 0", "smallest_cluster: must be a whole number from 1"),
        ('open_centers = "all"', "open_centers: must be one of nobody, clients, server"),
        ("centers_smallest = 0", "centers_smallest: must be a whole number from 1"),
        ("keep_shares = 1", "keep_shares: must be true or false, not 1"),
        ("max_request = 3", "unknown key 'max_request'; did you mean \"max_requests\"?"),
        ("max_rounds = 3", "max_rounds is now called max_requests, as it counts requests; rename it"),
        ("[policy]\nmax_requests = 3", "unknown key 'policy'"),
        ("max_requests = ", "not valid TOML"),
    ],
)
def test_a_wrong_value_is_one_clear_line(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policy.parse(text, "site/policy.toml")
    assert words in str(caught.value)
    assert str(caught.value).startswith("site/policy.toml: ")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("rules", "settings", "words"),
    [
        (Policy(least_privacy=2), {}, "least_privacy = 2, but privacy = 1"),
        (Policy(uploads=("masked",)), {"uploads": "open"}, 'uploads = ["masked"], but uploads = "open"'),
        (Policy(smallest_cluster=2), {}, 'seeding = "k-means++" asks for distances to single rows; it needs 1'),
        (Policy(smallest_cluster=2), {"seeding": "separation"}, "asks for distances to single rows"),
        (Policy(max_requests=3), {}, "the shortest job makes 4 requests"),
        (Policy(max_requests=4), {"seeding": "separation"}, "the shortest job makes 5 requests"),
        (Policy(max_directions=1), {}, "k = 3 clusters give away 2 at once"),
        (Policy(max_requests=4), {"uploads": "sealed"}, "the shortest job makes 5 requests"),
        (Policy(max_assignments=1), {}, "max_assignments = 1, but the shortest job gives away 2 of them"),
        (Policy(max_assignments=1), {"uploads": "sealed"}, "the shortest job gives away 2 of them"),
    ],
)
def test_a_federation_that_cannot_fit(rules: Policy, settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policy.check(rules, make_federation(5, **settings))
    assert words in str(caught.value)
    assert str(caught.value).startswith("policy.toml does not allow this federation.toml: ")


def test_a_federation_that_fits() -> None:
    policy.check(Policy(), make_federation(5))
    policy.check(Policy(1, ("masked",), 4, 2), make_federation(5))
    policy.check(Policy(max_directions=0), make_federation(5, uploads="sealed"))  # it shows no distances
    policy.check(Policy(smallest_cluster=9, max_requests=1), make_federation(5, seeding="random"))
    policy.check(Policy(max_assignments=1), make_federation(5, seeding="random"))
    policy.check(Policy(max_directions=0), make_federation(5, uploads="sealed"))


def test_rules_are_shown_as_they_are_written() -> None:
    assert Policy().describe() == "the defaults"
    shown = Policy(uploads=("masked",), max_directions=0, open_centers="server", keep_shares=True).describe()
    assert shown == 'uploads = ["masked"], max_directions = 0, open_centers = "server", keep_shares = true'
