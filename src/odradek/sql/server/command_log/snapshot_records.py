"""Snapshots of a service as records of the command topic: a snapshot is one or more parts, which one transaction writes.

A part is a line of JSON, the header, and then bytes of the content. The content is compressed; each header has its checksum.
Transactions keep half a snapshot from readers of committed records. A reader checks it nevertheless. Pure.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass, field, replace
from typing import Final, TypedDict

VERSION: Final = 1
KEY: Final = b"snapshot"
"""The key of its records. Ids of commands have a slash."""
PART_BYTES = 512 << 10
"""Half of the largest record that brokers accept by default."""
_NO_COMMAND: Final = -1


class SnapshotUnreadable(Exception):
    """A snapshot that this server cannot go on from; the text is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSnapshot:
    """A snapshot of the topic. `first_offset`, `last_offset`: its records. `after`: the offset of the last command that it
    holds the effect of, -1 for none. `problem`: why it cannot be used, in one line.
    """

    first_offset: int
    last_offset: int
    after: int = _NO_COMMAND
    content: bytes = field(default=b"", repr=False)
    problem: str | None = None

    def checked(self, last_command: int) -> StoredSnapshot:
        """Returns it with a problem if it lacks commands. `last_command`: the offset of the last command before it."""
        if self.problem is not None or self.after == last_command:
            return self
        problem = f"holds the commands up to offset {self.after}, but the last one before it has offset {last_command}"
        return replace(self, problem=problem)


class _StoredHeader(TypedDict):
    """The JSON of a header."""

    version: int
    id: str
    part: int
    parts: int
    after: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    id: str
    part: int
    parts: int
    after: int
    checksum: str

    def to_bytes(self) -> bytes:
        members = {
            "version": VERSION,
            "id": self.id,
            "part": self.part,
            "parts": self.parts,
            "after": self.after,
            "sha256": self.checksum,
        }
        return json.dumps(members).encode() + b"\n"

    @classmethod
    def of(cls, line: bytes) -> _Header:
        """Parses a header. SnapshotUnreadable for one of another form, or of a newer version."""
        try:
            members: _StoredHeader = json.loads(line)
            version = members["version"]
            if version > VERSION:
                raise SnapshotUnreadable(
                    f"has version {version}; this server reads up to {VERSION}: upgrade it"
                )
            return cls(
                id=members["id"],
                part=members["part"],
                parts=members["parts"],
                after=members["after"],
                checksum=members["sha256"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise SnapshotUnreadable(f"is damaged: its header cannot be read ({error})") from None


def snapshot_records(snapshot_id: str, content: bytes, after: int) -> list[bytes]:
    """Returns the values of the records that hold a content. `after`: the offset of the last command before it, or -1."""
    stored = zlib.compress(content, level=1)
    checksum = hashlib.sha256(stored).hexdigest()
    chunks = [stored[start : start + PART_BYTES] for start in range(0, len(stored), PART_BYTES)]
    return [
        _Header(id=snapshot_id, part=part, parts=len(chunks), after=after, checksum=checksum).to_bytes()
        + chunk
        for part, chunk in enumerate(chunks)
    ]


@dataclass(slots=True)
class SnapshotParts:
    """Puts snapshots together from the records of a topic, in the order of their offsets."""

    _chunks: list[bytes] = field(default_factory=list)
    _header: _Header | None = None
    _first_offset: int = 0
    _refused_id: str | None = None
    """The snapshot whose problem is known; its other parts are passed over."""

    def add(self, offset: int, value: bytes | None) -> StoredSnapshot | None:
        """Returns the snapshot that the record completes, or one with a problem; None while parts are missing."""
        line, _, chunk = (value or b"").partition(b"\n")
        try:
            header = _Header.of(line)
        except SnapshotUnreadable as error:
            return self._refused(offset, offset, str(error), _id_of(line))
        if header.id == self._refused_id:
            return None
        if header.part == 0:
            self._header, self._chunks, self._first_offset = header, [], offset
        elif self._header is None or header.id != self._header.id or header.part != len(self._chunks):
            first = offset if self._header is None else self._first_offset
            return self._refused(
                first,
                offset,
                f"is not whole: part {header.part} of {header.parts} follows no other",
                header.id,
            )
        self._chunks.append(chunk)
        if len(self._chunks) < header.parts:
            return None
        content, self._header, self._chunks = b"".join(self._chunks), None, []
        if hashlib.sha256(content).hexdigest() != header.checksum:
            return self._refused(self._first_offset, offset, "is damaged: its checksum differs", header.id)
        return StoredSnapshot(
            first_offset=self._first_offset, last_offset=offset, after=header.after, content=content
        )

    def rest(self) -> StoredSnapshot | None:
        """Returns the snapshot whose last parts never came, with its problem. Call it when a command or the end comes."""
        header = self._header
        if header is None:
            return None
        last_offset = self._first_offset + len(self._chunks) - 1
        problem = f"is not whole: {len(self._chunks)} of {header.parts} parts are there"
        return self._refused(self._first_offset, last_offset, problem, header.id)

    def _refused(self, first: int, last: int, problem: str, snapshot_id: str | None) -> StoredSnapshot | None:
        self._header, self._chunks = None, []
        if snapshot_id is not None and snapshot_id == self._refused_id:
            return None
        self._refused_id = snapshot_id
        return StoredSnapshot(first_offset=first, last_offset=last, problem=problem)


def _id_of(line: bytes) -> str | None:
    try:
        snapshot_id = json.loads(line)["id"]
    except (ValueError, KeyError, TypeError):
        return None
    return snapshot_id if isinstance(snapshot_id, str) else None


def content_of(snapshot: StoredSnapshot) -> bytes:
    """Returns the content as it was given to `snapshot_records`. SnapshotUnreadable."""
    if snapshot.problem is not None:
        raise SnapshotUnreadable(snapshot.problem)
    try:
        return zlib.decompress(snapshot.content)
    except zlib.error as error:
        raise SnapshotUnreadable(f"is damaged: {error}") from None
