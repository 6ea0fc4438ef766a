"""Dead letters as people and programs read them."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.cli.dlq.listing import group_row, letter_json, letter_lines
from odradek.dead_letters.grouping import grouped, holds_dead_letters
from odradek.dead_letters.headers import FailedConsumer, Origin, RecordFailure
from odradek.dead_letters.letter import DeadLetter


def letter(offset: int = 17, *, error: str = "KeyError", **more: Any) -> DeadLetter:
    fields: dict[str, Any] = {
        "topic": "orders.dlq",
        "partition": 0,
        "failed_at_ms": 1_000 * offset,
        "origin": Origin(topic="orders", partition=2, offset=100, timestamp_ms=5),
        "by": FailedConsumer(group="billing", delivery_count=4),
        "redrive_count": 0,
        "dialect": "odradek",
        "key": b"k\xff",
        "value": b'{"a":\n1}',
        "own_headers": (("trace", b"\x00\x01"), ("empty", None)),
        "failure": RecordFailure(
            exception=error, message="'milk'\n", stage="price", stacktrace="Traceback\n  here"
        ),
    }
    return DeadLetter(offset=offset, **{**fields, **more})


def test_letters_are_counted_by_origin_and_error_the_largest_group_first() -> None:
    letters = [(letter(1), True), (letter(2, error="OSError"), False), (letter(3, error="OSError"), False)]
    letters += [(letter(4), False), (letter(5, origin=None), True)]
    assert [group_row(letter_group) for letter_group in grouped(letters)] == [
        ("orders.dlq", "orders", "OSError", 2, 0, "1970-01-01T00:00:02.000Z", "1970-01-01T00:00:03.000Z"),
        ("orders.dlq", "orders", "KeyError", 1, 1, "1970-01-01T00:00:01.000Z", "1970-01-01T00:00:04.000Z"),
        ("orders.dlq", None, "KeyError", 0, 1, "1970-01-01T00:00:05.000Z", "1970-01-01T00:00:05.000Z"),
    ]


def test_a_letter_for_people() -> None:
    assert list(letter_lines(letter(), True, with_stacktrace=True)) == [
        "orders.dlq:0:17  1970-01-01T00:00:17.000Z  sent back",
        "  origin   orders:2:100  1970-01-01T00:00:00.005Z",
        "  error    KeyError: 'milk'",
        "  stage    price",
        "  group    billing, delivery 4",
        "  key      2 bytes",
        "    000000  6b ff                                            k.",
        "  header trace 2 bytes",
        "    000000  00 01                                            ..",
        "  header empty null",
        '  value    {"a":',
        "           1}",
        "  stack trace",
        "    Traceback",
        "      here",
    ]


def test_a_long_value_is_shown_in_part() -> None:
    lines = list(letter_lines(letter(value=b"\xff" * 5_000), False, with_stacktrace=False))
    assert lines[-1] == "  ... and 3,000 bytes more"
    assert "Traceback" not in "\n".join(lines)


def test_a_letter_for_programs_holds_any_bytes() -> None:
    letter_fields = letter_json(letter(), False)
    assert letter_fields["key_base64"] == "a/8="
    assert letter_fields["value"] == '{"a":\n1}'
    assert letter_fields["headers"] == [
        {"name": "trace", "value": "\x00\x01"},
        {"name": "empty", "value": None},
    ]
    assert letter_fields["origin"] == {"topic": "orders", "partition": 2, "offset": 100, "timestamp": 5}
    assert (letter_fields["error"], letter_fields["delivery_count"], letter_fields["redriven"]) == (
        "KeyError",
        4,
        False,
    )
    assert letter_json(letter(origin=None), True)["origin"] is None


@pytest.mark.parametrize(
    "name", ["orders.dlq", "orders-dlt", "orders.DLT", "dlq.orders", "orders_dead_letters", "orders.dead"]
)
def test_topics_that_look_like_dead_letters(name: str) -> None:
    assert holds_dead_letters(name)


@pytest.mark.parametrize("name", ["orders", "deadline", "sdlq1", "idlt"])
def test_topics_that_do_not(name: str) -> None:
    assert not holds_dead_letters(name)
