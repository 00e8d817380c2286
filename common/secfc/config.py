"""The federation file: what all parties agree on before anybody starts.

`federation.toml` becomes one frozen `Federation`, validated once, here; who holds one need not check again.
Every party has the same file, and compares `Federation.digest()` when it joins, so nobody computes with other
parameters than the rest. Whether the parameters fit together *mathematically* is the plan's business.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import ipaddress
import json
import math
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from secfc.errors import ConfigError

MAX_FILE_BYTES = 1 << 20
MAX_COUNT = 2**31 - 1  # every count travels in 32 bits
IDENTITY_DOMAIN = "secfc.internal"  # .internal is reserved for private use: nobody can own such a name in public DNS
SERVER = "server"
LINK_KEY = "link.key"  # in a client's kit: the clients' common key for linked IDs
AUDIENCES = ("nobody", "clients", SERVER)  # who may see the final centres; each includes the ones before
SMALLEST = 11  # fewer rows than this are a small cell, by the norm for health data
RESERVED_NAMES = (SERVER, "ca")  # "ca" is the authority's folder beside the kits

_TOP_KEYS = (
    *("name", "k", "privacy", "dropouts", "liars", "uploads", "seeding", "segments", "membership", "ids"),
    *("max_rows", "max_rounds", "features", "bound", "precision", "seed", "centers", "centers_smallest"),
    *("server", "client"),
)
_SERVER_KEYS = ("address", "bind", "names")
_CLIENT_KEYS = ("name", *_SERVER_KEYS)
_NO_KEY = re.compile(r""" "(?:[^"\\\n]|\\.)*+" | '[^'\n]*+' | \#[^\n]*+ """, re.VERBOSE)  # strings and comments
_MOST_DOTS = 64
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_HOST_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_ADDRESS = re.compile(r"(?:\[([0-9a-f.]*:[0-9a-f:.]*)\]|([^:\[\]]+)):([1-9][0-9]{0,4})")


@dataclass(frozen=True)
class Party:
    """One machine: where others dial it, where it listens, and what its certificate names besides."""

    name: str
    address: str
    bind: str
    names: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        """The dialled host, an IPv6 one without its brackets."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The dialled port."""
        return int(self.address.rpartition(":")[2])


@dataclass(frozen=True)
class Federation:
    """What `federation.toml` says. Made by `parse` or `load`, which validate; names are the file's."""

    name: str
    k: int
    privacy: int
    dropouts: int
    liars: int
    uploads: str
    seeding: str
    segments: int | None
    membership: str
    max_rows: int
    max_rounds: int
    features: int
    feature_names: tuple[str, ...] | None
    bound: float
    precision: int
    server: Party
    clients: tuple[Party, ...]
    ids: str = "fresh"  # how rows are named where membership is private
    seed: str | None = None  # fixes the start, to repeat a run; without it the clients toss coins
    centers: str = "nobody"  # who may see the final centres: nobody, the clients, or the server as well
    centers_smallest: int = (
        SMALLEST  # rows of a cluster, beside those of the t sites with most of them, to open its centre
    )

    @property
    def n(self) -> int:
        """The number of clients."""
        return len(self.clients)

    @property
    def roster(self) -> tuple[str, ...]:
        """The clients' names in the file's order, which is also the order of their rows."""
        return tuple(client.name for client in self.clients)

    def client(self, name: str) -> Party:
        """The client of that name."""
        for client in self.clients:
            if client.name == name:
                return client
        raise ConfigError(f"{_show(name)} is not a client of {self.name}; clients: {', '.join(self.roster)}")

    def party(self, name: str) -> Party:
        """The client of that name, or the server for "server"."""
        return self.server if name == SERVER else self.client(name)

    def digest(self) -> bytes:
        """SHA-256 of the content: spacing, comments and key order do not matter, client order does."""
        canonical = json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("ascii")).digest()


