"""The compiled engine does what the plain one does, on good batches and on any damage to them."""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import BatchBuilder, TimestampType, _plain_columns, engine, read_header, split_batches
from odradek.records.columns import BinaryColumn, Columns, ColumnWriter, Headers, ListColumn
from odradek.records.content import frame_of, read_batches
from odradek.records.frame import Frame

FAST = engine.compiled()
PLAIN = engine.PLAIN
pytestmark = pytest.mark.skipif(FAST is None, reason="the package was installed without a compiler")

Outcome = tuple[str, object]

bytes_or_null = st.none() | st.binary(max_size=80)
headers = st.lists(st.tuples(st.text(max_size=5), bytes_or_null), max_size=3)
records = st.lists(
    st.tuples(st.integers(-(2**62), 2**62 - 1) | st.integers(0, 10), bytes_or_null, bytes_or_null, headers),
    min_size=1,
    max_size=8,
)
telling_bytes = st.sampled_from([0x00, 0x01, 0x02, 0x03, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF])


@pytest.fixture(autouse=True, scope="module")
def record_engine() -> None:
    """In place of the folder's: this file sets the two against each other."""


def _outcome(action: Callable[[], object]) -> Outcome:
    """The outcome. Both engines must refuse with one and the same code; their sentences may differ."""
    try:
        return "result", action()
    except KafkaError as error:
        return "refused", error.code


def _fast_columns() -> Any:
    return importlib.import_module("odradek.records._fast_columns")


def _columns(module: Any, data: bytes, frame: Frame, from_offset: int) -> Outcome:
    reader = module.ColumnReader()

    def read() -> object:
        reader.read(data, frame, from_offset)
        return _as_values(reader.finish())

    return _outcome(read)


def _as_values(batch_part: object) -> object:
    """Buffers as bytes, so that columns can be compared; validity without the bits behind the last row."""
    if isinstance(batch_part, (bytes, bytearray, memoryview)):
        return bytes(batch_part)
    if isinstance(batch_part, tuple):
        return tuple(_as_values(part) for part in batch_part)
    return batch_part


def _assert_agreement(data: bytes, frame: Frame, from_offset: int = 0) -> None:
    assert FAST is not None
    walked = _outcome(lambda: FAST.walk(data, frame))
    assert walked == _outcome(lambda: PLAIN.walk(data, frame))
    decoded = _outcome(lambda: FAST.decode(data, frame, from_offset))
    assert decoded == _outcome(lambda: PLAIN.decode(data, frame, from_offset))
    assert (walked[0] == "refused") == (decoded[0] == "refused")
    assert "refused" not in walked or walked[1] is ErrorCode.INVALID_RECORD
    fast = _columns(_fast_columns(), data, frame, from_offset)
    assert fast == _columns(_plain_columns, data, frame, from_offset)
    assert fast[0] == walked[0]


def _batch(
    written: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> tuple[bytes, Frame]:
    builder = BatchBuilder()
    for record in written:
        builder.append(*record)
    batch = builder.build()
    return bytes(batch[61:]), frame_of(read_header(batch))


@settings(deadline=None, max_examples=100)
@given(written=records, from_offset=st.integers(0, 9))
def test_on_good_batches(written: list, from_offset: int) -> None:  # type: ignore[type-arg]
    data, frame = _batch(written)
    _assert_agreement(data, frame, from_offset)


@settings(deadline=None, max_examples=400)
@given(
    written=records,
    changes=st.lists(st.tuples(st.integers(0, 4000), telling_bytes | st.integers(0, 255)), max_size=3),
    cut=st.none() | st.integers(0, 4000),
    tail=st.binary(max_size=4),
)
def test_on_damaged_batches(
    written: list,  # type: ignore[type-arg]
    changes: list[tuple[int, int]],
    cut: int | None,
    tail: bytes,
) -> None:
    content, frame = _batch(written)
    data = bytearray(content)
    for position, byte in changes:
        data[position % len(data)] = byte
    if cut is not None:
        del data[cut % len(data) :]
    _assert_agreement(bytes(data + tail), frame)


def _whole_batches(module: Any, chosen: Any, data: bytes, from_offset: int, verify_crc: bool) -> Outcome:
    def read() -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "active", chosen)
            batches = split_batches(data, allow_partial=True)
        reader = module.ColumnReader(len(data))
        read_batches(reader, batches, from_offset=from_offset, verify_crc=verify_crc)
        return [header for header, _ in batches], _as_values(reader.finish())

    return _outcome(read)


@settings(deadline=None, max_examples=400)
@given(
    written=st.lists(records, min_size=1, max_size=3),
    changes=st.lists(st.tuples(st.integers(0, 4000), telling_bytes | st.integers(0, 255)), max_size=3),
    cut=st.none() | st.integers(0, 4000),
    from_offset=st.integers(0, 9),
    verify_crc=st.booleans(),
)
def test_on_whole_batches_with_any_damage(
    written: list,  # type: ignore[type-arg]
    changes: list[tuple[int, int]],
    cut: int | None,
    from_offset: int,
    verify_crc: bool,
) -> None:
    data = bytearray()
    for content in written:
        builder = BatchBuilder()
        for record in content:
            builder.append(*record)
        data += builder.build()
    for position, byte in changes:
        data[position % len(data)] = byte
    if cut is not None:
        del data[cut % len(data) :]
    fast = _whole_batches(_fast_columns(), FAST, bytes(data), from_offset, verify_crc)
    assert fast == _whole_batches(_plain_columns, PLAIN, bytes(data), from_offset, verify_crc)
    assert changes or cut is not None or fast[0] == "result"


