"""At least once: work first, then commit. What was done but not yet committed when the worker dies is done again."""

from __future__ import annotations

from pathlib import Path

from scene import ORDERS, RECEIPTS, Crash, at_end, order_ends, play, receipts

from odradek import Consumer, Producer


def work(address: str, _: Path, crash: Crash) -> None:
    with (
        Producer(address) as producer,
        Consumer(
            address,
            group_id="workers",
            group_instance_id="worker-1",  # a worker that restarts has its partitions back at once:
            group_protocol="classic",  # the consumer protocol waits until the session of a killed worker ends
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        consumer.subscribe([ORDERS])
        ends = order_ends(consumer)
        while not at_end(consumer, ends):
            orders = consumer.poll(max_records=50)
            if not orders:
                continue
            for order in orders:
                producer.send(RECEIPTS, order.value)
            producer.flush()  # the receipts are on disk
            crash.record(len(orders))
            crash.here()
            consumer.commit()


if __name__ == "__main__":
    play("At least once: work, then commit", __file__, work, receipts)
