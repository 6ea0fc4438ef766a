"""Values of options: text to numbers, words and durations. ConfigError names the option, and what it takes."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, TypeVar

from odradek.model.errors import ConfigError
from odradek.model.java_numbers import trimmed, whole_number
from odradek.spark.option_table import ParsedOptions

_DURATION_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SINK_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_Chosen = TypeVar("_Chosen", bound=StrEnum)


def boolean(given: ParsedOptions, name: str, default: bool) -> bool:
    text = given.get(name)
    if text is None:
        return default
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ConfigError(f"option {name} is true or false, not {text!r}")
    return word == "true"


def choice(given: ParsedOptions, name: str, default: _Chosen) -> _Chosen:
    text = given.get(name)
    if text is None:
        return default
    try:
        return type(default)(text.strip().lower())
    except ValueError:
        raise ConfigError(f"option {name} is one of {', '.join(type(default))}, not {text!r}") from None


def whole(given: ParsedOptions, name: str, default: int, *, at_least: int = 0) -> int:
    text = given.get(name)
    if text is None:
        return default
    try:
        number = whole_number(trimmed(text))
    except ValueError:
        number = at_least - 1
    if number < at_least:
        raise ConfigError(f"option {name} is a whole number of at least {at_least}, not {text!r:.80}")
    return number


def positive_or_none(given: ParsedOptions, name: str) -> int | None:
    return None if given.get(name) is None else whole(given, name, 1, at_least=1)


def duration_ms(given: ParsedOptions, name: str, default: str) -> int:
    text = given.get(name) or default
    match = re.fullmatch(r"\s*([0-9]{1,15})\s*([a-z]*)\s*", text.lower(), re.ASCII)
    unit = _DURATION_UNITS_MS.get(match.group(2) or "ms") if match else None
    if match is None or unit is None:
        raise ConfigError(f"option {name} is a duration such as 500ms, 30s or 15m, not {text!r:.80}")
    return int(match.group(1)) * unit


def sink_id_in(text: str, need: str) -> str:
    sink_id = text.strip()
    if not sink_id:
        raise ConfigError(need)
    if not _SINK_ID.fullmatch(sink_id):
        raise ConfigError(
            f"option sinkId takes 1 to 200 letters, digits, dots, dashes and underscores, not {sink_id!r:.80}"
        )
    return sink_id
