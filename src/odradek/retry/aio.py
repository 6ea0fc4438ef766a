"""The asynchronous consumer that tries again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Generic, Self, Unpack, overload
from uuid import UUID

from odradek.client import ConfigResource
from odradek.client.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
from odradek.client.consumer.consumer_record import ConsumerRecord, K, KeyT, V, ValueT
from odradek.client.consumer.core import Deserializer
from odradek.client.groups.values import CommitFailedError, OffsetAndMetadata, Partitions, RebalanceListener
from odradek.client.network.errors import PartialFailureError
from odradek.client.network.metrics import MetricName
from odradek.client.settings.options import ConsumerOptions
from odradek.client.settings.settings import ConsumerSettings
from odradek.client.settings.shown_settings import with_settings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.model.public import public
from odradek.retry.clients import ClientConfigs, client_configs, given_config
from odradek.retry.handlers import check_handler, check_outputs, handler_name, outputs_of
from odradek.retry.policy import RetryPolicy
from odradek.retry.routing import Forward, Output, ReceivedRecord, Routing
from odradek.retry.topics import BYTE_LIMIT, missing_topics, narrow_topics
from odradek.retry.turn import HandlingTurn
from odradek.retry.waiting_partitions import WaitingPartitions
from odradek.runtime.ports import Clock
from odradek.runtime.real_clock import SystemClock
from odradek.telemetry import events

_log = events.get("retry")

_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})

Handler = Callable[[ConsumerRecord[K, V]], Awaitable[Iterable[Output] | None]]
"""Takes a record; returns records to send, or None. What it raises makes the record wait, or a dead letter."""


@public("odradek.retry")
class AsyncRetryConsumer(Generic[K, V]):
    """Hands the records of topics to a function, as a member of a group, and tries again what fails.

        policy = RetryPolicy(delays=("10s", "1m", "10m"))
        async with AsyncRetryConsumer("127.0.0.1:9092", ["orders"], group_id="billing", policy=policy) as consumer:
            await consumer.run(handle)

    A record that the function raises for waits in a retry topic (or, blocking, where it is), and becomes a dead letter after
    the last try. Meanwhile the member stays in its group: partitions are paused, no one sleeps. The function gets a record
    as it was in its own topic, also from a retry topic: place, timestamp and headers. Other settings are a consumer's.
    """

    @with_settings(ConsumerSettings, ConsumerOptions)
    def __init__(
        self,
        bootstrap_servers: str | list[str] | tuple[str, ...],
        topics: Iterable[str],
        *,
        policy: RetryPolicy | None = None,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        transactional_id: str | None = None,
        producer: Mapping[str, object] | None = None,
        clock: Clock | None = None,
        **settings: Unpack[ConsumerOptions],
    ) -> None:
        """Takes topics, a policy, and a consumer's settings, by Kafka's names, as keyword arguments.

        topics
            The topics to handle; their retry topics are read, too.
        policy
            The tries, their delays and the dead-letter topic (default: `RetryPolicy()`).
        transactional_id
            The producer's name in transactions, with `exactly_once`: another one for each member (default: made of the
            group, and of group_instance_id if that is set).
        producer
            Settings, as keyword arguments, of the producer that hands records over.
        """
        self._policy = policy or RetryPolicy()
        configs: ClientConfigs = client_configs(
            self._policy, dict(settings), producer or {}, transactional_id
        )
        self._routing = Routing(self._policy, configs.group_id, topics)
        self._waiting = WaitingPartitions()
        self._clock = clock or SystemClock()
        self._longest_turn_s = configs.longest_turn_s
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._consumer = AsyncConsumer(bootstrap_servers, **configs.consumer)
        self._producer = AsyncProducer(bootstrap_servers, **configs.producer)
        self._admin = AsyncAdmin(bootstrap_servers, **configs.admin)
        self._partition_counts: dict[str, int] = {}
        self._read_again: dict[TopicPartition, tuple[int, UUID]] = {}
        """Offsets of records that were polled but not committed, with the ids of their topics."""
        self._topic_ids: Mapping[TopicPartition, UUID] = {}
        """The topics that the records of the last poll were read from; a seek makes the consumer forget them."""
        self._has_begun = False
        self._stopping = False
        self.counts: Final[Counter[str]] = Counter()
        """The number of records that were `handled`, `retried` and `dead_lettered` here."""
        self.attempt = 0
        """The attempt of the record that is being handled: 1 for its first try."""

    @overload
    @classmethod
    def from_config(
        cls,
        config: Mapping[str, object],
        *,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
    ) -> Self: ...

    @overload
    @classmethod
    def from_config(
        cls,
        config: Mapping[str, object],
        *,
        key_deserializer: Deserializer[KeyT] | None = None,
        value_deserializer: Deserializer[ValueT] | None = None,
    ) -> AsyncRetryConsumer[KeyT, ValueT]: ...

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, object],
        *,
        key_deserializer: Deserializer[Any] | None = None,
        value_deserializer: Deserializer[Any] | None = None,
    ) -> AsyncRetryConsumer[Any, Any]:
        """Makes a consumer from a mapping: `topics`, what `RetryPolicy.from_config` takes, a consumer's settings with
        Kafka's names, a producer's after `producer.`."""
        given = given_config(config)
        return cls(
            given.bootstrap_servers,
            given.topics,
            policy=given.policy,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            transactional_id=given.transactional_id,
            producer=given.producer,
            **given.consumer,
        )

    async def run(self, handler: Handler[K, V]) -> None:
        """Handle records until `stop`. What it raises is not a handler's error: nothing of it is committed."""
        while not self._stopping:
            await self.handle_some(handler)

    def stop(self) -> None:
        """Let `run` return after the record that is being handled; from any thread, or a signal handler."""
        self._stopping = True

    async def handle_some(self, handler: Handler[K, V], timeout_s: float = 1.0) -> int:
        """Handles the records of one poll; returns how many were tried. Waits up to `timeout_s` for the first."""
        # sync: check_handler(handler, is_async=False)
        check_handler(handler, is_async=True)  # async
        await self._begin()
        await self._go_back()
        now_ms = self._clock.wall_ms()
        due = self._waiting.due(now_ms)
        if due:
            self._consumer.resume(due)
        wait_s = min(timeout_s, self._waiting.poll_ms(now_ms) / 1000)
        turn = HandlingTurn(self._routing, self._waiting, await self._consumer.poll(wait_s), self.counts)
        self._topic_ids = self._consumer.group_metadata().topic_ids
        try:
            return await self._carry_out(turn, handler)
        except BaseException:
            self._read_again |= self._tied(turn.beginnings)
            raise

    def metrics(self) -> dict[MetricName, float]:
        """Returns the figures of its consumer, and of the producer that hands records over."""
        return self._consumer.metrics() | self._producer.metrics()

    async def close(self) -> None:
        """Leave the group. Idempotent."""
        await self._consumer.close()
        await self._producer.close()
        await self._admin.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- inside

    async def _begin(self) -> None:
        """Makes missing topics and joins the group, once."""
        if self._has_begun:
            return
        await self._make_topics()
        if self._policy.exactly_once:
            await self._producer.init_transactions()
        listener = _HandoverListener(self._consumer, self._waiting, frozenset(self._routing.retry_topics))
        await self._consumer.subscribe(self._routing.subscription(), listener=listener)
        self._has_begun = True

    async def _make_topics(self) -> None:
        there = set(await self._admin.list_topics())
        self._read_former(there)
        names = [name for name in self._routing.all_topics() if name in there]
        descriptions = await self._admin.describe_topics(names) if names else {}
        self._partition_counts = {
            name: len(description.partitions) for name, description in descriptions.items()
        }
        limits = await self._byte_limits(names)
        for narrow in narrow_topics(self._routing, limits):
            _log.warning(
                "topic_takes_smaller_records_than_its_source",
                topic=narrow.topic,
                max_message_bytes=narrow.byte_limit,
                source=narrow.source,
                source_max_message_bytes=narrow.source_byte_limit,
                advice=f"a larger record that fails will stop this consumer: raise {BYTE_LIMIT} of {narrow.topic}",
            )
        for topic in missing_topics(self._routing, self._policy, self._partition_counts, limits):
            try:
                await self._admin.create_topics([topic])
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another member was faster
                    raise
            self._partition_counts[topic.name] = topic.partitions

    def _read_former(self, there: set[str]) -> None:
        """Records may wait in retry topics of delays that were configured before."""
        former = self._routing.former_retry_topics(there)
        if former and self._policy.has_topics_of_its_group:
            self._routing.read_former(former)
            _log.info("reading_topics_of_former_delays", topics=", ".join(former))
        elif former:
            _log.warning(
                "topics_of_former_delays_are_not_read",
                topics=", ".join(former),
                advice="they may be another group's, since retry.topic.name has no {group}. If they are this group's, configure"
                " their delays until they are empty",
            )

    async def _byte_limits(self, topics: list[str]) -> dict[str, int]:
        """max.message.bytes of topics, of those whose settings the user may see."""
        try:
            entries = await self._admin.describe_configs(map(ConfigResource.topic, topics))
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            entries = dict(error.results) if isinstance(error, PartialFailureError) else {}
            _log.warning(
                "limits_of_topics_are_unknown",
                topics=", ".join(sorted(set(topics) - {resource.name for resource in entries})),
                advice="retry and dead-letter topics are made with the broker's limit: allow this user DESCRIBE_CONFIGS",
            )
        values = {resource.name: configs.get(BYTE_LIMIT) for resource, configs in entries.items()}
        return {name: int(entry.value) for name, entry in values.items() if entry is not None and entry.value}

    async def _carry_out(self, turn: HandlingTurn, handler: Handler[K, V]) -> int:
        deadline = self._clock.monotonic() + self._longest_turn_s
        count = 0
        while (received := turn.next(self._clock.wall_ms())) is not None:
            count += 1
            await self._handle(turn, received, handler)
            if self._stopping or self._clock.monotonic() >= deadline:
                turn.leave_the_rest()
        for place, (offset, topic_id) in self._tied(turn.rewinds).items():
            self._consumer.seek(place, offset, topic_id=topic_id)
        self._consumer.pause(turn.held)
        await self._hand_over(turn)
        return count

    async def _go_back(self) -> None:
        """Seeks back to the records that a failed turn has not committed: a later turn would commit later
        offsets.

        A transaction whose end is unknown may be committed, and a partition may have been elsewhere
        meanwhile.
        """
        mine = set(self._consumer.assignment()) & self._read_again.keys()
        committed = await self._consumer.committed(mine) if mine else {}
        for place in mine:
            known = committed.get(place)
            offset, topic_id = self._read_again[place]
            self._consumer.seek(place, max(offset, known.offset if known else 0), topic_id=topic_id)
        self._read_again.clear()

    def _tied(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, UUID]]:
        """Returns the offsets of the last poll with the ids of the topics that their records were read from."""
        return {place: (offset, self._topic_ids.get(place, ZERO_UUID)) for place, offset in offsets.items()}

    async def _handle(self, turn: HandlingTurn, received: ReceivedRecord, handler: Handler[K, V]) -> None:
        stage, is_final = "key", True
        self.attempt = received.attempt
        try:
            record: ConsumerRecord[Any, Any] = received.record
            if self._key_deserializer is not None and record.key is not None:
                record = record._replace(key=self._key_deserializer(record.key))
            stage = "value"
            if self._value_deserializer is not None and record.value is not None:
                record = record._replace(value=self._value_deserializer(record.value))
            stage, is_final = handler_name(handler), False
            # sync: outputs = outputs_of(handler(record))
            outputs = outputs_of(await handler(record))  # async
        except Exception as error:  # noqa: BLE001 - the user's code: what it raises is what this is for
            step = turn.failed(received, error, stage, self._clock.wall_ms(), is_final=is_final)
            _log.info(
                "record_failed",
                record=str(received.origin),
                attempt=received.attempt,
                error=type(error).__name__,
                goes_to=step.topic if isinstance(step, Forward) else str(received.place),
            )
            return
        check_outputs(outputs, handler)
        turn.handled(received, outputs)

    async def _hand_over(self, turn: HandlingTurn) -> None:
        """Send the turn's records, then commit; or both in one transaction."""
        if not turn.positions:
            return
        positions = {
            place: OffsetAndMetadata(offset, topic_id=topic_id)
            for place, (offset, topic_id) in self._tied(turn.positions).items()
        }
        try:
            if not self._policy.exactly_once:
                await self._send_all(turn)
                await self._producer.flush()
                await self._consumer.commit(positions)
                return
            async with self._producer.transaction():
                await self._send_all(turn)
                await self._producer.send_offsets_to_transaction(positions, self._consumer.group_metadata())
        except CommitFailedError as error:
            _log.warning("partitions_went_to_another_member", reason=error.message)
            if self._policy.exactly_once:  # what was ours and still is, is handled again
                self._waiting.forget(self._consumer.assignment())
                self._consumer.resume(self._consumer.assignment())
                self._read_again |= self._tied(turn.beginnings)
        except KafkaError as error:
            if error.code not in _TOO_LARGE:
                raise
            raise KafkaError(
                error.code,
                f"what failed cannot be handed over, and nothing of this poll is committed: {error.message}. Raise {BYTE_LIMIT}"
                " of that topic to what its source has, or producer.max.request.size, or set producer.compression.type",
            ) from error

    async def _send_all(self, turn: HandlingTurn) -> None:
        for outgoing in turn.to_send:
            if isinstance(outgoing, Forward):
                has_partition = outgoing.partition < self._partition_counts.get(outgoing.topic, 0)
                await self._producer.send(
                    outgoing.topic,
                    outgoing.value,
                    key=outgoing.key,
                    headers=outgoing.headers,
                    partition=outgoing.partition if has_partition else None,
                )
            else:
                await self._producer.send(
                    outgoing.topic,
                    outgoing.value,
                    key=outgoing.key,
                    headers=outgoing.headers,
                    partition=outgoing.partition,
                    timestamp_ms=outgoing.timestamp_ms,
                )


class _HandoverListener(RebalanceListener):
    """Forgets what partitions waited for when they go; reads retry topics from their first record when they come."""

    def __init__(
        self, consumer: AsyncConsumer, waiting: WaitingPartitions, retry_topics: frozenset[str]
    ) -> None:
        self._consumer = consumer
        self._waiting = waiting
        self._retry_topics = retry_topics

    async def partitions_revoked(self, partitions: Partitions) -> None:
        self._waiting.forget(partitions)

    async def partitions_assigned(self, partitions: Partitions) -> None:
        mine = [
            TopicPartition(*partition) for partition in partitions if partition.topic in self._retry_topics
        ]
        committed = await self._consumer.committed(mine) if mine else {}
        fresh = [place for place, offset in committed.items() if offset is None]
        if fresh:
            self._consumer.seek_to_beginning(fresh)