def identity(federation_name: str, party_name: str) -> str:
    """The DNS name that carries who a party is in its certificate. It is never looked up."""
    return f"{party_name}.{federation_name}.{IDENTITY_DOMAIN}"


def load(path: str | Path) -> Federation:
    """Read and validate a federation file."""
    return parse(read_text(path), str(path))


def read_text(path: str | Path) -> str:
    """The text of a configuration file."""
    content = read_small_file(path, MAX_FILE_BYTES)
    try:
        return content.decode("utf-8-sig")  # some editors put a byte order mark in front
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text; save it as UTF-8") from None


def read_small_file(path: str | Path, limit: int) -> bytes:
    """The bytes of a file that has no reason to be larger than `limit`; never reads on beyond it."""
    try:
        with open(path, "rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    if len(content) > limit:
        raise ConfigError(f"{path}: larger than {limit} bytes; it is probably not the file that is meant")
    return content


def parse(text: str, where: str) -> Federation:
    """Validate a federation file's text; `where` names it in errors."""
    raw = read_toml(text, where)
    top = Table(raw, where, "", _TOP_KEYS)
    features, feature_names = top.features()
    federation = Federation(
        name=top.label("name"),
        k=top.integer("k", 1),
        privacy=top.integer("privacy", 0),
        dropouts=top.integer("dropouts", 0, default=0),
        liars=top.integer("liars", 0, default=0),
        uploads=top.choice("uploads", ("masked", "open")),
        seeding=top.choice("seeding", ("k-means++", "random", "separation")),
        segments=top.integer("segments", 1) if "segments" in raw else None,
        membership=top.choice("membership", ("public", "private")),
        ids=top.choice("ids", ("fresh", "linked")),
        max_rows=top.integer("max_rows", 1),
        max_rounds=top.integer("max_rounds", 1, default=300),
        features=features,
        feature_names=feature_names,
        bound=top.positive("bound"),
        precision=top.integer("precision", -60, 60),
        server=_party(Table(top.table("server"), where, "[server] ", _SERVER_KEYS), SERVER),
        clients=_clients(top),
        seed=top.words("seed") if "seed" in raw else None,
        centers=top.choice("centers", AUDIENCES),
        centers_smallest=top.integer("centers_smallest", 1, default=SMALLEST),
    )
    _check_distinct((federation.server, *federation.clients), where)
    if federation.ids == "linked" and federation.membership != "private":
        raise ConfigError(
            f'{where}: ids = "linked" goes with membership = "private"; leave it out or change membership'
        )
    if federation.centers != AUDIENCES[0] and federation.membership == "private":
        raise ConfigError(
            f'{where}: centers = "{federation.centers}" goes with membership = "public": where nobody knows whose rows are'
            " in a cluster, nobody can tell a cluster of many sites from one row among a colluder's; leave centers out"
        )
    return federation


def read_toml(text: str, where: str) -> dict[str, object]:
    """The tables of a TOML text."""
    _check_dots(text, where)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not valid TOML: {' '.join(str(error).split())}") from None


def _check_dots(text: str, where: str) -> None:
    """No key here has dots, and the parser takes a time that grows with their number squared, half a minute for 40 kB."""
    for number, line in enumerate(_NO_KEY.sub("", text).splitlines(), 1):
        if line.count(".") > _MOST_DOTS:
            raise ConfigError(f"{where}: not valid TOML: line {number} or one near it is full of dots; remove it")


def dumps(federation: Federation) -> str:
    """TOML text that `parse` reads back as an equal value."""
    fields = dataclasses.asdict(federation)
    fields["features"] = federation.feature_names or federation.features
    lines = [f"{key} = {_toml(fields[key])}" for key in _TOP_KEYS[:-2] if fields[key] is not None]
    lines += ["", "[server]", *_party_lines(federation.server, _SERVER_KEYS)]
    for client in federation.clients:
        lines += ["", "[[client]]", *_party_lines(client, _CLIENT_KEYS)]
    return "\n".join(lines) + "\n"


def split_address(text: str) -> tuple[str, int]:
    """`host:port` or `[IPv6]:port` as a normalised host (no brackets) and a port."""
    match = _ADDRESS.fullmatch(text.lower()) if len(text) <= 300 else None
    port = int(match[3]) if match else 0
    if match is None or not 1 <= port <= 65535:
        raise ConfigError(f'{_show(text)} is not "host:port" or "[IPv6]:port" with a port from 1 to 65535')
    return _host(match[1] or match[2]), port


def _host(text: str) -> str:
    """A DNS name or IP address in its usual spelling; `%` scopes have no place in a certificate."""
    if "%" not in text and (ip := _ip(text)):
        return ip
    name = text.lower()
    labels = name.split(".")
    if len(name) > 253 or not all(map(_HOST_LABEL.fullmatch, labels)) or labels[-1].isdigit():
        raise ConfigError(f"{_show(text)} is neither a DNS name (without wildcards) nor an IP address; correct it")
    return name


def _ip(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


def _join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _clients(top: Table) -> tuple[Party, ...]:
    tables = [
        Table(raw, top.where, f"[[client]] number {number} ", _CLIENT_KEYS)
        for number, raw in enumerate(top.tables("client"), 1)
    ]
    return tuple(_party(table, table.label("name")) for table in tables)


def _party(table: Table, name: str) -> Party:
    host, port = table.address("address")
    if host in ("0.0.0.0", "::"):  # noqa: S104 - refused here, not bound
        table.fail("address", f"{host} cannot be dialled; put it in bind, and here the name others reach it by")
    table.check_not_identity("address", host)
    everywhere = "::" if ":" in host else "0.0.0.0"  # noqa: S104 - mutual TLS decides who gets in
    bind = table.address("bind") if "bind" in table.raw else (everywhere, port)
    return Party(name, _join_address(host, port), _join_address(*bind), table.hosts("names"))


def _check_distinct(parties: tuple[Party, ...], where: str) -> None:
    names = [party.name for party in parties]
    for name in names[1:]:
        if name in RESERVED_NAMES:
            raise ConfigError(f'{where}: a client cannot be called "{name}", the name is taken; choose another')
    for what, values in (("name", names), ("address", [party.address for party in parties])):
        if twice := _first_repeated(values):
            raise ConfigError(f"{where}: {what} {_show(twice)} is used twice; give every party its own")


def _first_repeated(values: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


class Table:
    """One TOML table, read key by key: every complaint names the file, the table and the key."""

    def __init__(self, raw: Mapping[str, object], where: str, place: str, known: tuple[str, ...]) -> None:
        self.raw, self.where, self.place = raw, where, place
        for key in raw:
            if key not in known:
                close = difflib.get_close_matches(key[:40].lower(), known, 1)
                hint = f'did you mean "{close[0]}"?' if close else f"known are {', '.join(known)}"
                raise ConfigError(f"{where}: {place}unknown key {_show(key)}; {hint}")

    def fail(self, key: str, complaint: str) -> NoReturn:
        raise ConfigError(f"{self.where}: {self.place}{key}: {complaint}")

    def get(self, key: str) -> object:
        if key not in self.raw:
            self.fail(key, "is missing; add it")
        return self.raw[key]

    def integer(self, key: str, low: int, high: int = MAX_COUNT, default: int | None = None) -> int:
        value = self.get(key) if default is None else self.raw.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.fail(key, f"must be a whole number from {low} to {high}, not {_show(value)}")
        return value

    def positive(self, key: str) -> float:
        value = self.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.fail(key, f"must be a number, not {_show(value)}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not (math.isfinite(number) and number > 0):
            self.fail(key, f"must be a finite number above 0, not {_show(value)}")
        return number

    def text(self, key: str) -> str:
        value = self.get(key)
        if not isinstance(value, str):
            self.fail(key, f"must be a string in quotes, not {_show(value)}")
        return value

    def words(self, key: str) -> str:
        value = self.text(key)
        if not 1 <= len(value) <= 200 or any(unicodedata.category(c) in ("Cc", "Cs") for c in value):
            self.fail(key, "must be 1 to 200 characters without control characters; choose another text")
        return value

    def label(self, key: str) -> str:
        value = self.text(key)
        if len(value) > 40 or not _LABEL.fullmatch(value):
            self.fail(key, f"{_show(value)} must be a-z, 0-9 and inner hyphens, at most 40 characters; rename it")
        return value

    def choice(self, key: str, options: tuple[str, ...]) -> str:
        """One of the options; the first is the default."""
        value = self.raw.get(key, options[0])
        if not isinstance(value, str) or value not in options:
            self.fail(key, f"must be one of {', '.join(options)}, not {_show(value)}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.raw.get(key, default)
        if not isinstance(value, bool):
            self.fail(key, f"must be true or false, not {_show(value)}")
        return value

    def table(self, key: str) -> dict[str, object]:
        value = self.get(key)
        if not isinstance(value, dict):
            self.fail(key, f"must be a table, [{key}], not {_show(value)}")
        return value

    def tables(self, key: str) -> list[dict[str, object]]:
        value = self.get(key)
        if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
            self.fail(key, f"must be one or more tables, each under [[{key}]], not {_show(value)}")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """A list of distinct, not empty strings without control characters."""
        value = self.get(key)
        if not isinstance(value, list):
            self.fail(key, f"must be a list of strings, not {_show(value)}")
        for item in value:
            if not isinstance(item, str) or not item or any(unicodedata.category(c) == "Cc" for c in item):
                self.fail(key, f"must hold strings, not empty, without control characters; {_show(item)} is not")
        if twice := _first_repeated(value):
            self.fail(key, f"{_show(twice)} stands there twice; name each once")
        return tuple(value)

    def features(self) -> tuple[int, tuple[str, ...] | None]:
        """How many features, and their names if the file gives names rather than a count."""
        if not isinstance(self.get("features"), list):
            return self.integer("features", 1), None
        names = self.strings("features")
        if not names:
            self.fail("features", "is an empty list; name at least one feature, or give their number")
        return len(names), names

    def address(self, key: str) -> tuple[str, int]:
        text = self.text(key)
        try:
            return split_address(text)
        except ConfigError as error:
            self.fail(key, str(error))

    def hosts(self, key: str) -> tuple[str, ...]:
        names = self.strings(key) if key in self.raw else ()
        try:
            hosts = tuple(map(_host, names))
        except ConfigError as error:
            self.fail(key, str(error))
        for host in hosts:
            self.check_not_identity(key, host)
        return tuple(dict.fromkeys(hosts))

    def check_not_identity(self, key: str, host: str) -> None:
        """A certificate names one identity only, else one party could pass for another."""
        if host == IDENTITY_DOMAIN or host.endswith("." + IDENTITY_DOMAIN):
            self.fail(key, f"{_show(host)}: names under {IDENTITY_DOMAIN} are kept for identities; use another")


def _show(value: object) -> str:
    """A value for an error message: one short line, even of a huge integer, whose repr would fail."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if value.bit_length() <= 128 else "a huge number"
    if isinstance(value, str):
        return ascii(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, bool | float):
        return str(value).lower()
    return {"list": "a list", "dict": "a table"}.get(type(value).__name__, "a date or time")


def _party_lines(party: Party, keys: tuple[str, ...]) -> list[str]:
    fields = dataclasses.asdict(party)
    return [f"{key} = {_toml(fields[key])}" for key in keys if fields[key] != ()]


def _toml(value: object) -> str:
    """Numbers, strings, lists of strings. Without control characters, JSON's strings are TOML's."""
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
