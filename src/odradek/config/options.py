"""Options that a user gives by name, such as those of Spark's formats: declared once, as rows of a table.

A row has the option's name, the operations where it applies, its type, default and meaning. The table refuses names that
it does not know, options where they do not apply, and values that are not of the type. It ignores the case of names, because
Spark hands them over in lower case. `definition.py` does the same for settings of brokers, with Kafka's errors.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Flag, StrEnum
from typing import Any, Final, TypeVar

from odradek.model.errors import ConfigError
from odradek.model.java_numbers import trimmed, whole_number

_DURATION_UNITS_MS: Final = {
    "": 1,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_BYTE_UNITS: Final = {"": 1, "b": 1} | {
    unit: 1 << power
    for power, units in ((10, "k kib"), (20, "m mib"), (30, "g gib"))
    for unit in units.split()
}
_Chosen = TypeVar("_Chosen", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionType:
    """The type of an option's value. `takes` completes the sentence "option NAME is …"; `parse` raises ValueError."""

    takes: str
    parse: Callable[[str], object]


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(word)
    return word == "true"


def _with_unit(text: str, units: Mapping[str, int]) -> int:
    match = re.fullmatch(r"\s*([0-9]{1,15})\s*([a-z]*)\s*", text.lower(), re.ASCII)
    if match is None or match.group(2) not in units:
        raise ValueError(text)
    return int(match.group(1)) * units[match.group(2)]


def _bytes(text: str) -> int:
    count = _with_unit(text, _BYTE_UNITS)
    if count == 0:
        raise ValueError(text)
    return count


TEXT: Final = OptionType(takes="text", parse=str)
BOOLEAN: Final = OptionType(takes="true or false", parse=_boolean)
DURATION_MS: Final = OptionType(
    takes="a duration such as 500ms, 30s or 15m", parse=lambda text: _with_unit(text, _DURATION_UNITS_MS)
)
BYTES: Final = OptionType(takes="a number of bytes such as 128MiB", parse=_bytes)


def whole(least: int = 0) -> OptionType:
    """Returns the type of whole numbers that are not less than `least`."""

    def parse(text: str) -> int:
        number = whole_number(trimmed(text))
        if number < least:
            raise ValueError(text)
        return number

    return OptionType(takes=f"a whole number of at least {least}", parse=parse)


def choice(kind: type[StrEnum]) -> OptionType:
    """Returns the type of an enumeration's words."""
    return OptionType(takes=f"one of {', '.join(kind)}", parse=lambda text: kind(text.strip().lower()))


def byte_count(text: str, what: str) -> int:
    """Parses a size such as `128MiB`, `1g`, `4096`. ConfigError begins with `what`."""
    return int(_parsed(BYTES, text, what))


def _parsed(kind: OptionType, text: str, what: str) -> Any:
    try:
        return kind.parse(text)
    except ValueError:
        raise ConfigError(f"{what} is {kind.takes}, not {text!r:.80}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. `use`: where it can be given. `tolerated`: elsewhere it is accepted with a warning, and does nothing."""

    name: str
    use: Flag
    meaning: str
    type: OptionType = TEXT
    default: object = None
    tolerated: bool = False


class OptionTable:
    """The options of one format. `uses`: the words for each operation, such as "a batch read"."""

    def __init__(
        self, options: Iterable[Option], uses: Mapping[Any, str], *, known_elsewhere: tuple[str, ...] = ()
    ) -> None:
        """`known_elsewhere`: names that a misspelt one may mean, besides those of the table."""
        self.options: Final = tuple(options)
        self._by_key: Final = {option.name.lower(): option for option in self.options}
        self._uses = uses
        self._spelled: Final = {name.lower(): name for name in known_elsewhere} | {
            key: option.name for key, option in self._by_key.items()
        }

    def get(self, name: str) -> Option | None:
        """Returns the option of this name, written in any case."""
        return self._by_key.get(name.lower())

    def applies(self, name: str, use: Flag) -> bool:
        """Tells whether an option can be given to `use`. Unknown ones are left to `check`."""
        option = self.get(name)
        return option is None or bool(option.use & use) or option.tolerated

    def parse(self, name: str, text: str, use: Flag) -> object:
        """Returns the value of an option of this name. Raises ConfigError."""
        option = self.get(name)
        if option is None:
            raise ConfigError(self._unknown(name))
        if not self.applies(name, use):
            raise ConfigError(
                f"option {option.name} does not apply to {self.spell(use)}, only to {self.spell(option.use)}"
            )
        return _parsed(option.type, text, f"option {option.name}")

    def spell(self, use: Flag) -> str:
        return " or ".join(words for flag, words in self._uses.items() if flag & use)

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name.lower(), self._spelled, n=1, cutoff=0.6)
        if near:
            return f"unknown option {name!r}; did you mean {self._spelled[near[0]]}?"
        return f"unknown option {name!r}; known are {', '.join(option.name for option in self.options)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenOptions:
    """The checked options of one read or write. An option that is not given has its default."""

    table: OptionTable
    values: Mapping[str, object]
    """The values by name, in lower case."""

    def is_given(self, name: str) -> bool:
        return name.lower() in self.values

    def text(self, name: str) -> str | None:
        value = self._value(name)
        assert value is None or isinstance(value, str), name
        return value

    def flag(self, name: str, *, otherwise: bool = False) -> bool:
        """Returns a BOOLEAN; `otherwise` where it is neither given nor has a default."""
        value = self._value(name)
        assert value is None or isinstance(value, bool), name
        return otherwise if value is None else value

    def number(self, name: str) -> int:
        """Returns a number that has a default."""
        value = self.number_or_none(name)
        assert value is not None, name
        return value

    def number_or_none(self, name: str) -> int | None:
        value = self._value(name)
        assert value is None or isinstance(value, int), name
        return value

    def choice(self, name: str, kind: type[_Chosen]) -> _Chosen:
        value = self._value(name)
        assert isinstance(value, kind), name
        return value

    def choice_or_none(self, name: str, kind: type[_Chosen]) -> _Chosen | None:
        return None if self._value(name) is None else self.choice(name, kind)

    def _value(self, name: str) -> object:
        option = self.table.get(name)
        assert option is not None, f"{name} is not declared"
        return self.values.get(name.lower(), option.default)
