"""Exactly once, from topic to topic: the receipts and the offsets of the orders are committed together, or not at all.

The next life of the worker, under the same transactional id, aborts what the last one left open before it reads where to
go on. Who reads committed records never sees a receipt of a transaction that was not finished.
"""

from __future__ import annotations

from pathlib import Path

from scene import ORDERS, RECEIPTS, Crash, at_end, order_ends, play, receipts

from odradek import Consumer, Producer


def work(address: str, _: Path, crash: Crash) -> None:
    with (
        Producer(address, transactional_id="worker-1") as producer,
        Consumer(
            address,
            group_id="workers",
            group_instance_id="worker-1",  # a worker that restarts has its partitions back at once:
            group_protocol="classic",  # the consumer protocol waits until the session of a killed worker ends
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe([ORDERS])
        ends = order_ends(consumer)
        while not at_end(consumer, ends):
            orders = consumer.poll(max_records=50)
            if not orders:
                continue
            with producer.transaction():
                for order in orders:
                    producer.send(RECEIPTS, order.value)
                producer.flush()  # the receipts are on disk, but no one may see them yet
                crash.record(len(orders))
                crash.here()
                producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())


if __name__ == "__main__":
    play("Exactly once: consume, process, produce in transactions", __file__, work, receipts)
