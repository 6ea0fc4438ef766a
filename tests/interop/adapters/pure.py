"""kafka-python: a client in pure Python."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own, at import
    import kafka
    from kafka.errors import BrokerResponseError, MessageSizeTooLargeError

from tests.interop import logins
from tests.interop.adapters.rows import READ_SECONDS_MAX, Acks, Codec, DeliveryReport, Read, RefusedError, Row


class KafkaPythonClient:
    name = "kafka-python"

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
        producer = kafka.KafkaProducer(
            **logins.kafka_python(self.bootstrap),
            compression_type=None if codec == "none" else codec,
            acks="all" if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            linger_ms=5,
            max_request_size=request_bytes_max,
        )
        try:
            pending = [
                producer.send(
                    topic,
                    value=row.value,
                    key=row.key,
                    headers=list(row.headers),
                    partition=row.partition,
                    timestamp_ms=row.timestamp_ms,
                )
                for row in rows
            ]
            done = [future.get(timeout=READ_SECONDS_MAX) for future in pending]
        except (BrokerResponseError, MessageSizeTooLargeError) as error:
            raise RefusedError(error.errno, str(error)) from error
        finally:
            producer.close(timeout=READ_SECONDS_MAX)
        return [
            DeliveryReport(partition=text.partition, offset=text.offset, timestamp_ms=text.timestamp)
            for text in done
        ]

    def consume(self, topic: str, *, count: int, partition: int = 0, start: int | None = 0) -> list[Read]:
        consumer = kafka.KafkaConsumer(
            **logins.kafka_python(self.bootstrap),
            group_id=None,
            enable_auto_commit=False,
            check_crcs=True,
        )
        place = kafka.TopicPartition(topic, partition)
        results: list[Read] = []
        deadline = time.monotonic() + READ_SECONDS_MAX
        try:
            consumer.assign([place])
            if start is None:
                consumer.seek_to_beginning(place)
            else:
                consumer.seek(place, start)
            while len(results) < count and time.monotonic() < deadline:
                polled = consumer.poll(timeout_ms=500, max_records=count - len(results))
                results += [_read(record) for records in polled.values() for record in records]
        finally:
            consumer.close()
        return results


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
