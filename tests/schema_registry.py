"""A schema registry in this process, with Confluent's REST: subjects, versions, ids, BACKWARD compatibility of Avro."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from odradek.values.schema_registry import SchemaRegistryTerms


@dataclass
class HeldSchemas:
    """`schemas`: by id. `subjects`: ids in the order of their versions. `requests`: what was asked."""

    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    first_id: int = 1

    def register(
        self,
        subject: str,
        text: str,
        kind: str = "AVRO",
        references: list[dict[str, Any]] | None = None,
        *,
        schema_id: int | None = None,
    ) -> int:
        """Returns the schema's id: `schema_id`, or that of the same schema, or the next."""
        content = {"schema": text, "schemaType": kind, "references": references or []}
        known = next((number for number, schema in self.schemas.items() if schema == content), None)
        number = schema_id or known or self.first_id + len(self.schemas)
        self.schemas[number] = content
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.requests.append(f"{method} {path}")
        match (method, [unquote(part) for part in path.strip("/").split("/")]):
            case ("GET", ["schemas", "ids", number]) if int(number) in self.schemas:
                return 200, self.schemas[int(number)]
            case ("GET", ["schemas", "ids", number, "versions"]) if int(number) in self.schemas:
                holders = [(name, ids) for name, ids in self.subjects.items() if int(number) in ids]
                return 200, [
                    {"subject": name, "version": ids.index(int(number)) + 1} for name, ids in holders
                ]
            case ("GET", ["subjects", subject, "versions"]) if subject in self.subjects:
                return 200, list(range(1, len(self.subjects[subject]) + 1))
            case ("GET", ["subjects", subject, "versions", version]) if subject in self.subjects:
                place = -1 if version == "latest" else int(version) - 1
                schema_id = self.subjects[subject][place]
                return 200, {
                    "subject": subject,
                    "id": schema_id,
                    "version": version,
                    **self.schemas[schema_id],
                }
            case ("POST", ["subjects", subject, "versions"]):
                return self._registered(subject, body)
            case ("DELETE", ["subjects", subject]) if subject in self.subjects:
                return 200, list(range(1, len(self.subjects.pop(subject)) + 1))
        return 404, {"error_code": 40401, "message": "Subject or schema not found."}

    def _registered(self, subject: str, body: dict[str, Any]) -> tuple[int, Any]:
        kind = body.get("schemaType", "AVRO")
        if kind == "AVRO" and subject in self.subjects:
            older = json.loads(self.schemas[self.subjects[subject][-1]]["schema"])
            if not _can_read(json.loads(body["schema"]), older):
                return 409, {
                    "error_code": 409,
                    "message": "Schema being registered is incompatible with an earlier schema",
                }
        return 200, {"id": self.register(subject, body["schema"], kind)}


def _can_read(newer: Any, older: Any) -> bool:
    """BACKWARD: fields that the older record does not have need a default, others the same type."""
    if not isinstance(newer, dict) or "fields" not in newer:
        return bool(newer == older)
    known = {part["name"]: part["type"] for part in older["fields"]}
    return all(
        part["type"] == known[part["name"]] if part["name"] in known else "default" in part
        for part in newer["fields"]
    )


@contextmanager
def schema_registry(held: HeldSchemas) -> Iterator[str]:
    """Serves the schemas while the block runs. Yields the registry's URL."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            status, content = held.answer(self.command, urlsplit(self.path).path, body)
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - names of http.server

        def log_message(self, *_: Any) -> None:
            """No lines in the tests' output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="schema-registry"
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(frozen=True)
class RegistryOfIds:
    """A running registry that serves schemas by id, and what it was asked for."""

    terms: SchemaRegistryTerms
    held: HeldSchemas

    def avro(self, schema_id: int, schema: Any) -> None:
        self.held.register("avro", json.dumps(schema), schema_id=schema_id)


@contextmanager
def registry_of_ids() -> Iterator[RegistryOfIds]:
    """Runs an empty registry while the block runs."""
    held = HeldSchemas()
    with schema_registry(held) as url:
        yield RegistryOfIds(SchemaRegistryTerms.of(url), held)
