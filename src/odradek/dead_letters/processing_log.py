"""ksqlDB's processing log: a topic of JSON with a line for each record that a query leaves out, and why.

The members of an entry are ksqlDB's ("Processing log", ksqlDB's reference). PARTITION and OFFSET of the record are added.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

_DESERIALIZATION_ERROR: Final = 0
_PROCESSING_ERROR: Final = 1
_ROLE: Final = re.compile(r"the (key|value|timestamp)\b")
_TEXT_CHARS_MAX: Final = 2_000
ENTRIES_MAX: Final = 100
"""The entries that one batch of one task writes, and one second of a server; those beyond are counted in one entry more."""
_LOGGER: Final = "processing."
_MORE_STAGE: Final = "more"
_MORE: Final = re.compile(r"([0-9]{1,12}) more records were left out")
_PREFIX: Final = "ksql.logging.processing."
TOPIC_NAME: Final = f"{_PREFIX}topic.name"
TOPIC_AUTO_CREATE: Final = f"{_PREFIX}topic.auto.create"
STREAM_NAME: Final = f"{_PREFIX}stream.name"
STREAM_AUTO_CREATE: Final = f"{_PREFIX}stream.auto.create"
ROWS_INCLUDE: Final = f"{_PREFIX}rows.include"

STREAM_COLUMNS: Final = (
    "logger VARCHAR, level VARCHAR, time BIGINT, message STRUCT<type INTEGER,"
    " deserializationError STRUCT<target VARCHAR, errorMessage VARCHAR, recordB64 VARCHAR, cause ARRAY<VARCHAR>,"
    " `topic` VARCHAR, `partition` INTEGER, `offset` BIGINT>,"
    " recordProcessingError STRUCT<errorMessage VARCHAR, record VARCHAR, cause ARRAY<VARCHAR>,"
    " `topic` VARCHAR, `partition` INTEGER, `offset` BIGINT>,"
    " productionError STRUCT<errorMessage VARCHAR>,"
    " serializationError STRUCT<target VARCHAR, errorMessage VARCHAR, record VARCHAR, cause ARRAY<VARCHAR>, `topic` VARCHAR>,"
    " kafkaStreamsThreadError STRUCT<errorMessage VARCHAR, threadName VARCHAR, cause ARRAY<VARCHAR>>>"
)
"""The columns of the stream over the topic, as CREATE STREAM has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessingLog:
    """The destination of entries. `logger`: processing.<query id>. `includes_rows`: entries have the key or
    value."""

    topic: str
    logger: str
    includes_rows: bool = False

    @property
    def text(self) -> str:
        """The value as the text of an option."""
        return json.dumps([self.topic, self.logger, self.includes_rows])

    @classmethod
    def of(cls, text: str) -> Self:
        """Reads `text`."""
        topic, logger, includes_rows = json.loads(text)
        return cls(topic=topic, logger=logger, includes_rows=includes_rows)

    def entry(self, failure: Mapping[str, Any], now_ms: int) -> bytes | None:
        """Returns the entry about a record. `failure` has origin, message and stage; key and value of the origin are in base
        64.

        None for a record of the log itself, so that its stream does not feed itself.
        """
        origin, message = failure["origin"], str(failure["message"])[:_TEXT_CHARS_MAX]
        if origin["topic"] == self.topic:
            return None
        place = {name: origin[name] for name in ("topic", "partition", "offset")}
        role = _ROLE.match(message)
        if role is None:
            text = f"Error processing a record of topic: {origin['topic']}"
            error = {"errorMessage": text, "record": self._row(origin, "value"), "cause": [message], **place}
            return self._written(failure["stage"], now_ms, _PROCESSING_ERROR, recordProcessingError=error)
        error = {
            "target": role[1],
            "errorMessage": f"Error deserializing message from topic: {origin['topic']}",
            "recordB64": self._row(origin, role[1]),
            "cause": [message],
            **place,
        }
        return self._written("deserializer", now_ms, _DESERIALIZATION_ERROR, deserializationError=error)

    def more(self, count: int, now_ms: int) -> bytes:
        """Returns one entry for `count` records that have none of their own."""
        text = f"{count} more records were left out, without entries of their own"
        error = {"errorMessage": text, "record": None, "cause": [text]}
        return self._written(_MORE_STAGE, now_ms, _PROCESSING_ERROR, recordProcessingError=error)

    def _row(self, origin: Mapping[str, object], role: str) -> Any:
        return origin.get(role) if self.includes_rows else None

    def _written(self, stage: str, now_ms: int, kind: int, **error: object) -> bytes:
        members = dict.fromkeys(
            (
                "deserializationError",
                "recordProcessingError",
                "productionError",
                "serializationError",
                "kafkaStreamsThreadError",
            )
        )
        message = {"type": kind, **members, **error}
        entry = {"level": "ERROR", "logger": f"{self.logger}.{stage}", "time": now_ms, "message": message}
        return json.dumps(entry).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """The records that one entry is about. `topic`: empty where the entry names none, because it is about
    several records."""

    query_id: str
    topic: str
    count: int


def left_out_of(content: bytes | None) -> LeftOut | None:
    """Reads an entry. None for bytes that are no entry about records: anyone may write to the topic."""
    try:
        entry = json.loads(content or b"")
        logger, message = entry["logger"], entry["message"]
        query_id, _, stage = logger.removeprefix(_LOGGER).rpartition(".")
        error = message["deserializationError"] or message["recordProcessingError"]
        topic = error.get("topic", "")
        more = _MORE.match(error["errorMessage"]) if stage == _MORE_STAGE else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    if not isinstance(topic, str) or (not topic and more is None):
        return None
    return LeftOut(query_id=query_id, topic=topic, count=1 if more is None else int(more[1]))
