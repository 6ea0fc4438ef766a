"""Avro, Protobuf and JSON with a schema as JSON to look at, and as documents to search: records with Confluent's framing whose
schema a registry has.

Bytes and ids come from strangers: sizes, unknown ids and time are bounded, and what cannot be decoded is shown as bytes.
Everything blocks, and runs on a thread.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

from odradek.console.records.filtering import JSON_BYTES_MAX, NO_JSON, json_of
from odradek.model.errors import OdradekError
from odradek.runtime.ports import Clock
from odradek.values.errors import SqlError
from odradek.values.formats.avro_format import parsed_registered
from odradek.values.formats.avro_schemas import check_bounded
from odradek.values.formats.avro_values import avro_documents
from odradek.values.formats.framing import framed
from odradek.values.formats.protobuf_documents import proto_documents
from odradek.values.formats.protobuf_schemas import proto_file
from odradek.values.schema_registry import RegisteredSchema, SchemaRegistryTerms, UnknownSchemaId, registry_of

DECODED_BYTES_MAX: Final = 1 << 20
"""A longer value is shown as bytes."""
SCHEMAS_MAX: Final = 500
UNKNOWN_S: Final = 30.0
"""A schema that the registry did not have, or that cannot be used, is asked for again after this."""
READ_MAX: Final = 20
"""The number of schemas that are read for one page."""
PAGE_S: Final = 4.0
"""The time for one page; what is not decoded by then is shown as bytes."""
AT_ONCE: Final = 2


class DecodedContent(NamedTuple):
    """A key or value as JSON, and the schema that it was decoded with."""

    content: bytes
    kind: str
    """`AVRO`, `PROTOBUF` or `JSON`."""
    schema_id: int


@dataclass(slots=True)
class _Reader:
    """How records of one schema are read, or why they are not."""

    kind: str = ""
    document: Callable[[bytes], object] | None = None
    """Returns what `read` would have written as JSON. Raises ValueError for other bytes."""
    read: Callable[[bytes], bytes] | None = None
    until_s: float = 0.0
    """The time until which a schema that is not usable is left alone."""


@dataclass(slots=True)
class DecodedPage:
    """What was decoded for one page, by content, and why some was not."""

    by_content: dict[bytes, DecodedContent] = field(default_factory=dict)
    problem: str = ""

    def of(self, content: bytes | None) -> DecodedContent | None:
        """Returns the decoded form; None for bytes that are shown as they are."""
        return None if content is None else self.by_content.get(content)

    def bytes_of(self, content: bytes | None) -> bytes | None:
        """Returns the decoded form, or else the bytes."""
        decoded = self.of(content)
        return content if decoded is None else decoded.content


class RecordDecoder:
    """Decodes for all users of a console: schemas are no secrets of the cluster. `terms` is None without a registry."""

    def __init__(self, terms: SchemaRegistryTerms | None, clock: Clock) -> None:
        self._terms = terms
        self._clock = clock
        self._readers: OrderedDict[int, _Reader] = OrderedDict()
        self._lock = threading.Lock()
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def page(self, contents: Sequence[bytes | None]) -> DecodedPage:
        """Decodes what it can of these keys and values."""
        if self._terms is None or not any(content and framed(content) for content in contents):
            return DecodedPage()
        async with self._slots:
            return await asyncio.to_thread(self._page, contents)

    def decode(self, contents: Sequence[bytes | None]) -> DecodedPage:
        """Decodes on the calling thread."""
        return DecodedPage() if self._terms is None else self._page(contents)

    def _page(self, contents: Sequence[bytes | None]) -> DecodedPage:
        page, deadline_s, reads = DecodedPage(), self._clock.monotonic() + PAGE_S, 0
        for content in contents:
            head = framed(content) if content and len(content) <= DECODED_BYTES_MAX else None
            if content is None or head is None or content in page.by_content:
                continue
            schema_id, body = head
            if self._clock.monotonic() > deadline_s:
                break
            reader = self._known(schema_id)
            if reader is None and reads < READ_MAX:
                reads += 1
                reader = self._made(schema_id, page)
            if reader is not None and reader.read is not None:
                try:
                    page.by_content[content] = DecodedContent(reader.read(body), reader.kind, schema_id)
                except (ValueError, RecursionError) as error:
                    page.problem = page.problem or f"schema {schema_id}: {error!s:.200}"
        return page

    def documents(self) -> DocumentReader:
        """Returns a reader of values for one step of a search."""
        return DocumentReader(self, self._clock.monotonic() + PAGE_S)

    @property
    def has_registry(self) -> bool:
        return self._terms is not None

    def _known(self, schema_id: int) -> _Reader | None:
        with self._lock:
            reader = self._readers.get(schema_id)
            if reader is None or (reader.read is None and self._clock.monotonic() > reader.until_s):
                return None
            self._readers.move_to_end(schema_id)
            return reader

    def reader_of(self, schema_id: int, page: DecodedPage, deadline_s: float) -> tuple[_Reader | None, bool]:
        """Returns how values of a schema are read, and whether the registry was asked; None for one that is not known by the
        deadline."""
        reader = self._known(schema_id)
        if reader is not None or self._clock.monotonic() > deadline_s:
            return reader, False
        return self._made(schema_id, page), True

    def _made(self, schema_id: int, page: DecodedPage) -> _Reader:
        assert self._terms is not None
        try:
            schema = registry_of(self._terms).by_id(schema_id)
            document = _document_reader(schema)
            reader = _Reader(kind=schema.type, document=document, read=_reader_of(schema, document))
        except UnknownSchemaId:
            reader = _Reader(until_s=self._clock.monotonic() + UNKNOWN_S)  # any bytes may begin with a zero
        except ImportError as error:
            page.problem = f"schema {schema_id} needs more ({error}): pip install 'odradek[formats]'"
            reader = _Reader(until_s=self._clock.monotonic() + UNKNOWN_S)
        except (OdradekError, SqlError, OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            page.problem = page.problem or f"schema {schema_id}: {error!s:.200}"
            reader = _Reader(until_s=self._clock.monotonic() + UNKNOWN_S)
        with self._lock:
            self._readers[schema_id] = reader
            while len(self._readers) > SCHEMAS_MAX:
                self._readers.popitem(last=False)
        return reader


class DocumentReader:
    """Reads values as documents, for one step of a search; whatever has no schema is read as JSON. It blocks.

    It reads few schemas from the registry, and none after its deadline. A value whose schema is not known by then, or that does
    not fit it, is no document, and is counted.
    """

    def __init__(self, decoder: RecordDecoder, deadline_s: float) -> None:
        self._decoder = decoder
        self._deadline_s = deadline_s
        self._readers: dict[int, _Reader | None] = {}
        self._reads = 0
        self.page: Final = DecodedPage()
        """Its problem is the reason why the first value was not decoded."""
        self.undecoded = 0
        """The values with a schema's id that were not decoded."""
        self._last_undecoded: bytes | None = None

    def document(self, content: bytes | None, *, is_masked: bool = False) -> object:
        """Returns the document that a value is, or NO_JSON. The reason why a masked value has none quotes nothing of it."""
        head = framed(content) if content and len(content) <= JSON_BYTES_MAX else None
        if head is None:
            return json_of(content)
        schema_id, body = head
        reader = self._readers[schema_id] if schema_id in self._readers else self._reader(schema_id)
        if reader is not None and reader.document is not None and len(body) <= DECODED_BYTES_MAX:
            try:
                return reader.document(body)
            except (ValueError, RecursionError) as error:
                reason = "a masked value does not fit it" if is_masked else f"{error!s:.200}"
                self.page.problem = self.page.problem or f"schema {schema_id}: {reason}"
        elif not self.page.problem:
            self.page.problem = _why_not(schema_id, reader)
        if content is not self._last_undecoded:  # a masked record is read twice
            self._last_undecoded = content
            self.undecoded += 1
        return NO_JSON

    def _reader(self, schema_id: int) -> _Reader | None:
        if len(self._readers) >= SCHEMAS_MAX:
            return None
        may_read = self._reads < READ_MAX
        reader, is_read = self._decoder.reader_of(schema_id, self.page, self._deadline_s if may_read else 0.0)
        self._reads += is_read
        self._readers[schema_id] = reader
        return reader


