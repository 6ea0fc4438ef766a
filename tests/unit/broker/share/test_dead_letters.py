"""Dead letters of share groups: as many in a batch as fit, with content where that fits, and retried for a while."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.share import dead_letters
from odradek.broker.share.dead_letters import DeadLetterTopics
from odradek.cluster.image import NO_LEADER, FeatureLevels, PartitionImage, TopicImage
from odradek.config.loading import load_broker_config
from odradek.groups.share.partition import DeadRecord
from odradek.groups.share.settings import ShareSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.records import BatchBuilder, Record, assign, decode_batch, split_batches

ONE, TWO = BrokerId(1), BrokerId(2)
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
NO_LEVELS: Mapping[str, int] = {}
SETTINGS = ShareSettings(dead_letter_topic="dlq", copies_dead_letters=True)


class Inline:
    """Other threads' work, done at once."""

    async def run(self, work: Any, *arguments: Any) -> Any:
        return work(*arguments)


class Topics:
    """What was written, where; `local` is led here, and everything else by others, who may refuse."""

    def __init__(self, *, is_local: bool = True) -> None:
        self.is_local = is_local
        self.sent: list[tuple[str, int, BrokerId | None, list[Record]]] = []
        self.refusals: list[ErrorCode] = []

    async def append(self, topic: str, index: int, batch: bytearray) -> None:
        if not self.is_local:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._note(topic, index, None, batch)

    async def send(self, topic: TopicImage, index: int, leader: BrokerId, batch: bytearray) -> None:
        self._note(topic.name, index, leader, batch)

    def _note(self, topic: str, index: int, leader: BrokerId | None, batch: bytearray) -> None:
        if self.refusals:
            raise KafkaError(self.refusals.pop(0))
        [(header, content)] = split_batches(bytes(batch))
        self.sent.append((topic, index, leader, decode_batch(content, header)))


class Log:
    """A log whose records are the offsets' values, of `size` bytes."""

    def __init__(self, size: int) -> None:
        self.size = size

    def not_at_hand(self, offset: int, limit: int, beside: Any) -> None:
        return None

    def read(self, offset: int, limit: int, *, end_offset: int, at_least_one: bool) -> Any:
        builder = BatchBuilder()
        builder.append(1, b"k", (b"%d" % offset).ljust(self.size, b"."))
        batch = bytearray(builder.build())
        assign(batch, offset, 3)
        return SimpleNamespace(records=bytes(batch), next_offset=offset + 1)


def source(size: int = 10, index: int = 4) -> Any:
    return SimpleNamespace(
        name=TopicPartition("jobs", index), log=Log(size), start_offset=0, high_watermark=1_000
    )


def queue(
    topics: Topics,
    configs: Mapping[str, str] = ENABLED,
    *,
    leader: BrokerId = TWO,
    name: str = "dlq",
    levels: Mapping[str, int] = NO_LEVELS,
) -> DeadLetterTopics:
    partition = PartitionImage(leader=leader, leader_epoch=LeaderEpoch(1), replicas=(TWO,), isr=(TWO,))
    image = SimpleNamespace(
        features=FeatureLevels(levels=dict(levels)),
        topics={
            name: TopicImage(
                name=name, topic_id=UUID(int=1), partitions=(partition,) * 3, configs=dict(configs)
            )
        },
    )
    outside: Any = topics
    seen: Any = image
    clock: Any = SimpleNamespace(wall_ms=lambda: 77)
    config, _ = load_broker_config({"log.dirs": "/nowhere"})
    return DeadLetterTopics(outside, lambda: seen, lambda: config, clock, Inline())


def dead(*offsets: int) -> list[DeadRecord]:
    return [DeadRecord(offset, 2, is_rejected=offset % 2 == 0) for offset in offsets]


async def test_there_are_none_below_level_2_of_the_feature() -> None:
    topics = Topics()
    with pytest.raises(KafkaError, match=r"share\.version to 2") as refused:
        await queue(topics, levels={"share.version": 1}).write("g", source(), dead(6), SETTINGS)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert topics.sent == []


async def test_a_letter_has_content_headers_and_its_sources_partition() -> None:
    topics = Topics()
    await queue(topics).write("g", source(), dead(6, 7), SETTINGS)
    [(topic, index, leader, letters)] = topics.sent
    assert (topic, index, leader) == ("dlq", 4 % 3, None)
    assert [(letter.timestamp, letter.key, letter.value) for letter in letters] == [
        (77, b"k", b"6........."),
        (77, b"k", b"7........."),
    ]
    assert dict(letters[1].headers) == {
        "__dlq.errors.topic": b"jobs",
        "__dlq.errors.partition": b"4",
        "__dlq.errors.offset": b"7",
        "__dlq.errors.group": b"g",
        "__dlq.errors.delivery.count": b"2",
        "__dlq.errors.message": b"Offset delivery count exceeded the threshold.",
    }


async def test_another_brokers_partition_is_written_there() -> None:
    topics = Topics(is_local=False)
    await queue(topics).write("g", source(), dead(6), SETTINGS)
    assert [leader for _, _, leader, _ in topics.sent] == [TWO]


async def test_letters_that_do_not_fit_into_one_batch_go_into_several() -> None:
    topics = Topics()
    configs = {**ENABLED, "max.message.bytes": "4000"}
    await queue(topics, configs).write("g", source(size=1_000), dead(*range(5)), SETTINGS)
    assert [len(letters) for _, _, _, letters in topics.sent] == [2, 2, 1]


async def test_a_record_that_is_too_large_for_the_topic_has_a_letter_without_content() -> None:
    topics = Topics()
    configs = {**ENABLED, "max.message.bytes": "1500"}
    await queue(topics, configs).write("g", source(size=2_000), dead(6), SETTINGS)
    [(_, _, _, [letter])] = topics.sent
    assert (letter.key, letter.value) == (None, None)
    assert dict(letter.headers)["__dlq.errors.offset"] == b"6"


async def test_what_is_refused_for_a_while_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "PAUSE_S", 0.0)
    topics = Topics()
    topics.refusals = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]
    await queue(topics).write("g", source(), dead(6), SETTINGS)
    assert len(topics.sent) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"configs": {}}, r"set its errors\.deadletterqueue\.group\.enable=true"),
        ({"name": "jobs"}, "its own dead-letter topic"),
    ],
)
async def test_a_topic_that_takes_no_letters_is_named_at_once(options: Any, words: str) -> None:
    name = options.get("name", "dlq")
    settings = ShareSettings(dead_letter_topic=name)
    with pytest.raises(KafkaError, match=words):
        await queue(Topics(), **options).write("g", source(), dead(6), settings)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"name": "other"}, "there is no topic 'dlq'"), ({"leader": NO_LEADER}, "no leader")],
)
async def test_a_topic_that_stays_away_is_given_up_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, options: Any, words: str
) -> None:
    monkeypatch.setattr(dead_letters, "PAUSE_S", 0.01)
    monkeypatch.setattr(dead_letters, "WRITE_S", 0.05)
    with pytest.raises(KafkaError, match=words):
        await queue(Topics(), **options).write("g", source(), dead(6), SETTINGS)
