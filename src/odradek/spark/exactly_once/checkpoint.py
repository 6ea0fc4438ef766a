"""Reads from Spark's checkpoint what a batch has read: the offsets that a query commits together with its output."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit
from uuid import UUID

from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.model.lazy import lazy
from odradek.spark.reading.offsets import BEGINNINGS_KEY, StreamOffset, from_document

if TYPE_CHECKING:
    from pyarrow import fs
else:
    fs = lazy("pyarrow.fs")

_OFFSETS: Final = "offsets"
_SOURCES: Final = "sources"
_OF_FILES: Final = "logOffset"
"""All that the offset of Spark's file source holds: which entries of its journal were read, whatever files those name."""
_BY_NAME: Final = "v2"
"""A line is a source's name, a colon, and its offset. Names are letters, digits and underscores."""
_NOTHING_READ: Final = "-"
"""The offset of a source that has given nothing yet."""
_KNOWN_VERSIONS: Final = ("v1", _BY_NAME)


@dataclass(frozen=True, slots=True)
class _SourceEnd:
    """The offset that one source of a query has reached."""

    name: str
    offset: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInput:
    """The input of a batch."""

    next_offsets: Mapping[TopicPartition, int]
    """The next offset of each partition that its Kafka sources read."""
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    """The ids of the topics of `next_offsets`, as far as the checkpoint has them."""
    fingerprint: str
    """The same for two batches that have read the same, of all their sources: 16 hexadecimal digits."""
    former_fingerprint: str | None = None
    """The fingerprint in decisions of former versions: it does not depend on which files were read."""
    is_whole: bool = True
    """`next_offsets` covers all its sources. False: one of them reads something else, such as files."""


def batch_input(checkpoint: str, batch: int) -> BatchInput:
    """Returns what a batch has read. ConfigError when the checkpoint cannot be read from here."""
    ends = _sources(checkpoint, batch)
    starts: list[_SourceEnd] | None
    try:
        starts = _sources(checkpoint, batch - 1) if batch else []
    except ConfigError:  # Spark's settings keep one batch alone
        starts = None
    offsets: dict[TopicPartition, int] = {}
    for source in ends:
        offsets.update(_topic_offsets(source.offset).next_offsets)
    ids = _topic_ids(ends)
    extent = [[_without_beginnings(source.offset) for source in starts or ()], _ends_of(batch, ends)]
    files = _files(checkpoint, starts, ends)
    return BatchInput(
        next_offsets=offsets,
        topic_ids=ids,
        fingerprint=_fingerprint([*extent, files] if files else extent),
        former_fingerprint=_fingerprint(extent),
        is_whole=all(source.offset == _NOTHING_READ or _is_of_topics(source.offset) for source in ends),
    )


def _ends_of(batch: int, ends: list[_SourceEnd]) -> list[object]:
    """Returns ends, with beginnings for the first batch only: later batches begin where the batch before ended."""
    return [_without_beginnings(source.offset) if batch else source.offset for source in ends]


def _without_beginnings(document: object) -> object:
    if not isinstance(document, Mapping):
        return document
    return {name: value for name, value in document.items() if name != BEGINNINGS_KEY}


