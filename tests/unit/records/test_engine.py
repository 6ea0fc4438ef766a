"""Which engine is used, and that the compiled one stays inside its buffers."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from odradek.model.errors import KafkaError
from odradek.records import HEADER_BYTES, BatchBuilder, BatchHeader, Codec, assign, engine, read_header
from odradek.records.content import frame_of, read_batches
from odradek.records.frame import Frame
from odradek.records.record import TimestampType

PROGRAM = "from odradek.records import engine; print(engine.active.NAME, engine.columns().__name__)"


def _chosen(pure: str) -> str:
    environment = {**os.environ, "ODRADEK_PURE": pure}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_the_environment_can_force_the_plain_engine() -> None:
    assert _chosen("1") == "plain odradek.records._plain_columns"


def test_the_compiled_engine_is_the_default_where_it_was_built() -> None:
    if engine.compiled() is None:
        assert _chosen("") == "plain odradek.records._plain_columns"
    else:
        assert _chosen("") == _chosen("0") == "compiled odradek.records._fast_columns"


class GuardedPage:
    """Memory that ends where the process may not read: one byte too far and the test run dies."""

    def __init__(self) -> None:
        page = mmap.PAGESIZE
        self._pages = mmap.mmap(-1, 2 * page)
        self._handle = ctypes.c_char.from_buffer(self._pages)
        self._guard = ctypes.c_void_p(ctypes.addressof(self._handle) + page)
        libc = ctypes.CDLL(None, use_errno=True)
        self._protect = libc.mprotect
        assert self._protect(self._guard, ctypes.c_size_t(page), 0) == 0
        self._room = memoryview(self._pages)[:page]

    def put(self, content: bytes) -> memoryview:
        """`content`, its last byte the last one that may be read."""
        start = len(self._room) - len(content)
        self._room[start:] = content
        return self._room[start:]


@pytest.fixture(scope="module")
def guarded() -> GuardedPage:
    return GuardedPage()


def _whole() -> bytearray:
    builder = BatchBuilder()
    for number in range(12):
        builder.append(
            number * 10_000, b"key" * number, None if number % 3 else b"v" * 30, [("h", b"x"), ("g", None)]
        )
    return builder.build()


def _records() -> tuple[bytes, Frame]:
    batch = _whole()
    return bytes(batch[61:]), frame_of(read_header(batch))


def _read_in_every_way(data: memoryview, frame: Frame) -> None:
    with contextlib.suppress(KafkaError):
        engine.active.walk(data, frame)
    with contextlib.suppress(KafkaError):
        engine.active.decode(data, frame, 0)
    with contextlib.suppress(KafkaError):
        engine.columns().ColumnReader().read(data, frame, 0)


def test_no_byte_is_read_behind_a_batch_cut_anywhere(guarded: GuardedPage) -> None:
    records, frame = _records()
    for length in range(len(records) + 1):
        for count in (frame.record_count, 1, length // 7):
            _read_in_every_way(guarded.put(records[:length]), frame._replace(record_count=count))


def test_no_byte_is_read_behind_a_batch_with_any_one_byte_changed(guarded: GuardedPage) -> None:
    records, frame = _records()
    for position in range(len(records)):
        for byte in (0x00, 0x01, 0x7E, 0x7F, 0x80, 0xFE, 0xFF):
            changed = records[:position] + bytes([byte]) + records[position + 1 :]
            _read_in_every_way(guarded.put(changed), frame)


@pytest.mark.parametrize(
    "tail", [b"\xff", b"\x80", b"\xfe\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0f", b"\x80" * 9]
)
def test_no_byte_is_read_behind_a_number_at_the_end(tail: bytes, guarded: GuardedPage) -> None:
    frame = Frame(1, 10, 0, 0, 0, TimestampType.CREATE_TIME, -1)
    record = bytes([60, 0, 0, 0, 2, 107, 2, 118, 2, 2, 104, 2, 120])
    for cut in range(len(record) + 1):
        for length in range(64):
            content = bytes([length]) + record[1:cut] + tail
            _read_in_every_way(guarded.put(content), frame)


@pytest.mark.parametrize("length", range(10))
def test_a_key_is_hashed_within_its_bytes(length: int, guarded: GuardedPage) -> None:
    key = bytes(range(length))
    assert engine.active.murmur2(guarded.put(key).tobytes()) == engine.PLAIN.murmur2(key)


def _read_whole(data: memoryview) -> None:
    engine.active.split(data, BatchHeader)
    with contextlib.suppress(KafkaError):
        engine.columns().ColumnReader(len(data)).read_plain_batches([(None, data)], 0, 0, False)


def test_no_byte_is_read_behind_a_whole_batch_cut_anywhere(guarded: GuardedPage) -> None:
    batch = _whole()
    for length in range(len(batch) + 1):
        _read_whole(guarded.put(bytes(batch[:length])))
        claimed = bytes(batch[:8]) + max(length - 12, 0).to_bytes(4, "big") + bytes(batch[12:])
        _read_whole(guarded.put(claimed[:length]))


def test_no_byte_is_read_behind_a_whole_batch_with_any_one_byte_changed(guarded: GuardedPage) -> None:
    batch = bytes(_whole())
    for position in range(len(batch)):
        for byte in (0x00, 0x01, 0x7F, 0x80, 0xFF):
            _read_whole(guarded.put(batch[:position] + bytes([byte]) + batch[position + 1 :]))


def test_a_batch_that_is_not_fit_for_the_short_way_is_left_alone() -> None:
    packed = BatchBuilder(Codec.LZ4)
    packed.append(1_000, b"key", b"value")
    damaged = _whole()
    damaged[-1] ^= 0xFF
    reader = engine.columns().ColumnReader()
    for batch in (packed.build(), damaged, _whole()[:-1], _whole()[:60]):
        assert reader.read_plain_batches([(None, memoryview(batch))], 0, 0, True) == 0
    assert reader.finish().row_count == 0


def test_the_short_way_reads_what_the_long_one_reads(record_engine: str) -> None:
    batch = _whole()
    assign(batch, 100, 3, log_append_time=77_000)
    short, long = engine.columns().ColumnReader(len(batch)), engine.columns().ColumnReader()
    chosen = engine.columns().ColumnReader()
    header = read_header(batch)
    long.read(memoryview(batch)[HEADER_BYTES:], frame_of(header), 105)
    whole = [(header, memoryview(batch))]
    assert short.read_plain_batches(whole, 0, 105, True) == int(record_engine == "compiled")
    read_batches(chosen, whole, from_offset=105, verify_crc=True)
    columns = long.finish()
    assert columns.row_count == 7
    assert _contents(chosen.finish()) == _contents(columns)
    if record_engine == "compiled":
        assert _contents(short.finish()) == _contents(columns)


def test_the_short_way_is_closed_to_a_reader_that_was_finished(record_engine: str) -> None:
    reader, whole = engine.columns().ColumnReader(), [(None, memoryview(_whole()))]
    reader.finish()
    if record_engine == "compiled":
        with pytest.raises(RuntimeError):
            reader.read_plain_batches(whole, 0, 0, True)
    else:
        assert reader.read_plain_batches(whole, 0, 0, True) == 0


def _contents(column: object) -> object:
    """Columns as values that can be compared."""
    if isinstance(column, tuple):
        return [_contents(part) for part in column]
    return bytes(column) if isinstance(column, bytearray | memoryview) else column


def test_a_reader_that_failed_or_was_finished_refuses_to_go_on() -> None:
    records, frame = _records()
    failed = engine.columns().ColumnReader()
    with pytest.raises(KafkaError):
        failed.read(records[:-1], frame, 0)
    finished = engine.columns().ColumnReader()
    finished.read(records, frame, 0)
    assert finished.finish().row_count == frame.record_count
    for reader in (failed, finished):
        with pytest.raises(RuntimeError):
            reader.read(records, frame, 0)
        with pytest.raises(RuntimeError):
            reader.finish()


def test_a_reader_is_for_one_thread_at_a_time_and_takes_no_harm_from_others() -> None:
    builder = BatchBuilder()
    for number in range(5_000):
        builder.append(number, None, b"value")
    batch = builder.build()
    records, frame = memoryview(batch)[61:], frame_of(read_header(batch))
    reader = engine.columns().ColumnReader()

    def read() -> int:
        done = 0
        for _ in range(10):
            with contextlib.suppress(RuntimeError):
                reader.read(records, frame, 0)
                done += 1
        return done

    with ThreadPoolExecutor(4) as pool:
        reads = sum(pool.map(lambda _: read(), range(4)))
    columns = reader.finish()
    assert columns.row_count == reads * 5_000
    assert bytes(columns.values.data) == b"value" * columns.row_count


def test_columns_that_lie_about_their_room_are_refused() -> None:
    from odradek.records.columns import BinaryColumn, Columns, Headers, ListColumn

    def four(*numbers: int) -> bytes:
        return b"".join(number.to_bytes(4, sys.byteorder, signed=True) for number in numbers)

    good = BinaryColumn(0, None, four(0, 1, 2), b"kv", 0)
    fine = Columns(2, bytes(16), good, good, None)
    assert engine.columns().ColumnWriter(fine).write(0, 1000).record_count == 2
    lists = ListColumn(0, None, four(0, 1, 2))
    bad = {
        "short timestamps": fine._replace(timestamps=bytes(15)),
        "short offsets": fine._replace(keys=good._replace(offsets=four(0, 1))),
        "short validity": fine._replace(
            row_count=9, timestamps=bytes(72), keys=good._replace(validity=b"\xff")
        ),
        "beyond the data": fine._replace(keys=good._replace(offsets=four(0, 1, 3))),
        "falling offsets": fine._replace(keys=good._replace(offsets=four(0, 2, 1))),
        "a negative offset": fine._replace(keys=good._replace(offsets=four(-1, 1, 2))),
        "a first row beyond": fine._replace(values=good._replace(first=1)),
        "too few headers": fine._replace(headers=Headers(lists._replace(offsets=four(0, 1, 9)), good, good)),
        "too few lists": fine._replace(headers=Headers(lists._replace(offsets=four(0, 1)), good, good)),
        "falling lists": fine._replace(headers=Headers(lists._replace(offsets=four(2, 1, 2)), good, good)),
        "a null name": fine._replace(headers=Headers(lists, good._replace(validity=b"\x01"), good)),
    }
    for lie, columns in bad.items():
        with pytest.raises(ValueError, match=r".") as caught:
            engine.columns().ColumnWriter(columns).write(0, 1000)
        assert not isinstance(caught.value, UnicodeError), lie
    for start in (-1, 2, 2**40):
        with pytest.raises(ValueError, match="row"):
            engine.columns().ColumnWriter(fine).write(start, 1000)


def test_an_extension_that_is_older_than_its_source_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    built = engine.compiled()
    if built is None:
        pytest.skip("the package was installed without a compiler")
    monkeypatch.delattr(built, "produced")
    assert engine.compiled() is None
