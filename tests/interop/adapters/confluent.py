"""confluent-kafka: librdkafka under Python."""

from __future__ import annotations

import time
from collections.abc import Sequence

import confluent_kafka as ck
from tests.interop import logins
from tests.interop.adapters.rows import READ_SECONDS_MAX, Acks, Codec, DeliveryReport, Read, RefusedError, Row

_QUIET = {"log_level": 2, "socket.timeout.ms": 20_000}


class ConfluentClient:
    name = "confluent-kafka"

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
        producer = ck.Producer(
            {
                **_QUIET,
                **logins.librdkafka(self.bootstrap),
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "linger.ms": 5,
                "message.max.bytes": request_bytes_max,
            }
        )
        answers: dict[int, DeliveryReport | RefusedError] = {}
        for number, row in enumerate(rows):
            optional = {} if row.timestamp_ms is None else {"timestamp": row.timestamp_ms}
            try:
                producer.produce(
                    topic,
                    row.value,
                    row.key,
                    row.partition,
                    headers=list(row.headers),
                    on_delivery=_keep(answers, number),
                    **optional,
                )
            except ck.KafkaException as error:
                raise RefusedError(error.args[0].code(), str(error)) from error
        left = producer.flush(READ_SECONDS_MAX)
        assert left == 0, f"{left} records of {len(rows)} got no answer"
        return _all_sent([answers[number] for number in range(len(rows))])

    def consume(self, topic: str, *, count: int, partition: int = 0, start: int | None = 0) -> list[Read]:
        consumer = ck.Consumer(
            {
                **_QUIET,
                **logins.librdkafka(self.bootstrap),
                "group.id": "interop",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.message.max.bytes": 2_000_000,
            }
        )
        offset = ck.OFFSET_BEGINNING if start is None else start
        consumer.assign([ck.TopicPartition(topic, partition, offset)])
        results: list[Read] = []
        deadline = time.monotonic() + READ_SECONDS_MAX
        try:
            while len(results) < count and time.monotonic() < deadline:
                for message in consumer.consume(count - len(results), timeout=0.5):
                    error = message.error()
                    if error is not None:
                        raise RefusedError(error.code(), str(error))
                    results.append(_read(message))
        finally:
            consumer.close()
        return results


def _keep(answers: dict[int, DeliveryReport | RefusedError], number: int):  # type: ignore[no-untyped-def]
    def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            answers[number] = RefusedError(error.code(), str(error))
            return
        offset = message.offset()
        answers[number] = DeliveryReport(
            partition=message.partition(),
            offset=-1 if offset is None or offset < 0 else offset,
            timestamp_ms=message.timestamp()[1],
        )

    return delivered


def _all_sent(answers: list[DeliveryReport | RefusedError]) -> list[DeliveryReport]:
    sent = []
    for delivered in answers:
        if isinstance(delivered, RefusedError):
            raise delivered
        sent.append(delivered)
    return sent


def _read(message: ck.Message) -> Read:
    kind, timestamp = message.timestamp()
    return Read(
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
        timestamp_ms=timestamp,
        timestamp_type="LogAppendTime" if kind == ck.TIMESTAMP_LOG_APPEND_TIME else "CreateTime",
    )