def _fingerprint(documents: object) -> str:
    text = json.dumps(documents, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def source_offsets(checkpoint: str, batch: int) -> list[StreamOffset]:
    """Returns the end of a batch in each of its sources, in the query's order; without offsets for sources that are no Kafka
    topics.

    ConfigError when the checkpoint cannot be read from here.
    """
    return [_topic_offsets(source.offset) for source in _sources(checkpoint, batch)]


def beginnings(checkpoint: str, batch: int) -> dict[TopicPartition, int] | None:
    """Returns the offsets where a query's first batch begins; None when one of its sources does not state them."""
    starts = [_topic_offsets(source.offset).beginnings for source in _sources(checkpoint, batch)]
    if not starts or not all(starts):
        return None
    return {partition: offset for offsets in starts for partition, offset in offsets.items()}


def read_topic_ids(checkpoint: str, batch: int) -> dict[str, UUID]:
    """Returns the id of each topic that a batch has read, as far as its checkpoint tells."""
    return _topic_ids(_sources(checkpoint, batch))


def _topic_ids(sources: list[_SourceEnd]) -> dict[str, UUID]:
    ids: dict[str, UUID] = {}
    for source in sources:
        ids.update(_topic_offsets(source.offset).topic_ids)
    return ids


def _files(checkpoint: str, starts: list[_SourceEnd] | None, ends: list[_SourceEnd]) -> list[list[str]]:
    """Returns the files that each source of files has read, from its journal; `starts` None: its start is unknown.

    Another kind of source may have such an offset, and no journal: then the offset is all that is known.
    """
    before = {source.name: _last_entry(source.offset) for source in starts or ()}
    files = []
    for source in ends:
        last = _last_entry(source.offset)
        if last is None:
            continue
        unknown_before = last - 1 if starts is None else None
        first = before.get(source.name, unknown_before)
        journal = f"{checkpoint.rstrip('/')}/{_SOURCES}/{source.name}"
        try:
            entries = [
                entry
                for number in range(0 if first is None else first + 1, last + 1)
                for entry in _journal_entries(journal, number)
            ]
        except FileNotFoundError:
            continue
        files.append(sorted(entries))
    return files


def _last_entry(offset: Any) -> int | None:
    """Returns the number of the last entry that a source of files has read; None for other sources."""
    is_of_files = isinstance(offset, Mapping) and list(offset) == [_OF_FILES]
    return offset[_OF_FILES] if is_of_files and isinstance(offset[_OF_FILES], int) else None


def _journal_entries(journal: str, number: int) -> list[str]:
    """Returns the files of one entry: their paths and times.

    Every tenth entry holds those before it, too (Spark's CompactibleFileStreamLog).
    FileNotFoundError when there is no such entry. ConfigError when it cannot be read from here.
    """
    path = f"{journal}/{number}"
    try:
        try:
            text = _read(path)
        except FileNotFoundError:
            text = _read(f"{path}.compact")
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise ConfigError(f"the files of a source cannot be read from {path}: {error}") from None
    mark = f'"batchId":{number}}}'
    return [line for line in text.splitlines() if line.endswith(mark)]


def _sources(checkpoint: str, batch: int) -> list[_SourceEnd]:
    """Returns the offset of each source at the end of a batch."""
    path = f"{checkpoint.rstrip('/')}/{_OFFSETS}/{batch}"
    try:
        text = _read(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the checkpoint's offsets cannot be read from {path}: {error}") from None
    version, _, rest = text.partition("\n")
    if version.strip() not in _KNOWN_VERSIONS:
        raise ConfigError(f"{path} has the format {version.strip()[:20]!r}, which this version does not know")
    lines = rest.splitlines()[1:]
    if version.strip() == _BY_NAME:
        named = [line.partition(":") for line in lines]
        return [_SourceEnd(name, _document(line)) for name, _, line in named]
    return [_SourceEnd(str(number), _document(line)) for number, line in enumerate(lines)]


def _read(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return Path(unquote(parts.path) if parts.scheme else uri).read_text()
    system, path = fs.FileSystem.from_uri(uri)
    with system.open_input_stream(path) as stream:
        return bytes(stream.read()).decode()


def _document(line: str) -> object:
    """Parses one source's offset. Text that is no JSON, from a source of another kind, stays text."""
    try:
        return json.loads(line)
    except ValueError:
        return line


def _topic_offsets(document: Any) -> StreamOffset:
    """Returns the offsets of a source of topics; empty ones for other sources."""
    return from_document(document) if _is_of_topics(document) else StreamOffset(next_offsets={})


def _is_of_topics(document: object) -> bool:
    if not isinstance(document, Mapping):
        return False
    try:
        from_document(document)
    except ConfigError:
        return False
    return True
