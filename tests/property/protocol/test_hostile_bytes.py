"""Whatever arrives, a decoder either makes a message of it or says MalformedMessage, in bounded memory.

ODRADEK_FUZZ=300 in the environment tries so many inputs per decoder instead of a few.
"""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from types import FunctionType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.protocol import (
    APIS,
    FrameReader,
    InvalidFrame,
    MalformedMessage,
    Message,
    decode,
    decode_request_header,
    encode,
)
from odradek.protocol.compiled import ANY_COUNT
from odradek.protocol.decoder import DecoderSource
from odradek.protocol.errors import Fault
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic

VERSIONS = [
    pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
    for api in APIS.values()
    for cls in (api.request, api.response)
    for version in api.versions
]
Samples = Callable[[type[Message], int], Message]
some = settings(
    max_examples=int(os.environ.get("ODRADEK_FUZZ", "8")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
EDITS = st.lists(
    st.tuples(st.integers(0, 2000), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
)


CALLED_POSITIONS = 20
"""Positions at which `decode` itself is traced. Python looks up the line of each traced allocation, and the lines of a decoder
are many: 200 positions of a StreamsGroupDescribe take seven seconds. Decoders without lines are traced at all positions."""
Decoding = Callable[[bytes], None]


def try_to_decode(cls: type[Message], version: int, data: bytes) -> None:
    path = cls.__name__
    try:
        _, position = decode(cls, version, memoryview(data))
    except MalformedMessage as error:
        path, position = error.path, error.position
    assert 0 <= position <= len(data)
    assert path.startswith(cls.__name__)


def decoder_without_lines(cls: type[Message], version: int) -> Decoding:
    """Returns the compiled decoder of a message, which knows no line of its own code any more."""
    codec = DecoderSource(cls, version).write().compile("<a decoder without lines>")
    assert isinstance(codec, FunctionType)
    codec.__code__ = codec.__code__.replace(co_linetable=b"")

    def decode_lines(data: bytes) -> None:
        with suppress(Fault, IndexError, struct.error, UnicodeDecodeError):
            codec(memoryview(data), 0, len(data), ANY_COUNT)

    return decode_lines


def peak_of(decoding: Decoding, texts: Iterable[bytes]) -> int:
    """Returns the largest number of bytes that were allocated while the texts were decoded."""
    tracemalloc.start()
    try:
        for text in texts:
            decoding(text)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("cls", "version"), VERSIONS)
def test_a_message_cut_off_anywhere_is_malformed(
    cls: type[Message], version: int, full_message: Samples
) -> None:
    encoded = encode(full_message(cls, version), version)
    assert decode(cls, version, encoded) == (full_message(cls, version), len(encoded))
    for length in range(len(encoded)):
        with pytest.raises(MalformedMessage):
            decode(cls, version, encoded[:length])


@pytest.mark.parametrize(("cls", "version"), VERSIONS)
def test_mutated_and_random_bytes_do_no_harm(cls: type[Message], version: int, full_message: Samples) -> None:
    encoded = encode(full_message(cls, version), version)

    @some
    @given(edits=EDITS, noise=st.binary(max_size=64))
    def check(edits: list[tuple[int, int]], noise: bytes) -> None:
        mutated = bytearray(encoded)
        for position, byte in edits:
            mutated[position % len(mutated)] = byte
        try_to_decode(cls, version, bytes(mutated))
        try_to_decode(cls, version, noise)

    if encoded:
        check()


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_lying_counts_cost_no_memory(api: object, full_message: Samples) -> None:
    """The largest count, at every position: nothing is allocated on the strength of a number."""
    for cls in (api.request, api.response):  # type: ignore[attr-defined]
        for version in {cls.VERSIONS.min, cls.VERSIONS.max}:
            encoded = encode(full_message(cls, version), version)
            lie = b"\xff\xff\xff\xff\x07" if version in cls.FLEXIBLE else b"\x7f\xff\xff\xff"
            lying = [
                encoded[:position] + lie + encoded[position + len(lie) :] for position in range(len(encoded))
            ]
            some_of_them = lying[:: max(1, len(lying) // CALLED_POSITIONS)]
            whole = partial(try_to_decode, cls, version)
            for text in lying:
                whole(text)
            bound = 128 * 1024 + 100 * len(encoded)
            for decoding, texts in ((decoder_without_lines(cls, version), lying), (whole, some_of_them)):
                # other threads of this process allocate, too: what they do once counts as theirs
                peak = next(
                    (peak for peak in (peak_of(decoding, texts) for _ in range(3)) if peak < bound), bound
                )
                assert peak < bound, (cls, version)


def test_a_decoder_that_allocates_on_the_strength_of_a_number_is_noticed() -> None:
    """The tracing sees what a decoder without lines allocates."""
    cls, version = MetadataRequest, MetadataRequest.VERSIONS.max
    data = encode(MetadataRequest(topics=[MetadataRequestTopic(name="t" * 100)] * 5_000), version)
    assert peak_of(decoder_without_lines(cls, version), [data]) > 500_000


@some
@given(noise=st.binary(max_size=64))
def test_request_headers_are_read_or_malformed(noise: bytes) -> None:
    try:
        _, position = decode_request_header(noise)
    except MalformedMessage:
        return
    assert position <= len(noise)


def _dirty(size: int) -> memoryview:
    """Returns memory that holds something, as memory that is used again does."""
    return memoryview(bytearray(b"\xee" * size))


@pytest.mark.parametrize("allocate", [None, _dirty])
@settings(max_examples=200, deadline=None)
@given(
    bodies=st.lists(
        st.integers(1, 200)
        | st.integers(3000, 9000)
        | st.integers(60_000, 70_000)
        | st.integers(120_000, 300_000),
        max_size=12,
    ),
    steps=st.lists(st.integers(1, 5) | st.integers(1, 100_000), min_size=1),
)
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(
    allocate: Callable[[int], memoryview] | None, bodies: list[int], steps: list[int]
) -> None:
    frames = [bytes([index + 1]) * size for index, size in enumerate(bodies)]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    reader = FrameReader(300_000, allocate=allocate)
    received: list[memoryview] = []
    position = turn = 0
    while position < len(stream):
        buffer = reader.get_buffer()
        assert len(buffer) > 0
        step = max(steps[turn % len(steps)], len(stream) // 500)
        count = min(len(buffer), len(stream) - position, step)
        buffer[:count] = stream[position : position + count]
        received += reader.received(count)
        position += count
        turn += 1
    assert [bytes(frame) for frame in received] == frames
    assert reader.pending_bytes == 0


@settings(max_examples=200, deadline=None)
@given(noise=st.binary(max_size=400), step=st.integers(1, 50))
def test_noise_is_cut_into_frames_or_refused_in_bounded_memory(noise: bytes, step: int) -> None:
    reader = FrameReader(1000)
    position = total = 0
    while position < len(noise):
        count = min(step, len(noise) - position)
        reader.get_buffer()[:count] = noise[position : position + count]
        try:
            total += sum(4 + len(frame) for frame in reader.received(count))
        except InvalidFrame:
            return
        position += count
        assert reader.allocated_bytes <= 8192
    assert total + reader.pending_bytes == len(noise)
