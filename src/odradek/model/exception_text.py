"""The text of an exception of a user's code, whatever its class does: reading it never raises, and has a limit.

A class may have a `__str__` that raises, a text of gigabytes, lone surrogates that no encoder takes, or attributes that
cannot be set (a frozen dataclass). None of this may end the loop that handles records, or replace the error itself.
"""

from __future__ import annotations

import re
import traceback
from typing import Final

TEXT_LENGTH_MAX: Final = 10_000
"""Characters of an exception's text that are kept."""
ERROR_OF_OURS: Final = re.compile(r"\bodradek\.(?:\w+\.)*(?P<kind>CommitConflict|\w+Error): (?P<message>.+)")
"""An error of this package in a text that others make of a traceback, such as Spark: `odradek.KafkaError: TIMED_OUT: ...`."""


def text_of(error: BaseException, length_max: int = TEXT_LENGTH_MAX) -> str:
    """Returns `str(error)`, at most `length_max` characters of it, fit for UTF-8; a note of what went wrong where that
    raises."""
    try:
        text = str(error)
        return _encodable(text, length_max)
    except Exception as second:  # noqa: BLE001 - the user's code, which must end nothing
        return f"(its text is not known: str() raised {class_name(type(second))})"


def describe(error: BaseException, length_max: int = TEXT_LENGTH_MAX) -> str:
    """Returns the class and the text of an exception, as the last line of a traceback has them."""
    text = text_of(error, length_max)
    name = class_name(type(error))
    return f"{name}: {text}" if text else name


def stack_trace(error: BaseException, length_max: int) -> str:
    """Returns the last `length_max` characters of the formatted traceback, where the error is; long texts in it are cut."""
    try:
        parts = [_encodable(part, length_max // 2) for part in traceback.format_exception(error)]
        return "".join(parts)[-length_max:]
    except Exception:  # noqa: BLE001 - attributes of the user's class that `traceback` cannot format
        frames = "".join(traceback.format_tb(error.__traceback__)) + describe(error, length_max // 2)
        return _encodable(frames[-length_max:], length_max)


def class_name(kind: type) -> str:
    """Returns the name of a class with its module, unless it is a built-in: `json.decoder.JSONDecodeError`, `ValueError`."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def represent(value: object, length_max: int = 200) -> str:
    """Returns `repr(value)` of an object of the user's; its class where that raises."""
    try:
        return _encodable(repr(value), length_max)
    except Exception:  # noqa: BLE001 - the user's code, which must end nothing
        return f"<{class_name(type(value))}>"


def add_note(error: BaseException, note: str) -> None:
    """Adds a note where the exception takes one; a frozen dataclass does not."""
    try:
        error.add_note(note)
    except Exception:  # noqa: BLE001 - the user's class: the error itself matters more than the note
        return


def _encodable(text: str, length_max: int) -> str:
    """Returns a plain `str` (the class may return one of its own), with escapes in place of lone surrogates."""
    start = str.__getitem__(text, slice(0, length_max))
    return str.encode(start, "utf-8", "backslashreplace").decode("utf-8")
