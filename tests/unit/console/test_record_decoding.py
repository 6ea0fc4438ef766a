"""Records with schemas of a registry, decoded to look at: each format, bytes of strangers, and a registry that is away."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from tests.schema_registry import RegistryOfIds, registry_of_ids

from odradek.console.records.decoding import (
    DECODED_BYTES_MAX,
    READ_MAX,
    UNKNOWN_S,
    RecordDecoder,
)
from odradek.runtime.real_clock import SystemClock
from odradek.values.schema_registry import SchemaRegistryTerms

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "raw", "type": ["null", "bytes", "int"]}],
}
LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
NULLS = {"type": "array", "items": "null"}
EMPTY = {"type": "array", "items": {"type": "record", "name": "E", "fields": []}}
PROTO = (
    'syntax = "proto3"; message Order { string item = 1; Inner inner = 2; message Inner { int32 n = 1; } }'
)


class ShiftedClock(SystemClock):
    ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


@pytest.fixture
def registry() -> Iterator[RegistryOfIds]:
    with registry_of_ids() as running:
        yield running


def framed(schema_id: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + body


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


async def test_avro_protobuf_and_json_are_decoded_by_their_schemas(registry: RegistryOfIds) -> None:
    registry.avro(1, ORDER)
    registry.held.schemas[2] = {"schema": PROTO, "schemaType": "PROTOBUF"}
    registry.held.schemas[3] = {"schema": "{}", "schemaType": "JSON"}
    avro = framed(1, written(ORDER, {"item": "чай", "raw": b"\xff"}))
    proto = framed(2, b"\x00" + b"\x0a\x03tea\x12\x02\x08\x05")
    inner = framed(2, b"\x04\x00\x00" + b"\x08\x07")
    json_sr = framed(3, b'{"item": "tea"}')
    decoder = RecordDecoder(registry.terms, SystemClock())
    page = await decoder.page([avro, proto, inner, json_sr, None, b"", b"plain", b"\x00"])
    assert page.problem == ""
    assert json.loads(page.by_content[avro].content) == {"item": "чай", "raw": "\xff"}
    assert json.loads(page.by_content[proto].content) == {"item": "tea", "inner": {"n": 5}}
    assert json.loads(page.by_content[inner].content) == {"n": 7}
    assert page.by_content[json_sr].content == b'{"item": "tea"}'
    assert [page.by_content[content].kind for content in (avro, proto, json_sr)] == [
        "AVRO",
        "PROTOBUF",
        "JSON",
    ]
    assert (page.of(None), page.bytes_of(b"plain")) == (None, b"plain")
    again = await decoder.page([avro])
    assert again.by_content.keys() == {avro}
    assert len(registry.held.requests) == 3, "schemas are read once"


async def test_bytes_that_only_look_framed_cost_a_bounded_number_of_requests(registry: RegistryOfIds) -> None:
    clock = ShiftedClock()
    decoder = RecordDecoder(registry.terms, clock)
    strangers = [framed(100 + number, b"x") for number in range(200)]
    page = await decoder.page(strangers)
    assert (page.by_content, page.problem) == ({}, "")
    assert len(registry.held.requests) == READ_MAX
    registry.held.requests.clear()
    await decoder.page(strangers[:READ_MAX])
    assert registry.held.requests == [], "that there is none is remembered"
    registry.avro(100, "string")
    clock.ahead_s += UNKNOWN_S + 1
    text = framed(100, written("string", "late"))
    assert (await decoder.page([text])).by_content[text].content == b'"late"'


@pytest.mark.parametrize(
    ("schema", "body", "line"),
    [
        (LIST, b"\x02" * 500_000 + b"\x00", "holds itself"),
        (NULLS, b"\x80\x80\x80\x80\x80\x40\x00", "without bytes"),
        (EMPTY, b"\x80\x80\x80\x80\x80\x40\x00", "without bytes"),
        (ORDER, b"\xff\xff\xff\xff\x0f", ""),
        (ORDER, b"", ""),
        ({"type": "array", "items": "int"}, b"\x80\x80\x80\x80\x80\x80\x80\x40", ""),
    ],
)
async def test_hostile_avro_is_shown_as_bytes(
    registry: RegistryOfIds, schema: Any, body: bytes, line: str
) -> None:
    registry.avro(7, schema)
    content = framed(7, body)
    page = await RecordDecoder(registry.terms, SystemClock()).page([content])
    assert page.by_content == {}
    assert "schema 7" in page.problem
    assert line in page.problem


async def test_hostile_protobuf_and_long_values_are_shown_as_bytes(registry: RegistryOfIds) -> None:
    nested = 'syntax = "proto3"; message L { L next = 1; }'
    registry.held.schemas[8] = {"schema": nested, "schemaType": "PROTOBUF"}
    body = b""
    for _ in range(2_000):
        size, head = len(body), bytearray(b"\x0a")
        while size > 127:
            head.append(size & 127 | 128)
            size >>= 7
        body = bytes(head) + bytes([size]) + body
    decoder = RecordDecoder(registry.terms, SystemClock())
    for content in (framed(8, b"\x00" + body), framed(8, b"\x02\x7e"), framed(8, b"")):
        page = await decoder.page([content])
        assert page.by_content == {}
        assert "schema 8" in page.problem
    registry.avro(9, "string")
    long = framed(9, written("string", "x" * DECODED_BYTES_MAX))
    assert (await decoder.page([long])).by_content == {}


async def test_a_registry_that_is_away_is_named_and_none_asks_nothing(registry: RegistryOfIds) -> None:
    terms = registry.terms
    assert (await RecordDecoder(None, SystemClock()).page([framed(1, b"x")])).problem == ""
    away = SchemaRegistryTerms.of("http://127.0.0.1:9")
    page = await RecordDecoder(away, SystemClock()).page([framed(1, b"x")])
    assert "cannot be reached" in page.problem
    assert registry.held.requests == []
    assert terms.url.startswith("http://127.0.0.1:")
