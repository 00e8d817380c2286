"""Reading and writing small TOML files: every complaint is one line that names the file, the table and the key."""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

from secfc import textfile
from secfc.errors import ConfigError

MAX_FILE_BYTES = 1 << 20
MAX_COUNT = 2**31 - 1  # every count travels in 32 bits

_NO_KEY = re.compile(r""" "(?:[^"\\\n]|\\.)*+" | '[^'\n]*+' | \#[^\n]*+ """, re.VERBOSE)  # strings and comments
_MOST_DOTS = 64
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


def read_text(path: str | Path) -> str:
    """The text of a configuration file."""
    content = textfile.read_small_file(path, MAX_FILE_BYTES)
    try:
        return content.decode("utf-8-sig")  # some editors put a byte order mark in front
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text; save it as UTF-8") from None


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


def dump(value: object) -> str:
    """Numbers, flags, strings, tuples and tables as TOML. Without control characters, JSON's strings are TOML's."""
    if isinstance(value, dict):
        inner = ", ".join(f"{dump_key(name)} = {dump(one)}" for name, one in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(dump, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else repr(value)


def dump_key(name: str) -> str:
    """A key as TOML, in quotes where it needs them."""
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def lines(fields: Mapping[str, object], keys: Iterable[str]) -> list[str]:
    """`key = value` for those of the keys that have a value."""
    return [f"{key} = {dump(fields[key])}" for key in keys if fields[key] not in (None, ())]


def first_repeated(values: Iterable[str]) -> str | None:
    """The first value that has come before."""
    seen: set[str] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


def show(value: object) -> str:
    """A value for an error message: one short line, even of a huge integer, whose repr would fail."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if value.bit_length() <= 128 else "a huge number"
    if isinstance(value, str):
        return ascii(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, bool | float):
        return str(value).lower()
    return {"list": "a list", "dict": "a table"}.get(type(value).__name__, "a date or time")


class Table:
    """One TOML table, read key by key: every complaint names the file, the table and the key."""

    def __init__(self, raw: Mapping[str, object], where: str, place: str, known: tuple[str, ...]) -> None:
        self.raw, self.where, self.place = raw, where, place
        for key in raw:
            if key not in known:
                close = difflib.get_close_matches(key[:40].lower(), known, 1)
                hint = f'did you mean "{close[0]}"?' if close else f"known keys are {', '.join(known)}"
                raise ConfigError(f"{where}: {place}unknown key {show(key)}; {hint}")

    def fail(self, key: str, complaint: str) -> NoReturn:
        raise ConfigError(f"{self.where}: {self.place}{key}: {complaint}")

    def get(self, key: str) -> object:
        if key not in self.raw:
            self.fail(key, "is missing; add it")
        return self.raw[key]

    def integer(self, key: str, low: int, high: int = MAX_COUNT, default: int | None = None) -> int:
        value = self.get(key) if default is None else self.raw.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.fail(key, f"must be a whole number from {low} to {high}, not {show(value)}")
        return value

    def integers(self, key: str, low: int, high: int = MAX_COUNT) -> tuple[int, ...]:
        """A list of one or more distinct whole numbers."""
        value = self.get(key)
        if not isinstance(value, list) or not value:
            self.fail(key, f"must be a list of whole numbers, not {show(value) if value else 'an empty one'}")
        for item in value:
            if not isinstance(item, int) or isinstance(item, bool) or not low <= item <= high:
                self.fail(key, f"must hold whole numbers from {low} to {high}; {show(item)} is not one")
        if twice := first_repeated(map(str, value)):
            self.fail(key, f"{twice} is listed twice; name each once")
        return tuple(value)

    def positive(self, key: str) -> float:
        value = self.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.fail(key, f"must be a number, not {show(value)}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not (math.isfinite(number) and number > 0):
            self.fail(key, f"must be a finite number above 0, not {show(value)}")
        return number

    def text(self, key: str) -> str:
        value = self.get(key)
        if not isinstance(value, str):
            self.fail(key, f"must be a string in quotes, not {show(value)}")
        return value

    def words(self, key: str) -> str:
        value = self.text(key)
        if not 1 <= len(value) <= 200 or any(unicodedata.category(c) in ("Cc", "Cs") for c in value):
            self.fail(key, "must be 1 to 200 characters without control characters; choose another text")
        return value

    def label(self, key: str) -> str:
        value = self.text(key)
        if len(value) > 40 or not _LABEL.fullmatch(value):
            self.fail(key, f"{show(value)} must be a-z, 0-9 and inner hyphens, at most 40 characters; rename it")
        return value

    def choice(self, key: str, options: tuple[str, ...]) -> str:
        """One of the options; the first is the default."""
        value = self.raw.get(key, options[0])
        if not isinstance(value, str) or value not in options:
            self.fail(key, f"must be one of {', '.join(options)}, not {show(value)}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.raw.get(key, default)
        if not isinstance(value, bool):
            self.fail(key, f"must be true or false, not {show(value)}")
        return value

    def table(self, key: str) -> dict[str, object]:
        value = self.get(key)
        if not isinstance(value, dict):
            self.fail(key, f"must be a table, [{key}], not {show(value)}")
        return value

    def tables(self, key: str) -> list[dict[str, object]]:
        value = self.get(key)
        if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
            self.fail(key, f"must be one or more tables, each under [[{key}]], not {show(value)}")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """A list of distinct, not empty strings without control characters."""
        value = self.get(key)
        if not isinstance(value, list):
            self.fail(key, f"must be a list of strings, not {show(value)}")
        for item in value:
            if not isinstance(item, str) or not item or any(unicodedata.category(c) == "Cc" for c in item):
                self.fail(key, f"must hold non-empty strings without control characters; {show(item)} is not one")
        if twice := first_repeated(value):
            self.fail(key, f"{show(twice)} is listed twice; name each once")
        return tuple(value)
