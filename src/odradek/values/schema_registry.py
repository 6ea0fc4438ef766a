"""A client of a schema registry that speaks Confluent's REST: schemas by id, subjects and their versions.

Schemas of an id never change, so each process asks for an id once. Calls block: an event loop runs them on a thread.

Source: Confluent's Schema Registry API reference.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.parse
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from odradek.model.errors import OdradekError

_MEDIA: Final = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S: Final = 10.0
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


class SchemaRegistry:
    """A client of a schema registry. Get one from `registry_of`, which keeps what the process has already read."""

    def __init__(self, terms: SchemaRegistryTerms) -> None:
        self._terms = terms
        self._known: dict[int, RegisteredSchema] = {}

    def knows(self, schema_id: int) -> bool:
        """Returns whether `by_id` answers without a request."""
        return schema_id in self._known

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """UnknownSchemaId, SchemaRegistryError."""
        known = self._known.get(schema_id)
        if known is None:
            try:
                content = self._request("GET", f"/schemas/ids/{schema_id}")
            except SchemaRegistryError as error:
                if error.status == _NOT_FOUND:
                    raise UnknownSchemaId(f"the schema registry has no schema {schema_id}") from None
                raise
            known = self._known[schema_id] = self._schema(schema_id, content, 0)
        return known

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Returns the latest schema of a subject; None for a subject that does not exist. Raises SchemaRegistryError."""
        try:
            content = self._request("GET", f"/subjects/{_quoted(subject)}/versions/latest")
        except SchemaRegistryError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        schema = self._known[content["id"]] = self._schema(content["id"], content, 0)
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

    def _schema(self, schema_id: int, content: dict[str, Any], depth: int) -> RegisteredSchema:
        if depth > _DEPTH_MAX:
            raise SchemaRegistryError(
                f"schema {schema_id} has references within references, too deep to follow"
            )
        references = []
        for reference in content.get("references") or ():
            path = f"/subjects/{_quoted(reference['subject'])}/versions/{reference['version']}"
            meant = self._request("GET", path)
            references.append((reference["name"], self._schema(meant["id"], meant, depth + 1)))
        return RegisteredSchema(
            id=schema_id,
            type=content.get("schemaType") or "AVRO",
            text=content["schema"],
            references=tuple(references),
        )

    def _request(self, method: str, path: str, body: object = None) -> Any:
        problem = ""
        for _ in range(_TRIES):
            try:
                status, data = self._exchange(method, path, body)
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
                parts.hostname or "", parts.port, timeout=_TIMEOUT_S, context=context
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
        headers = {"Accept": f"{_MEDIA}, application/json"}
        if self._terms.user is not None:
            login = f"{self._terms.user}:{self._terms.password}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        if body is not None:
            headers["Content-Type"] = _MEDIA
        try:
            connection.request(
                method, parts.path + path, None if body is None else json.dumps(body).encode(), headers
            )
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _content(self, status: int, data: bytes, what: str) -> object:
        try:
            content = json.loads(data) if data else None
        except ValueError:
            content = None
        if status < 300 and content is not None:
            return content
        message = content.get("message") if isinstance(content, dict) else None
        raise SchemaRegistryError(
            f"the schema registry at {self._terms.url} refuses {what}: {message or f'HTTP status {status}'}",
            status,
        )


@cache
def registry_of(terms: SchemaRegistryTerms) -> SchemaRegistry:
    """The client of this process for a registry."""
    return SchemaRegistry(terms)


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")
