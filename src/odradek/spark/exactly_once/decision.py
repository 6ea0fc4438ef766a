"""The decisions of a sink, and their form: committed offsets of the sink's own group.

A decision names the transactions of one batch. Once it is committed, the batch is part of the output, and a writer that comes
next rolls it forward; before that, nothing of the batch counts. It is in the metadata of offsets of the group
`__odradek_sink.<sink id>` on the topic `__odradek_sink_decisions`, which never holds a record: partition 0 has the
decision and the first transactions, the next ones have more of them, the last one marks that all of them are committed.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from odradek.client.groups.values import OffsetAndMetadata
from odradek.client.transactions.prepared import TransactionIdentity
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.spark.options.sink_ids import group_of

DECISIONS_TOPIC: Final = "__odradek_sink_decisions"
DECISIONS_PARTITIONS: Final = 16
DRIVER_PREFIX: Final = "odradek-sink."
_SEPARATOR: Final = "~"
"""Separates a sink id, which cannot contain it, from the rest of a participant's transactional id."""
_ID: Final = re.compile(
    re.escape(DRIVER_PREFIX) + r"(?P<sink>[A-Za-z0-9._-]+)(?P<rest>~[0-9a-f]{12}-[01]\.[0-9]+)?"
)
_FORMAT: Final = 2
WRITER_BYTES: Final = 6
_PACKED: Final = struct.Struct(f">{WRITER_BYTES}sHqh")
_FIRST_CHUNK: Final = 64
_CHUNK: Final = 160
"""Participants in one offset's metadata: 18 bytes each, as base64, in less than offset.metadata.max.bytes (4,096). The
first one has fewer: a query's name, or a key, of 500 characters is in it, too."""
PARTICIPANTS_MAX: Final = _FIRST_CHUNK + _CHUNK * (DECISIONS_PARTITIONS - 2)
_DECISION: Final = TopicPartition(DECISIONS_TOPIC, 0)
_ENDED: Final = TopicPartition(DECISIONS_TOPIC, DECISIONS_PARTITIONS - 1)

Offsets = dict[TopicPartition, OffsetAndMetadata]
Committed = Mapping[TopicPartition, OffsetAndMetadata | None]


def driver_id(sink_id: str) -> str:
    """Returns the transactional id that decides."""
    return DRIVER_PREFIX + sink_id


def participant_id(sink_id: str, writer: str, side: int, slot: int) -> str:
    """Returns the transactional id of a task's transaction.

    No two processes use the same one, so a task that outlived its driver or its attempt cannot disturb another's
    transaction. Two batches in a row use different ones, so the last decision can always be carried out.
    """
    return f"{driver_id(sink_id)}{_SEPARATOR}{writer}-{side}.{slot}"


class SinkRole(StrEnum):
    """The role of a transactional id in its sink."""

    DRIVER = "driver"
    """It decides batches."""
    TASK = "task"
    """It writes rows."""


def sink_of(transactional_id: str) -> tuple[str, SinkRole] | None:
    """Returns the sink that a transactional id belongs to, and what it does there; None when it belongs to none."""
    match = _ID.fullmatch(transactional_id)
    if match is None:
        return None
    return match["sink"], SinkRole.DRIVER if match["rest"] is None else SinkRole.TASK


