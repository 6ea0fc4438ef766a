"""A client of a schema registry that speaks Confluent's REST: schemas by id, subjects and their versions.

Schemas of an id never change, so each process asks for an id once. Calls block: an event loop runs them on a thread.
A registry is trusted with its schemas, but not with this process: the size and the time of an answer, the references of a
schema and the schemas that are kept have limits.

Source: Confluent's Schema Registry API reference.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import threading
import urllib.parse
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from odradek.model.errors import OdradekError
from odradek.runtime.ports import Clock
from odradek.runtime.real_clock import SystemClock

_MEDIA: Final = "application/vnd.schemaregistry.v1+json"
ANSWER_S: Final = 10.0
"""The time for one whole answer. A registry that takes longer is not asked again for the same."""
REFERENCES_S: Final = 30.0
"""The time in which a schema and all its references must be read."""
RESPONSE_BYTES_MAX: Final = 4 << 20
"""The longest answer that is read. A registry keeps a schema in one record of Kafka, which has at most 1 MiB by default."""
REFERENCES_MAX: Final = 1_000
"""The most references of one schema, including references of the schemas that it refers to."""
KNOWN_MAX: Final = 10_000
"""The schemas that are kept; the one whose last use is longest ago is forgotten first."""
KNOWN_CHARACTERS_MAX: Final = 128 << 20
"""The characters of the texts of the schemas that are kept."""
_MESSAGE_MAX: Final = 500
_TRIES: Final = 3
_DEPTH_MAX: Final = 16
_NOT_FOUND: Final = 404


class SchemaRegistryError(OdradekError):
    """The registry cannot be reached, or refuses. `status`: of HTTP; None when there was no answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status: Final = status


