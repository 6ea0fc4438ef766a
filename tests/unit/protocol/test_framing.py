"""FrameReader: boundaries, limits before allocation, and who owns the memory."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from tests.kit.frames import framed

from odradek.protocol import FrameReader, FrameTooLarge, InvalidFrame
from odradek.protocol.framing import RECEIVE_BYTES_MAX, RECEIVE_BYTES_MIN, TRUSTED_BYTES, TRUSTED_BYTES_MIN


def feed(reader: FrameReader, stream: bytes, step: int | None = None) -> list[bytes]:
    """Hand over a stream the way an event loop does, at most `step` bytes at a time."""
    frames = []
    position = 0
    while position < len(stream):
        buffer = reader.get_buffer(step or -1)
        count = min(len(buffer), len(stream) - position, step or len(stream))
        buffer[:count] = stream[position : position + count]
        position += count
        frames += [bytes(frame) for frame in reader.received(count)]
    return frames


def test_several_frames_in_one_read_come_out_in_order() -> None:
    assert feed(FrameReader(100), framed(b"one", b"two", b"three")) == [b"one", b"two", b"three"]


def test_a_frame_that_trickles_in_is_complete_with_its_last_byte() -> None:
    reader = FrameReader(100)
    stream = framed(b"hello")
    assert feed(reader, stream[:-1], step=1) == []
    assert reader.pending_bytes == len(stream) - 1
    assert feed(reader, stream[-1:]) == [b"hello"]
    assert reader.pending_bytes == 0


@pytest.mark.parametrize(
    "size", [RECEIVE_BYTES_MIN - 4, RECEIVE_BYTES_MIN - 3, RECEIVE_BYTES_MAX, 3 * TRUSTED_BYTES]
)
def test_frames_of_every_size_arrive_whole_between_small_ones(size: int) -> None:
    large = bytes(range(251)) * (size // 251 + 1)
    bodies = [b"before", large[:size], b"after", large[:size], b"end"]
    assert feed(FrameReader(size), framed(*bodies)) == bodies


def test_a_large_frame_gets_memory_of_exactly_its_size_and_none_of_the_next_frame() -> None:
    reader = FrameReader(1 << 20)
    body = b"x" * 100_000
    stream = framed(body) + b"\0\0\0\1"
    first = len(reader.get_buffer())
    reader.get_buffer()[:first] = stream[:first]
    assert reader.received(first) == []
    rest = reader.get_buffer()
    assert len(rest) == 4 + len(body) - first
    rest[:] = stream[first : first + len(rest)]
    (frame,) = reader.received(len(rest))
    assert isinstance(frame.obj, bytearray)
    assert len(frame.obj) == len(body)
    assert frame == body


def test_a_peer_that_sent_a_large_frame_whole_gets_the_next_one_in_one_piece() -> None:
    reader = FrameReader(4 << 20)
    body = b"x" * 600_000
    assert feed(reader, framed(body), step=10_000) == [body]
    stream = framed(body)
    first = len(reader.get_buffer())
    reader.get_buffer()[:first] = stream[:first]
    assert reader.received(first) == []
    assert len(reader.get_buffer()) == len(stream) - first


def test_frames_are_writable_and_share_nothing_with_later_reads() -> None:
    reader = FrameReader(100)
    buffer = reader.get_buffer()
    buffer[:14] = framed(b"abc", b"def")
    first, second = reader.received(14)
    first[0:1] = b"Z"
    feed(reader, framed(b"xxx", b"yyy"))
    assert bytes(first) == b"Zbc"
    assert bytes(second) == b"def"


@pytest.mark.parametrize("size", [0, -1, -(2**31)])
def test_sizes_below_one_are_refused(size: int) -> None:
    with pytest.raises(InvalidFrame, match=f"a frame of {size} bytes"):
        feed(FrameReader(100), struct.pack(">i", size))


@pytest.mark.check(45)
def test_a_size_above_the_limit_is_refused_before_anything_is_allocated() -> None:
    reader = FrameReader(1000)
    before = reader.allocated_bytes
    with pytest.raises(FrameTooLarge) as caught:
        feed(reader, struct.pack(">i", 1001))
    assert (caught.value.announced_bytes, caught.value.max_bytes) == (1001, 1000)
    assert reader.allocated_bytes == before


def test_a_size_at_the_limit_is_accepted() -> None:
    assert feed(FrameReader(5), framed(b"12345")) == [b"12345"]


@pytest.mark.check(45)
def test_announcing_much_and_sending_little_gets_little_memory() -> None:
    reader = FrameReader(100 << 20)
    feed(reader, struct.pack(">i", 100 << 20) + b"x" * 100)
    assert reader.allocated_bytes <= TRUSTED_BYTES_MIN + RECEIVE_BYTES_MAX
    feed(reader, b"x" * (5 << 20), step=1 << 20)
    assert reader.allocated_bytes <= 2 * (6 << 20)


def test_an_idle_connection_holds_little_and_a_busy_one_grows_to_the_limit() -> None:
    reader = FrameReader(1 << 20)
    assert reader.allocated_bytes == RECEIVE_BYTES_MIN
    feed(reader, framed(*[b"x" * 1000] * 1000))
    assert reader.allocated_bytes == RECEIVE_BYTES_MAX
    for _ in range(1000):
        feed(reader, framed(b"small"))
    assert reader.allocated_bytes == RECEIVE_BYTES_MIN


@pytest.mark.parametrize(
    ("greeting", "name"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "a TLS handshake"),
        (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", "an HTTP request"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "an HTTP/2 preface"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "an SSH greeting"),
    ],
)
def test_other_protocols_are_called_by_their_name(greeting: bytes, name: str) -> None:
    with pytest.raises(InvalidFrame, match=name):
        feed(FrameReader(100 << 20), greeting)


async def test_it_serves_a_buffered_protocol_of_asyncio() -> None:
    import asyncio

    received: list[bytes] = []
    done = asyncio.get_running_loop().create_future()

    class Receiver(asyncio.BufferedProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport
            self.reader = FrameReader(1 << 20)

        def get_buffer(self, sizehint: int) -> memoryview:
            return self.reader.get_buffer(sizehint)

        def buffer_updated(self, nbytes: int) -> None:
            received.extend(bytes(frame) for frame in self.reader.received(nbytes))

        def connection_lost(self, exc: Exception | None) -> None:
            done.set_result(None)

    server = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", 0)
    bodies = [b"a", b"b" * 70_000, b"c" * 10, b"d" * 500_000]
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(framed(*bodies))
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    await done
    server.close()
    await server.wait_closed()
    assert received == bodies


def counted(sizes: list[int]) -> Callable[[int], memoryview]:
    """Returns a way to allocate that notes what it was asked for."""

    def allocate(size: int) -> memoryview:
        sizes.append(size)
        return memoryview(bytearray(b"\xee" * size))

    return allocate


def test_after_a_large_frame_the_next_is_received_where_it_stays_in_one_read() -> None:
    sizes: list[int] = []
    reader = FrameReader(1 << 20, allocate=counted(sizes))
    body = b"x" * 400_000
    assert feed(reader, framed(body)) == [body]
    sizes.clear()
    buffer = reader.get_buffer()
    assert len(buffer) > 4 + len(body)
    stream = framed(body)
    buffer[: len(stream)] = stream
    (frame,) = reader.received(len(stream))
    assert sizes == [len(buffer)]
    buffer[4:8] = b"abcd"  # the frame is this memory, not a copy of it
    assert bytes(frame[:5]) == b"abcdx"


def test_what_was_received_ahead_may_be_small_frames_or_a_larger_one() -> None:
    large = b"x" * 400_000
    reader = FrameReader(1 << 20, allocate=counted([]))
    bodies = [large, b"small", b"s" * 70_000, large, b"y" * 900_000, b"end", large, large]
    assert feed(reader, framed(*bodies)) == bodies
    reader = FrameReader(1 << 20, allocate=counted([]))
    assert feed(reader, framed(large)) == [large]
    many = [b"%d" % number * 1000 for number in range(200)]
    assert feed(reader, framed(*many)) == many
    assert len(reader.get_buffer()) <= RECEIVE_BYTES_MAX


def test_a_connection_that_waits_for_an_answer_holds_no_buffer_for_it() -> None:
    reader = FrameReader(1 << 20, allocate=counted([]))
    assert feed(reader, framed(b"x" * 400_000)) == [b"x" * 400_000]
    assert reader.allocated_bytes <= RECEIVE_BYTES_MAX


def test_a_size_that_is_refused_is_refused_when_it_was_received_ahead() -> None:
    reader = FrameReader(1 << 20, allocate=counted([]))
    assert feed(reader, framed(b"x" * 400_000)) == [b"x" * 400_000]
    with pytest.raises(FrameTooLarge):
        feed(reader, struct.pack(">i", (1 << 20) + 1) + b"x" * 100)
