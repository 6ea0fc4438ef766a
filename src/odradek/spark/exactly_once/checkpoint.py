"""What a batch has read, as Spark's checkpoint tells it: the offsets that a query commits together with its output."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.model.lazy import lazy
from odradek.spark.offsets import BEGINNINGS_KEY, StreamOffset, from_document

if TYPE_CHECKING:
    from pyarrow import fs
else:
    fs = lazy("pyarrow.fs")

_OFFSETS: Final = "offsets"
_BY_NAME: Final = "v2"
"""A line is a source's name, a colon, and its offset. Names are letters, digits and underscores."""
_NOTHING_READ: Final = "-"
"""The offset of a source that has given nothing yet."""
_KNOWN_VERSIONS: Final = ("v1", _BY_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInput:
    """What a batch has read."""

    next_offsets: Mapping[TopicPartition, int]
    """Of each partition that its sources read, of those that are Kafka topics."""
    fingerprint: str
    """The same for two batches that have read the same, of all their sources: 16 hexadecimal digits."""
    is_whole: bool = True
    """`next_offsets` tells of all its sources. False: one of them reads something else, such as files."""


def batch_input(checkpoint: str, batch: int) -> BatchInput:
    """ConfigError when the checkpoint cannot be read from here."""
    ends = _sources(checkpoint, batch)
    try:
        starts = _sources(checkpoint, batch - 1) if batch else []
    except ConfigError:  # Spark's settings keep one batch alone
        starts = []
    offsets: dict[TopicPartition, int] = {}
    for document in ends:
        offsets.update(_topic_offsets(document).next_offsets)
    return BatchInput(
        next_offsets=offsets,
        fingerprint=_fingerprint([list(map(_without_beginnings, starts)), _ends_of(batch, ends)]),
        is_whole=all(document == _NOTHING_READ or _is_of_topics(document) for document in ends),
    )


def _ends_of(batch: int, documents: list[Any]) -> list[Any]:
    """The first batch begins where its end says; later ones begin where the batch before ended."""
    return [_without_beginnings(document) for document in documents] if batch else documents


def _without_beginnings(document: Any) -> Any:
    if not isinstance(document, Mapping):
        return document
    return {name: value for name, value in document.items() if name != BEGINNINGS_KEY}


def _fingerprint(documents: Any) -> str:
    text = json.dumps(documents, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def source_offsets(checkpoint: str, batch: int) -> list[StreamOffset]:
    """The end of a batch in each of its sources, in the query's order; without offsets for sources that are no Kafka topics.

    ConfigError when the checkpoint cannot be read from here.
    """
    return [_topic_offsets(document) for document in _sources(checkpoint, batch)]


def beginnings(checkpoint: str, batch: int) -> dict[TopicPartition, int] | None:
    """Where a query's first batch begins; None when one of its sources does not say so."""
    starts = [_topic_offsets(document).beginnings for document in _sources(checkpoint, batch)]
    if not starts or not all(starts):
        return None
    return {partition: offset for offsets in starts for partition, offset in offsets.items()}


def _sources(checkpoint: str, batch: int) -> list[Any]:
    """The offset of each source at the end of a batch."""
    place = f"{checkpoint.rstrip('/')}/{_OFFSETS}/{batch}"
    try:
        text = _read(place)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the checkpoint's offsets cannot be read from {place}: {error}") from None
    version, _, rest = text.partition("\n")
    if version.strip() not in _KNOWN_VERSIONS:
        raise ConfigError(
            f"{place} has the format {version.strip()[:20]!r}, which this version does not know"
        )
    lines = rest.splitlines()[1:]
    if version.strip() == _BY_NAME:
        lines = [line.partition(":")[2] for line in lines]
    return list(map(_document, lines))


def _read(place: str) -> str:
    parts = urlsplit(place)
    if parts.scheme in ("", "file"):
        return Path(unquote(parts.path) if parts.scheme else place).read_text()
    system, path = fs.FileSystem.from_uri(place)
    with system.open_input_stream(path) as stream:
        return bytes(stream.read()).decode()


def _document(line: str) -> Any:
    """One source's offset. What is no JSON, of a source of another kind, stays text."""
    try:
        return json.loads(line)
    except ValueError:
        return line


def _topic_offsets(document: Any) -> StreamOffset:
    """Of a source of topics; other sources have other offsets."""
    return from_document(document) if _is_of_topics(document) else StreamOffset(next_offsets={})


def _is_of_topics(document: Any) -> bool:
    if not isinstance(document, Mapping):
        return False
    try:
        from_document(document)
    except ConfigError:
        return False
    return True
