"""The definition of an option: its name, type, default, bounds and meaning, and how its text becomes a value.

Everything that users set by name is declared by it, once: the settings of brokers, topics, groups and clients as rows of the
table of their section (`section.py`), the options of Spark's formats and the properties of SQL as rows of an `OptionTable`
(`options.py`). Checks, errors, the documentation and the answers to DescribeConfigs are all read from those rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, Flag, IntEnum, StrEnum
from typing import Any, Final

from odradek.model.errors import ConfigError
from odradek.model.java_numbers import trimmed

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")
_WITH_UNIT: Final = re.compile(r"([0-9]{1,15})[ \t]*([a-z]*)\Z")
_DURATION_UNITS_MS: Final = {
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "min": 60_000,
    "s": 1_000,
    "ms": 1,
    "": 1,
}
_SIZE_UNITS: Final = {
    **{
        unit: 1 << power
        for power, units in ((30, "gib g"), (20, "mib m"), (10, "kib k"))
        for unit in units.split()
    },
    "b": 1,
    "": 1,
}


class SettingType(IntEnum):
    """The type of a setting's value. The numbers come from DescribeConfigs (KIP-569); types below 0 are not
    Kafka's, so no setting of a broker has them.
    """

    SIZE = -3
    """A number of bytes, which may have a unit."""
    DURATION = -2
    """Milliseconds, which may have a unit."""
    TEXT = -1
    """A text as it is: blanks around it belong to it."""
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


_EXPECTED: Final = {
    SettingType.BOOLEAN: "true or false",
    SettingType.SHORT: "a whole number of 16 bits",
    SettingType.INT: "a whole number of 32 bits",
    SettingType.LONG: "a whole number of 64 bits",
    SettingType.DOUBLE: "a decimal number",
    SettingType.LIST: "a list, separated by commas",
    SettingType.DURATION: "a duration such as 500ms, 30s or 15m",
    SettingType.SIZE: "a number of bytes such as 128MiB",
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


Words = type[StrEnum]
"""The words that a setting's value may be. A field of `Setting` has the name `type`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting, option or property. `default` is the parsed value (None where there is none)."""

    key: str
    type: SettingType
    default: object
    meaning: str
    valid: Bounds | None = None
    choices: Words | None = None
    """The words that the value is one of, in any case of letters; the value is a member."""
    importance: Importance = Importance.MEDIUM
    scope: Scope = Scope.BROKER
    dynamic: DynamicUpdate = DynamicUpdate.READ_ONLY
    as_started: bool = False
    """A running broker takes a new value, as Kafka's does, but continues with the one that it was started
    with."""
    synonyms: tuple[str, ...] = ()
    """Broker keys that give this setting its value when it is not set itself, the strongest first."""
    effective: bool = True
    """False for a setting of Kafka's that this version knows by name but ignores."""
    internal: bool = False
    """Left out of the documentation, as Kafka does."""
    use: Flag | None = None
    """The operations to which an option can be given; None: to all that its table has."""
    tolerated: bool = False
    """Elsewhere the option is accepted with a warning, and does nothing."""
    default_words: str = ""
    """The default in Markdown, for the documentation, where it is no one value."""

    @property
    def sensitive(self) -> bool:
        """The value must never be shown."""
        return self.type in (SettingType.PASSWORD, SettingType.UNKNOWN)

    def parse(self, text: str, called: str = "") -> Any:
        """Returns the parsed value of `text`; raises ConfigError with key, value and what is allowed.

        `called`: how the error calls it, such as `option columns`, where that is not its key.
        """
        value = self._convert(text if self.type is SettingType.TEXT else trimmed(text))
        if value is None or (self.valid is not None and not self.valid.accepts(value)):
            shown = "(hidden)" if self.sensitive else f"{text!r:.200}"
            if called:
                raise ConfigError(f"{called} is {self.allowed}, not {shown}")
            raise ConfigError(f"{self.key}={shown} is not allowed: expected {self.allowed}")
        return value

    def text(self, value: object) -> str | None:
        """Returns the text of a value, the inverse of `parse`, as Kafka writes it; None for no value."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int) and self.type in _UNITS:
            return _with_unit(value, _UNITS[self.type])
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
        if self.choices is not None:
            return f"one of {', '.join(self.choices)}"
        expected = _EXPECTED.get(self.type)
        if self.valid is None:
            return expected or "text"
        if expected is None:
            return self.valid.allowed
        return f"{expected}, {self.valid.allowed}"

    def _convert(self, text: str) -> object:
        """Returns the value, or None if `text` has not the form of the type."""
        if self.choices is not None:
            return next((word for word in self.choices if word.lower() == text.lower()), None)
        if self.type is SettingType.LIST:
            items = tuple(trimmed(element) for element in text.split(",")) if text else ()
            return frozenset(items) if isinstance(self.default, frozenset) else items
        read = _READERS.get(self.type)
        return text if read is None else read(text)


def _boolean(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _whole(bits: int) -> Callable[[str], int | None]:
    def read(text: str) -> int | None:
        if not _INTEGER.match(text) or len(text) > 20:
            return None
        number = int(text)
        return number if -(1 << (bits - 1)) <= number < (1 << (bits - 1)) else None

    return read


def _double(text: str) -> float | None:
    return float(text) if _DECIMAL.match(text) else None


def _counted(units: Mapping[str, int], least: int) -> Callable[[str], int | None]:
    """Returns a reader of numbers with a unit, which are not below `least`."""

    def read(text: str) -> int | None:
        match = _WITH_UNIT.match(text.lower()) if text.isascii() else None
        if match is None or match[2] not in units:
            return None
        count = int(match[1]) * units[match[2]]
        return count if count >= least else None

    return read


def _with_unit(count: int, units: Mapping[str, int]) -> str:
    """Returns a number in the largest unit of which it is a multiple."""
    name, unit = next((name, unit) for name, unit in units.items() if count % unit == 0)
    shown = {"gib": "GiB", "mib": "MiB", "kib": "KiB"}.get(name, name)
    return f"{count // unit}{shown}" if count else "0"


_UNITS: Final[Mapping[SettingType, Mapping[str, int]]] = {
    SettingType.DURATION: _DURATION_UNITS_MS,
    SettingType.SIZE: _SIZE_UNITS,
}
_READERS: Final[Mapping[SettingType, Callable[[str], Any]]] = {
    SettingType.BOOLEAN: _boolean,
    SettingType.SHORT: _whole(16),
    SettingType.INT: _whole(32),
    SettingType.LONG: _whole(64),
    SettingType.DOUBLE: _double,
    SettingType.DURATION: _counted(_DURATION_UNITS_MS, 0),
    SettingType.SIZE: _counted(_SIZE_UNITS, 1),
}


def by_key(settings: Iterable[Setting]) -> dict[str, Setting]:
    """Returns a table by key; a key declared twice is our own mistake."""
    table: dict[str, Setting] = {}
    for setting in settings:
        assert setting.key not in table, f"{setting.key} is declared twice"
        table[setting.key] = setting
    return table