def _why_not(schema_id: int, reader: _Reader | None) -> str:
    if reader is None:
        return f"schema {schema_id} was not read in time"
    if reader.document is None:
        return f"schema {schema_id} is not in the registry, or cannot be used"
    return f"a value of schema {schema_id} is above {DECODED_BYTES_MAX} bytes"


def _reader_of(schema: RegisteredSchema, document: Callable[[bytes], object]) -> Callable[[bytes], bytes]:
    """Returns how a value is written as JSON; a value that is JSON stays as it is."""
    if schema.type in ("AVRO", "PROTOBUF"):
        return lambda body: json.dumps(document(body), ensure_ascii=False).encode(errors="replace")
    return lambda body: body


def _document_reader(schema: RegisteredSchema) -> Callable[[bytes], object]:
    if schema.type == "AVRO":
        parsed = parsed_registered(schema)
        check_bounded(parsed)
        read = avro_documents(parsed)
        return lambda body: _plain(read(body))
    if schema.type == "PROTOBUF":
        return proto_documents(proto_file(schema))
    return json_of


def _plain(value: Any) -> Any:
    """Returns a value with what JSON has: bytes become text as Avro's own JSON has them, dates and decimals their text."""
    kind = type(value)
    if kind in _JSON_TYPES:
        return value
    if kind is dict:
        for name, member in value.items():
            if type(member) not in _JSON_TYPES:
                value[name] = _plain(member)
        return value
    if kind is list:
        return [member if type(member) in _JSON_TYPES else _plain(member) for member in value]
    if isinstance(value, bytes | bytearray):
        return value.decode("latin-1")
    if isinstance(value, date | time | timedelta | Decimal | UUID):
        return str(value)
    raise ValueError(f"a value of type {kind.__name__} has no JSON")


_JSON_TYPES: Final = frozenset({str, int, float, bool, type(None)})
