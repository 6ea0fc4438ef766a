"""Conditions on values with a schema: Avro and Protobuf mean what their JSON means, and what is not decoded is counted."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schema_registry import RegistryOfIds, registry_of_ids
from tests.unit.console.test_record_decoding import ORDER, PROTO, ShiftedClock, framed, written

from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.console.records.decoding import DECODED_BYTES_MAX, PAGE_S, READ_MAX, RecordDecoder
from odradek.console.records.filtering import NO_JSON, RecordFilter, parse_condition
from odradek.console.records.masking import MaskRule, RecordMasks
from odradek.console.records.reading import RecordSight
from odradek.records import TimestampType
from odradek.values.formats.protobuf_documents import message_document, proto_documents
from odradek.values.formats.protobuf_schemas import message_class, proto_file
from odradek.values.schema_registry import RegisteredSchema

EVERY_KIND = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message All {
  enum Colour { RED = 0; GREEN = 1; }
  message Inner { sint64 n = 1; repeated string names = 2; Inner again = 3; }
  int32 a = 1; int64 b = 2; uint64 c = 3; float d = 4; double e = 5; bool f = 6; string g = 7; bytes h = 8;
  Colour i = 9; Inner j = 10; repeated Inner k = 11; map<string, int64> l = 12; map<bool, Inner> m = 13;
  google.protobuf.Timestamp n = 14; google.protobuf.Int64Value o = 15; optional int32 p = 16;
  repeated float q = 17; map<int64, bytes> r = 18; repeated Colour s = 19; fixed64 camelCase = 20; oneof t { string u = 21; }
}
"""
FILE = proto_file(RegisteredSchema(id=1, type="PROTOBUF", text=EVERY_KIND))
READ = proto_documents(FILE)
ALL: Any = message_class(FILE.message_at((0,)))
LONG = st.integers(-(2**63), 2**63 - 1)
UNSIGNED = st.integers(0, 2**64 - 1)
FLOAT = st.floats(width=32)
INNER: st.SearchStrategy[dict[str, Any]] = st.deferred(
    lambda: st.fixed_dictionaries(
        {}, optional={"n": LONG, "names": st.lists(st.text(max_size=5), max_size=3), "again": INNER}
    )
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "a": st.integers(-(2**31), 2**31 - 1),
        "b": LONG,
        "c": UNSIGNED,
        "d": FLOAT,
        "e": st.floats(),
        "f": st.booleans(),
        "g": st.text(max_size=5),
        "h": st.binary(max_size=5),
        "i": st.integers(0, 3),
        "j": INNER,
        "k": st.lists(INNER, max_size=3),
        "l": st.dictionaries(st.text(max_size=3), LONG, max_size=3),
        "n": st.fixed_dictionaries({"seconds": st.integers(0, 2**31), "nanos": st.integers(0, 999_999_999)}),
        "o": st.fixed_dictionaries({"value": LONG}),
        "p": st.integers(0, 5),
        "q": st.lists(FLOAT, max_size=3),
        "r": st.dictionaries(LONG, st.binary(max_size=3), max_size=3),
        "s": st.lists(st.integers(0, 1), max_size=3),
        "camelCase": UNSIGNED,
        "u": st.text(max_size=3),
    },
)
LONG_FIELDS = {"b", "c", "camelCase"}


class Letter(NamedTuple):
    """A record with a value."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def as_shown(document: Any, field: str = "") -> Any:
    """Returns a document of Protobuf's JSON mapping with its integers of 64 bits as numbers."""
    if isinstance(document, dict):
        if field == "l":
            return {name: int(value) for name, value in document.items()}
        return {
            name: int(value)
            if name == "n" and isinstance(value, str) and "T" not in value
            else as_shown(value, name)
            for name, value in document.items()
        }
    if isinstance(document, list):
        return [as_shown(element, field) for element in document]
    return int(document) if field in LONG_FIELDS else document


@settings(deadline=None, max_examples=60)
@given(MESSAGES, st.booleans())
def test_a_message_is_what_the_json_mapping_of_protobuf_says_with_long_integers_as_numbers(
    fields: dict[str, Any], flag: bool
) -> None:
    message = ALL(**fields)
    if "j" in fields:
        message.m[flag].CopyFrom(message.j)
    expected = as_shown(json_format.MessageToDict(message, preserving_proto_field_name=True))
    for document in (message_document(message), READ(b"\0" + message.SerializeToString())):
        assert json.dumps(document, sort_keys=True) == json.dumps(expected, sort_keys=True)


@pytest.fixture
def registry() -> Iterator[RegistryOfIds]:
    with registry_of_ids() as running:
        running.avro(1, ORDER)
        running.held.schemas[2] = {"schema": PROTO, "schemaType": "PROTOBUF"}
        running.held.schemas[3] = {"schema": "{}", "schemaType": "JSON"}
        yield running


