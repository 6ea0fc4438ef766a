"""Exceptions of users' code, whatever their classes do: they are described, within limits, and nothing raises meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.network.errors import explain
from odradek.dead_letters.headers import FailedConsumer, Origin, RecordFailure, letter_headers
from odradek.model.errors import ErrorValue
from odradek.model.exception_text import TEXT_LENGTH_MAX, add_note, describe, represent, stack_trace, text_of


class TextFails(Exception):
    def __str__(self) -> str:
        raise AttributeError("no response")


class TextIsNone(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]


class AllFails(Exception):
    def __str__(self) -> str:
        raise RecursionError

    def __repr__(self) -> str:
        raise ValueError

    def __eq__(self, other: object) -> bool:
        raise TypeError

    def __bool__(self) -> bool:
        raise TypeError

    __hash__ = Exception.__hash__


class OddText(str):
    """A text that refuses what a text can do."""

    __slots__ = ()

    def __str__(self) -> str:
        return self

    def refuse(self, *_: Any) -> Any:
        raise ValueError("refused")

    __getitem__ = encode = __len__ = __format__ = refuse


class TextIsOdd(Exception):
    def __str__(self) -> str:
        return OddText("odd")


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class NotesAreNoList(Exception):
    __notes__ = "a text"


class CauseFails(Exception):
    def __init__(self) -> None:
        self.__cause__ = AllFails()


def syntax_error() -> SyntaxError:
    error = SyntaxError("bad")
    error.lineno, error.offset, error.text, error.filename = "x", (), 5, object()  # type: ignore[assignment]
    return error


ODD = [
    TextFails(),
    TextIsNone(),
    AllFails(),
    TextIsOdd(),
    Frozen(3),
    NotesAreNoList("x"),
    CauseFails(),
    ExceptionGroup("several", [AllFails(), TextFails()]),
    syntax_error(),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    KeyError(AllFails()),
    ValueError("\ud800 lone"),
    ValueError("x" * 3_000_000),
    ValueError(),
]
odd = pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
texts = st.text(st.characters(exclude_categories=()), max_size=50)


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:  # noqa: BLE001 - any of the above
        return caught


@odd
def test_every_exception_is_described(error: Exception) -> None:
    for text in (text_of(error), describe(error), represent(error), explain(error)):
        assert type(text) is str
        assert len(text.encode()) <= 10 * TEXT_LENGTH_MAX
    assert type(error).__qualname__ in describe(error)
    ErrorValue.of(error)
    add_note(error, "a note")


@given(texts)
def test_every_text_is_described_so_that_it_can_be_encoded(text: str) -> None:
    assert text_of(ValueError(text)).encode().decode("utf-8") == text_of(ValueError(text))
    test_every_exception_becomes_a_dead_letter(OSError(text))


@odd
def test_every_exception_becomes_a_dead_letter(error: Exception) -> None:
    failure = RecordFailure.of(raised(error), "stage")
    headers = dict(letter_headers((), Origin(topic="t", partition=0, offset=1), failure, FailedConsumer()))
    assert all(len(value or b"") < 100_000 for value in headers.values())
    assert type(error).__name__ in failure.exception
    assert "raised" in failure.stacktrace  # the function above is in the trace


@pytest.mark.parametrize("error", [ValueError("plain"), KeyError("k"), OSError(2, "missing")])
def test_a_usual_exception_keeps_its_words(error: Exception) -> None:
    assert text_of(error) == str(error)
    assert stack_trace(error, 4_000).rstrip().endswith(describe(error))


def test_an_exception_without_a_text_says_why() -> None:
    assert text_of(TextFails()) == "(its text is not known: str() raised AttributeError)"