class UnknownSchemaId(ValueError):
    """The registry does not have the id that a record names: the record cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRegistryTerms:
    """How a schema registry is reached.

    `url`: http or https, without a name and a password: these are `user` and `password`.
    """

    url: str
    user: str | None = None
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, url: str) -> SchemaRegistryTerms:
        """Parses `http://user:password@host:port/path`. Raises OdradekError for another kind of address."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OdradekError(f"the schema registry {url!r} has no address: write http://host:8081")
        port = f":{parts.port}" if parts.port is not None else ""
        return cls(
            url=f"{parts.scheme}://{parts.hostname}{port}{parts.path.rstrip('/')}",
            user=None if parts.username is None else urllib.parse.unquote(parts.username),
            password=urllib.parse.unquote(parts.password or ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A schema of a registry.

    `type`: AVRO, PROTOBUF or JSON. `references`: what the text imports, by the name that it has there.
    """

    id: int
    type: str
    text: str
    references: tuple[tuple[str, RegisteredSchema], ...] = ()

    def all_references(self) -> list[RegisteredSchema]:
        """Returns all schemas that this one needs, once each and after those that it needs itself."""
        needed: dict[int, RegisteredSchema] = {}
        seen: set[int] = set()
        self._collect(needed, seen)
        return list(needed.values())

    def _collect(self, needed: dict[int, RegisteredSchema], seen: set[int]) -> None:
        for _, part in self.references:
            if part.id not in seen:
                seen.add(part.id)
                part._collect(needed, seen)
                needed[part.id] = part


class KnownSchemas:
    """The schemas that were read, within limits of their number and of their text. Any thread may use it."""

    def __init__(self, known_max: int = KNOWN_MAX, characters_max: int = KNOWN_CHARACTERS_MAX) -> None:
        self._known_max = known_max
        self._characters_max = characters_max
        self._schemas: OrderedDict[int, RegisteredSchema] = OrderedDict()
        self._characters = 0
        self._lock = threading.Lock()

    def __contains__(self, schema_id: int) -> bool:
        return schema_id in self._schemas

    def of(self, schema_id: int) -> RegisteredSchema | None:
        """Returns a schema; None if it was not read, or is forgotten."""
        with self._lock:
            schema = self._schemas.get(schema_id)
            if schema is not None:
                self._schemas.move_to_end(schema_id)
            return schema

    def keep(self, schema: RegisteredSchema) -> None:
        """Keeps a schema, and forgets those for which the limits leave no room."""
        with self._lock:
            self._forget(schema.id)
            self._schemas[schema.id] = schema
            self._characters += _characters(schema)
            while len(self._schemas) > 1 and (
                len(self._schemas) > self._known_max or self._characters > self._characters_max
            ):
                self._forget(next(iter(self._schemas)))

    def _forget(self, schema_id: int) -> None:
        schema = self._schemas.pop(schema_id, None)
        if schema is not None:
            self._characters -= _characters(schema)


def _characters(schema: RegisteredSchema) -> int:
    return len(schema.text) + sum(len(part.text) for part in schema.all_references())


class SchemaRegistry:
    """A client of a schema registry. Get one from `registry_of`, which keeps what the process has already read."""

    def __init__(
        self,
        terms: SchemaRegistryTerms,
        known: KnownSchemas | None = None,
        answer_s: float = ANSWER_S,
        clock: Clock | None = None,
    ) -> None:
        self._terms = terms
        self._known = known or KnownSchemas()
        self._answer_s = answer_s
        self._clock = clock or SystemClock()

    def __reduce__(
        self,
    ) -> tuple[Callable[[SchemaRegistryTerms], SchemaRegistry], tuple[SchemaRegistryTerms]]:
        return registry_of, (self._terms,)  # another process keeps what it reads itself

    def knows(self, schema_id: int) -> bool:
        """Returns whether `by_id` answers without a request."""
        return schema_id in self._known

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """UnknownSchemaId, SchemaRegistryError."""
        known = self._known.of(schema_id)
        if known is None:
            try:
                content = self._request("GET", f"/schemas/ids/{schema_id}")
            except SchemaRegistryError as error:
                if error.status == _NOT_FOUND:
                    raise UnknownSchemaId(f"the schema registry has no schema {schema_id}") from None
                raise
            known = _SchemaReading(self._request, self._clock).schema(content, schema_id)
            self._known.keep(known)
        return known

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Returns the latest schema of a subject; None for a subject that does not exist. Raises SchemaRegistryError."""
        try:
            content = self._request("GET", f"/subjects/{_quoted(subject)}/versions/latest")
        except SchemaRegistryError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        schema = _SchemaReading(self._request, self._clock).schema(content)
        self._known.keep(schema)
        return schema

    def register(self, subject: str, kind: str, text: str) -> int:
        """The id. A schema that the subject has keeps its id. SchemaRegistryError for one that is not compatible."""
        body: dict[str, object] = {"schema": text}
        if kind != "AVRO":
            body["schemaType"] = kind
        schema_id: int = self._request("POST", f"/subjects/{_quoted(subject)}/versions", body)["id"]
        return schema_id

    def is_registered(self, subject: str | None, schema_id: int | None) -> bool:
        """Tells, for ASSERT SCHEMA, whether the subject is there, the id is, or the subject has the id."""
        try:
            if schema_id is None:
                self._request("GET", f"/subjects/{_quoted(subject or '')}/versions")
                return True
            self._request("GET", f"/schemas/ids/{schema_id}")
            if subject is None:
                return True
            versions = self._request("GET", f"/schemas/ids/{schema_id}/versions")
        except SchemaRegistryError as error:
            if error.status == _NOT_FOUND:
                return False
            raise
        return any(version["subject"] == subject for version in versions)

    def delete(self, subject: str) -> None:
        """Deletes all versions of a subject. Idempotent. Raises SchemaRegistryError."""
        try:
            self._request("DELETE", f"/subjects/{_quoted(subject)}")
        except SchemaRegistryError as error:
            if error.status != _NOT_FOUND:
                raise

    def _request(self, method: str, path: str, body: object = None) -> Any:
        problem = ""
        for _ in range(_TRIES):
            try:
                status, data = self._exchange(method, path, body)
            except TimeoutError:
                problem = f"it did not answer within {self._answer_s:g} s"
                break
            except (OSError, http.client.HTTPException) as error:
                problem = str(error) or type(error).__name__
                continue
            return self._content(status, data, f"{method} {path}")
        raise SchemaRegistryError(
            f"the schema registry at {self._terms.url} cannot be reached: {problem}: check --schema-registry"
        )

    def _exchange(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        parts = urllib.parse.urlsplit(self._terms.url)
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=self._answer_s, context=context
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=self._answer_s)
        headers = {"Accept": f"{_MEDIA}, application/json"}
        if self._terms.user is not None:
            login = f"{self._terms.user}:{self._terms.password}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        if body is not None:
            headers["Content-Type"] = _MEDIA
        try:
            connection.connect()
            with _TimeOfAll(connection.sock, self._answer_s):
                connection.request(
                    method, parts.path + path, None if body is None else json.dumps(body).encode(), headers
                )
                response = connection.getresponse()
                return response.status, response.read(RESPONSE_BYTES_MAX + 1)
        finally:
            connection.close()

    def _content(self, status: int, data: bytes, what: str) -> object:
        if len(data) > RESPONSE_BYTES_MAX:
            raise SchemaRegistryError(
                f"the schema registry at {self._terms.url} answers {what} with more than {RESPONSE_BYTES_MAX} bytes"
            )
        try:
            content = json.loads(data) if data else None
        except (ValueError, RecursionError):
            content = None
        if status < 300 and content is not None:
            return content
        message = content.get("message") if isinstance(content, dict) else None
        raise SchemaRegistryError(
            f"the schema registry at {self._terms.url} refuses {what}: "
            f"{str(message)[:_MESSAGE_MAX] if message else f'HTTP status {status}'}",
            status,
        )


class _TimeOfAll:
    """Ends what is read and written on a socket after a time, also where the peer sends a byte now and then.

    Raises TimeoutError at the end of the block if the time was over.
    """

    def __init__(self, peer: socket.socket, time_s: float) -> None:
        self._peer = peer
        self._is_over = False
        self._timer = threading.Timer(time_s, self._end)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._is_over:
            raise TimeoutError

    def _end(self) -> None:
        self._is_over = True
        with suppress(OSError):  # it is closed
            socket.socket.shutdown(self._peer, socket.SHUT_RDWR)


class _SchemaReading:
    """Reads one schema with all that it refers to: each once, within limits, whatever the registry answers."""

    def __init__(self, request: Callable[[str, str], Any], clock: Clock) -> None:
        self._request = request
        self._clock = clock
        self._deadline_s = clock.monotonic() + REFERENCES_S
        self._by_path: dict[str, RegisteredSchema] = {}
        self._references = 0

    def schema(self, content: object, schema_id: int | None = None, depth: int = 0) -> RegisteredSchema:
        """Returns the schema of an answer, which names its id where the request did not. Raises SchemaRegistryError."""
        if not isinstance(content, dict):
            raise SchemaRegistryError("the schema registry answers with something else than a schema")
        number, text = content.get("id") if schema_id is None else schema_id, content.get("schema")
        kind, references = content.get("schemaType") or "AVRO", content.get("references") or []
        if not (isinstance(number, int) and isinstance(text, str) and isinstance(kind, str)):
            raise SchemaRegistryError(
                "the schema registry answers with a schema that lacks its id or its text"
            )
        if depth > _DEPTH_MAX:
            raise SchemaRegistryError(f"schema {number} has references within references, too deep to follow")
        self._references += len(references) if isinstance(references, list) else REFERENCES_MAX + 1
        if self._references > REFERENCES_MAX:
            raise SchemaRegistryError(f"schema {number} has more than {REFERENCES_MAX} references")
        return RegisteredSchema(
            id=number,
            type=kind,
            text=text,
            references=tuple(self._reference(number, reference, depth + 1) for reference in references),
        )

    def _reference(self, schema_id: int, reference: object, depth: int) -> tuple[str, RegisteredSchema]:
        fields = reference if isinstance(reference, dict) else {}
        name, subject, version = fields.get("name"), fields.get("subject"), fields.get("version")
        if not (isinstance(name, str) and isinstance(subject, str) and isinstance(version, int)):
            raise SchemaRegistryError(
                f"schema {schema_id} has a reference without a name, a subject or a version"
            )
        path = f"/subjects/{_quoted(subject)}/versions/{version}"
        known = self._by_path.get(path)
        if known is None:
            if self._clock.monotonic() > self._deadline_s:
                raise SchemaRegistryError(
                    f"what schema {schema_id} refers to was not read within {REFERENCES_S:g} s"
                )
            known = self._by_path[path] = self.schema(self._request("GET", path), depth=depth)
        return name, known


@cache
def registry_of(terms: SchemaRegistryTerms) -> SchemaRegistry:
    """The client of this process for a registry."""
    return SchemaRegistry(terms)


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")
