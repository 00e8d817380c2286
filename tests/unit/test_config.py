"""The federation file: what it accepts, what it refuses and with what words, and its digest."""

from __future__ import annotations

import dataclasses
import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from secfc import config
from secfc.config import Federation, Party
from secfc.errors import ConfigError

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no bug
GOOD = """
name = "trial"
k = 3
privacy = 1
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
    return config.parse(text, "federation.toml")


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
    assert (federation.dropouts, federation.liars, federation.max_rounds) == (0, 0, 300)
    assert (federation.uploads, federation.seeding, federation.membership) == (
        "masked",
        "k-means++",
        "public",
    )
    assert (federation.segments, federation.feature_names, federation.features) == (None, None, 4)
    assert federation.server == Party("server", "coord.example:7000", "0.0.0.0:7000", ())
    assert (federation.n, federation.roster) == (2, ("a", "b"))
    assert federation.client("b").host == "10.0.0.2"
    assert federation.party("server").port == 7000
    for name in ("server", "nobody"):
        with pytest.raises(ConfigError, match="clients: a, b"):
            federation.client(name)


def test_everything_given() -> None:
    text = GOOD.replace("features = 4", 'features = ["age", "größe", "a \\"b\\""]\nsegments = 2\nuploads = "open"')
    text = text.replace('"coord.example:7000"', '"[::1]:7000"\nbind = "127.0.0.1:9"\nnames = ["X.org", "::0001"]')
    federation = parse(text)
    assert federation.feature_names == ("age", "größe", 'a "b"')
    assert (federation.features, federation.segments, federation.uploads) == (3, 2, "open")
    assert federation.server == Party("server", "[::1]:7000", "127.0.0.1:9", ("x.org", "::1"))
    assert federation.server.host == "::1"


def test_ipv6_address_listens_on_ipv6_by_default() -> None:
    assert parse(GOOD.replace("coord.example", "[2001:db8::1]")).server.bind == "[::]:7000"


@pytest.mark.parametrize("key", ["name", "k", "privacy", "max_rows", "features", "bound", "precision"])
def test_missing_key_is_named(key: str) -> None:
    lines = [line for line in GOOD.splitlines(keepends=True) if not line.startswith(f"{key} = ")]
    text = "".join(lines) + ('name = "b"' if key == "name" else "")
    text = text.replace('[[client]]\naddress = "a', '[[client]]\nname = "a"\naddress = "a')
    assert f"{key}: is missing" in refused(text)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("k = 3", "k = true", "k: must be a whole number from 1 to 2147483647, not true"),
        ("k = 3", "k = 3.0", "k: must be a whole number"),
        ("k = 3", "k = 0", "not 0"),
        ("k = 3", 'k = "3"', "not '3'"),
        ("k = 3", "k = 0x" + "f" * 6000, "not a huge number"),
        ("k = 3", "k = [0x" + "f" * 6000 + "]", "not a list"),
        ("k = 3", "k = 1979-05-27", "not a date or time"),
        ("k = 3", "k = 3\ndropouts = -1", "dropouts: must be a whole number from 0"),
        ("k = 3", "k = 3\nsegments = 0", "segments: must be a whole number from 1"),
        ("k = 3", "k = 3\nmax_rounds = 0", "max_rounds: must"),
        ("k = 3", 'k = 3\nseed = ""', "seed: must be 1 to 200 characters"),
        ("k = 3", 'k = 3\nseed = "a\\tb"', "seed: must be 1 to 200 characters without control characters"),
        ("k = 3", "k = 3\nseed = 7", "seed: must be a string in quotes, not 7"),
        ("k = 3", 'k = 3\ncenters = "all"', "centers: must be one of nobody, clients, server, not 'all'"),
        (
            "k = 3",
            'k = 3\ncenters = "clients"\nmembership = "private"',
            'centers = "clients" goes with membership = "public"',
        ),
        ("k = 3", "k = 3\ncenters_smallest = 0", "centers_smallest: must be a whole number from 1"),
        ("privacy = 1", "privacy = -1", "privacy: must"),
        ("privacy = 1", "privcy = 1", "unknown key 'privcy'; did you mean \"privacy\"?"),
        ("privacy = 1", "zzzzzz = 1", "unknown key 'zzzzzz'; known are name, k,"),
        ("bound = 8.0", "bound = nan", "bound: must be a finite number above 0, not nan"),
        ("bound = 8.0", "bound = inf", "not inf"),
        ("bound = 8.0", "bound = 0", "not 0"),
        ("bound = 8.0", "bound = -1.5", "not -1.5"),
        ("bound = 8.0", "bound = false", "bound: must be a number, not false"),
        ("bound = 8.0", "bound = 0x1" + "0" * 300, "not a huge number"),
        ("precision = 10", "precision = 61", "precision: must be a whole number from -60 to 60"),
        ("precision = 10", "precision = -61", "precision: must"),
        ("features = 4", "features = 0", "features: must be a whole number from 1"),
        ("features = 4", "features = []", "features: is an empty list"),
        ("features = 4", 'features = ["x", "x"]', "'x' stands there twice"),
        ("features = 4", 'features = ["x", 3]', "features: must hold strings"),
        ("features = 4", 'features = ["x\\u007f"]', "without control characters"),
        ("features = 4", 'features = ["x\\ny"]', "without control characters"),
        ("features = 4", 'features = [""]', "not empty"),
        ("k = 3", 'k = 3\nuploads = "secret"', "uploads: must be one of masked, open, not 'secret'"),
        ("k = 3", "k = 3\nseeding = []", "seeding: must be one of k-means++, random, separation"),
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
        ('"a.example:7001"', '"server.trial.secfc.internal:1"', "kept for identities"),
        ('"a.example:7001"', '"a:1"\nnames = ["server.trial.SECFC.internal"]', "kept for identities"),
        ('"a.example:7001"', '"a:1"\nnames = ["fe80::1%eth0"]', "neither a DNS name"),
        ('"a.example:7001"', '"a:1"\nnames = "x"', "names: must be a list"),
        ('"a.example:7001"', "7001", "address: must be a string"),
        (
            '"a.example:7001"',
            '"a:1"\nbnd = "x"',
            "[[client]] number 1 unknown key 'bnd'; did you mean \"bind\"?",
        ),
        ('[server]\naddress = "coord.example:7000"', "", "server: is missing"),
        ('[server]\naddress = "coord.example:7000"', 'server = "x"', "must be a table, [server]"),
    ],
)
def test_wrong_value_is_refused_with_its_place(old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    assert complaint in refused(GOOD.replace(old, new, 1))


def test_clients_must_be_a_list_of_tables() -> None:
    head = GOOD.partition("[[client]]")[0]
    assert "client: is missing" in refused(head)
    assert "each under [[client]]" in refused(head + '[client]\nname = "a"\n')
    assert "each under [[client]]" in refused("client = []\n" + head)


def test_toml_errors_are_one_line() -> None:
    assert "not valid TOML" in refused("k = ")
    assert "not valid TOML" in refused("a = " + "[" * 100_000)
    assert "not valid TOML" in refused("k = " + "9" * 5000)


def test_digest_is_of_the_content() -> None:
    digest = parse(GOOD).digest()
    assert len(digest) == 32
    reordered = GOOD.replace("k = 3\nprivacy = 1", "privacy =   1 # one\nk = 3")
    assert parse(reordered + "\n# the end").digest() == digest
    assert parse(GOOD.replace("bound = 8.0", "bound = 8")).digest() == digest
    for old, new in (
        ("k = 3", "k = 4"),
        ("8.0", "8.5"),
        ('"b"', '"c"'),
        ("features = 4", 'features = ["p", "q", "r", "s"]'),
    ):
        assert parse(GOOD.replace(old, new)).digest() != digest
    federation = parse(GOOD)
    swapped = dataclasses.replace(federation, clients=federation.clients[::-1])
    assert swapped.digest() != digest


def test_load(tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert config.load(path) == parse(GOOD)
    path.write_bytes(b'name = "\xff"')
    with pytest.raises(ConfigError, match="not UTF-8"):
        config.load(path)
    path.write_bytes(b"#" * (config.MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than"):
        config.load(path)
    for missing in (tmp_path, tmp_path / "none"):
        with pytest.raises(ConfigError, match="cannot be read"):
            config.load(missing)


def test_identity() -> None:
    assert config.identity("trial", "a") == "a.trial.secfc.internal"


letters = string.ascii_lowercase + string.digits
labels = st.text(letters + "-", max_size=40).map(lambda text: text.strip("-") or "x")
names = labels.filter(lambda name: name not in config.RESERVED_NAMES)
hosts = st.one_of(
    labels.map(lambda label: f"{label}.example"),
    st.ip_addresses(v=4).filter(lambda ip: int(ip) != 0).map(str),
    st.ip_addresses(v=6).filter(lambda ip: int(ip) != 0).map(str),
)
counts = st.integers(1, config.MAX_COUNT)
ports = st.integers(1, 65535)
printable = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1)


def join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@st.composite
def federations(draw: st.DrawFn) -> Federation:
    roster = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    size = len(roster) + 1
    dialled = draw(st.lists(st.builds(join, hosts, ports), min_size=size, max_size=size, unique=True))
    extra = st.lists(hosts, max_size=3, unique=True).map(tuple)
    parties = [
        Party(name, address, draw(st.builds(join, hosts, ports)), draw(extra))
        for name, address in zip(["server", *roster], dialled, strict=True)
    ]
    columns = draw(st.none() | st.lists(printable, min_size=1, max_size=5, unique=True).map(tuple))
    federation = Federation(
        name=draw(labels),
        k=draw(counts),
        privacy=draw(counts),
        dropouts=draw(counts),
        liars=draw(counts),
        uploads=draw(st.sampled_from(["masked", "open"])),
        seeding=draw(st.sampled_from(["k-means++", "random", "separation"])),
        segments=draw(st.none() | counts),
        membership=draw(st.sampled_from(["public", "private"])),
        max_rows=draw(counts),
        max_rounds=draw(counts),
        features=len(columns) if columns else draw(counts),
        feature_names=columns,
        bound=draw(st.floats(min_value=0, exclude_min=True, allow_infinity=False)),
        precision=draw(st.integers(-60, 60)),
        server=parties[0],
        clients=tuple(parties[1:]),
        centers=draw(st.sampled_from(["nobody", "clients", "server"])),
        centers_smallest=draw(counts),
        seed=draw(st.none() | printable.filter(lambda text: len(text) <= 200)),
    )
    return federation if federation.membership == "public" else dataclasses.replace(federation, centers="nobody")


@calm
@given(federations())
def test_dumps_round_trip(federation: Federation) -> None:
    again = parse(config.dumps(federation))
    assert again == federation
    assert again.digest() == federation.digest()


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
