"""Frames of polars: their rows sent, and records read into one. confluent-kafka is used as docs/dataframes.md shows it."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from benchmarks.python_clients.job import (
    BATCH_BYTES,
    FETCH_WAIT_MS,
    LINGER_MS,
    OURS,
    POLL_RECORDS,
    STALLED_SECONDS,
    Job,
    Watch,
    Work,
    poll_all,
)
from benchmarks.python_clients.records import (
    confluent_consumer,
    confluent_producer,
    produce_all,
    rewind_confluent,
)
from odradek import Consumer, Producer, TopicPartition

_SLICE_ROWS: Final = 10_000
_POLLS: Final = 20
"""About how many polls read a topic into a frame with confluent-kafka, unless that makes them small."""


def send_frame_odradek(job: Job, watch: Watch) -> None:
    frame = _frame(job)
    with Producer(job.bootstrap, acks="all", linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
        producer.send_arrow(job.topic, frame[:1])
        producer.flush()
        watch.start()
        producer.send_arrow(job.topic, frame)


def send_frame_confluent(job: Job, watch: Watch) -> None:
    """Calls `produce` for each row."""
    frame, producer = _frame(job), confluent_producer(job)
    producer.produce(job.topic, job.value)
    producer.flush()
    watch.start()
    for rows in frame.iter_slices(_SLICE_ROWS):
        produce_all(producer, job.topic, rows["value"].to_list())
    producer.flush()


def send_frame_confluent_in_batches(job: Job, watch: Watch) -> None:
    """Calls `produce_batch` for thousands of rows."""
    frame, producer = _frame(job), confluent_producer(job)
    producer.produce(job.topic, job.value)
    producer.flush()
    watch.start()
    for rows in frame.iter_slices(_SLICE_ROWS):
        waiting: list[dict[str, Any]] = [{"value": value} for value in rows["value"].to_list()]
        while waiting:
            queued_count = producer.produce_batch(job.topic, waiting)
            if queued_count < len(waiting):  # the queue is full: these carry an error, and are sent again
                producer.poll(0.01)
                waiting = [{"value": row["value"]} for row in waiting if "_error" in row]
            else:
                waiting = []
    producer.flush()


def read_frame_odradek(job: Job, watch: Watch) -> None:
    frames: list[pl.DataFrame] = []
    tp = TopicPartition(job.topic, 0)

    def poll(_: int) -> int:
        frames.append(pl.DataFrame(consumer.poll_arrow(STALLED_SECONDS)))
        return frames[-1].height

    def rewind() -> None:
        frames.clear()
        consumer.seek(tp, 0)

    with Consumer(job.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=FETCH_WAIT_MS) as consumer:
        consumer.assign([tp])
        poll_all(job, watch, poll, rewind)
    pl.concat(frames)


def read_frame_confluent(job: Job, watch: Watch) -> None:
    frames: list[pl.DataFrame] = []
    consumer = confluent_consumer(job)

    def poll(most: int) -> int:
        messages = [message for message in consumer.consume(most, STALLED_SECONDS) if not message.error()]
        frames.append(
            pl.DataFrame(
                {
                    "topic": [message.topic() for message in messages],
                    "partition": [message.partition() for message in messages],
                    "offset": [message.offset() for message in messages],
                    "timestamp": [message.timestamp()[1] for message in messages],
                    "key": [message.key() for message in messages],
                    "value": [message.value() for message in messages],
                },
                schema_overrides={"key": pl.Binary, "value": pl.Binary},
            )
        )
        return len(messages)

    def rewind() -> None:
        frames.clear()
        rewind_confluent(consumer, job)

    poll_all(job, watch, poll, rewind, max(POLL_RECORDS, min(_SLICE_ROWS, job.record_count // _POLLS)))
    pl.concat(frames)
    consumer.close()


def _frame(job: Job) -> pl.DataFrame:
    return pl.DataFrame({"value": [job.value] * job.record_count})


FRAME_SENDERS: Final[dict[str, Work]] = {
    OURS: send_frame_odradek,
    "confluent-kafka": send_frame_confluent,
    "confluent-kafka, produce_batch": send_frame_confluent_in_batches,
}
FRAME_READERS: Final[dict[str, Work]] = {
    OURS: read_frame_odradek,
    "confluent-kafka": read_frame_confluent,
}
