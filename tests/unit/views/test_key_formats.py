"""Keys: topic bytes, stored bytes in the order of the keys, Python values."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.model.errors import ConfigError
from odradek.views import ordered_json
from odradek.views.key_formats import KEY_FORMATS, key_format, value_format
from odradek.views.windows import WindowedKey, WindowedKeys, windowed

JSON_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**70), max_value=2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
JSON_VALUES = st.recursive(
    JSON_SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NUMBERS: dict[str, Any] = {
    "short": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False, width=32),
    "double": st.floats(allow_nan=False),
}
KAFKA_LAYOUT = {"short": ">h", "int": ">i", "long": ">q", "float": ">f", "double": ">d"}


@pytest.mark.parametrize("name", NUMBERS)
@given(data=st.data())
def test_numbers_are_stored_in_their_order_and_come_back(name: str, data: st.DataObject) -> None:
    keys = key_format(name)
    small, large = sorted((data.draw(NUMBERS[name]), data.draw(NUMBERS[name])))
    assert (keys.encode(small) <= keys.encode(large)) or small == large
    assert keys.decode(keys.encode(small)) == small
    assert keys.stored(struct.pack(KAFKA_LAYOUT[name], small)) == keys.encode(small)


@given(st.text(), st.text())
def test_text_is_stored_in_the_order_of_code_points(key: str, other: str) -> None:
    keys = key_format("string")
    assert (keys.encode(key) < keys.encode(other)) == (key < other)


@given(JSON_VALUES)
def test_json_comes_back_however_it_was_written(value: Any) -> None:
    keys = key_format("json")
    spaced = json.dumps(value, indent=3).encode()
    assert keys.stored(spaced) == keys.encode(value)
    assert keys.decode(keys.encode(value)) == value


@given(
    st.lists(st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False), max_size=3),
    st.data(),
)
def test_json_arrays_of_numbers_are_stored_in_their_order(key: list[float], data: st.DataObject) -> None:
    other = data.draw(st.lists(st.integers(-(2**70), 2**70), max_size=3))
    floats = [list(map(float, entry)) for entry in (key, other)]
    if floats[0] != floats[1]:
        assert (ordered_json.encode(key) < ordered_json.encode(other)) == (floats[0] < floats[1])


@given(st.lists(JSON_SCALARS, max_size=3), st.lists(JSON_SCALARS, max_size=2))
def test_a_prefix_of_an_array_is_a_prefix_of_its_bytes(items: list[Any], more: list[Any]) -> None:
    assert ordered_json.encode([*items, *more]).startswith(ordered_json.encode_prefix(items))


@pytest.mark.parametrize("name", ["float", "double"])
def test_every_nan_that_is_asked_for_is_the_one_that_kafka_writes_and_the_last_key(name: str) -> None:
    keys, layout = key_format(name), KAFKA_LAYOUT[name]
    odd = struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0]
    assert keys.encode(odd) == keys.encode(math.nan) == keys.stored(struct.pack(layout, math.nan))
    assert keys.encode(math.nan) > keys.encode(math.inf)
    assert math.isnan(keys.decode(keys.encode(math.nan)))


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("long", b"1234567"),
        ("int", b""),
        ("double", b"x"),
        ("float", bytes(8)),
        ("json", b"{"),
        ("json", b"1e999"),
        ("json", b"\xff"),
    ],
)
def test_bytes_of_another_format_are_refused(name: str, raw: bytes) -> None:
    with pytest.raises((ValueError, struct.error)):
        key_format(name).stored(raw)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("string", 1),
        ("string", b"a"),
        ("long", "1"),
        ("long", True),
        ("short", 40_000),
        ("double", "x"),
        ("float", 1e300),
        ("json", {1, 2}),
    ],
)
def test_python_values_of_another_type_are_refused(name: str, key: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        key_format(name).encode(key)


def test_formats_that_are_not_there_are_named_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match="string, bytes"):
        key_format("text")
    with pytest.raises(ConfigError, match="json, string"):
        value_format("xml")


# -- windows


@given(st.binary(max_size=4), st.integers(0, 2**42), st.binary(max_size=4), st.integers(0, 2**42))
def test_windows_of_a_key_stand_together_by_their_starts(
    decoded_key: bytes, one_ms: int, other: bytes, other_ms: int
) -> None:
    keys = windowed(key_format("bytes"), "1 minute")
    stored = [
        keys.stored(key + struct.pack(">q", at)) for key, at in ((decoded_key, one_ms), (other, other_ms))
    ]
    assert (stored[0] < stored[1]) == ((decoded_key, one_ms) < (other, other_ms))
    assert keys.decode(stored[0]) == WindowedKey(decoded_key, one_ms, one_ms + 60_000)
    assert keys.encode((decoded_key, one_ms)) == stored[0]


def test_a_session_has_its_end_before_its_start_in_the_topic() -> None:
    keys = windowed(KEY_FORMATS["string"], "session")
    stored = keys.stored(b"ann" + struct.pack(">qq", 500, 100))
    assert keys.decode(stored) == WindowedKey("ann", 100, 500)
    assert keys.encode(WindowedKey("ann", 100, 500)) == stored


@pytest.mark.parametrize(
    ("start", "end", "expected"), [(None, None, [1, 2, 3]), (2, None, [2, 3]), (None, 3, [1, 2]), (2, 3, [2])]
)
def test_bounds_of_windows_take_the_first_and_leave_out_the_last(
    start: int | None, end: int | None, expected: list[int]
) -> None:
    keys = windowed(KEY_FORMATS["string"], "10ms")
    assert isinstance(keys, WindowedKeys)
    low, high = keys.bounds("a", start, end)
    stored = {at: keys.encode(("a", at)) for at in (1, 2, 3)} | {
        9: keys.encode(("a\0", 2)),
        10: keys.encode(("ab", 2)),
    }
    assert [at for at, place in stored.items() if low <= place < high] == expected


@pytest.mark.parametrize("text", ["10 parsecs", "", "minutes", "0 s"])
def test_windows_that_are_no_size_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="10 minutes"):
        windowed(KEY_FORMATS["string"], text)


@pytest.mark.parametrize(
    ("text", "size_ms"), [("10 minutes", 600_000), ("1h", 3_600_000), ("250ms", 250), ("2 days", 172_800_000)]
)
def test_sizes_of_windows(text: str, size_ms: int) -> None:
    keys = windowed(KEY_FORMATS["string"], text)
    assert isinstance(keys, WindowedKeys)
    assert keys.size_ms == size_ms