@settings(deadline=None, max_examples=150)
@given(
    written=records,
    record_count=st.integers(-1, 9) | st.sampled_from([-(2**31), 2**31 - 1]),
    last_offset_delta=st.integers(-1, 9) | st.sampled_from([-(2**31), 2**31 - 1]),
    base_timestamp=st.integers(-(2**63), 2**63 - 1),
    timestamp_type=st.sampled_from(TimestampType),
)
def test_on_headers_that_lie(
    written: list,  # type: ignore[type-arg]
    record_count: int,
    last_offset_delta: int,
    base_timestamp: int,
    timestamp_type: TimestampType,
) -> None:
    data, frame = _batch(written)
    changed = frame._replace(
        record_count=record_count,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        append_timestamp=77,
        timestamp_type=timestamp_type,
    )
    _assert_agreement(data, changed)


@settings(deadline=None, max_examples=300)
@given(
    data=st.binary(max_size=60) | st.lists(telling_bytes, max_size=40).map(bytes),
    record_count=st.integers(0, 4),
)
def test_on_bytes_that_never_were_a_batch(data: bytes, record_count: int) -> None:
    _assert_agreement(data, Frame(record_count, 10, 0, 0, 0, TimestampType.CREATE_TIME, -1))


@settings(deadline=None, max_examples=150)
@given(written=records, limit=st.integers(0, 600))
def test_writers_write_the_same_bytes_and_stop_at_the_same_record(
    written: list,  # type: ignore[type-arg]
    limit: int,
) -> None:
    assert FAST is not None
    fast, plain = FAST.RecordWriter(limit), PLAIN.RecordWriter(limit)
    for record in written:
        assert fast.append(*record) == plain.append(*record)
        assert (fast.size_bytes, fast.record_count) == (plain.size_bytes, plain.record_count)
    assert fast.take() == plain.take()


DATA = b"abcdefgh"


@st.composite
def any_columns(draw: st.DrawFn) -> Columns:
    """Columns whose parts fit together, or, now and then, do not."""

    def seldom(value: int, other: int) -> int:
        return other if draw(st.integers(0, 25)) == 25 else value

    def slots(row_count: int, limit: int) -> tuple[int, bytes | None, bytes]:
        first = draw(st.integers(0, 2))
        count = max(first + row_count + 1, 0)
        numbers = sorted(draw(st.lists(st.integers(0, limit), min_size=count, max_size=count)))
        if numbers:
            changed = draw(st.integers(0, len(numbers) - 1))
            numbers[changed] = seldom(numbers[changed], draw(st.integers(-2, limit + 2)))
        validity = draw(st.none() | st.binary(min_size=1, max_size=2))
        kept = numbers[: seldom(len(numbers), len(numbers) - 1)]
        return seldom(first, draw(st.integers(-1, 3))), validity, array("i", kept).tobytes()

    def binary(row_count: int) -> BinaryColumn:
        return BinaryColumn(*slots(row_count, len(DATA)), DATA[: seldom(len(DATA), 3)], 0)

    rows = draw(st.integers(1, 5))
    headers = None
    if draw(st.booleans()):
        header_rows = draw(st.integers(0, 6))
        names = binary(header_rows)._replace(
            validity=draw(st.sampled_from([None, None, b"\xff\xff", b"\xfe"]))
        )
        headers = Headers(ListColumn(*slots(rows, header_rows)), names, binary(header_rows))
    timestamps = draw(st.lists(st.integers(-(2**62), 2**62), min_size=rows, max_size=rows))
    timestamps[-1] = seldom(timestamps[-1], 2**63 - 1)
    return Columns(
        seldom(rows, draw(st.integers(-1, 7))),
        array("q", timestamps).tobytes(),
        binary(rows),
        binary(rows),
        headers,
    )


@settings(deadline=None, max_examples=500)
@given(columns=any_columns(), start=st.sampled_from([0, 0, 0, 1, 2, -1]), limit=st.integers(0, 150))
def test_on_columns_of_any_shape(columns: Columns, start: int, limit: int) -> None:
    def written(writer: Callable[[Columns], ColumnWriter]) -> Outcome:
        try:
            return "result", writer(columns).write(start, limit)
        except (ValueError, OverflowError) as error:
            return "refused", type(error)

    assert written(_fast_columns().ColumnWriter) == written(_plain_columns.ColumnWriter)


@settings(deadline=None, max_examples=300)
@given(key=st.binary(max_size=60))
def test_on_hashes(key: bytes) -> None:
    assert FAST is not None
    assert FAST.murmur2(key) == PLAIN.murmur2(key)
