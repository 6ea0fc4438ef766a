"""Varints, version ranges, and caches that stay bounded."""

from __future__ import annotations

import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import VersionRange, api_by_key, api_by_name, api_of
from odradek.protocol.errors import Fault
from odradek.protocol.messages.groups.consumer_protocol import ConsumerProtocolAssignment
from odradek.protocol.messages.metadata.metadata import MetadataResponse
from odradek.protocol.versions import NO_VERSIONS, parse_versions
from odradek.protocol.wire import ArrayReaders, EncodedArrays, UuidCache, read_uvarint, skip_tags, uvarint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (16384, "808001"), (2**31 - 1, "ffffffff07")],
)
def test_varints_have_their_shortest_form(value: int, encoded: str) -> None:
    assert uvarint(value).hex() == encoded
    assert read_uvarint(bytes.fromhex("00" + encoded + "ff"), 1) == (value, 1 + len(encoded) // 2)


def test_a_varint_longer_than_needed_is_read_as_kafka_reads_it() -> None:
    assert read_uvarint(b"\x81\x00", 0) == (1, 2)


@pytest.mark.parametrize("encoded", ["8080808080", "808080808001", "ffffffff08", "ffffffff0f"])
def test_varints_that_overflow_are_refused(encoded: str) -> None:
    with pytest.raises(Fault):
        read_uvarint(bytes.fromhex(encoded), 0)


def test_tagged_sections_that_lie_about_their_size_are_refused() -> None:
    assert skip_tags(b"\x02\x00\x01a\x05\x00", 0, 6) == 6
    with pytest.raises(Fault, match="cannot fit"):
        skip_tags(b"\xff\xff\x03\x00\x00", 0, 5)
    with pytest.raises(Fault, match="past the end"):
        skip_tags(b"\x01\x00\x09a", 0, 4)


def test_caches_stop_growing() -> None:
    uuids, arrays, readers = UuidCache(), EncodedArrays("i", True), ArrayReaders("i", False)
    for number in range(20_000):
        assert uuids[number.to_bytes(16, "big")].int == number
        assert arrays[(number,)] == b"\x02" + number.to_bytes(4, "big")
        readers[number]
    assert len(uuids) <= 8192
    assert len(arrays) <= 4096
    assert len(readers) <= 257


def test_long_arrays_are_not_remembered() -> None:
    arrays = EncodedArrays("h", False)
    assert arrays[tuple(range(1000))][:8] == bytes.fromhex("000003e8 0000 0001")
    assert arrays[None] == b"\xff\xff\xff\xff"
    assert list(arrays) == [None]


def test_zeros_of_either_sign_are_not_mixed_up() -> None:
    arrays = EncodedArrays("d", True)
    assert arrays[(0.0,)] != arrays[(-0.0,)]


@pytest.mark.parametrize(
    ("text", "expected"), [("3+", (3, 32767)), ("0-12", (0, 12)), ("4", (4, 4)), ("none", (1, 0))]
)
def test_version_ranges_are_read_and_written_in_kafkas_notation(text: str, expected: tuple[int, int]) -> None:
    versions = parse_versions(text)
    assert (versions.min, versions.max) == expected
    assert str(versions) == text


def test_version_ranges_behave_like_ranges() -> None:
    versions = VersionRange(3, 5)
    assert list(versions) == [3, 4, 5]
    assert 3 in versions
    assert 6 not in versions
    assert "3" not in versions
    assert versions
    assert not NO_VERSIONS


def test_apis_are_found_by_key_name_and_message() -> None:
    assert api_by_key(3) is api_by_name("Metadata") is api_of(MetadataResponse()) is api_of(MetadataResponse)
    with pytest.raises(KafkaError) as caught:
        api_by_key(4)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(KeyError):
        api_of(ConsumerProtocolAssignment)
