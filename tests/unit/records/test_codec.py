"""Compression that every client reads, decompression that trusts no one."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import zlib

import cramjam
import lz4.frame
import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import Codec, Limits, compress, decompress, zstd

PACKING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(b"a record, number %d; " % number for number in range(20_000))
SMALL = Limits(decompressed_bytes_max=1 << 20, ratio_max=50, ratio_free_bytes=1 << 16)


def _refused(codec: Codec, data: bytes, limits: Limits = SMALL) -> None:
    with pytest.raises(KafkaError) as caught:
        decompress(codec, data, limits)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", [0, 1, 100, 32 << 10, (32 << 10) + 1, len(TEXT)])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_was_compressed_comes_back(codec: Codec, size: int, kind: type) -> None:
    packed = compress(codec, kind(TEXT[:size]))
    assert bytes(decompress(codec, kind(packed))) == TEXT[:size]


def test_levels_are_passed_on() -> None:
    for codec, low, high in ((Codec.GZIP, 1, 9), (Codec.LZ4, 0, 9), (Codec.ZSTD, 1, 15)):
        assert compress(codec, TEXT, high) != compress(codec, TEXT, low)


def test_codecs_have_kafka_s_names() -> None:
    names = ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [Codec.from_name(name) for name in names] == list(Codec)
    assert Codec.from_name("uncompressed") is Codec.NONE
    with pytest.raises(ValueError, match="brotli"):
        Codec.from_name("brotli")


def test_lz4_goes_out_as_independent_blocks() -> None:
    version_and_flags = compress(Codec.LZ4, TEXT)[4]
    assert version_and_flags >> 6 == 1
    assert version_and_flags & 0x20, "the Java client refuses blocks that depend on each other"


def test_snappy_goes_out_in_xerial_framing() -> None:
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    first_bytes = struct.unpack_from(">i", packed, 16)[0]
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first_bytes])) == TEXT[: 32 << 10]


def test_snappy_without_framing_is_read() -> None:
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)))) == TEXT


@pytest.fixture(params=["zstandard", "cramjam"])
def zstd_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to zstd, with and without the library that keeps contexts."""
    if request.param == "cramjam":
        monkeypatch.setattr(zstd, "zstd_library", lambda: None)
    elif zstd.zstd_library() is None:
        pytest.skip("zstandard is not installed")
    return str(request.param)


@pytest.mark.usefixtures("zstd_library")
def test_zstd_tells_its_content_size() -> None:
    for size in (1, 255, 256, 70_000, len(TEXT)):
        packed = compress(Codec.ZSTD, TEXT[:size])
        assert zstd.declared_bytes(packed) == size
        assert bytes(decompress(Codec.ZSTD, packed)) == TEXT[:size]


@pytest.mark.usefixtures("zstd_library")
def test_zstd_without_content_size_is_read() -> None:
    stream = cramjam.zstd.Compressor()
    for start in range(0, len(TEXT), 1000):
        stream.compress(TEXT[start : start + 1000])
    packed = bytes(stream.finish())
    assert zstd.declared_bytes(packed) is None, "the test needs a frame that does not tell its size"
    assert bytes(decompress(Codec.ZSTD, packed)) == TEXT
    _refused(Codec.ZSTD, packed, Limits(decompressed_bytes_max=len(TEXT) - 1))
    assert len(decompress(Codec.ZSTD, packed, Limits(decompressed_bytes_max=len(TEXT)))) == len(TEXT)


@pytest.mark.usefixtures("zstd_library")
def test_several_zstd_frames_are_read_as_one_within_the_limit() -> None:
    packed = compress(Codec.ZSTD, TEXT) + compress(Codec.ZSTD, b"tail")
    assert bytes(decompress(Codec.ZSTD, packed)) == TEXT + b"tail"
    _refused(Codec.ZSTD, packed, Limits(decompressed_bytes_max=len(TEXT) + 3))


@pytest.mark.usefixtures("zstd_library")
def test_zstd_that_is_damaged_is_refused() -> None:
    packed = compress(Codec.ZSTD, TEXT[:2000])
    for data in (
        packed[:-1],
        packed[:7],
        packed + b"\0",
        packed[:20] + b"\xff\xff" + packed[22:],
        b"\0" * 30,
    ):
        _refused(Codec.ZSTD, data)


def test_several_gzip_members_are_read_as_one() -> None:
    packed = compress(Codec.GZIP, TEXT) + compress(Codec.GZIP, b"tail")
    assert bytes(decompress(Codec.GZIP, packed)) == TEXT + b"tail"


@pytest.mark.parametrize("codec", PACKING)
def test_data_cut_short_is_refused(codec: Codec) -> None:
    packed = compress(codec, TEXT[:2000])
    for length in range(1, len(packed)):
        if codec is Codec.SNAPPY and length == 16:
            continue  # a framed stream of no blocks is whole
        _refused(codec, packed[:length])


@pytest.mark.parametrize("codec", PACKING)
@pytest.mark.parametrize("tail", [b"\0", b"\xff" * 8, b"junk that is longer than any header could be"])
def test_bytes_behind_the_data_are_refused(codec: Codec, tail: bytes) -> None:
    _refused(codec, compress(codec, TEXT[:2000]) + tail)


