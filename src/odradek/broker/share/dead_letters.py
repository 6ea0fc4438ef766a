"""Dead letters of share groups (KIP-1191): records that a group rejected, or delivered too often, are written to its topic.

A letter's headers have the record's position and the reason why it was given up; it has the record's key and
value if the group asks for that. A record is archived when its letter is durable, so a restart in between
delivers the record again: it may have two letters, and never none. A letter that cannot be written within
`WRITE_S` is logged and given up: it must not block the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from odradek.broker.cluster.features import SHARE_VERSION, level_of
from odradek.broker.produce.own_records import OwnRecords
from odradek.cluster.image import NO_LEADER, ClusterImage, TopicImage
from odradek.config.broker import BrokerConfig
from odradek.config.topic import LogConfig, topic_config
from odradek.groups.share.partition import DeadRecord
from odradek.groups.share.settings import ShareSettings
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.records import BatchBuilder, Codec, Record, decode_batch, split_batches
from odradek.replication.partition import Partition
from odradek.runtime.ports import Clock, Offload
from odradek.storage.files.at_hand import NotAtHand, ReadProgress, read_off_loop
from odradek.storage.log.results import LogRead

WRITE_S: Final = 10.0
"""For so long the letters of one acknowledgement are tried to be written; the request waits meanwhile."""
PAUSE_S: Final = 0.2
_READ_BYTES: Final = 1 << 20
_BATCH_BYTES: Final = 1 << 19
"""The bytes of one batch of letters: more go into another one."""
_HEADER_BYTES: Final = 512
"""More than the headers of a letter take, and what a batch adds, with short names of topics and groups."""
REJECTED: Final = "Offset rejected by client."
DELIVERED_TOO_OFTEN: Final = "Offset delivery count exceeded the threshold."
"""The messages are Kafka's."""


class LetterContent(NamedTuple):
    """The key and the value of a record that was given up."""

    key: bytes | None
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        return len(self.key or b"") + len(self.value or b"")


_DEAD_LETTERS_LEVEL: Final = 2
"""The level of `share.version` from which on share groups have dead letters."""
NO_CONTENT: Final = LetterContent(None, None)


class DeadLetterTopics:
    """Writes the letters of all groups. Used on the event loop."""

    def __init__(
        self,
        records: OwnRecords,
        image: Callable[[], ClusterImage],
        config: Callable[[], BrokerConfig],
        clock: Clock,
        offload: Offload,
    ) -> None:
        self._records = records
        self._image = image
        self._config = config
        self._clock = clock
        self._offload = offload

    async def write(
        self, group_id: str, source: Partition, dead: Sequence[DeadRecord], settings: ShareSettings
    ) -> None:
        """Returns when all letters are durable. Raises the last reason why they are not, after `WRITE_S`.

        Raises UNSUPPORTED_VERSION at once where `share.version` is below 2 (KIP-1191).
        """
        if level_of(self._image(), SHARE_VERSION) < _DEAD_LETTERS_LEVEL:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "dead letters are off: set the feature share.version to 2"
            )
        problem: OdradekError = KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, f"topic {settings.dead_letter_topic!r} did not take the letters"
        )
        try:
            async with asyncio.timeout(WRITE_S):
                contents = await self._contents(source, dead) if settings.copies_dead_letters else {}
                left = list(dead)
                while left:
                    try:
                        written = await self._write_batch(group_id, source, left, contents, settings)
                    except KafkaError as error:
                        if not error.retriable and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                            raise
                        problem = error
                    except OdradekError as error:
                        problem = error
                    else:
                        left = left[written:]
                        continue
                    await asyncio.sleep(PAUSE_S)
        except TimeoutError:
            raise problem from None

    async def _write_batch(
        self,
        group_id: str,
        source: Partition,
        dead: Sequence[DeadRecord],
        contents: Mapping[int, LetterContent],
        settings: ShareSettings,
    ) -> int:
        """Writes as many letters as go into one batch; returns their number."""
        topic, config = self._topic(settings.dead_letter_topic, source)
        limit = min(_BATCH_BYTES, config.max_message_bytes)
        builder, count, size_bytes = BatchBuilder(Codec.NONE), 0, 0
        for record in dead:
            content = contents.get(record.offset, NO_CONTENT)
            if content.size_bytes + _HEADER_BYTES > limit:
                content = NO_CONTENT  # the headers have its position
            size_bytes += content.size_bytes + _HEADER_BYTES
            if count and size_bytes > limit:
                break
            headers = list(letter_headers(group_id, source, record))
            builder.append(self._clock.wall_ms(), content.key, content.value, headers)
            count += 1
        index = source.name.partition % len(topic.partitions)
        leader = topic.partitions[index].leader
        if leader == NO_LEADER:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic.name}-{index} has no leader now")
        batch = builder.build()
        try:
            await self._records.append(topic.name, index, batch)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise
            await self._records.send(topic, index, leader, batch)
        return count

    def _topic(self, name: str, source: Partition) -> tuple[TopicImage, LogConfig]:
        """Raises UNKNOWN_TOPIC_OR_PARTITION, and INVALID_CONFIG for a topic that takes no letters."""
        topic = self._image().topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}: create it")
        if name == source.name.topic:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"topic {name!r} would be its own dead-letter topic")
        config = topic_config(topic.configs, self._config())
        if not config.errors_deadletterqueue_group_enable:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"topic {name!r} takes no dead letters: set its errors.deadletterqueue.group.enable=true",
            )
        return topic, config

    async def _contents(self, source: Partition, dead: Iterable[DeadRecord]) -> dict[int, LetterContent]:
        """Returns the key and the value of each record that the log still has, by offset."""
        contents: dict[int, LetterContent] = {}
        wanted = {record.offset for record in dead}
        position = -1
        for offset in sorted(wanted):
            if offset < max(position, source.start_offset):
                continue  # read along with an earlier one, or deleted
            read = await read_off_loop(self._offload, partial(_read, source, offset))
            records = await self._offload.run(_records_of, read.records)
            contents |= {
                record.offset: LetterContent(record.key, record.value)
                for record in records
                if record.offset in wanted
            }
            position = max(read.next_offset, offset + 1)
        return contents


def _read(source: Partition, offset: int, beside: ReadProgress) -> LogRead:
    missing = source.log.not_at_hand(offset, _READ_BYTES, beside)
    if missing is not None:
        raise NotAtHand(missing)
    return source.log.read(offset, _READ_BYTES, end_offset=source.high_watermark, at_least_one=True)


def _records_of(data: bytes) -> list[Record]:
    return [
        record for header, batch in split_batches(memoryview(data)) for record in decode_batch(batch, header)
    ]


def letter_headers(group_id: str, source: Partition, record: DeadRecord) -> Iterator[tuple[str, bytes]]:
    """Yields Kafka's headers."""
    yield "__dlq.errors.topic", source.name.topic.encode()
    yield "__dlq.errors.partition", str(source.name.partition).encode()
    yield "__dlq.errors.offset", str(record.offset).encode()
    yield "__dlq.errors.group", group_id.encode()
    yield "__dlq.errors.delivery.count", str(record.delivery_count).encode()
    yield "__dlq.errors.message", (REJECTED if record.is_rejected else DELIVERED_TOO_OFTEN).encode()
