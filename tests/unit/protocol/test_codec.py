"""The codec's rules, on messages declared for the purpose."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest

from odradek.model.errors import ErrorCode
from odradek.protocol import (
    Buffer,
    FieldNotInVersion,
    MalformedMessage,
    Message,
    Struct,
    UnencodableMessage,
    UnknownVersion,
    decode,
    encode,
    encode_chunks,
)
from odradek.protocol.compiled import source_of
from odradek.protocol.decoder import STRING_BYTES_MAX
from odradek.protocol.messages.data.fetch import FetchResponse
from odradek.protocol.messages.metadata.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.schema import array, boolean, bytestring, int8, int16, int32, record_set, string, uuid
from odradek.protocol.schema import struct as nested
from odradek.protocol.wire import TAGS_MAX


class Point(Struct):
    x: int = int16("0+")
    y: int = int16("1+", default=-1)


class Everything(Message, versions="0-2", flexible="2+"):
    flag: bool = boolean("0+")
    small: int = int8("0+", default=7)
    dropped: int = int32("1+", ignorable=True)
    kept: int = int32("1+")
    text: str | None = string("0+", nullable="1+")
    blob: bytes | None = bytestring("0+", nullable="1+")
    numbers: list[int] = array(int32, "0+")
    words: list[str] | None = array(string, "0+", nullable="1+")
    points: list[Point] = array(Point, "0+")
    maybe: Point | None = nested(Point, "1+", nullable="1+", default=None)
    ident: UUID = uuid("2+", ignorable=True)
    records: Buffer | None = record_set("0+", nullable="0+")
    tagged_text: str | None = string("2+", nullable="2+", default=None, tag=0)
    tagged_point: Point = nested(Point, "2+", tag=1)
    tagged_list: list[Point] = array(Point, "2+", tag=2)


IDENT = UUID("00112233-4455-6677-8899-aabbccddeeff")


def test_the_layout_of_a_non_flexible_version() -> None:
    message = Everything(
        flag=True,
        text="hi",
        blob=b"\xaa",
        numbers=[1, 2],
        words=["a"],
        points=[Point(x=3)],
        records=b"\xbb\xcc",
    )
    assert encode(message, 0) == bytes.fromhex(
        "01 07 0002 6869 00000001 aa 00000002 00000001 00000002 00000001 0001 61 00000001 0003 00000002 bbcc"
    )


def test_nulls_of_a_non_flexible_version() -> None:
    message = Everything(text=None, blob=None, words=None)
    encoded = encode(message, 1)
    assert encoded == bytes.fromhex(
        "00 07 00000000 00000000 ffff ffffffff 00000000 ffffffff 00000000 ff ffffffff"
    )
    assert decode(Everything, 1, encoded) == (message, len(encoded))


def test_the_layout_of_a_flexible_version() -> None:
    message = Everything(
        flag=True, text="hi", blob=b"\xaa", numbers=[1, 2], words=["a"], points=[Point(x=3, y=4)],
        maybe=Point(x=5, y=6), ident=IDENT, records=b"\xbb\xcc",
    )  # fmt: skip
    assert encode(message, 2) == bytes.fromhex(
        "01 07 00000000 00000000 03 6869 02 aa 03 00000001 00000002 02 02 61 02 0003 0004 00"
        "01 0005 0006 00 00112233445566778899aabbccddeeff 03 bbcc 00"
    )


def test_tagged_fields_are_written_in_the_order_of_their_tags_and_only_when_set() -> None:
    bare = encode(Everything(), 2)
    full = Everything(tagged_text="t", tagged_point=Point(x=1), tagged_list=[Point(x=2, y=3)])
    encoded = encode(full, 2)
    assert bare[-1:] == b"\0"
    assert encoded == bare[:-1] + bytes.fromhex("03 00 02 02 74 01 05 0001 ffff 00 02 06 02 0002 0003 00")
    assert decode(Everything, 2, encoded) == (full, len(encoded))


def test_a_struct_equal_to_the_default_counts_as_not_set() -> None:
    assert encode(Everything(tagged_point=Point()), 2) == encode(Everything(), 2)


def test_unknown_tagged_fields_are_stepped_over() -> None:
    bare = encode(Everything(), 2)
    stranger = bytes.fromhex("02 01 05 0001 ffff 00 63 03 aabbcc")
    decoded, end = decode(Everything, 2, bare[:-1] + stranger)
    assert decoded == Everything(tagged_point=Point(x=1))
    assert end == len(bare) - 1 + len(stranger)
    inside = encode(Everything(maybe=Point(x=1, y=2)), 2).replace(
        b"\1\0\1\0\2\0", b"\1\0\1\0\2" + bytes.fromhex("01 07 02 abcd")
    )
    assert decode(Everything, 2, inside)[0].maybe == Point(x=1, y=2)


def test_fields_that_a_version_lacks_are_dropped_if_ignorable_and_refused_otherwise() -> None:
    assert decode(Everything, 0, encode(Everything(dropped=5, ident=IDENT), 0))[0] == Everything()
    with pytest.raises(FieldNotInVersion, match=r"Everything.kept cannot be sent in version 0") as caught:
        encode(Everything(kept=5), 0)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(FieldNotInVersion, match=r"Everything.points\[1\].y"):
        encode(Everything(points=[Point(), Point(y=3)]), 0)
    with pytest.raises(FieldNotInVersion, match=r"Everything.tagged_list"):
        encode(Everything(tagged_list=[Point()]), 1)


def test_lengths_of_two_bytes_in_compact_form() -> None:
    message = Everything(
        text="t" * 127,
        blob=b"b" * 16384,
        numbers=list(range(200)),
        words=["w"] * 130,
        points=[Point(x=1, y=1)] * 128,
    )
    encoded = encode(message, 2)
    assert b"\x80\x01" + b"t" * 127 in encoded
    assert b"\x81\x80\x01" + b"b" * 16384 in encoded
    assert decode(Everything, 2, encoded) == (message, len(encoded))


def test_records_are_slices_of_the_frame_and_other_bytes_are_copies() -> None:
    frame = bytearray(encode(Everything(blob=b"blob", records=b"records"), 2))
    decoded, _ = decode(Everything, 2, memoryview(frame))
    assert isinstance(decoded.records, memoryview)
    assert isinstance(decoded.blob, bytes)
    decoded.records[0:1] = b"R"
    assert b"Records" in frame


def test_only_large_records_are_chunks_of_their_own() -> None:
    small, large = b"s" * 16383, b"l" * 16384
    assert len(encode_chunks(Everything(records=small), 2)) == 1
    before, records, after = encode_chunks(Everything(records=large), 2)
    assert records is large
    assert before + records + after == encode(Everything(records=large), 2)


def test_a_version_that_does_not_exist_is_refused_both_ways() -> None:
    with pytest.raises(UnknownVersion, match="Everything has no version 3"):
        encode(Everything(), 3)
    with pytest.raises(UnknownVersion) as caught:
        decode(Everything, -1, b"")
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("message", "version", "path"),
    [
        (Everything(small=200), 2, "Everything.small"),
        (Everything(text=None), 0, "Everything.text"),
        (Everything(text=5), 2, "Everything.text"),  # type: ignore[arg-type]
        (Everything(numbers=[1, 2**31]), 2, "Everything.numbers"),
        (Everything(points=[Point(), Point(x="no")]), 2, r"Everything.points\[1\].x"),  # type: ignore[arg-type]
        (Everything(words=["a", None]), 1, r"Everything.words\[1\]"),  # type: ignore[list-item]
        (Everything(text="x" * 40_000), 1, "Everything.text"),
        (Everything(text="\ud800"), 1, "Everything.text"),
        (Everything(ident=None), 2, "Everything.ident"),  # type: ignore[arg-type]
        (Everything(points=None), 2, "Everything.points"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_does_not_fit_is_named_by_its_path(message: Message, version: int, path: str) -> None:
    with pytest.raises(UnencodableMessage, match=f"^{path}: "):
        encode(message, version)


def malformed(cls: type[Message], version: int, text: str) -> tuple[str, int, str]:
    with pytest.raises(MalformedMessage) as caught:
        decode(cls, version, bytes.fromhex(text))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert caught.value.__context__ is None, "the frame must not be kept alive by the error"
    return caught.value.path, caught.value.position, caught.value.problem


def test_what_is_wrong_is_named_with_path_position_and_reason() -> None:
    assert malformed(MetadataRequest, 4, "") == ("MetadataRequest.topics", 0, "the message ends here")
    assert malformed(MetadataRequest, 4, "00000002 0001 61 0009 62") == (
        "MetadataRequest.topics[1].name", 9, "9 bytes announced, 1 left",
    )  # fmt: skip
    assert malformed(MetadataRequest, 4, "00000001 0002 61ff 00") == (
        "MetadataRequest.topics[0].name", 6, "a string is not valid UTF-8",
    )  # fmt: skip
    assert malformed(MetadataRequest, 4, "00000001 ffff 00") == (
        "MetadataRequest.topics[0].name", 6, "null where a value is required",
    )  # fmt: skip
    assert malformed(MetadataRequest, 0, "ffffffff") == (
        "MetadataRequest.topics", 4, "null where an array is required",
    )  # fmt: skip
    assert malformed(MetadataRequest, 4, "7fffffff 0001 61") == (
        "MetadataRequest.topics", 4, "2147483647 elements cannot fit into 3 bytes",
    )  # fmt: skip
    assert malformed(MetadataRequest, 9, "808080808001 00") == (
        "MetadataRequest.topics", 1, "a varint is longer than five bytes",
    )  # fmt: skip
    assert malformed(MetadataRequest, 9, "ffffffff0f 00") == (
        "MetadataRequest.topics", 1, "a varint is above 2**31-1",
    )  # fmt: skip


def test_the_place_within_a_run_of_numbers_is_found() -> None:
    message = FetchResponse(throttle_time_ms=1, error_code=2, session_id=3)
    cut = encode(message, 7)[: 4 + 2 + 3]
    assert malformed(FetchResponse, 7, cut.hex()) == ("FetchResponse.session_id", 6, "the message ends here")


def test_a_tagged_field_must_fill_its_size_and_stay_within_the_message() -> None:
    bare = encode(Everything(), 2)[:-1].hex()
    assert (
        malformed(Everything, 2, bare + "01 01 06 0001 ffff 00 00")[2]
        == "a tagged field does not fill its size"
    )
    assert (
        malformed(Everything, 2, bare + "01 01 04 0001 ffff 00")[2] == "a tagged field does not fill its size"
    )
    assert malformed(Everything, 2, bare + "01 63 05 00")[2] == "a tagged field reaches past the end"
    assert malformed(Everything, 2, bare + "05 63")[2] == "the message ends here"


def test_more_tagged_fields_than_any_struct_has_are_refused_known_or_not() -> None:
    unknown = "63 00"
    known = encode(Everything(), 2)[:-1].hex()
    allowed, too_many = f"{TAGS_MAX:02x}", f"{TAGS_MAX + 1:02x}"
    decode(Everything, 2, bytes.fromhex(known + allowed + unknown * TAGS_MAX))
    refused = malformed(Everything, 2, known + too_many + unknown * (TAGS_MAX + 1))
    assert refused[2] == f"{TAGS_MAX + 1} tagged fields in one place"
    none_known = encode(MetadataRequest(topics=[]), 12)[:-1].hex()
    decode(MetadataRequest, 12, bytes.fromhex(none_known + allowed + unknown * TAGS_MAX))
    refused = malformed(MetadataRequest, 12, none_known + too_many + unknown * (TAGS_MAX + 1))
    assert refused[2] == f"{TAGS_MAX + 1} tagged fields in one place"


@pytest.mark.parametrize("version", [2, 1], ids=["flexible", "not flexible"])
def test_a_string_has_at_most_32767_bytes_in_every_version(version: int) -> None:
    longest = Everything(text="x" * STRING_BYTES_MAX)
    assert decode(Everything, version, encode(longest, version))[0] == longest
    encoded = encode(Everything(text="x" * 300), version).hex()
    before = "ad02" if version == 2 else "012c"
    assert encoded.count(before + "7878") == 1
    if version == 2:
        one_more = encoded.replace(before + "78" * 300, "818002" + "78" * (STRING_BYTES_MAX + 1))
        assert malformed(Everything, version, one_more)[2] == f"a string of {STRING_BYTES_MAX + 1} bytes"
    else:  # what would be one more is negative
        one_more = encoded.replace(before + "78" * 300, "8000" + "78" * (STRING_BYTES_MAX + 1))
        with pytest.raises(MalformedMessage):
            decode(Everything, version, bytes.fromhex(one_more))


def test_records_may_not_reach_past_the_end() -> None:
    path, _, problem = malformed(
        FetchResponse, 4, "00000000 00000001 0001 74 00000001" + "00" * 22 + "ffffffff 00000064"
    )
    assert (path, problem) == (
        "FetchResponse.responses[0].partitions[0].records",
        "100 bytes announced, 0 left",
    )


def test_compiled_source_is_readable_and_appears_in_tracebacks() -> None:
    import linecache

    text = source_of(MetadataRequest, 4, "decode")
    decode(MetadataRequest, 4, struct.pack(">ib", 0, 1))
    assert linecache.getlines("<odradek decode MetadataRequest v4>") == text.splitlines(keepends=True)


def test_a_null_topic_list_differs_from_an_empty_one() -> None:
    assert encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    assert encode(MetadataRequest(topics=[]), 1) == b"\0\0\0\0"
    assert decode(MetadataRequest, 9, b"\0\1\0\0\0")[0].topics is None
    assert decode(MetadataRequest, 9, b"\1\1\0\0\0")[0].topics == []
    assert decode(MetadataRequest, 9, b"\2\2a\0\1\0\0\0")[0].topics == [MetadataRequestTopic(name="a")]


def test_two_messages_of_one_name_do_not_mix_up_their_errors() -> None:
    def declared(count: int) -> type[Message]:
        fields = {f"field_{number}": string("0") for number in range(count)}
        body = {**fields, "__module__": f"{__name__}.{count}"}
        return type("Twin", (Message,), body, versions="0", flexible="none")

    short, long = declared(1), declared(5)
    for cls, size in ((long, 10), (short, 2)):
        decode(cls, 0, bytes(size))
    for cls, size, field in ((long, 9, "field_4"), (short, 1, "field_0")):
        with pytest.raises(MalformedMessage, match=f"Twin.{field}"):
            decode(cls, 0, bytes(size))
