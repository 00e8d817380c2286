"""A party's entry in the federation file: its name, and where others reach it."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from secfc.agreement import toml
from secfc.agreement.toml import show
from secfc.errors import ConfigError

IDENTITY_DOMAIN = "secfc.internal"  # .internal is reserved for private use: nobody can own such a name in public DNS
SERVER_KEYS = ("address", "bind", "names")
CLIENT_KEYS = ("name", *SERVER_KEYS)
_HOST_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_ADDRESS = re.compile(r"(?:\[([0-9a-f.]*:[0-9a-f:.]*)\]|([^:\[\]]+)):([1-9][0-9]{0,4})")


@dataclass(frozen=True)
class Party:
    """One machine: where others dial it, where it listens (both empty: it only dials out), and what its certificate names
    besides."""

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


def client(table: toml.Table) -> Party:
    """Without an address it only dials out: nobody connects to it, so it neither listens nor has other names."""
    name = table.label("name")
    if "address" in table.raw:
        return of(table, name)
    for key in ("bind", "names"):
        if key in table.raw:
            table.fail(key, "a client without address only dials out; leave it out, or give the client an address")
    return Party(name, "", "")


def of(table: toml.Table, name: str) -> Party:
    host, port = _address(table, "address")
    if host in ("0.0.0.0", "::"):  # noqa: S104 - refused here, not bound
        table.fail("address", f"{host} cannot be dialled; put it in bind, and here the name others reach it by")
    _check_not_identity(table, "address", host)
    everywhere = "::" if ":" in host else "0.0.0.0"  # noqa: S104 - mutual TLS decides who gets in
    bind = _address(table, "bind") if "bind" in table.raw else (everywhere, port)
    return Party(name, _join_address(host, port), _join_address(*bind), _hosts(table, "names"))


def _address(table: toml.Table, key: str) -> tuple[str, int]:
    text = table.text(key)
    try:
        return split_address(text)
    except ConfigError as error:
        table.fail(key, str(error))


def _hosts(table: toml.Table, key: str) -> tuple[str, ...]:
    names = table.strings(key) if key in table.raw else ()
    try:
        hosts = tuple(map(_host, names))
    except ConfigError as error:
        table.fail(key, str(error))
    for host in hosts:
        _check_not_identity(table, key, host)
    return tuple(dict.fromkeys(hosts))


def _check_not_identity(table: toml.Table, key: str, host: str) -> None:
    """A certificate names one identity only, else one party could pass for another."""
    if host == IDENTITY_DOMAIN or host.endswith("." + IDENTITY_DOMAIN):
        table.fail(key, f"{show(host)}: names under {IDENTITY_DOMAIN} are reserved for identities; use another")


def split_address(text: str) -> tuple[str, int]:
    """`host:port` or `[IPv6]:port` as a normalised host (no brackets) and a port."""
    match = _ADDRESS.fullmatch(text.lower()) if len(text) <= 300 else None
    port = int(match[3]) if match else 0
    if match is None or not 1 <= port <= 65535:
        raise ConfigError(f'{show(text)} is not "host:port" or "[IPv6]:port" with a port from 1 to 65535')
    return _host(match[1] or match[2]), port


def _host(text: str) -> str:
    """A DNS name or IP address in its usual spelling; `%` scopes have no place in a certificate."""
    if "%" not in text and (ip := _ip(text)):
        return ip
    name = text.lower()
    labels = name.split(".")
    if len(name) > 253 or not all(map(_HOST_LABEL.fullmatch, labels)) or labels[-1].isdigit():
        raise ConfigError(f"{show(text)} is neither a DNS name (without wildcards) nor an IP address; correct it")
    return name


def _ip(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


def _join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
