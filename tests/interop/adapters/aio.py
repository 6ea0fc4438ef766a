"""aiokafka: the asyncio client that speaks the older, non-flexible versions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import aiokafka
from aiokafka.errors import BrokerResponseError, MessageSizeTooLargeError
from tests.interop import logins
from tests.interop.adapters.rows import READ_SECONDS_MAX, Acks, Codec, DeliveryReport, Read, RefusedError, Row


class AioKafkaClient:
    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def produce(
        self,
        topic: str,
        rows: Sequence[Row],
        *,
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
        request_bytes_max: int = 1_000_000,
    ) -> list[DeliveryReport]:
        async def run() -> list[DeliveryReport]:
            producer = aiokafka.AIOKafkaProducer(
                **logins.aiokafka(self.bootstrap),
                compression_type=None if codec == "none" else codec,
                acks="all" if acks == "all" else int(acks),
                enable_idempotence=idempotent,
                linger_ms=5,
                max_request_size=request_bytes_max,
            )
            async with producer:
                pending = [
                    await producer.send(
                        topic,
                        value=row.value,
                        key=row.key,
                        headers=[(name, value) for name, value in row.headers],
                        partition=row.partition,
                        timestamp_ms=row.timestamp_ms,
                    )
                    for row in rows
                ]
                done = await asyncio.wait_for(asyncio.gather(*pending), READ_SECONDS_MAX)
            if acks == "0":  # aiokafka then answers with no metadata at all
                return [DeliveryReport(partition=row.partition, offset=-1, timestamp_ms=-1) for row in rows]
            return [
                DeliveryReport(partition=text.partition, offset=text.offset, timestamp_ms=text.timestamp)
                for text in done
            ]

        try:
            return asyncio.run(run())
        except (BrokerResponseError, MessageSizeTooLargeError) as error:
            raise RefusedError(error.errno, str(error)) from error

    def consume(self, topic: str, *, count: int, partition: int = 0, start: int | None = 0) -> list[Read]:
        async def run() -> list[Read]:
            consumer = aiokafka.AIOKafkaConsumer(
                **logins.aiokafka(self.bootstrap), group_id=None, enable_auto_commit=False, check_crcs=True
            )
            place = aiokafka.TopicPartition(topic, partition)
            results: list[Read] = []
            async with consumer:
                consumer.assign([place])
                if start is None:
                    await consumer.seek_to_beginning(place)
                else:
                    consumer.seek(place, start)
                loop = asyncio.get_running_loop()
                deadline = loop.time() + READ_SECONDS_MAX
                while len(results) < count and loop.time() < deadline:
                    polled = await consumer.getmany(timeout_ms=500, max_records=count - len(results))
                    results += [_read(record) for records in polled.values() for record in records]
            return results

        return asyncio.run(run())


def _read(record: Any) -> Read:
    return Read(
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
        timestamp_type="LogAppendTime" if record.timestamp_type == 1 else "CreateTime",
    )
