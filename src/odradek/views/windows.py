"""Keys of windowed tables: the form in which Kafka Streams writes them, and the stored form, which has an order.

A time window: the key's bytes, then its start (8 bytes, milliseconds since 1970); its size is known from elsewhere. A session:
the key's bytes, then its end, then its start. Stored: the key with an end mark, then start and end with their sign bits turned.
So all windows of a key are adjacent, in the order of their starts.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from odradek.model.errors import ConfigError
from odradek.views.key_formats import KeyFormat
from odradek.views.ordered_json import escaped, unescaped

SESSION: Final = "session"
_TIMES: Final = struct.Struct(">QQ")
_ONE_TIME: Final = struct.Struct(">q")
_TWO_TIMES: Final = struct.Struct(">qq")
_SIGN: Final = 1 << 63
_TIMES_FOLLOW: Final = b"\1"
"""Never `FF`, which would make the end mark before it a part of the key."""
_BEHIND_TIMES: Final = b"\2"
_TIME_MAX: Final = (1 << 63) - 1
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_UNIT_WORDS: Final = {
    "millisecond": "ms",
    "second": "s",
    "minute": "m",
    "min": "m",
    "hour": "h",
    "day": "d",
    "week": "w",
}
_SIZE: Final = re.compile(r"\s*([0-9]{1,15})\s*([a-z]+)\s*", re.IGNORECASE | re.ASCII)


class WindowedKey(NamedTuple):
    """A key in a window. Times are milliseconds since 1970; `end_ms` is the first one that is not in a time window."""

    key: Any
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedKeys:
    """A key format around another one."""

    keys: KeyFormat
    size_ms: int | None
    """The windows' size; None for sessions."""
    is_stored_as_is: bool = False

    @property
    def name(self) -> str:
        kind = SESSION if self.size_ms is None else f"{self.size_ms} ms"
        return f"{self.keys.name} in windows ({kind})"

    def stored(self, raw: bytes) -> bytes:
        times = _TWO_TIMES if self.size_ms is None else _ONE_TIME
        if len(raw) < times.size:
            raise ValueError(f"a key in a window has at least {times.size} bytes, not {len(raw)}")
        key, bounds = raw[: -times.size], times.unpack(raw[-times.size :])
        if self.size_ms is None:
            end_ms, start_ms = bounds
        else:
            start_ms = bounds[0]
            end_ms = min(start_ms + self.size_ms, _TIME_MAX)
        return escaped(self.keys.stored(key)) + _TIMES_FOLLOW + _TIMES.pack(start_ms + _SIGN, end_ms + _SIGN)

    def encode(self, key: object) -> bytes:
        if not isinstance(key, tuple) or len(key) not in (2, 3):
            raise ValueError(f"a key in a window is (key, start, end), times in milliseconds, not {key!r}")
        start_ms = key[1]
        if len(key) == 3:
            end_ms = key[2]
        elif self.size_ms is None:
            raise ValueError("a session is (key, start, end): its end is missing")
        else:
            end_ms = min(start_ms + self.size_ms, _TIME_MAX)
        return (
            escaped(self.keys.encode(key[0])) + _TIMES_FOLLOW + _TIMES.pack(start_ms + _SIGN, end_ms + _SIGN)
        )

    def decode(self, stored: bytes) -> WindowedKey:
        key, position = unescaped(stored, 0)
        start, end = _TIMES.unpack(stored[position + len(_TIMES_FOLLOW) :])
        return WindowedKey(self.keys.decode(key), start - _SIGN, end - _SIGN)

    def prefix(self, start: object) -> bytes:
        """Returns the prefix of the stored keys that begin with `start`, in any window."""
        return self.keys.prefix(start).replace(b"\0", b"\0\xff")

    def parse(self, text: str) -> Any:
        """Parses a key without a window: all windows of a key are requested together."""
        return self.keys.parse(text)

    def bounds(self, key: object, from_ms: int | None, to_ms: int | None) -> tuple[bytes, bytes]:
        """Returns the range of stored keys of a key's windows that start at or after `from_ms` and before `to_ms`."""
        stored = escaped(self.keys.encode(key)) + _TIMES_FOLLOW
        start = stored + _TIMES.pack((0 if from_ms is None else _clamped(from_ms) + _SIGN), 0)
        if to_ms is None:
            return start, stored[:-1] + _BEHIND_TIMES
        return start, stored + _TIMES.pack(_clamped(to_ms) + _SIGN, 0)


def _clamped(time_ms: int) -> int:
    return max(-_SIGN, min(time_ms, _TIME_MAX))


def windowed(keys: KeyFormat, windows: str | None) -> KeyFormat:
    """Returns `keys`, in windows if there are any: `"session"`, or the size of time windows, such as `"10 minutes"` or
    `"10m"`."""
    if windows is None:
        return keys
    if windows.strip().lower() in (SESSION, "sessions"):
        return WindowedKeys(keys=keys, size_ms=None)
    match = _SIZE.fullmatch(windows)
    unit = "" if match is None else match[2].lower()
    factor = _UNIT_MS.get(_UNIT_WORDS.get(unit.removesuffix("s"), unit))
    if match is None or factor is None or int(match[1]) <= 0:
        raise ConfigError(
            f"windows={windows!r:.80} is not understood: give their size, such as '10 minutes' or '10m', or 'session'"
        )
    return WindowedKeys(keys=keys, size_ms=int(match[1]) * factor)
