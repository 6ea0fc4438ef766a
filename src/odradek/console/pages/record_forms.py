"""What a query about records means: where to start, what to look for, and how a page hands a search on to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from odradek.console.model.snapshot import TopicFigures
from odradek.console.pages.group_changes import moment_of
from odradek.console.records.filtering import RecordFilter, parse_condition
from odradek.console.records.reading import ScanStart
from odradek.console.web.visit import Visit
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.model.java_numbers import is_digits

STARTS: Final = ("last", "beginning", "offset", "time", "tail")
LAST_DEFAULT: Final = 50
_DIGITS_MAX: Final = 18
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """A search in one topic."""

    start: ScanStart
    partitions: list[int]
    wanted: RecordFilter
    committed: bool
    scanned_before: int
    """The records and bytes that earlier steps of this search looked at."""
    bytes_before: int
    undecoded_before: int
    """The values that earlier steps could not decode."""


def record_query(visit: Visit, topic: TopicFigures) -> RecordQuery:
    """Reads the query. Raises ConfigError, which explains what is wrong with it."""
    query = visit.query
    condition = query.get("json", "").strip()
    return RecordQuery(
        start=_start(visit),
        partitions=_partitions(visit, topic),
        wanted=RecordFilter(
            text=query.get("text", ""),
            key=query.get("key", ""),
            header=query.get("header", "").strip(),
            condition=parse_condition(condition) if condition else None,
        ),
        committed="uncommitted" not in query,
        scanned_before=_whole(query.get("scanned", "")) or 0,
        bytes_before=_whole(query.get("bytes", "")) or 0,
        undecoded_before=_whole(query.get("undecoded", "")) or 0,
    )


def _start(visit: Visit) -> ScanStart:
    query = visit.query
    if cursor := query.get("cursor", ""):
        return ScanStart(kind="positions", positions=parse_cursor(cursor))
    kind, text = query.get("from", "last"), query.get("value", "").strip()
    if kind == "time":
        return ScanStart(kind="time", number=moment_of(visit, text))
    if kind == "beginning":
        return ScanStart(kind="beginning")
    number = _whole(text)
    if text and number is None:
        raise ConfigError(visit.catalogue.text("reset.not_a_number"))
    if kind == "offset":
        return ScanStart(kind="offset", number=number or 0)
    return ScanStart(kind="last", number=LAST_DEFAULT if number is None else number)


def _partitions(visit: Visit, topic: TopicFigures) -> list[int]:
    text = visit.query.get("partition", "")
    if not text:
        return list(range(topic.partitions))
    return [partition_of(text, topic)]


def partition_of(text: str, topic: TopicFigures) -> int:
    """Returns the number of a partition that the topic has. KafkaError if it has none."""
    number = _whole(text)
    if number is None or number >= topic.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {text!r:.40}")
    return number


def offset_of(text: str) -> int:
    """Returns an offset of a path. KafkaError if it is none."""
    number = _whole(text)
    if number is None:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{text!r:.40} is no offset")
    return number


def _whole(text: str) -> int | None:
    return int(text) if is_digits(text) and len(text) <= _DIGITS_MAX else None


def cursor_text(positions: Mapping[int, int]) -> str:
    """Returns where the next step continues: partition:offset, with commas."""
    return ",".join(f"{number}:{offset}" for number, offset in sorted(positions.items()))


def parse_cursor(text: str) -> dict[int, int]:
    """Parses `cursor_text`. Raises ConfigError for anything else."""
    positions = {}
    for part in text.split(","):
        number, _, offset = part.partition(":")
        partition, position = _whole(number), _whole(offset)
        if partition is None or position is None:
            raise ConfigError("the search cannot go on from there: begin it again")
        positions[partition] = position
    return positions


def time_text(time_ms: int) -> str:
    """Returns a time of a record in UTC; the number itself where no calendar has it."""
    if time_ms < 0:
        return "–"
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"@{time_ms}"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03d}"
