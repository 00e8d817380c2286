"""The federation file and the job in it: what they accept, what they refuse and with what words, and their digests."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import string
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from secfc.agreement import federation as federations
from secfc.agreement import job, plan, submission, toml
from secfc.agreement.federation import Federation
from secfc.agreement.job import Job
from secfc.agreement.parties import Party
from secfc.errors import ConfigError
from secfc.pki import provision

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no bug
GOOD = """
name = "trial"
privacy = 1

[job]
k = 3
max_rows = 1000
features = 4
bound = 8.0
precision = 10

[server]
address = "coord.example:7000"

[[client]]
name = "a"
address = "a.example:7001"

[[client]]
name = "b"
address = "10.0.0.2:7001"
"""


def parse(text: str) -> Federation:
    return federations.parse(text, "federation.toml")


def refused(text: str) -> str:
    """The one line with which this text is refused."""
    with pytest.raises(ConfigError) as caught:
        parse(text)
    message = str(caught.value)
    assert message.startswith("federation.toml: ")
    assert len(message.splitlines()) == 1
    return message


def test_defaults_and_lookups() -> None:
    federation = parse(GOOD)
    assert (federation.dropouts, federation.liars, federation.uploads) == (0, 0, "sealed")
    assert federation.job == Job(k=3, features=4, bound=8.0, precision=10, max_rows=1000)
    job = federation.job
    assert (job.max_rounds, job.seeding, job.membership) == (300, "k-means++", "public")
    assert (job.segments, job.feature_names, job.ids, job.seed) == (None, None, "fresh", None)
    assert (job.centers, job.centers_smallest) == ("nobody", 11)
    assert federation.server == Party("server", "coord.example:7000", "0.0.0.0:7000", ())
    assert (federation.n, federation.roster) == (2, ("a", "b"))
    assert federation.client("b").host == "10.0.0.2"
    assert federation.party("server").port == 7000
    for name in ("server", "nobody"):
        with pytest.raises(ConfigError, match="clients: a, b"):
            federation.client(name)


@pytest.mark.parametrize("uploads", ["sealed", "masked", "open"])
def test_uploads_are_sealed_unless_the_file_says_otherwise(uploads: str) -> None:
    """Without the key a federation is sealed, whatever else it says: nobody gets a weaker kind without having written it."""
    chosen = parse(GOOD.replace("privacy = 1", f'privacy = 1\nuploads = "{uploads}"'))
    assert chosen.uploads == uploads
    assert (chosen == parse(GOOD)) is (uploads == "sealed")
    assert parse(federations.dumps(chosen)) == chosen
    assert f'uploads = "{uploads}"' in federations.dumps(chosen), "a kit says it, whatever a later version's default is"
    for privacy in (0, 3):
        assert parse(GOOD.replace("privacy = 1", f"privacy = {privacy}")).uploads == "sealed"


def test_everything_given() -> None:
    text = GOOD.replace("features = 4", 'features = ["age", "größe", "a \\"b\\""]\nsegments = 2')
    text = text.replace("privacy = 1", 'privacy = 1\nuploads = "open"')
    text = text.replace('"coord.example:7000"', '"[::1]:7000"\nbind = "127.0.0.1:9"\nnames = ["X.org", "::0001"]')
    federation = parse(text)
    assert federation.job.feature_names == ("age", "größe", 'a "b"')
    assert (federation.job.features, federation.job.segments, federation.uploads) == (3, 2, "open")
    assert federation.server == Party("server", "[::1]:7000", "127.0.0.1:9", ("x.org", "::1"))
    assert federation.server.host == "::1"


def test_ipv6_address_listens_on_ipv6_by_default() -> None:
    assert parse(GOOD.replace("coord.example", "[2001:db8::1]")).server.bind == "[::]:7000"


@pytest.mark.parametrize("key", ["name", "k", "privacy", "max_rows", "features", "bound"])
def test_missing_key_is_named(key: str) -> None:
    lines = [line for line in GOOD.splitlines(keepends=True) if not line.startswith(f"{key} = ")]
    text = "".join(lines) + ('name = "b"' if key == "name" else "")
    text = text.replace('[[client]]\naddress = "a', '[[client]]\nname = "a"\naddress = "a')
    assert f"{key}: is missing" in refused(text)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("k = 3", "k = true", "[job] k: must be a whole number from 1 to 2147483647, not true"),
        ("k = 3", "k = 3.0", "k: must be a whole number"),
        ("k = 3", "k = 0", "not 0"),
        ("k = 3", 'k = "3"', "not '3'"),
        ("k = 3", "k = 0x" + "f" * 6000, "not a huge number"),
        (
            "k = 3",
            "k = [0x" + "f" * 6000 + "]",
            "k: must hold whole numbers from 1 to 2147483647; a huge number is not one",
        ),
        ("k = 3", "k = []", "k: must be a list of whole numbers, not an empty one"),
        ("k = 3", "k = [2, 3, 2]", "k: 2 is listed twice; name each once"),
        ("k = 3", "k = [2, true]", "k: must hold whole numbers from 1 to 2147483647; true is not one"),
        ("k = 3", "k = 3\nstarts = 0", "starts: must be a whole number from 1 to 200, not 0"),
        ("k = 3", "k = [3, 4]\nstarts = 101", "2 values of k with 101 starts each make 202 runs, and 200 are possible"),
        ("k = 3", "k = 1979-05-27", "not a date or time"),
        ("privacy = 1", "privacy = 1\ndropouts = -1", "dropouts: must be a whole number from 0"),
        ("k = 3", "k = 3\nsegments = 0", "segments: must be a whole number from 1"),
        ("k = 3", "k = 3\nmax_rounds = 0", "max_rounds: must"),
        ("k = 3", 'k = 3\nseed = ""', "seed: must be 1 to 200 characters"),
        ("k = 3", 'k = 3\nseed = "a\\tb"', "seed: must be 1 to 200 characters without control characters"),
        ("k = 3", "k = 3\nseed = 7", "seed: must be a string in quotes, not 7"),
        ("k = 3", 'k = 3\ncenters = "all"', "centers: must be one of nobody, clients, server, not 'all'"),
        (
            "k = 3",
            'k = 3\ncenters = "clients"\nmembership = "private"',
            '[job] centers = "clients" needs membership = "public"',
        ),
        ("k = 3", "k = 3\ncenters_smallest = 0", "centers_smallest: must be a whole number from 1"),
        ("privacy = 1", "privacy = -1", "privacy: must"),
        ("privacy = 1", "privcy = 1", "unknown key 'privcy'; did you mean \"privacy\"?"),
        (
            "privacy = 1",
            "zzzzzz = 1",
            "unknown key 'zzzzzz'; known keys are name, privacy, dropouts, liars, uploads, relay, job,",
        ),
        ("k = 3", "zzzzzz = 1", "[job] unknown key 'zzzzzz'; known keys are kind, from, k, features,"),
        ("k = 3", "k = 3\nmax_row = 1", "[job] unknown key 'max_row'; did you mean \"max_rows\"?"),
        ("k = 3", 'k = 3\nids = "linked"', 'ids = "linked" needs membership = "private"'),
        ("bound = 8.0", "bound = nan", "bound: must be a finite number above 0, not nan"),
        ("bound = 8.0", "bound = inf", "not inf"),
        ("bound = 8.0", "bound = 0", "not 0"),
        ("bound = 8.0", "bound = -1.5", "not -1.5"),
        ("bound = 8.0", "bound = false", "bound: must be a number, not false"),
        ("bound = 8.0", "bound = 0x1" + "0" * 300, "not a huge number"),
        ("precision = 10", "precision = 61", "precision: must be a whole number from -60 to 60"),
        ("precision = 10", "precision = -61", "precision: must"),
        ("features = 4", "features = 0", "features: must be a whole number from 1"),
        ("features = 4", "features = []", "features: is empty"),
        ("features = 4", 'features = ["x", "x"]', "'x' is listed twice"),
        ("features = 4", 'features = ["x", 3]', "features: must hold non-empty strings"),
        ("features = 4", 'features = ["x\\u007f"]', "without control characters"),
        ("features = 4", 'features = ["x\\ny"]', "without control characters"),
        ("features = 4", 'features = [""]', "non-empty"),
        (
            "privacy = 1",
            'privacy = 1\nuploads = "secret"',
            "uploads: must be one of sealed, masked, open, not 'secret'",
        ),
        ("k = 3", "k = 3\nseeding = []", "seeding: must be one of k-means++, random, separation"),
        ("k = 3", "k = 3\ncandidates = 0", "candidates: must be a whole number from 1 to 64, not 0"),
        ("k = 3", "k = 3\ncandidates = 65", "candidates: must be a whole number from 1 to 64, not 65"),
        ("k = 3", 'k = 3\ncandidates = "2"', "candidates: must be a whole number from 1 to 64"),
        (
            "k = 3",
            'k = 3\ncandidates = 2\nseeding = "random"',
            'candidates needs seeding = "k-means++"; leave candidates out',
        ),
        ("k = 3", 'k = 3\ncandidates = 1\nseeding = "separation"', 'candidates needs seeding = "k-means++"'),
        ('"trial"', '"Trial"', "name: 'Trial' must be a-z"),
        ('"trial"', '"-trial"', "name:"),
        ('"trial"', '"trial-"', "name:"),
        ('"trial"', f'"{"x" * 41}"', "at most 40"),
        ('"trial"', '"tri\\nal"', "name:"),
        ('"a"', '"b"', "name 'b' is used twice"),
        ('"a"', '"server"', 'cannot be called "server"'),
        ('"a"', '"ca"', 'cannot be called "ca"'),
        ('"a.example:7001"', '"10.0.0.2:7001"', "address '10.0.0.2:7001' is used twice"),
        ('"a.example:7001"', '"COORD.example:7000"', "address 'coord.example:7000' is used twice"),
        ('"a.example:7001"', '"a.example"', "[[client]] number 1 address: 'a.example' is not \"host:port\""),
        ('"a.example:7001"', '"a.example:0"', "port from 1 to 65535"),
        ('"a.example:7001"', '"a.example:65536"', "port from 1 to 65535"),
        ('"a.example:7001"', '"a.example:٣"', "port from 1 to 65535"),
        ('"a.example:7001"', '"::1:7001"', "[IPv6]:port"),
        ('"a.example:7001"', '"[abc:q]:7001"', "[IPv6]:port"),
        ('"a.example:7001"', '"[abc:1]:7001"', "neither a DNS name"),
        ('"a.example:7001"', '"10.0.0.256:7001"', "neither a DNS name"),
        ('"a.example:7001"', '"*.example:7001"', "neither a DNS name"),
        ('"a.example:7001"', '"0.0.0.0:7001"', "cannot be dialled"),
        ('"a.example:7001"', '"server.trial.secfc.internal:1"', "reserved for identities"),
        ('"a.example:7001"', '"a:1"\nnames = ["server.trial.SECFC.internal"]', "reserved for identities"),
        ('"a.example:7001"', '"a:1"\nnames = ["fe80::1%eth0"]', "neither a DNS name"),
        ('"a.example:7001"', '"a:1"\nnames = "x"', "names: must be a list"),
        ('"a.example:7001"', "7001", "address: must be a string"),
        (
            '"a.example:7001"',
            '"a:1"\nbnd = "x"',
            "[[client]] number 1 unknown key 'bnd'; did you mean \"bind\"?",
        ),
        ('[server]\naddress = "coord.example:7000"', "", "server: is missing"),
    ],
)
def test_wrong_value_is_refused_with_its_place(old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    assert complaint in refused(GOOD.replace(old, new, 1))


def test_the_server_must_be_a_table() -> None:
    without = GOOD.replace('[server]\naddress = "coord.example:7000"', "")
    assert "must be a table, [server]" in refused('server = "x"\n' + without)


def test_clients_must_be_a_list_of_tables() -> None:
    head = GOOD.partition("[[client]]")[0]
    assert "client: is missing" in refused(head)
    assert "each under [[client]]" in refused(head + '[client]\nname = "a"\n')
    assert "each under [[client]]" in refused("client = []\n" + head)


def test_toml_errors_are_one_line() -> None:
    assert "not valid TOML" in refused("k = ")
    assert "not valid TOML" in refused("a = " + "[" * 100_000)
    assert "not valid TOML" in refused("k = " + "9" * 5000)


def test_a_file_without_a_job() -> None:
    head, _, tail = GOOD.partition("[job]")
    stays = parse(head + tail[tail.index("[server]") :])
    assert stays.stays
    assert stays.agreed() == stays.digest() == parse(GOOD).digest()
    assert parse(federations.dumps(stays)) == stays
    assert not parse(GOOD).stays
    assert stays != parse(GOOD)
    with pytest.raises(ConfigError, match=r"no \[job\] table: it is a federation that stays"):
        plan.of(stays)
    with pytest.raises(ConfigError, match=r"no \[job\] table"):
        stays.job.digest()
    assert "must be a table, [job], not 3" in refused("job = 3\n" + head + tail[tail.index("[server]") :])


def test_an_earlier_versions_file_hears_what_moved() -> None:
    before = GOOD.replace("\n[job]\n", "")
    assert refused(before) == (
        "federation.toml: keys that now belong in the [job] table: k, max_rows, features, bound, precision; move them below"
        " a line [job] that follows the other keys"
    )


def test_the_federations_keys_are_not_the_jobs() -> None:
    """What one gets by nothing but a line [job] before the first key that moved."""
    wrong = GOOD.replace("privacy = 1\n\n[job]\n", "\n[job]\nprivacy = 1\nliars = 0\n")
    told = "keys that do not belong in the [job] table: privacy, liars; move them above the line [job]"
    assert refused(wrong) == f"federation.toml: {told}"


WHO = [("privacy = 1", "privacy = 2"), ("privacy = 1", "privacy = 1\ndropouts = 1"), ('"b"', '"c"'), ("7001", "7002")]
WHAT = [
    ("k = 3", "k = 4"),
    ("8.0", "8.5"),
    ("features = 4", 'features = ["p", "q", "r", "s"]'),
    ("k = 3", "k = 3\nmax_rounds = 299"),
    ("k = 3", 'k = 3\nseed = "x"'),
]


def test_digests_are_of_the_content() -> None:
    federation = parse(GOOD)
    for digest in (federation.digest(), federation.job.digest(), federation.agreed()):
        assert len(digest) == 32
    for same in (
        GOOD.replace("k = 3\nmax_rows = 1000", "max_rows =   1000 # rows\nk = 3") + "\n# the end",
        GOOD.replace("bound = 8.0", "bound = 8"),
        GOOD.replace("privacy = 1", "liars = 0\nprivacy = 1").replace("k = 3", "k = 3\nmax_rounds = 300"),
    ):
        assert parse(same).digest() == federation.digest()
        assert parse(same).job.digest() == federation.job.digest()
        assert parse(same).agreed() == federation.agreed()


@pytest.mark.parametrize(("old", "new"), WHO)
def test_who_takes_part_is_not_in_the_jobs_digest(old: str, new: str) -> None:
    federation, other = parse(GOOD), parse(GOOD.replace(old, new))
    assert other.digest() != federation.digest()
    assert other.job.digest() == federation.job.digest()
    assert other.agreed() != federation.agreed()


@pytest.mark.parametrize(("old", "new"), WHAT)
def test_what_is_computed_is_not_in_the_federations_digest(old: str, new: str) -> None:
    federation, other = parse(GOOD), parse(GOOD.replace(old, new))
    assert other.digest() == federation.digest()
    assert other.job.digest() != federation.job.digest()
    assert other.agreed() != federation.agreed()


def test_the_order_of_clients_counts() -> None:
    federation = parse(GOOD)
    swapped = dataclasses.replace(federation, clients=federation.clients[::-1])
    assert swapped.digest() != federation.digest()


def test_agreed_is_one_digest_of_both() -> None:
    federation = parse(GOOD)
    one, other = federation.digest(), federation.job.digest()
    lengths = [len(part).to_bytes(8, "big") for part in (b"secfc/v1/agreed", one, other)]
    whole = lengths[0] + b"secfc/v1/agreed" + lengths[1] + one + lengths[2] + other
    assert federation.agreed() == federations.agreed(one, other) == hashlib.sha256(whole).digest()
    assert federations.agreed(other, one) != federation.agreed()


def test_load(tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert federations.load(path) == parse(GOOD)
    path.write_bytes(b'name = "\xff"')
    with pytest.raises(ConfigError, match="not UTF-8"):
        federations.load(path)
    path.write_bytes(b"#" * (toml.MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than"):
        federations.load(path)
    for missing in (tmp_path, tmp_path / "none"):
        with pytest.raises(ConfigError, match="cannot be read"):
            federations.load(missing)


def test_a_job_in_a_file_of_its_own(tmp_path: Path) -> None:
    path, keys = tmp_path / "job.toml", GOOD.partition("[job]")[2].partition("[server]")[0]
    path.write_text('dataset = "patients"\n' + keys)
    assert submission.load(path) == submission.Wanted(parse(GOOD).job, "patients")
    path.write_text('dataset = "patients"\nk = 0')
    with pytest.raises(ConfigError, match=r"job\.toml: features: is missing"):
        submission.load(path)
    path.write_text(keys)
    with pytest.raises(ConfigError, match=r"job\.toml: dataset: is missing"):
        submission.load(path)
    path.write_text('version = 2\nmethod = "of the future"')
    with pytest.raises(ConfigError, match=r"job\.toml: version = 2 is for a newer SecFC"):
        submission.load(path)


def test_identity() -> None:
    assert federations.identity("trial", "a") == "a.trial.secfc.internal"


letters = string.ascii_lowercase + string.digits
labels = st.text(letters + "-", max_size=40).map(lambda text: text.strip("-") or "x")
names = labels.filter(lambda name: name not in federations.RESERVED_NAMES)
hosts = st.one_of(
    labels.map(lambda label: f"{label}.example"),
    st.ip_addresses(v=4).filter(lambda ip: int(ip) != 0).map(str),
    st.ip_addresses(v=6).filter(lambda ip: int(ip) != 0).map(str),
)
counts = st.integers(1, toml.MAX_COUNT)
ports = st.integers(1, 65535)
printable = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1)


def join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@st.composite
def any_job(draw: st.DrawFn) -> Job:
    columns = draw(st.none() | st.lists(printable, min_size=1, max_size=5, unique=True).map(tuple))
    membership = draw(st.sampled_from(["public", "private"]))
    private = membership == "private"
    seeding = draw(st.sampled_from(["k-means++", "random", "separation"]))
    return Job(
        k=draw(counts),
        features=len(columns) if columns else draw(counts),
        feature_names=columns,
        bound=draw(st.floats(min_value=0, exclude_min=True, allow_infinity=False)),
        precision=draw(st.integers(-60, 60)),
        max_rows=draw(counts),
        max_rounds=draw(counts),
        seeding=seeding,
        candidates=draw(st.none() | st.integers(1, 64)) if seeding == "k-means++" else None,
        segments=draw(st.none() | counts),
        membership=membership,
        ids=draw(st.sampled_from(["fresh", "linked"])) if private else "fresh",
        centers="nobody" if private else draw(st.sampled_from(["nobody", "clients", "server"])),
        centers_smallest=draw(counts),
        seed=draw(st.none() | printable.filter(lambda text: len(text) <= 200)),
    )


@st.composite
def any_federation(draw: st.DrawFn) -> Federation:
    roster = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    size = len(roster) + 1
    dialled = draw(st.lists(st.builds(join, hosts, ports), min_size=size, max_size=size, unique=True))
    extra = st.lists(hosts, max_size=3, unique=True).map(tuple)
    parties = [
        Party(name, address, draw(st.builds(join, hosts, ports)), draw(extra))
        for name, address in zip(["server", *roster], dialled, strict=True)
    ]
    return Federation(
        name=draw(labels),
        privacy=draw(counts),
        dropouts=draw(counts),
        liars=draw(counts),
        uploads=draw(st.sampled_from(["masked", "open"])),
        server=parties[0],
        clients=tuple(parties[1:]),
        job=draw(any_job()),
    )


@calm
@given(any_federation())
def test_dumps_round_trip(federation: Federation) -> None:
    again = parse(federations.dumps(federation))
    assert again == federation
    assert again.agreed() == federation.agreed()


@calm
@given(any_job())
def test_a_job_comes_from_a_text_or_a_table(one: Job) -> None:
    text = job.dumps(one)
    assert job.parse(text, "job.toml") == one
    assert job.parse(tomllib.loads(text), "federation.toml", "[job] ") == one
    assert job.parse(text, "job.toml").digest() == one.digest()


def only_config_error(text: str) -> None:
    """Whatever the text is: a federation, or one line of complaint."""
    try:
        parse(text)
    except ConfigError as error:
        message = str(error)
    else:
        return
    assert len(message.splitlines()) == 1


@calm
@given(st.text())
@example("a.b = 1\na.b.c = 2")
@example('"\\u2028" = 1')
def test_parse_of_anything_fails_cleanly(text: str) -> None:
    only_config_error(text)


@calm
@given(st.data())
def test_parse_of_damaged_files_fails_cleanly(data: st.DataObject) -> None:
    """A splice into a good file reaches far deeper than arbitrary text does."""
    begin = data.draw(st.integers(0, len(GOOD)))
    end = data.draw(st.integers(begin, min(len(GOOD), begin + 20)))
    only_config_error(GOOD[:begin] + data.draw(st.text(string.printable, max_size=20)) + GOOD[end:])


toml_values = st.recursive(
    st.sampled_from(["1", "-1", "true", "nan", "1e999", '"x"', '"x:1"', "1979-05-27", "07:32:00", "0x" + "f" * 5000]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | inner.map(lambda item: "{" + f"name = {item}" + "}")
    ),
    max_leaves=4,
)


@calm
@given(st.sampled_from([line for line in GOOD.splitlines() if "=" in line]), toml_values)
def test_parse_of_any_type_anywhere_fails_cleanly(line: str, value: str) -> None:
    only_config_error(GOOD.replace(line, f"{line.partition('=')[0]}= {value}", 1))


def test_several_k_and_starts() -> None:
    """All starts of the first k, then those of the next; four starts unless the file says otherwise."""
    assert federations.parse(GOOD, "f").job.runs == (3,) * 4
    several = federations.parse(GOOD.replace("k = 3", "k = [3, 5, 2]\nstarts = 2"), "f").job
    assert (several.k, several.ks, several.runs) == (3, (3, 5, 2), (3, 3, 5, 5, 2, 2))
    assert job.parse(job.dumps(several), "f") == several
    alone = federations.parse(GOOD.replace("k = 3", "k = [3]\nstarts = 1"), "f").job
    assert alone == federations.parse(GOOD.replace("k = 3", "k = 3\nstarts = 1"), "f").job
    digests = {one.digest() for one in (several, alone, federations.parse(GOOD, "f").job)}
    assert len(digests) == 3


FEATURES = 'features = { age = { range = [0, 120] }, sex = { levels = ["f", "m"] }, "a b" = { range = [-1, 0.5] } }'


def test_features_with_what_is_agreed_about_each() -> None:
    text = GOOD.replace("features = 4", FEATURES).replace("bound = 8.0\n", "").replace("precision = 10\n", "")
    job = parse(text).job
    assert (job.features, job.scale, job.bound, job.precision) == (4, "range", 1.0, 16)
    assert job.feature_names == ("age", "sex=f", "sex=m", "a b")
    assert job.spread == ((60.0, 60.0), (0.0, 1.0), (0.0, 1.0), (-0.25, 0.75))
    assert parse(federations.dumps(parse(text))) == parse(text)
    plain = parse(text.replace("[job]", '[job]\nscale = "none"')).job
    assert (plain.bound, plain.precision, plain.spread) == (120.0, 9, ())
    assert plain.digest() != job.digest()


def test_digests_of_features_stay_as_they_were_before_there_were_logarithms() -> None:
    """Federations, and clusters that sites have kept, go on."""
    text = "k = 2\nmax_rows = 9\nfeatures = { age = { range = [1, 9] }, sex = { levels = ['f', 'm'] } }\n"
    one, other = (job.parse(lines, "x") for lines in (text, text.replace("[1, 9]", "[1, 9], log = true")))
    assert one.digest().hex() == "90ae274e91878ea3ec5470cd3a5a3404a20b2e30ac29833aee65b31ea7ae7304"
    assert one.measures().hex() == "8a030910446e58772b8fa39e5ca901b18270f504e431724b9bd388bea52127a9"
    assert one == job.parse(text.replace("[1, 9]", "[1, 9], log = false"), "x")
    assert one.digest() != other.digest()
    assert one.measures() != other.measures()
    assert other.feature_names == ("log(age)", "sex=f", "sex=m")
    assert job.parse(job.dumps(other), "x") == other


@pytest.mark.parametrize(
    ("features", "complaint"),
    [
        ("{ age = { log = 1 } }", "log: must be true or false"),
        ("{ age = { range = [0, 9], log = true } }", "must begin above 0"),
        ("{ age = { range = [1e299, 1.0000000000000002e299], log = true } }", "whose logarithms are alike"),
        ('{ sex = { levels = ["f", "m"], log = true } }', "leave out one"),
        ("{ age = { range = [120, 0] } }", "two finite numbers"),
        ("{ age = { range = [0, inf] } }", "two finite numbers"),
        ("{ age = { rang = [0, 1] } }", 'did you mean "range"'),
        ('{ sex = { levels = ["f"] } }', "2 to 1000 texts"),
        ('{ sex = { levels = ["f", "f"] } }', "listed twice"),
        ('{ sex = { levels = ["f", "m"], range = [0, 1] } }', "leave out one"),
        ('{ a = { levels = ["b", "c"] }, "a=b" = {} }', "two columns"),
        ("{ age = 3 }", "must be a table"),
        ("{}", "is empty"),
        ('["a"]\nscale = "range"', "needs a range for every feature"),
        ('{ age = {} }\nmissing = "mean"', '"mean" needs a range'),
    ],
)
def test_what_cannot_be_agreed_about_features(features: str, complaint: str) -> None:
    assert complaint in refused(GOOD.replace("features = 4", f"features = {features}"))


WITHOUT = GOOD.replace('address = "a.example:7001"\n', "", 1)


class TestRelay:
    """Clients that only dial out, and whether the server carries what clients say to each other."""

    def test_by_default_only_where_a_client_has_no_address(self) -> None:
        assert federations.parse(GOOD, "federation.toml").relay == "never"
        assert federations.parse(WITHOUT, "federation.toml").relay == "fallback"

    def test_who_is_dialled(self) -> None:
        mixed = federations.parse(WITHOUT, "federation.toml")
        assert [mixed.dialled(name) for name in ("server", "a", "b")] == [True, False, True]
        only = federations.parse('relay = "only"\n' + GOOD, "federation.toml")
        assert [only.dialled(name) for name in ("server", "a", "b")] == [True, False, False]

    def test_it_is_written_and_read_back(self) -> None:
        made = federations.parse(WITHOUT, "federation.toml")
        assert federations.parse(federations.dumps(made), "again") == made
        assert made.client("a").address == made.client("a").bind == ""

    def test_the_parties_agree_on_it(self) -> None:
        texts = [f'relay = "{relay}"\n{GOOD}' for relay in federations.RELAYS]
        assert len({federations.parse(text, "federation.toml").agreed() for text in texts}) == 3

    def test_never_needs_addresses(self) -> None:
        complaint = refused('relay = "never"\n' + WITHOUT)
        assert '"never" needs an address for every client, and a has none' in complaint

    @pytest.mark.parametrize("line", ['bind = "0.0.0.0:7001"', 'names = ["a.example"]'])
    def test_who_is_not_dialled_neither_listens_nor_has_host_names(self, line: str) -> None:
        assert "only dials out" in refused(WITHOUT.replace('name = "a"', f'name = "a"\n{line}'))

    def test_its_certificate_names_the_party_and_no_host(self) -> None:
        made = federations.parse(WITHOUT, "federation.toml")
        assert provision.subject_names(made.name, made.client("a")) == ("a.trial.secfc.internal",)


# --- columns at different sites -------------------------------------------------------------------------------------------


def split_text(features: str, clients: int = 3, **job: str) -> str:
    lines = ['name = "trial"', "privacy = 1", "[job]", "k = 2", "max_rows = 9", "bound = 1", "precision = 4"]
    lines += [f"{key} = {value}" for key, value in ({"split": '"columns"', "features": features} | job).items()]
    lines += ["[server]", 'address = "s.test:1"']
    for name in ("clinic", "bank", "helper")[:clients]:
        lines += ["[[client]]", f'name = "{name}"', f'address = "{name}.test:1"']
    return "\n".join(lines)


HELD = '{ age = { holder = "clinic" }, sex = { holder = "clinic", levels = ["f", "m"] }, income = { holder = "bank" } }'


def test_each_feature_names_its_holder_and_rows_are_linked() -> None:
    made = federations.parse(split_text(HELD), "f.toml")
    assert (made.job.membership, made.job.ids) == ("private", "linked")
    assert made.holders == ("clinic", "bank")
    assert [made.helps(name) for name in made.roster] == [False, False, True]
    assert (made.job.columns_of("clinic"), made.job.columns_of("bank")) == ((0, 1, 2), (3,))
    assert made.job.columns_of("helper") == ()
    assert made.job.of("clinic").feature_names == ("age", "sex=f", "sex=m")
    assert federations.parse(federations.dumps(made), "g.toml") == made
    other = federations.parse(
        split_text(HELD.replace('income = { holder = "bank" }', 'income = { holder = "helper" }')), "f.toml"
    )
    assert other.agreed() != made.agreed(), "who holds what is agreed on"


def test_a_job_that_says_nothing_of_holders_keeps_its_digest() -> None:
    """Kits and jobs of before go on."""

    features = {"age": "{ range = [0, 120] }", "sex": '{ levels = ["f", "m"] }'}
    text = split_text("{ " + ", ".join(f"{k} = {v}" for k, v in features.items()) + " }").replace(
        'split = "columns"\n', ""
    )
    job = federations.parse(text, "f.toml").job
    fields = dataclasses.asdict(job)
    for name in ("other_k", "choose", "missing", "split", "clip", "kind", "source", "prune"):
        del fields[name]
    for one in fields["agreed"]:
        del one["holder"], one["log"]
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    assert job.digest() == hashlib.sha256(canonical.encode()).digest()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (split_text(HELD.replace('holder = "bank"', "")), "nobody holds 'income'; name its one holder"),
        (split_text(HELD.replace('"bank"', '"shop"')), "'income' is held by 'shop', which is no client"),
        (split_text(HELD.replace('"bank"', '["bank", "clinic"]')), "'income' holder: must be one client"),
        (split_text(HELD, clients=2), "needs at least 3 clients, and there are 2; add a client that holds no column"),
        (split_text(HELD.replace('"bank"', '"clinic"')), "clinic holds all features; leave split out"),
        (split_text('["age", "income"]'), "needs a table of features that names the holder of each"),
        (split_text("2"), "needs a table of features that names the holder of each"),
        (split_text(HELD, membership='"public"'), 'needs membership = "private" and ids = "linked"; leave both out'),
        (split_text(HELD, ids='"fresh"'), 'needs membership = "private" and ids = "linked"; leave both out'),
        (split_text(HELD, centers='"clients"'), 'needs membership = "public"'),
        (split_text(HELD, split='"rows"'), "'age' has a holder, which needs split"),
        (split_text(HELD, split='"both"'), "must be one of rows, columns"),
    ],
)
def test_one_line_for_columns_that_do_not_fit(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        federations.parse(text, "f.toml")
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_sums_of_one_holder_are_opened_for_scaling() -> None:
    made = federations.parse(split_text(HELD), "f.toml").job
    with pytest.raises(ConfigError, match="mean and deviation of columns that one client holds"):
        job._check_together(dataclasses.replace(made, scale="standard"), "")
