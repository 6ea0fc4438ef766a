"""Cases as text: statements, records that go in, records that come out, or the error.

    == a name
    CREATE STREAM S …;
    -- in
    topic | key | value | timestamp | header=value
    -- out
    topic | key | value | timestamp
    -- error
    a part of the message
    -- error of a server
    a part of the message there, where a server sees more than the statements

A key or a value is the text of its bytes, or `null`; a key in the format KAFKA is a number where its column is one.
A windowed key is written `key @ start-end`. A timestamp that is not written is 0 going in, and any coming out.
Lines that begin with # are comments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRecord:
    topic: str
    key: str | None
    value: str | None
    timestamp: int | None
    window: tuple[int, int] | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    statements: str
    records: tuple[CaseRecord, ...] = ()
    written: tuple[CaseRecord, ...] = ()
    error: str | None = None
    server_error: str | None = None


def cases_of(path: Path) -> Iterator[Case]:
    for part in ("\n" + path.read_text(encoding="utf-8")).split("\n== ")[1:]:
        name, _, body = part.partition("\n")
        yield _case(name.strip(), body)


@cache
def all_cases() -> dict[str, Case]:
    """Every case, by the name of its file and its own."""
    files = sorted((Path(__file__).parent / "cases").glob("*.case"))
    return {f"{path.stem}-{case.name}": case for path in files for case in cases_of(path)}


def _case(name: str, body: str) -> Case:
    sections: dict[str, list[str]] = {
        "statements": [],
        "in": [],
        "out": [],
        "error": [],
        "error of a server": [],
    }
    current = sections["statements"]
    for line in body.splitlines():
        if line.startswith("#"):
            continue
        if line.startswith("-- ") and line[3:].strip() in sections:
            current = sections[line[3:].strip()]
        else:
            current.append(line)
    return Case(
        name=name,
        statements="\n".join(sections["statements"]).strip(),
        records=tuple(_record(line) for line in sections["in"] if line.strip()),
        written=tuple(_record(line) for line in sections["out"] if line.strip()),
        error="\n".join(sections["error"]).strip() or None,
        server_error="\n".join(sections["error of a server"]).strip() or None,
    )


def _record(line: str) -> CaseRecord:
    topic, key, value, *more = (part.strip() for part in line.split(" | "))
    window = None
    if " @ " in key:
        key, _, bounds = key.partition(" @ ")
        start, _, end = bounds.partition("-")
        window = (int(start), int(end))
    headers = tuple(part.partition("=")[::2] for part in more[1:])
    return CaseRecord(
        topic=topic,
        key=None if key == "null" else key,
        value=None if value == "null" else value,
        timestamp=int(more[0]) if more and more[0] else None,
        window=window,
        headers=tuple((name, text.encode()) for name, text in headers),
    )
