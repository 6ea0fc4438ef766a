"""Keys in three forms: the topic's bytes, the stored bytes (in order), and Python values.

Ranges are in the order of the stored bytes, so a format whose topic bytes are in another order stores others: numbers with the
sign bit turned, doubles in IEEE 754's total order, JSON as `ordered_json.py` encodes it. Text and bytes are stored as they are.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeVar

from odradek.model.errors import ConfigError
from odradek.model.java_numbers import double_number, whole_number
from odradek.views import ordered_json

F = TypeVar("F")
_SIGN: Final = 0x80
"""The sign in the first byte of a number."""


class KeyFormat(Protocol):
    """The format of a view's keys.

    `stored`, `encode`, `decode` and `prefix` raise ValueError (or TypeError, struct.error) for what they cannot take.
    """

    @property
    def name(self) -> str: ...

    @property
    def is_stored_as_is(self) -> bool:
        """Whether the topic's bytes are stored unchanged."""

    def stored(self, raw: bytes) -> bytes:
        """Converts the topic's bytes to stored bytes."""

    def encode(self, key: object) -> bytes:
        """Converts a Python value to stored bytes."""

    def decode(self, stored: bytes) -> object:
        """Converts stored bytes to a Python value."""

    def prefix(self, start: object) -> bytes:
        """Returns the prefix of the stored bytes of all keys that begin with `start`."""

    def parse(self, text: str) -> object:
        """Parses the text of a URL or a command line into a Python value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextKeys:
    """Keys as UTF-8, in the order of code points. With `is_text` off they are bytes in their own order; people write them as
    text."""

    name: str
    is_text: bool
    is_stored_as_is: bool = True

    def stored(self, raw: bytes) -> bytes:
        return raw

    def encode(self, key: object) -> bytes:
        if isinstance(key, str):
            return key.encode()
        if isinstance(key, bytes | bytearray | memoryview) and not self.is_text:
            return bytes(key)
        raise ValueError(f"a {self.name} key is expected, not {key!r}")

    def decode(self, stored: bytes) -> object:
        return stored.decode() if self.is_text else stored

    def prefix(self, start: object) -> bytes:
        return self.encode(start)

    def parse(self, text: str) -> object:
        return text if self.is_text else text.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerKeys:
    """Keys as integers: big-endian two's complement of one width, as Kafka's serializers write it; stored with the sign bit
    turned."""

    name: str
    size_bytes: int
    is_stored_as_is: bool = False

    def stored(self, raw: bytes) -> bytes:
        if len(raw) != self.size_bytes:
            raise ValueError(f"a {self.name} has {self.size_bytes} bytes, not {len(raw)}")
        return bytes((raw[0] ^ 0x80,)) + raw[1:]

    def encode(self, key: object) -> bytes:
        if not isinstance(key, int) or isinstance(key, bool):
            raise ValueError(f"a {self.name} key is a whole number, not {key!r}")
        try:
            return self.stored(key.to_bytes(self.size_bytes, "big", signed=True))
        except OverflowError:
            raise ValueError(f"{key} does not fit into a {self.name}") from None

    def decode(self, stored: bytes) -> object:
        return int.from_bytes(self.stored(stored), "big", signed=True)

    def prefix(self, start: object) -> bytes:
        raise ValueError(f"{self.name} keys have no prefixes: ask for a range")

    def parse(self, text: str) -> object:
        return whole_number(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingKeys:
    """Keys as floats or doubles: IEEE 754, big-endian, as Kafka's serializers write them; stored in the order of the numbers,
    -0.0 before 0.0, and NaN last."""

    name: str
    layout: struct.Struct
    is_stored_as_is: bool = False

    def stored(self, raw: bytes) -> bytes:
        if len(raw) != self.layout.size:
            raise ValueError(f"a {self.name} has {self.layout.size} bytes, not {len(raw)}")
        return _inverted(raw) if raw[0] & _SIGN else bytes((raw[0] ^ _SIGN,)) + raw[1:]

    def encode(self, key: object) -> bytes:
        if not isinstance(key, int | float) or isinstance(key, bool):
            raise ValueError(f"a {self.name} key is a number, not {key!r}")
        try:
            return self.stored(self.layout.pack(math.nan if key != key else key))
        except OverflowError:
            raise ValueError(f"{key} does not fit into a {self.name}") from None

    def decode(self, stored: bytes) -> object:
        raw = bytes((stored[0] ^ _SIGN,)) + stored[1:] if stored[0] & _SIGN else _inverted(stored)
        return self.layout.unpack(raw)[0]

    def prefix(self, start: object) -> bytes:
        raise ValueError(f"{self.name} keys have no prefixes: ask for a range")

    def parse(self, text: str) -> object:
        return double_number(text)


def _inverted(data: bytes) -> bytes:
    return bytes(byte ^ 0xFF for byte in data)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonKeys:
    """Keys as JSON text. Two texts of the same value are one key, whatever their spaces and the order of their members."""

    name: str = "json"
    is_stored_as_is: bool = False

    def stored(self, raw: bytes) -> bytes:
        return ordered_json.encode(json.loads(raw))

    def encode(self, key: object) -> bytes:
        return ordered_json.encode(key)

    def decode(self, stored: bytes) -> object:
        return ordered_json.decode(stored)

    def prefix(self, start: object) -> bytes:
        return ordered_json.encode_prefix(start)

    def parse(self, text: str) -> object:
        return json.loads(text)


KEY_FORMATS: Final[Mapping[str, KeyFormat]] = {
    keys.name: keys
    for keys in (
        TextKeys(name="string", is_text=True),
        TextKeys(name="bytes", is_text=False),
        IntegerKeys(name="short", size_bytes=2),
        IntegerKeys(name="int", size_bytes=4),
        IntegerKeys(name="long", size_bytes=8),
        FloatingKeys(name="float", layout=struct.Struct(">f")),
        FloatingKeys(name="double", layout=struct.Struct(">d")),
        JsonKeys(),
    )
}


def key_format(name: str) -> KeyFormat:
    """Raises ConfigError, which names those that there are."""
    return _chosen(KEY_FORMATS, name, "key")


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewValueFormat:
    """The format of values. `decode` raises ValueError or struct.error. `has_timestamps`: a stored value begins with the
    timestamp of its record, in 8 bytes.
    """

    name: str
    decode: Callable[[bytes], object]
    has_timestamps: bool = False


_TIMESTAMP: Final = struct.Struct(">q")


class TimedValue(NamedTuple):
    """The bytes of a value, and the timestamp of its record."""

    timestamp_ms: int
    value: bytes


def timed(timestamp_ms: int, value: bytes) -> bytes:
    """Returns the value as it is stored with its timestamp."""
    return _TIMESTAMP.pack(timestamp_ms) + value


def _timed_value(stored: bytes) -> TimedValue:
    return TimedValue(_TIMESTAMP.unpack_from(stored)[0], bytes(stored[_TIMESTAMP.size :]))


def _json_value(value: bytes) -> object:
    return json.loads(value, parse_constant=_no_number)


def _no_number(text: str) -> object:
    raise ValueError(f"{text} is no JSON")


def _number(layout: str) -> Callable[[bytes], object]:
    numbers = struct.Struct(layout)
    return lambda value: numbers.unpack(value)[0]


VALUE_FORMATS: Final[Mapping[str, ViewValueFormat]] = {
    keys.name: keys
    for keys in (
        ViewValueFormat(name="json", decode=_json_value),
        ViewValueFormat(name="string", decode=bytes.decode),
        ViewValueFormat(name="bytes", decode=bytes),
        ViewValueFormat(name="timed bytes", decode=_timed_value, has_timestamps=True),
        ViewValueFormat(name="short", decode=_number(">h")),
        ViewValueFormat(name="int", decode=_number(">i")),
        ViewValueFormat(name="long", decode=_number(">q")),
        ViewValueFormat(name="float", decode=_number(">f")),
        ViewValueFormat(name="double", decode=_number(">d")),
    )
}


def value_format(name: str) -> ViewValueFormat:
    """Raises ConfigError, which names those that there are."""
    return _chosen(VALUE_FORMATS, name, "value")


def _chosen(formats: Mapping[str, F], name: str, what: str) -> F:
    chosen = formats.get(name)
    if chosen is None:
        raise ConfigError(f"there is no {what} format {name!r}: choose one of {', '.join(formats)}")
    return chosen
