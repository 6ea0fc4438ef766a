"""A selection means the dead letters that it says, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.dead_letters.headers import FailedConsumer, Origin, RecordFailure
from odradek.dead_letters.letter import DeadLetter
from odradek.dead_letters.selection import PlaceRange, Selection, parse_place, span_of
from odradek.model.errors import ConfigError


def letter(**more: Any) -> DeadLetter:
    fields: dict[str, Any] = {
        "topic": "orders.dlq",
        "partition": 0,
        "offset": 17,
        "failed_at_ms": 5_000,
        "origin": Origin(topic="orders", partition=2, offset=100),
        "failure": RecordFailure(exception="json.decoder.JSONDecodeError", message="Expecting value: line 1"),
        "by": FailedConsumer(group="billing", query="q"),
        "redrive_count": 1,
        "dialect": "odradek",
        "key": None,
        "value": b"x",
        "own_headers": (),
    }
    return DeadLetter(**{**fields, **more})


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("orders", PlaceRange(topic="orders")),
        ("orders:2", PlaceRange(topic="orders", partition=2)),
        ("orders:2:100", PlaceRange(topic="orders", partition=2, first=100, last=100)),
        ("orders:2:100-", PlaceRange(topic="orders", partition=2, first=100)),
        ("orders:2:100-200", PlaceRange(topic="orders", partition=2, first=100, last=200)),
    ],
)
def test_a_place_is_a_topic_a_partition_an_offset_or_a_range(text: str, place: PlaceRange) -> None:
    assert parse_place(text) == place


@pytest.mark.parametrize("text", ["", ":1", "orders:", "orders:x", "orders:0:5-3", "orders:0:-5", "a:0:1:2"])
def test_anything_else_is_no_place(text: str) -> None:
    with pytest.raises(ConfigError, match="is no place in a topic"):
        parse_place(text)


@pytest.mark.parametrize(
    ("places", "spans"),
    [
        ([], [(0, None), (0, None)]),
        (["t"], [(0, None), (0, None)]),
        (["t:0"], [(0, None), None]),
        (["t:0:5"], [(5, 5), None]),
        (["t:0:5-9", "t:0:3"], [(3, 9), None]),
        (["t:0:5-9", "t:0:3-"], [(3, None), None]),
        (["t:0:5-9", "t"], [(0, None), (0, None)]),
        (["t:1:7", "t:0:2-4"], [(2, 4), (7, 7)]),
    ],
)
def test_places_say_which_offsets_need_a_look(
    places: list[str], spans: list[tuple[int, int | None] | None]
) -> None:
    assert [span_of(map(parse_place, places), partition) for partition in (0, 1)] == spans


@pytest.mark.parametrize(
    "selection",
    [
        Selection(),
        Selection(errors=("JSONDecodeError",)),
        Selection(errors=("json.decoder.JSONDecodeError",)),
        Selection(errors=("KeyError", "JSON*")),
        Selection(text="expecting VALUE"),
        Selection(origins=(parse_place("orders:2:100"),)),
        Selection(origins=(parse_place("other"), parse_place("orders:2:50-100"))),
        Selection(places=(parse_place("orders.dlq:0:17-"),)),
        Selection(groups=("billing",), queries=("q",)),
        Selection(since_ms=5_000, until_ms=5_001),
        Selection(redrives_below=2),
    ],
)
def test_a_letter_is_meant(selection: Selection) -> None:
    assert selection.matches(letter())


@pytest.mark.parametrize(
    "selection",
    [
        Selection(errors=("jsondecodeerror",)),
        Selection(errors=("JSON",)),
        Selection(errors=("JSONDecodeError",), text="another text"),
        Selection(origins=(parse_place("orders:2:101-"),)),
        Selection(origins=(parse_place("orders:1"),)),
        Selection(origins=(parse_place("order"),)),
        Selection(places=(parse_place("orders.dlq:1"),)),
        Selection(groups=("shipping",)),
        Selection(since_ms=5_001),
        Selection(until_ms=5_000),
        Selection(redrives_below=1),
    ],
)
def test_a_letter_is_not_meant(selection: Selection) -> None:
    assert not selection.matches(letter())


def test_a_letter_without_an_origin_is_in_no_range_of_origins() -> None:
    assert not Selection(origins=(parse_place("orders"),)).matches(letter(origin=None))