def matching(decoder: RecordDecoder, condition: str, *values: bytes | None) -> list[bool]:
    documents = decoder.documents()
    test = RecordFilter(condition=parse_condition(condition)).test(documents.document)
    return [test(Letter(value)) for value in values]


def test_a_condition_is_tested_on_avro_protobuf_and_json_alike(registry: RegistryOfIds) -> None:
    decoder = RecordDecoder(registry.terms, ShiftedClock())
    values = (
        framed(1, written(ORDER, {"item": "tea", "raw": 5})),
        framed(1, written(ORDER, {"item": "milk", "raw": b"\xff"})),
        framed(2, b"\x00" + b"\x0a\x03tea\x12\x02\x08\x05"),
        framed(3, b'{"item": "tea"}'),
        b'{"item": "tea"}',
        None,
        b"",
        b"\x00",
    )
    assert matching(decoder, "item = tea", *values) == [True, False, True, True, True, False, False, False]
    assert matching(decoder, "inner.n > 4", *values) == [False, False, True, *[False] * 5]
    assert matching(decoder, "raw = 5", *values)[:2] == [True, False]
    assert matching(decoder, "raw = ÿ", *values)[:2] == [False, True]
    assert len(registry.held.requests) == 3, "schemas are read once"


def test_bytes_in_avro_are_compared_as_they_are_shown(registry: RegistryOfIds) -> None:
    schema = {
        "type": "record",
        "name": "Typed",
        "fields": [
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "code", "type": {"type": "fixed", "name": "F", "size": 2}},
            {"name": "more", "type": {"type": "array", "items": {"type": "map", "values": "bytes"}}},
        ],
    }
    registry.avro(7, schema)
    decoder = RecordDecoder(registry.terms, ShiftedClock())
    value = framed(7, written(schema, {"day": 20_455, "code": b"ab", "more": [{"a": b"x"}, {}]}))
    for condition in ("day >= 20455", "code = ab", "more[0].a = x", "more[*].a ~ X"):
        assert matching(decoder, condition, value) == [True], condition
    shown = json.loads(decoder.decode([value]).by_content[value].content)
    assert decoder.documents().document(value) == shown


def test_what_cannot_be_decoded_matches_nothing_and_is_counted_with_its_reason(
    registry: RegistryOfIds,
) -> None:
    decoder = RecordDecoder(registry.terms, ShiftedClock())
    documents = decoder.documents()
    broken = framed(1, b"\xff\xff\xff\xff\x0f")
    unknown, long = framed(99, b"x"), framed(1, b"\x00" * (DECODED_BYTES_MAX + 1))
    assert [documents.document(value) for value in (broken, unknown, long)] == [NO_JSON] * 3
    assert documents.undecoded == 3
    assert documents.page.problem.startswith("schema 1: ")


def test_a_step_reads_few_schemas_and_none_after_its_time(registry: RegistryOfIds) -> None:
    clock = ShiftedClock()
    decoder = RecordDecoder(registry.terms, clock)
    documents = decoder.documents()
    for number in range(10 * READ_MAX):
        documents.document(framed(1_000 + number, b"x"))
    assert len(registry.held.requests) == READ_MAX
    assert documents.undecoded == 10 * READ_MAX
    late = decoder.documents()
    clock.ahead_s += PAGE_S + 1
    assert late.document(framed(1, written(ORDER, {"item": "tea", "raw": 5}))) is NO_JSON
    assert len(registry.held.requests) == READ_MAX


def test_a_search_sees_no_more_of_a_masked_value_than_its_reader(registry: RegistryOfIds) -> None:
    rule = MaskRule(topics=("pay*",), names=frozenset({"item"}))
    sight = RecordSight(masks=RecordMasks([rule]), decoder=RecordDecoder(registry.terms, ShiftedClock()))
    outcomes = []
    for drink in ("tea", "milk"):
        value = framed(1, written(ORDER, {"item": drink, "raw": 5}))
        record = ConsumerRecord(
            topic="payments", partition=0, offset=0, timestamp_ms=0, timestamp_type=TimestampType.CREATE_TIME,
            key=None, value=value, headers=(), leader_epoch=0,
        )  # fmt: skip
        documents = sight.documents()
        assert documents is not None
        outcomes.append(
            [
                RecordFilter(condition=parse_condition(condition)).test(documents.document)(
                    sight.searched(record, documents)
                )
                for condition in ("item = tea", "item ~ •", "raw = 5")
            ]
        )
    assert outcomes == [[False, True, True]] * 2


def test_bytes_of_protobuf_are_base64_and_floats_short() -> None:
    message = ALL(h=b"\xff\x00", d=0.1, e=float("-inf"))
    assert message_document(message) == {
        "d": 0.1,
        "e": "-Infinity",
        "h": base64.b64encode(b"\xff\x00").decode(),
    }
    assert struct.unpack("<f", struct.pack("<f", 0.1))[0] != 0.1
