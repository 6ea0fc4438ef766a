"""One command of the command log: a statement that changes the catalog, as the command topic keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypedDict

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.java_numbers import whole_number

VERSION: Final = 1


class _StoredCommand(TypedDict):
    """The JSON of a record. Offsets are by topic and partition."""

    version: int
    token: str
    statement: str
    properties: dict[str, str]
    starting: dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlCommand:
    """One command: a statement, its properties, and where its query begins to read.

    `statement`: one statement, with its variables replaced. `properties`: the properties of SET, for its query. `starting`: by
    topic and partition, the first offset that its query reads: what `auto.offset.reset` meant when the statement was run, so
    that every server, and every new start, means the same.
    """

    command_id: str
    statement: str
    properties: Mapping[str, str] = field(default_factory=dict)
    starting: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    token: str = ""
    """The token of the request that wrote it: a second try of the same request finds the command."""

    def to_bytes(self) -> bytes:
        content = {
            "version": VERSION,
            "token": self.token,
            "statement": self.statement,
            "properties": dict(self.properties),
            "starting": {
                topic: {str(partition): offset for partition, offset in sorted(offsets.items())}
                for topic, offsets in sorted(self.starting.items())
            },
        }
        return json.dumps(content, ensure_ascii=False).encode()

    @classmethod
    def from_record(cls, key: bytes | None, value: bytes | None, where: str) -> SqlCommand:
        """Parses a record. KafkaError CORRUPT_MESSAGE with its place if it is no command, or one of a newer version."""
        try:
            content: _StoredCommand = json.loads(value or b"")
            version = content["version"]
            if version > VERSION:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"the command at {where} has version {version}; this server reads up to {VERSION}: upgrade it",
                )
            return cls(
                command_id=(key or b"").decode(),
                statement=content["statement"],
                token=content["token"],
                properties=content["properties"],
                starting={
                    topic: {whole_number(partition): offset for partition, offset in offsets.items()}
                    for topic, offsets in content["starting"].items()
                },
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the record at {where} is no command of this server: choose another --service-id, or delete the topic"
                f" ({error})",
            ) from error
