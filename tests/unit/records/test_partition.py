"""The hash that all producers share."""

from __future__ import annotations

import kafka.partitioner.default as peer
import pytest

from odradek.records import murmur2, partition_of

JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", JAVA_HASHES)
def test_the_hash_is_java_s(key: bytes) -> None:
    assert murmur2(key) == JAVA_HASHES[key]


def test_keys_of_every_length_hash_as_a_peer_hashes_them() -> None:
    for length in range(70):
        key = bytes((7 * number + 200) & 0xFF for number in range(length))
        assert murmur2(key) & 0xFFFF_FFFF == peer.murmur2(key) & 0xFFFF_FFFF
        assert partition_of(key, 13) == (peer.murmur2(key) & 0x7FFF_FFFF) % 13


def test_the_sign_bit_is_cleared_not_negated() -> None:
    assert murmur2(b"21") < 0
    assert partition_of(b"21", 1_000_000) == (-973932308 & 0x7FFF_FFFF) % 1_000_000
