"""A schema registry that is hostile or broken: large, endless, deep and malformed answers end in one error, and soon."""

from __future__ import annotations

import json
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.schema_registry import HeldSchemas, schema_registry
from tests.unit.console.test_record_decoding import ShiftedClock, framed

from odradek.console.records.decoding import RecordDecoder
from odradek.values.errors import SqlError
from odradek.values.formats.avro_schemas import check_bounded, parsed_schema
from odradek.values.schema_registry import (
    REFERENCES_MAX,
    RESPONSE_BYTES_MAX,
    KnownSchemas,
    RegisteredSchema,
    SchemaRegistry,
    SchemaRegistryError,
    SchemaRegistryTerms,
    registry_of,
)

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextmanager
def raw_registry(write: Callable[[socket.socket], None]) -> Iterator[SchemaRegistryTerms]:
    """Writes the same to every client that connects."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                try:
                    peer.recv(65_536)
                    write(peer)
                except OSError:
                    continue

    thread = threading.Thread(target=serve, name="raw-registry", daemon=True)
    thread.start()
    try:
        yield SchemaRegistryTerms.of(f"http://127.0.0.1:{listener.getsockname()[1]}")
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def with_body(body: bytes) -> Callable[[socket.socket], None]:
    return lambda peer: peer.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"5",
        b"{}",
        b'{"schema": 5}',
        b'{"schema": "\\"int\\"", "schemaType": [1]}',
        b'{"schema": "\\"int\\"", "references": 5}',
        b'{"schema": "\\"int\\"", "references": [5]}',
        b'{"schema": "\\"int\\"", "references": [{"name": "a", "subject": 1, "version": 1}]}',
        b'{"schema": "\\"int\\"", "references": [{"name": "a", "subject": "s", "version": "1/../../x"}]}',
        b"[" * 100_000,
    ],
)
def test_an_answer_that_is_no_schema_is_one_error_and_a_page_says_so(body: bytes) -> None:
    with raw_registry(with_body(body)) as terms:
        with pytest.raises(SchemaRegistryError):
            SchemaRegistry(terms).by_id(1)
        page = RecordDecoder(terms, ShiftedClock()).decode([framed(1, b"x")])
    assert page.problem.startswith("schema 1: ")


def test_an_answer_without_end_is_not_kept() -> None:
    sent = 0

    def flood(peer: socket.socket) -> None:
        nonlocal sent
        peer.sendall(HEAD + b"Connection: close\r\n\r\n")
        while sent < 64 * RESPONSE_BYTES_MAX:
            sent += peer.send(b" " * 65_536)

    with raw_registry(flood) as terms, pytest.raises(SchemaRegistryError, match="more than"):
        SchemaRegistry(terms).by_id(1)
    assert sent < 8 * RESPONSE_BYTES_MAX, "the rest stays in the registry"


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n", HEAD + b"Content-Length: 1000000\r\n\r\n"])
def test_an_answer_that_drips_ends_with_the_time_for_all_of_it(head: bytes) -> None:
    left = threading.Event()

    def drip(peer: socket.socket) -> None:
        peer.sendall(head)
        try:
            while not left.wait(0.02):
                peer.sendall(b"x")
        except OSError:
            left.set()  # the client has left

    with raw_registry(drip) as terms:
        with pytest.raises(SchemaRegistryError, match="did not answer within"):
            SchemaRegistry(terms, answer_s=0.2).by_id(1)
        assert left.wait(10)


def test_references_that_multiply_are_read_once_each_and_have_a_limit() -> None:
    held = HeldSchemas()
    parts: list[dict[str, Any]] = []
    for depth in range(12):
        record = json.dumps({"type": "record", "name": f"L{depth}", "fields": [{"name": "a", "type": "int"}]})
        held.register(f"l{depth}", record, references=parts)
        parts = [{"name": f"L{depth}-{number}", "subject": f"l{depth}", "version": 1} for number in range(6)]
    top = held.register("top", '"int"', references=parts)
    with schema_registry(held) as url:
        schema = SchemaRegistry(SchemaRegistryTerms.of(url)).by_id(top)
        assert len(held.requests) == 13
        assert [part.id for part in schema.all_references()] == list(range(1, 13))
        many = [{"name": f"n{number}", "subject": "l0", "version": 1} for number in range(REFERENCES_MAX + 1)]
        wide = held.register("wide", '"long"', references=many)
        with pytest.raises(SchemaRegistryError, match="references"):
            SchemaRegistry(SchemaRegistryTerms.of(url)).by_id(wide)


class SlowClock(ShiftedClock):
    """A clock by which every look takes ten seconds."""

    def monotonic(self) -> float:
        self.ahead_s += 10.0
        return super().monotonic()


def test_references_that_take_long_end_with_the_time_for_all_of_them() -> None:
    held = HeldSchemas()
    parts = [{"name": f"n{number}", "subject": f"s{number}", "version": 1} for number in range(10)]
    for number in range(10):
        held.register(f"s{number}", json.dumps({"type": "fixed", "name": f"F{number}", "size": 1}))
    top = held.register("top", '"int"', references=parts)
    with schema_registry(held) as url:
        registry = SchemaRegistry(SchemaRegistryTerms.of(url), clock=SlowClock())
        with pytest.raises(SchemaRegistryError, match="was not read within 30 s"):
            registry.by_id(top)
    assert len(held.requests) < 5


def test_schemas_that_are_not_used_for_long_are_forgotten() -> None:
    def numbered(peer: socket.socket) -> None:
        with_body(b'{"schema": "\\"int\\""}')(peer)

    with raw_registry(numbered) as terms:
        registry = SchemaRegistry(terms, KnownSchemas(known_max=3))
        for number in (1, 2, 3, 1, 4):
            registry.by_id(number)
        assert [number for number in range(6) if registry.knows(number)] == [1, 3, 4]


def test_a_registry_goes_to_another_process_by_its_terms() -> None:
    terms = SchemaRegistryTerms.of("http://127.0.0.1:1")
    assert pickle.loads(pickle.dumps(registry_of(terms))) is registry_of(terms)


def test_long_schemas_are_forgotten_before_they_fill_the_memory() -> None:
    known = KnownSchemas(characters_max=100)
    for number in (1, 2, 3):
        known.keep(RegisteredSchema(id=number, type="AVRO", text="x" * 40))
        known.keep(RegisteredSchema(id=number, type="AVRO", text="x" * 40))
    assert [number for number in (1, 2, 3) if number in known] == [2, 3]


def test_records_without_bytes_do_not_multiply() -> None:
    """Each record holds the one before twice: forty of them are a million million values in no byte."""
    schema: dict[str, Any] = {"type": "record", "name": "R0", "fields": []}
    for number in range(1, 41):
        twice = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{number - 1}"}]
        schema = {"type": "record", "name": f"R{number}", "fields": twice}
    with pytest.raises(SqlError, match="without bytes"):
        check_bounded(parsed_schema(json.dumps(schema), "R"))
    wide = [{"name": f"f{number}", "type": "null"} for number in range(100_000)]
    with pytest.raises(SqlError, match="without bytes"):
        check_bounded(parsed_schema(json.dumps({"type": "record", "name": "W", "fields": wide}), "W"))
    usual = {
        "type": "record",
        "name": "U",
        "fields": [*wide[:20], {"name": "e", "type": {"type": "array", "items": "int"}}],
    }
    check_bounded(parsed_schema(json.dumps(usual), "U"))