@dataclass(frozen=True, slots=True, kw_only=True)
class Participant:
    """A task's prepared transaction."""

    writer: str
    """The process that wrote it: 12 hexadecimal digits, drawn."""
    slot: int
    """Numbers that process's transactions in this batch."""
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The last batch that is part of a sink's output."""

    sink_id: str
    query: str
    """The query's id; for a batch write, its idempotence key."""
    batch: int
    side: int
    """0 and 1 in turn: part of its participants' names."""
    driver: tuple[int, int]
    """Producer id and epoch under which it was decided. No other decision of the sink has the same."""
    participants: tuple[Participant, ...]
    input_fingerprint: str | None = None
    """The fingerprint of what the batch has read, where the sink could compute it."""
    is_keyed: bool = False
    """It is a batch write, not a query's batch."""
    is_ended: bool = False
    """All of its transactions are known to be committed."""

    def identities(self) -> list[TransactionIdentity]:
        """Returns the transactions that it commits."""
        return [
            TransactionIdentity(
                transactional_id=participant_id(
                    self.sink_id, participant.writer, self.side, participant.slot
                ),
                producer_id=participant.producer_id,
                producer_epoch=participant.producer_epoch,
            )
            for participant in self.participants
        ]

    def to_offsets(self) -> Offsets:
        """Returns the offsets that store the decision; ConfigError when the batch has more tasks than they can hold."""
        if len(self.participants) > PARTICIPANTS_MAX:
            raise ConfigError(
                f"delivery=exactly_once takes at most {PARTICIPANTS_MAX:,} tasks with output a batch, and batch"
                f" {self.batch} has {len(self.participants):,}: coalesce() the rows before they are written"
            )
        first, rest = self.participants[:_FIRST_CHUNK], self.participants[_FIRST_CHUNK:]
        header = {
            "format": _FORMAT,
            "query": self.query,
            "keyed": self.is_keyed,
            "side": self.side,
            "driver": self.driver,
            "transactions": len(self.participants),
            "input": self.input_fingerprint,
            "is": _packed(first),
        }
        offsets = {_DECISION: OffsetAndMetadata(offset=self.batch, metadata=_json(header))}
        for number, start in enumerate(range(0, len(rest), _CHUNK), 1):
            more = {"driver": self.driver, "is": _packed(rest[start : start + _CHUNK])}
            offsets[TopicPartition(DECISIONS_TOPIC, number)] = OffsetAndMetadata(
                offset=self.batch, metadata=_json(more)
            )
        return offsets

    def end_mark(self) -> Offsets:
        """Returns the mark that the decision has been carried out."""
        return {_ENDED: OffsetAndMetadata(offset=self.batch, metadata=_json({"driver": self.driver}))}


def decision_in(sink_id: str, committed: Committed) -> Decision | None:
    """Returns the decision that a sink's offsets hold; None when they hold none.

    KafkaError INVALID_RECORD when someone else has written there.
    """
    first = committed.get(_DECISION)
    if first is None:
        return None
    header = _read(sink_id, first.metadata)
    try:
        if header["format"] != _FORMAT:
            raise _damaged(
                sink_id, f"its format is {header['format']}, and this version of Odradek knows {_FORMAT}"
            )
        count, driver = header["transactions"], _driver_in(header)
        participants = list(_unpacked(header["is"]))
        number = 1
        while len(participants) < count:
            more = committed.get(TopicPartition(DECISIONS_TOPIC, number))
            content = _read(sink_id, more.metadata) if more is not None else {}
            if more is None or _driver_in(content) != driver:
                raise _damaged(sink_id, f"it names {count} transactions and holds {len(participants)}")
            participants += _unpacked(content["is"])
            number += 1
        return Decision(
            sink_id=sink_id,
            query=header["query"],
            batch=first.offset,
            side=int(header["side"]),  # digits: a number of our own JSON
            driver=driver,
            participants=tuple(participants),
            input_fingerprint=header.get("input"),
            is_keyed=bool(header["keyed"]),
            is_ended=_is_ended(sink_id, committed.get(_ENDED), driver),
        )
    except (KeyError, TypeError, ValueError, struct.error) as error:
        raise _damaged(sink_id, f"{error!r}") from None


def _is_ended(sink_id: str, mark: OffsetAndMetadata | None, driver: tuple[int, int]) -> bool:
    return mark is not None and _driver_in(_read(sink_id, mark.metadata)) == driver


def _driver_in(content: Mapping[str, Any]) -> tuple[int, int]:
    producer_id, epoch = content["driver"]
    return int(producer_id), int(epoch)


def _packed(participants: Iterable[Participant]) -> str:
    raw = b"".join(
        _PACKED.pack(
            bytes.fromhex(participant.writer),
            participant.slot,
            participant.producer_id,
            participant.producer_epoch,
        )
        for participant in participants
    )
    return base64.b64encode(raw).decode()


def _unpacked(text: str) -> Iterable[Participant]:
    for writer, slot, producer_id, epoch in _PACKED.iter_unpack(base64.b64decode(text, validate=True)):
        yield Participant(writer=writer.hex(), slot=slot, producer_id=producer_id, producer_epoch=epoch)


def _json(content: Mapping[str, object]) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


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
