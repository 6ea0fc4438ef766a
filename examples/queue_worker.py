"""A worker of a queue, in place of one for SQS or RabbitMQ: run as many of them as the work needs.

    odradek topic create mails
    odradek config set --group mailers share.auto.offset.reset=earliest
    python examples/queue_worker.py 127.0.0.1:9092 mails mailers

One job at a time runs on a thread. While it runs its lock is renewed, so no other worker gets the record, however long the job
takes; if the worker dies the lock ends, and another worker gets it. A job that fails is delivered again until the group's limit
of deliveries; one that raises `HopelessError` is not. SIGTERM ends the worker cleanly: it finishes its job and begins no other.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from odradek import AcknowledgeType, PartialFailureError, ShareConsumer, ShareRecord


class HopelessError(Exception):
    """The job can never succeed."""


def work(
    bootstrap: str,
    topic: str,
    group: str,
    handle: Callable[[ShareRecord], object],
    stopped: threading.Event,
) -> None:
    """Hands records to `handle`, one by one, until `stopped` is set."""
    with (
        ThreadPoolExecutor(1) as pool,
        ShareConsumer(
            bootstrap,
            group_id=group,
            share_acknowledgement_mode="explicit",
            share_acquire_mode="record_limit",
            max_poll_records=1,
        ) as consumer,
    ):
        consumer.subscribe(topic)
        while not stopped.is_set():
            for record in consumer.poll(1.0):
                job = pool.submit(handle, record)
                try:
                    renew_until_done(consumer, record, job)
                    consumer.acknowledge(record, decision(job))
                    consumer.commit()
                except (
                    PartialFailureError
                ) as error:  # the record is delivered again, perhaps to another worker
                    wait([job])
                    print(error, file=sys.stderr)


def renew_until_done(consumer: ShareConsumer, record: ShareRecord, job: Future[object]) -> None:
    """Begins the record's lock again whenever a third of it has passed."""
    lock_ms = consumer.acquisition_lock_timeout_ms or 30_000
    while not wait([job], lock_ms / 3_000).done:
        consumer.acknowledge(record, AcknowledgeType.RENEW)
        consumer.commit()


def decision(job: Future[object]) -> AcknowledgeType:
    problem = job.exception()
    if problem is None:
        return AcknowledgeType.ACCEPT
    print(f"the job failed: {problem!r}", file=sys.stderr)
    return AcknowledgeType.REJECT if isinstance(problem, HopelessError) else AcknowledgeType.RELEASE


def send_mail(record: ShareRecord) -> None:
    """The work: a JSON object says to whom, and for how many seconds."""
    try:
        mail = json.loads(record.value or b"")
        person, seconds = str(mail["to"]), float(mail["seconds"])
    except (ValueError, KeyError, TypeError) as error:
        raise HopelessError(f"offset {record.offset} is no mail") from error
    time.sleep(seconds)
    print(f"sent to {person}, delivery {record.delivery_count}", flush=True)


if __name__ == "__main__":
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    bootstrap_servers, queue, group_id = sys.argv[1:4]
    work(bootstrap_servers, queue, group_id, send_mail, stopping)