@pytest.mark.parametrize("codec", PACKING)
@pytest.mark.parametrize("data", [b"\0", b"\xff" * 64, b"nothing of the kind", bytes(100)])
def test_what_is_not_compressed_data_is_refused(codec: Codec, data: bytes) -> None:
    if codec is Codec.SNAPPY and data == b"\0":
        pytest.skip("this is how snappy writes nothing")
    _refused(codec, data)


@pytest.mark.parametrize("codec", PACKING)
def test_the_absolute_limit_is_exact(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert len(decompress(codec, packed, Limits(decompressed_bytes_max=len(TEXT)))) == len(TEXT)
    _refused(codec, packed, Limits(decompressed_bytes_max=len(TEXT) - 1))


@pytest.mark.parametrize("codec", PACKING)
def test_the_ratio_limits_only_what_is_beyond_the_free_bytes(codec: Codec) -> None:
    free = Limits(ratio_max=1, ratio_free_bytes=len(TEXT))
    assert len(decompress(codec, compress(codec, TEXT), free)) == len(TEXT)
    _refused(codec, compress(codec, TEXT), Limits(ratio_max=1, ratio_free_bytes=len(TEXT) - 1))


BOMB_PROGRAM = """
import resource, sys
from odradek.model.errors import KafkaError
from odradek.records import Codec, Limits, compress, decompress
codec = Codec(int(sys.argv[1]))
decompress(codec, compress(codec, b"warm up"))
bomb = compress(codec, bytes(256 << 20))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (48 << 20), used + (48 << 20)))
try:
    decompress(codec, bomb, Limits(decompressed_bytes_max=4 << 20))
except KafkaError as error:
    print(error.code.name)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("codec", PACKING)
def test_a_bomb_is_refused_in_memory_that_could_not_hold_it(codec: Codec, record_engine: str) -> None:
    if record_engine == "plain":
        pytest.skip("codecs are the same for both engines")
    command = [sys.executable, "-c", BOMB_PROGRAM, str(int(codec))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("INVALID_RECORD", "")


@pytest.mark.parametrize("tells_size", [True, False])
@pytest.mark.parametrize("size", [1, 1000, 64 << 10, (64 << 10) + 1, len(TEXT)])
def test_lz4_limits_are_exact_whether_or_not_a_frame_tells_its_size(tells_size: bool, size: int) -> None:
    frame = lz4.frame.compress(TEXT[:size], store_size=tells_size)
    assert bytes(decompress(Codec.LZ4, frame, Limits(decompressed_bytes_max=size))) == TEXT[:size]
    _refused(Codec.LZ4, frame, Limits(decompressed_bytes_max=size - 1))


def test_a_snappy_block_that_claims_the_impossible_is_refused_unread() -> None:
    generous = Limits(decompressed_bytes_max=1 << 40, ratio_free_bytes=1 << 40)
    _refused(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\0" * 20, generous)
    _refused(Codec.SNAPPY, b"\xff\xff\xff\xff\xff\x01" + b"\0" * 20, generous)
    _refused(Codec.SNAPPY, b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, -1) + b"\0" * 20, generous)
    _refused(Codec.SNAPPY, b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 2**31 - 1) + b"\0" * 20, generous)
    _refused(Codec.SNAPPY, b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"\0\0\0", generous)


def test_a_zstd_frame_that_declares_too_much_is_refused_unread() -> None:
    declared = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2**62) + b"\x01\0\0"
    _refused(Codec.ZSTD, declared)


@pytest.mark.parametrize("codec", PACKING)
def test_frames_by_other_writers_are_read(codec: Codec) -> None:
    frames = {
        Codec.GZIP: [gzip.compress(TEXT), zlib.compress(TEXT, 1, wbits=31)],
        Codec.SNAPPY: [bytes(cramjam.snappy.compress_raw(TEXT))],
        Codec.LZ4: [
            bytes(cramjam.lz4.compress(TEXT)),
            lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True, store_size=False),
        ],
        Codec.ZSTD: [bytes(cramjam.zstd.compress(TEXT, 19))],
    }
    for frame in frames[codec]:
        assert bytes(decompress(codec, frame)) == TEXT


def test_no_codec_library_is_imported_before_it_is_needed() -> None:
    program = (
        "import sys, odradek.records\n"
        "heavy = {'cramjam', 'zstandard', 'lz4', 'lz4.frame', 'pyarrow', 'importlib.metadata', 'Cython', 'cython'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or None)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_of_many_gzip_members_each_byte_is_given_to_zlib_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_bytes = 0
    make = zlib.decompressobj

    class Counting:
        def __init__(self, wbits: int) -> None:
            self._inner = make(wbits)

        def decompress(self, data: bytes, max_length: int) -> bytes:
            nonlocal given_bytes
            given_bytes += len(data)
            return self._inner.decompress(data, max_length)

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    packed = compress(Codec.GZIP, b"") * 5000 + compress(Codec.GZIP, TEXT)
    assert bytes(decompress(Codec.GZIP, packed)) == TEXT
    assert given_bytes < 5001 * 1024 + 3 * len(packed)


def test_empty_gzip_members_and_snappy_blocks_count_against_what_is_allowed() -> None:
    block = struct.pack(">i", 1) + b"\0"
    framing = compress(Codec.SNAPPY, b"")
    for codec, few, many in (
        (Codec.GZIP, compress(Codec.GZIP, b"") * 60, compress(Codec.GZIP, b"") * 70),
        (Codec.SNAPPY, framing + block * 120, framing + block * 140),
    ):
        assert bytes(decompress(codec, few, SMALL)) == b""
        _refused(codec, many)
