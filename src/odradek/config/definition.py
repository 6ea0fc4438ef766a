"""The definition of a setting: its key, type, default, bounds and meaning, and how its text becomes a value.

A setting is declared once, as a row in the table of its section (`section.py`). The tables `TOPIC_SETTINGS` and
`BROKER_SETTINGS`, the documentation and the answers to DescribeConfigs are all read from those rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final

from odradek.model.errors import ConfigError
from odradek.model.java_numbers import trimmed
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy("difflib")

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")


class SettingType(IntEnum):
    """The type of a setting's value. The numbers are those of DescribeConfigs (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(Enum):
    """How likely a user is to need the setting; the documentation is sorted by it."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Scope(Enum):
    """The place where a setting is set: on one topic, or on a broker."""

    TOPIC = "topic"
    BROKER = "broker"


class DynamicUpdate(Enum):
    """Tells whether a running broker takes a new value (KIP-226), and for whom."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


_INTEGER_BITS: Final = {SettingType.SHORT: 16, SettingType.INT: 32, SettingType.LONG: 64}
_EXPECTED: Final = {
    SettingType.BOOLEAN: "true or false",
    SettingType.SHORT: "a whole number of 16 bits",
    SettingType.INT: "a whole number of 32 bits",
    SettingType.LONG: "a whole number of 64 bits",
    SettingType.DOUBLE: "a decimal number",
    SettingType.LIST: "a list, separated by commas",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A test on a parsed value, and the words that tell a person what passes it."""

    allowed: str
    accepts: Callable[[Any], bool]


def at_least(least: int) -> Bounds:
    return Bounds(allowed=f"{least} or more", accepts=lambda value: bool(value >= least))


def between(least: float, most: float) -> Bounds:
    return Bounds(allowed=f"{least} to {most}", accepts=lambda value: bool(least <= value <= most))


def one_of(*names: str) -> Bounds:
    return Bounds(allowed="one of " + ", ".join(names), accepts=lambda value: value in names)


def any_of(*names: str) -> Bounds:
    """Returns bounds for lists: every item is one of `names`."""
    allowed = "any of " + ", ".join(names)
    return Bounds(allowed=allowed, accepts=lambda items: all(name in names for name in items))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. `default` is the parsed value (None where there is none)."""

    key: str
    type: SettingType
    default: object
    meaning: str
    valid: Bounds | None = None
    importance: Importance = Importance.MEDIUM
    scope: Scope = Scope.BROKER
    dynamic: DynamicUpdate = DynamicUpdate.READ_ONLY
    as_started: bool = False
    """A running broker takes a new value, as Kafka's does, but goes on with the one that it was started with."""
    synonyms: tuple[str, ...] = ()
    """Broker keys that give this setting its value when it is not set itself, the strongest first."""
    effective: bool = True
    """False for a setting of Kafka's that this version knows by name but does not act upon."""
    internal: bool = False
    """Left out of the documentation, as Kafka does."""

    @property
    def sensitive(self) -> bool:
        """The value must never be shown."""
        return self.type in (SettingType.PASSWORD, SettingType.UNKNOWN)

    def parse(self, text: str) -> Any:
        """Returns the value that `text` stands for; ConfigError naming key, value and what is allowed."""
        value = self._convert(trimmed(text))
        if value is None or (self.valid is not None and not self.valid.accepts(value)):
            shown = "(hidden)" if self.sensitive else f"{text!r:.200}"
            raise ConfigError(f"{self.key}={shown} is not allowed: expected {self.allowed}")
        return value

    def text(self, value: object) -> str | None:
        """Returns the text of a value, the inverse of `parse`, as Kafka writes it; None for no value."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return str(value).replace("e+", "E")
        if isinstance(value, frozenset):
            return ",".join(sorted(value))
        if isinstance(value, tuple):
            return ",".join(str(element) for element in value)
        return str(value)

    @property
    def default_text(self) -> str | None:
        return self.text(self.default)

    @property
    def allowed(self) -> str:
        """The values that `parse` accepts, in words."""
        expected = _EXPECTED.get(self.type)
        if self.valid is None:
            return expected or "text"
        if expected is None:
            return self.valid.allowed
        return f"{expected}, {self.valid.allowed}"

    def _convert(self, text: str) -> Any:
        """Returns the value, or None if `text` has not the form of the type."""
        if self.type is SettingType.BOOLEAN:
            return {"true": True, "false": False}.get(text.lower())
        bits = _INTEGER_BITS.get(self.type)
        if bits is not None:
            if not _INTEGER.match(text) or len(text) > 20:
                return None
            number = int(text)
            return number if -(1 << (bits - 1)) <= number < (1 << (bits - 1)) else None
        if self.type is SettingType.DOUBLE:
            return float(text) if _DECIMAL.match(text) else None
        if self.type is SettingType.LIST:
            items = tuple(trimmed(element) for element in text.split(",")) if text else ()
            return frozenset(items) if isinstance(self.default, frozenset) else items
        return text


def by_key(settings: Iterable[Setting]) -> dict[str, Setting]:
    """Returns a table by key; a key declared twice is our own mistake."""
    table: dict[str, Setting] = {}
    for setting in settings:
        assert setting.key not in table, f"{setting.key} is declared twice"
        table[setting.key] = setting
    return table


def nearest(key: str, known: Iterable[str]) -> str | None:
    """Returns the known name most like a misspelt one, if any is like it."""
    matches = difflib.get_close_matches(key, list(known), n=1, cutoff=0.75)
    return matches[0] if matches else None
