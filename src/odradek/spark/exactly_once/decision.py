"""What a sink has decided, and how that is kept: as committed offsets of the sink's own group.

A decision names the transactions of one batch. Once it is committed, the batch is part of the output, and whoever comes
next rolls it forward; before that, nothing of the batch counts. It lies in the metadata of offsets of the group
`__odradek_sink.<sink id>` on the topic `__odradek_sink_decisions`, which never holds a record: partition 0 has the
decision and the first transactions, the next ones have more of them, the last one says that all of them are committed.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek.client.groups.values import OffsetAndMetadata
from odradek.client.transactions.prepared import TransactionIdentity
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.model.ids import TopicPartition

DECISIONS_TOPIC: Final = "__odradek_sink_decisions"
DECISIONS_PARTITIONS: Final = 16
GROUP_PREFIX: Final = "__odradek_sink."
DRIVER_PREFIX: Final = "odradek-sink."
_SEPARATOR: Final = "~"
"""Between a sink id, which cannot have it, and the rest of a participant's transactional id."""
_FORMAT: Final = 1
_PACKED: Final = struct.Struct(">IHqh")
_CHUNK: Final = 170
"""Participants in one offset's metadata: 16 bytes each, as base64, in less than offset.metadata.max.bytes (4,096)."""
PARTICIPANTS_MAX: Final = _CHUNK * (DECISIONS_PARTITIONS - 1)
_DECISION: Final = TopicPartition(DECISIONS_TOPIC, 0)
_ENDED: Final = TopicPartition(DECISIONS_TOPIC, DECISIONS_PARTITIONS - 1)

Offsets = dict[TopicPartition, OffsetAndMetadata]
Committed = Mapping[TopicPartition, OffsetAndMetadata | None]


def group_of(sink_id: str) -> str:
    """The group whose offsets are the sink's decisions."""
    return GROUP_PREFIX + sink_id


def driver_id(sink_id: str) -> str:
    """The transactional id that decides."""
    return DRIVER_PREFIX + sink_id


def participant_prefix(sink_id: str) -> str:
    """What the transactional ids of all tasks of a sink begin with."""
    return driver_id(sink_id) + _SEPARATOR


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """The transactional ids of one batch's tasks.

    No two drivers use the same ids, so a task that outlived its driver cannot disturb another driver's transactions. Two
    batches in a row use different ones, so the last decision can always be rolled forward.
    """

    sink_id: str
    incarnation: str
    """Of the driver's process: eight hexadecimal digits."""
    side: int
    """0 and 1 in turn."""

    def transactional_id(self, partition: int, attempt: int) -> str:
        """Of one attempt of one task."""
        return f"{participant_prefix(self.sink_id)}{self.incarnation}-{self.side}-{partition}.{attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Participant:
    """A task's prepared transaction."""

    partition: int
    attempt: int
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The last batch that is part of a sink's output."""

    query: str
    batch: int
    namespace: Namespace
    participants: tuple[Participant, ...]
    is_ended: bool = False
    """All of its transactions are known to be committed."""

    def identities(self) -> list[TransactionIdentity]:
        """The transactions that it commits."""
        return [
            TransactionIdentity(
                transactional_id=self.namespace.transactional_id(each.partition, each.attempt),
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
            )
            for each in self.participants
        ]

    def to_offsets(self) -> Offsets:
        """As it is committed; ConfigError when the batch has more tasks than that can name."""
        if len(self.participants) > PARTICIPANTS_MAX:
            raise ConfigError(
                f"delivery=exactly_once takes at most {PARTICIPANTS_MAX:,} tasks with output a batch, and batch"
                f" {self.batch} has {len(self.participants):,}: coalesce() the rows before they are written"
            )
        chunks = [
            self.participants[start : start + _CHUNK] for start in range(0, len(self.participants), _CHUNK)
        ] or [()]
        header = {
            "format": _FORMAT,
            "query": self.query,
            "incarnation": self.namespace.incarnation,
            "side": self.namespace.side,
            "transactions": len(self.participants),
            "is": _packed(chunks[0]),
        }
        offsets = {_DECISION: OffsetAndMetadata(offset=self.batch, metadata=_json(header))}
        for number, chunk in enumerate(chunks[1:], 1):
            more = {"query": self.query, "is": _packed(chunk)}
            offsets[TopicPartition(DECISIONS_TOPIC, number)] = OffsetAndMetadata(
                offset=self.batch, metadata=_json(more)
            )
        return offsets

    def end_mark(self) -> Offsets:
        """What says that the decision has been carried out."""
        return {_ENDED: OffsetAndMetadata(offset=self.batch, metadata=_json({"query": self.query}))}


def decision_in(sink_id: str, committed: Committed) -> Decision | None:
    """The decision that a sink's offsets hold; None when they hold none.

    KafkaError INVALID_RECORD when somebody else has written there.
    """
    first = committed.get(_DECISION)
    if first is None:
        return None
    header = _read(sink_id, first.metadata)
    try:
        query, count, version = header["query"], header["transactions"], header["format"]
        if version != _FORMAT:
            raise _damaged(sink_id, f"its format is {version}, and this version of Odradek knows {_FORMAT}")
        participants = list(_unpacked(header["is"]))
        number = 1
        while len(participants) < count:
            more = committed.get(TopicPartition(DECISIONS_TOPIC, number))
            content = _read(sink_id, more.metadata) if more is not None else {}
            if more is None or more.offset != first.offset or content["query"] != query:
                raise _damaged(sink_id, f"it names {count} transactions and holds {len(participants)}")
            participants += _unpacked(content["is"])
            number += 1
        namespace = Namespace(sink_id=sink_id, incarnation=header["incarnation"], side=header["side"])
    except (KeyError, TypeError, ValueError, struct.error) as error:
        raise _damaged(sink_id, f"{error!r}") from None
    return Decision(
        query=query,
        batch=first.offset,
        namespace=namespace,
        participants=tuple(participants),
        is_ended=_is_ended(sink_id, committed.get(_ENDED), query, first.offset),
    )


def _is_ended(sink_id: str, mark: OffsetAndMetadata | None, query: str, batch: int) -> bool:
    if mark is None or mark.offset != batch:
        return False
    return bool(_read(sink_id, mark.metadata).get("query") == query)


def _packed(participants: Iterable[Participant]) -> str:
    raw = b"".join(
        _PACKED.pack(each.partition, each.attempt, each.producer_id, each.producer_epoch)
        for each in participants
    )
    return base64.b64encode(raw).decode()


def _unpacked(text: str) -> Iterable[Participant]:
    for partition, attempt, producer_id, epoch in _PACKED.iter_unpack(base64.b64decode(text, validate=True)):
        yield Participant(partition=partition, attempt=attempt, producer_id=producer_id, producer_epoch=epoch)


def _json(content: Mapping[str, object]) -> str:
    return json.dumps(content, separators=(",", ":"))


def _read(sink_id: str, text: str | None) -> dict[str, Any]:
    try:
        content = json.loads(text or "")
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise _damaged(sink_id, f"its metadata is {text!r:.80}")
    return content


def _damaged(sink_id: str, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_RECORD,
        f"the offsets of group {group_of(sink_id)!r} are no decision of an exactly-once sink: {reason}",
    )
